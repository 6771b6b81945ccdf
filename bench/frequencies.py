"""Writes the word frequencies that the text features read: `python -m bench.frequencies` (needs `pip install wordfreq`).

Takes from wordfreq (Speer 2022, data CC BY-SA 4.0) every English word that occurs once per million words or more, and the
frequency of Chinese characters inside its Chinese words, as Zipf values (van Heuven et al. 2014: log10 of occurrences per
thousand million) of one decimal. wordfreq itself is never imported when Rheostat runs.
"""

from __future__ import annotations

import lzma
import math
import sys
from collections import Counter, defaultdict
from pathlib import Path

from rheostat.signals.text import frequency

_SAID = "# From wordfreq by Robyn Speer, https://doi.org/10.5281/zenodo.7199437; data CC BY-SA 4.0, and so is this file."


def main() -> int:
    """Write the file beside the module that reads it; return the exit status."""
    try:
        import wordfreq  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        print("the frequencies come from wordfreq: pip install wordfreq")
        return 1
    zipf = {
        word: math.log10(share * 1e9)
        for word, share in wordfreq.get_frequency_dict("en", "small").items()
        if word.replace("'", "").isalpha()
    }
    characters: Counter[str] = Counter()
    for word, share in wordfreq.get_frequency_dict("zh", "small").items():
        for character in word:
            if "\u3400" <= character <= "\u9fff":
                characters[character] += share
    total = sum(characters.values())
    zipf |= {character: math.log10(share / total * 1e9) for character, share in characters.items()}
    groups: dict[str, list[str]] = defaultdict(list)
    for word, value in sorted(zipf.items()):
        groups[f"{value:.1f}"].append(word)
    lines = [_SAID, *(f"{value} {' '.join(words)}" for value, words in sorted(groups.items()))]
    path = Path(str(frequency.__file__)).with_name(frequency.FILE)
    path.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9))
    print(f"{path.name}: {len(zipf)} words and characters, {path.stat().st_size / 1024:.0f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
