"""One spelling of a text, so that a rule finds a word however it was typed."""

from __future__ import annotations

import re
import unicodedata

# Default_Ignorable_Code_Point of Unicode (zero-width, joiners, direction marks, fillers, variation selectors, tags)
# and the control characters that are not white space.
_INVISIBLE = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INVISIBLE_RUN = re.compile(f"[{_INVISIBLE}]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


def normalise_text(text: str) -> str:
    """Return `text` in the form rules compare: compatibility form (NFKC), case folded, without invisible characters.

    Full-width and composed spellings become one, letter case goes (independent of the machine's locale), zero-width and
    control characters vanish. Look-alike letters of other scripts stay apart. Applying it twice changes nothing more.
    Source: Unicode Standard, 3.13 D147 (NFKC_Casefold).
    """
    if text.isascii():
        lowered = text.lower()
        return lowered if lowered.isprintable() else _INVISIBLE_RUN.sub("", lowered)
    folded = unicodedata.normalize("NFKC", _INVISIBLE_RUN.sub("", text)).casefold()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", folded).casefold())


def well_formed(text: str) -> str:
    """Return `text` with lone surrogates, which no UTF-8 can carry, replaced by U+FFFD; other text is returned as
    is."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
