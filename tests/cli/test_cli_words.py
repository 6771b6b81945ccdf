"""Policies in words, and requests that did not go smoothly."""

from __future__ import annotations

from pathlib import Path

import pytest

from rheostat.cli.given_policy import written_policy
from rheostat.cli.policy_words import in_words
from rheostat.policies.balance import _WAYS
from tests.cli.conftest import Run

MODELS = """
def good(rows):
    return [{"label": "yes", "confidence": 0.6} for _ in rows]
def bad(rows):
    if any("fail" in row for row in rows):
        raise RuntimeError("it broke")
    return good(rows)
"""


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        ("fast", ["always fast"]),
        (
            "{cascade: {stages: [a, b, c], threshold: [0.9, 0.8], hysteresis: [0.85, 0.95], blend: 0.2, parallel: true}}",
            [
                "cascade: a answers when its confidence is at least 0.9 "
                "(between 0.85 and 0.95 as last time for the same session)",
                "else b answers when its confidence is at least 0.8",
                "else c answers",
                "but at most 1 answer is passed over (`max_escalations`): c is asked only where an earlier stage fails",
                "the answer passed over keeps a weight of 0.2",
                "all start at once; what is not needed is cancelled",
            ],
        ),
        (
            "{delegate: {weak: a, strong: b, low: 0.1, high: 0.9, mode: sample}}",
            [
                "delegate: the weight of b is 1 - confidence of a",
                "below 0.1 only a, above 0.9 only b, in between one drawn by it",
            ],
        ),
        (
            "{split: {arms: [{use: a, share: 1, name: old}, {use: b, share: 3}], coverage: 0.5}}",
            ["split by session:", "  25.0% old -> a", "  75.0% -> b", "  50.0% of the keys take part, the rest goes on"],
        ),
        (
            "{chain: [{rules: [{contains: [refund], matches: 'x+', use: b}]}, {blend: {weights: {a: 1, b: 1}}}]}",
            [
                "the first of these that decides:",
                "  1. the first rule that holds:",
                "       1. rule: when the text has 'refund' and the text matches x+ -> b",
                "  2. blend: answers are mixed by weight: a 50.0%, b 50.0%",
            ],
        ),
        (
            "{cheapest: {of: [fast, large], quality: q, trade: 0.1, best: large, margin: -0.02, asks: 2}}",
            [
                "of fast, large: the one with the highest q - 0.1 * cost",
                "another than large only when its q is better by -0.02",
                "decided again after each answer, by its confidence; at most 2 answers",
            ],
        ),
        (
            "{cheapest: {of: [fast, large], quality: q, bar: 0.8}}",
            ["of fast, large: the cheapest whose q is at least 0.8, else the highest"],
        ),
        (
            "{balance: [a, b]}",
            [
                "balance: of a, b: the one where it is done soonest, by load, latency and errors "
                "(2 of 100 to one drawn, to see how that does)",
                "when it fails, the next best of the others",
            ],
        ),
        (
            "{balance: {models: {a: 2, b: 0.5}, choose: least_loaded, sticky: session, tags: x-tag}}",
            [
                "balance: of a (score 2), b (score 0.5): the one with the fewest requests in hand for its score",
                "the same session keeps its model while that is available",
                "only those tagged with the request's x-tag, else those tagged default, if any",
                "when it fails, the next best of the others",
            ],
        ),
    ],
)
def test_policies_in_words(written: str, lines: list[str]) -> None:
    assert in_words(written_policy(written, ".", "here")) == lines


def test_every_way_to_choose_has_words() -> None:
    said = {way: in_words(written_policy(f"{{balance: {{models: [a, b], choose: {way}}}}}", ".", "here")) for way in _WAYS}
    assert len({lines[0] for lines in said.values()}) == len(_WAYS)


def write(folder: Path, policy: str, fallback: str) -> str:
    (folder / "some_models.py").write_text(MODELS, encoding="utf-8")
    config = folder / "rheostat.yaml"
    config.write_text(
        "models:\n"
        "  good: {backend: python, callable: 'some_models:good', probe: [a], cost: 1}\n"
        "  bad: {backend: python, callable: 'some_models:bad', probe: [a], cost: 5, lighter: good}\n"
        f"routes: {{default: {{policy: {policy}, fallback: {fallback}}}}}\n"
        "records: {sqlite: records.sqlite}\n",
        encoding="utf-8",
    )
    return str(config)


def test_a_fallback_is_told_with_every_try(tmp_path: Path, run: Run) -> None:
    told = run(["predict", write(tmp_path, "bad", "{retry: 1}"), "please fail"]).stdout
    assert "answered, but by a rung of the fallback ladder" in told
    assert "try 1 at bad: crashed" in told
    assert "try 2 at bad: crashed" in told
    assert "fall back on good" in told
    assert "fallback ladder: L3: a lighter model or the answer at hand" in told
    assert "cost 11" in told


def test_a_failure_of_everything_is_told(tmp_path: Path, run: Run) -> None:
    config = write(tmp_path, "bad", "{retry: 0, peer: false, lighter: false}")
    told = run(["predict", config, "please fail"], code=1).stdout
    assert "not answered" in told
    assert "error: no_answer" in told
    told = run(["predict", write(tmp_path, "bad", "{retry: 0, lighter: false, preset: {label: unsure}}"), "fail"]).stdout
    assert "answer: 'unsure'" in told
    assert "L5: the preset" in told


def test_weights_and_chances_are_told(tmp_path: Path, run: Run) -> None:
    mixed = run(["predict", write(tmp_path, "{blend: {weights: {good: 1, bad: 3}}}", "{retry: 0}"), "text"]).stdout
    assert "weights: good 0.25, bad 0.75" in mixed
    drawn = run(
        ["predict", write(tmp_path, "{blend: {weights: {good: 1, bad: 1}, mode: sample}}", "{retry: 0}"), "text"]
    ).stdout
    assert "chance of this choice: 0.5" in drawn
