"""Patterns, keywords and a lexicon as a model: microseconds a text, and every answer can be explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from rheostat.backends.labels import settle_labels
from rheostat.backends.lexicon import Lexicon, read_lexicon
from rheostat.errors import ConfigError, ModelError, Problem
from rheostat.pool.backend import Backend, ModelSettings, Reply, Row
from rheostat.pool.rows import text_in
from rheostat.types import Prediction
from rheostat.types.text import normalise_text, well_formed

_MEMORY = 1 << 26  # bytes the matcher may use for its automaton


class Pattern(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A regular expression in RE2 syntax that stands for a label; `confidence` in [0, 1] is what its hit is worth."""

    label: str
    regex: str
    confidence: float = 0.9


class Cut(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`label` for lexicon scores under `below`, which lies in [-1, 1]; the last cut has none and takes the rest."""

    label: str
    below: float | None = None


class Fallback(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is answered when nothing matched."""

    label: str
    confidence: float | None = 0.0


class RulesModel(ModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="rules"):
    """Asked in this order, the first that applies answers:

    1. `patterns`, in the order written; RE2 takes linear time whatever the text.
    2. `keywords` by label: the label with most of its keywords in the text (a tie goes to the one written first), with
       `keyword_confidence` times its share of all hits. A keyword matches anywhere, with `whole_words` only between
       words.
    3. `lexicon`, a file of `term<TAB>valence` lines: the score in (-1, 1) is cut into labels by `cuts`; the confidence
       is 1/k + (1 - 1/k) * |score| for k cuts.
    4. `default`. Without one a text that nothing matches is `bad_output`, and the next model is asked.

    With `normalise` (the default) spelling variants are one: see `normalise_text`; patterns then ignore letter case.
    `output` of the prediction names what matched.
    """

    patterns: tuple[Pattern, ...] = ()
    keywords: Mapping[str, tuple[str, ...]] = {}
    keyword_confidence: float = 0.9
    whole_words: bool = False
    lexicon: str | None = None
    cuts: tuple[Cut, ...] = ()
    default: Fallback | None = None
    normalise: bool = True

    def open(self, base: str) -> Backend:
        """Compile the rules.

        Raises:
            ConfigError: a pattern is refused (with RE2's reason), a number is out of range, or there is no rule at all.
            ContractError: the rules answer labels other than configured.
        """
        problems = _problems(self)
        if problems:
            raise ConfigError(problems)
        matcher = _compile(self)
        lexicon = None if self.lexicon is None else read_lexicon(Path(base, self.lexicon))
        own = [pattern.label for pattern in self.patterns] + list(self.keywords) + [cut.label for cut in self.cuts]
        own += [self.default.label] if self.default else []
        return TextRules(self, matcher, lexicon, settle_labels(self.labels, tuple(dict.fromkeys(own)), "the rules"))


class TextRules:
    """Matches all patterns and keywords in one pass."""

    def __init__(self, settings: RulesModel, matcher: Any, lexicon: Lexicon | None, labels: tuple[str, ...] | None) -> None:
        self.labels = labels
        self.probes = None
        self._settings = settings
        self._match = matcher.Match if matcher is not None else None
        self._lexicon = lexicon
        self._words = [(label, word) for label, words in settings.keywords.items() for word in words]

    def predict(self, rows: Sequence[Row]) -> Sequence[Reply]:
        """Answer every row; one without text fails alone."""
        return [self._one(row) for row in rows]

    def close(self) -> None:
        """Nothing to give back."""

    def _one(self, row: Row) -> Reply:
        try:
            text = text_in(row)
        except ModelError as error:
            return error
        settings = self._settings
        seen = normalise_text(text) if settings.normalise else text
        hits = self._match(seen) if self._match is not None else None
        if hits:
            return self._hit(hits)
        if self._lexicon is not None:
            score = self._lexicon.score(seen if settings.normalise else normalise_text(text))
            if score is not None:
                return self._cut(score)
        if settings.default is not None:
            return Prediction(settings.default.label, settings.default.confidence, None, {"rule": "default"})
        return ModelError("bad_output", "no rule matches and there is no default")

    def _hit(self, hits: Sequence[int]) -> Prediction:
        settings, patterns = self._settings, self._settings.patterns
        first = min(hits)
        if first < len(patterns):
            pattern = patterns[first]
            return Prediction(pattern.label, pattern.confidence, None, {"rule": "pattern", "regex": pattern.regex})
        found = [self._words[index - len(patterns)] for index in sorted(hits)]
        counts: dict[str, int] = {}
        for label, _ in found:
            counts[label] = counts.get(label, 0) + 1
        best = max(counts, key=counts.__getitem__)
        words = [word for label, word in found if label == best]
        share = counts[best] / len(found)
        return Prediction(best, settings.keyword_confidence * share, None, {"rule": "keywords", "words": words})

    def _cut(self, score: float) -> Prediction:
        cuts = self._settings.cuts
        label = next(cut.label for cut in cuts if cut.below is None or score < cut.below)
        floor = 1.0 / len(cuts)
        confidence = floor + (1.0 - floor) * abs(score)
        return Prediction(label, confidence, None, {"rule": "lexicon", "score": round(score, 4)})


def _compile(settings: RulesModel) -> Any:
    if not settings.patterns and not settings.keywords:
        return None
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    options.case_sensitive = not settings.normalise
    matcher = re2.Set.SearchSet(options)
    problems: list[Problem] = []
    for index, pattern in enumerate(settings.patterns):
        try:
            re2.compile(pattern.regex, options)
            matcher.Add(pattern.regex)
        except (re2.error, UnicodeEncodeError) as error:
            reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
            problems.append(Problem(f"patterns[{index}].regex", None, f"{pattern.regex!r:.80} is refused: {reason}"))
    for words in settings.keywords.values():
        for word in words:
            matcher.Add(_keyword_regex(word, settings))
    if problems:
        raise ConfigError(problems)
    matcher.Compile()
    return matcher


def _keyword_regex(word: str, settings: RulesModel) -> str:
    import re2

    shown = normalise_text(word) if settings.normalise else well_formed(word)
    literal = str(re2.escape(shown))
    if not settings.whole_words:
        return literal
    # Chinese is written without spaces, so its characters are no word boundary to look for.
    edge = r"[^\p{L}\p{N}_]|\p{Han}"
    before = rf"(?:^|{edge})" if shown[0].isalnum() and not "\u3400" <= shown[0] <= "\u9fff" else ""
    after = rf"(?:$|{edge})" if shown[-1].isalnum() and not "\u3400" <= shown[-1] <= "\u9fff" else ""
    return before + literal + after


def _problems(settings: RulesModel) -> list[Problem]:
    problems: list[Problem] = []
    if not (settings.patterns or settings.keywords or settings.lexicon or settings.default):
        problems.append(Problem("backend", None, "no rule: give patterns, keywords, lexicon or default"))
    rated = [(f"patterns[{index}].confidence", each.confidence) for index, each in enumerate(settings.patterns)]
    rated.append(("keyword_confidence", settings.keyword_confidence))
    if settings.default is not None and settings.default.confidence is not None:
        rated.append(("default.confidence", settings.default.confidence))
    problems += [Problem(at, None, f"expected 0 to 1, got {value}") for at, value in rated if not 0.0 <= value <= 1.0]
    for label, words in settings.keywords.items():
        if not words or not all((normalise_text(word) if settings.normalise else word).strip() for word in words):
            problems.append(Problem(f"keywords.{label}", None, "expected one or more words that are not empty"))
    bounds = [cut.below for cut in settings.cuts]
    if bool(settings.cuts) != bool(settings.lexicon):
        problems.append(Problem("cuts", None, "lexicon and cuts need each other"))
    elif bounds and (bounds[-1] is not None or None in bounds[:-1] or bounds[:-1] != sorted(set(bounds[:-1]), key=_number)):
        problems.append(Problem("cuts", None, "expected `below` rising from cut to cut, and none on the last"))
    return problems


def _number(value: float | None) -> float:
    return 0.0 if value is None else value
