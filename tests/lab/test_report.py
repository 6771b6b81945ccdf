from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_tables import columns, synthetic, table

from rheostat.lab.goal import Goal
from rheostat.lab.markup import html, page, tag
from rheostat.lab.outcomes import FAILURE_KINDS, ModelInfo, OutcomesTable, Source, TrainingCard
from rheostat.lab.report import render, write_report
from rheostat.lab.tune import tune
from rheostat.lab.verdict import verdict

EVIL = "<script>alert('x')</script>&\"$x_1$ \ud800\x00"


def pool(small: float, large: float, *, n: int = 3000, together: bool = False, seed: int = 0) -> OutcomesTable:
    """Two models of given accuracy; `together`: the large one is wrong only where the small one is (nested)."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n)
    sure = rng.uniform(2 * small - 1, 1, n)
    first = np.where(rng.random(n) < sure, truth, 1 - truth)
    if together:
        saved = rng.random(n) < (large - small) / (1 - small)
        second = np.where((first == truth) | saved, truth, 1 - truth)
    else:
        second = np.where(rng.random(n) < large, truth, 1 - truth)

    def scores(label: np.ndarray, confidence: np.ndarray) -> np.ndarray:
        made = np.repeat((1 - confidence)[:, None], 2, axis=1)
        made[np.arange(n), label] = confidence
        return made

    flat = np.full(n, 0.99 if together else large)
    return table(
        truth.tolist(),
        {"small": columns(first, sure, cost=1, scores=scores(first, np.maximum(sure, 0.5))),
         "large": columns(second, flat, cost=20, latency=0.05, scores=scores(second, flat))},
        split=rng.choice(["dev", "test"], n).tolist(),
    )  # fmt: skip


def test_a_pool_worth_routing_is_called_so() -> None:
    said = verdict(pool(0.8, 0.9), goal=Goal(max_share=0.4))
    assert said.pays
    assert said.use in ("cascade", "cascade+blend", "delegate")
    assert "calls of large" in said.headline


def test_a_large_model_that_is_worse_is_not_escalated_to() -> None:
    rng = np.random.default_rng(0)
    made = pool(0.9, 0.85)
    blind = replace(made.model("small"), confidence=rng.random(len(made)))  # its confidence knows nothing
    said = verdict(replace(made, columns={"small": blind, "large": made.model("large")}))
    assert not said.pays
    assert said.use == "small"
    assert said.headline.startswith("Escalation does not pay here: use small alone")
    assert "not better than small" in said.reasons[0]


def test_a_blind_confidence_does_not_pay_even_with_a_better_large_model() -> None:
    made = pool(0.8, 0.9)
    same = replace(made.model("small"), confidence=np.random.default_rng(1).random(len(made)))
    said = verdict(replace(made, columns={"small": same, "large": made.model("large")}))
    assert not said.pays
    assert said.use == "large"


def test_nested_information_is_not_sold_as_a_blend() -> None:
    assert "does not help" in verdict(pool(0.8, 0.95, together=True)).blending
    assert "Blending helps" not in verdict(pool(0.8, 0.95, together=True, seed=5)).blending


def test_a_small_saving_does_not_excuse_a_clear_loss() -> None:
    made = pool(0.8, 0.95, together=True, n=6000)
    assert verdict(made).pays  # a fifth of the cost
    near = replace(made.model("large"), cost=np.full(len(made), 1.2))
    said = verdict(replace(made, columns={"small": made.model("small"), "large": near}))
    assert not said.pays
    assert said.use == "large"


class Reader(HTMLParser):
    """Checks nesting and gathers what the page asks the browser to do."""

    VOID = frozenset({"meta", "img", "br", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_the_report_is_whole_and_asks_for_nothing(tmp_path: Path) -> None:
    made = pool(0.8, 0.9)
    failure = np.zeros(len(made), np.int8)
    failure[:30] = 1 + FAILURE_KINDS.index("timeout")
    broken = replace(made.model("large"), failure=failure)
    card = TrainingCard(train_accuracy=0.9, converged=False, iterations=7, max_iterations=7)
    made = replace(
        made, columns={"small": made.model("small"), "large": broken},
        model_info={"small": ModelInfo(), "large": ModelInfo(version="v9", card=card)},
        sources=(Source(name="a.jsonl", hash="feed", split="test"),),
    )  # fmt: skip
    tuned = tune(made, Goal(max_share=0.3), draws=200)
    said = write_report(made, tmp_path / "r.html", title="My data", tuned=[tuned], command="rheostat report x")
    page_read = read((tmp_path / "r.html").read_text("utf-8"))
    assert "script" not in page_read.tags
    assert page_read.links
    assert all(link.startswith("data:image/svg+xml;base64,") for link in page_read.links)
    text = " ".join(page_read.text)
    for wanted in (said.headline, "My data", "all small", "all large", "upper bound incl. chance", "sent blindly",
                   "ECE", "large failed: timeout", "7 of 7", "stopped after 7 iterations", made.data_hash, "feed",
                   "rheostat report x", "v9", "P50 / P95 / P99"):  # fmt: skip
        assert wanted in text, wanted
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_names_from_outside_cannot_become_markup() -> None:
    made = pool(0.8, 0.9, n=400)
    names = {f"s {EVIL}": made.model("small"), f"l {EVIL}": made.model("large")}
    evil = OutcomesTable(made.ids, made.split, made.truth, (EVIL, f"b{EVIL}"), names,
                         sources=(Source(name=EVIL, hash=EVIL, split="dev"),))  # fmt: skip
    text, _ = render(evil, title=EVIL, command=EVIL)
    found = read(text)
    assert "script" not in found.tags
    text.encode("utf-8")
    assert "<script" not in text


def test_many_labels_are_listed_by_their_commonest_confusion() -> None:
    made = synthetic(3000, labels=20)
    text, _ = render(made)
    assert "commonest of" in text
    assert text.count("<table>") == 7


def test_models_without_confidence_are_reported_too() -> None:
    made = pool(0.8, 0.9, n=300)
    mute = replace(made, columns={name: replace(made.model(name), confidence=np.full(len(made), np.nan), scores=None)
                                  for name in made.models})  # fmt: skip
    with pytest.raises(Exception, match="keeps the goal"):
        render(mute)
    text, said = render(mute, goal=Goal())
    assert "nothing to decide by" in text
    assert not said.pays


@given(st.text())
def test_text_is_always_escaped(text: str) -> None:
    shown = html(text)
    assert not re.search(r"[<>\"']", shown)
    read(page(text, tag("p", text)))
