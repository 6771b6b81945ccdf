from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lab_tables import columns, synthetic, table

from rheostat.lab.outcomes import SPLITS, ModelColumns, ModelInfo, OutcomesTable, Source, TrainingCard
from rheostat.lab.trust import likeness, overlaps, reweighing, trust


def digits(**settings: Any) -> OutcomesTable:
    """A small and a large linear model on real digits; `settings` go to the large one's training."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    pixels, truth = load_digits(return_X_y=True)
    pixels = pixels / np.linalg.norm(pixels, axis=1, keepdims=True)
    split = np.random.default_rng(0).choice(3, len(truth), p=[0.5, 0.25, 0.25]).astype(np.int8)

    def model(seen: np.ndarray, **how: Any) -> ModelColumns:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = LogisticRegression(**how).fit(seen[split == 0], truth[split == 0])
        scores = fitted.predict_proba(seen)
        return columns(scores.argmax(axis=1), scores.max(axis=1), scores=scores)

    return OutcomesTable(
        ids=np.array([str(i) for i in range(len(truth))], dtype=object),
        split=split,
        truth=truth.astype(np.int32),
        labels=tuple(map(str, range(10))),
        columns={"small": model(pixels[:, ::2], C=100, max_iter=500), "large": model(pixels, **settings)},
    )


def kinds(made: OutcomesTable, model: str = "large") -> set[str]:
    return {flag.kind for flag in trust(made).flags if flag.about == model}


@pytest.mark.parametrize("settings", [{"max_iter": 1}, {"max_iter": 2}, {"C": 1e-4}])
def test_a_planted_under_trained_model_is_caught(settings: dict[str, Any]) -> None:
    assert "under-trained" in kinds(digits(**settings))


@pytest.mark.parametrize("settings", [{"C": 10}, {"C": 1000}])
def test_a_finished_model_is_not_accused(settings: dict[str, Any]) -> None:
    made = digits(max_iter=2000, **settings)
    assert kinds(made) == set()
    assert kinds(made, "small") == set()


def test_a_card_that_says_not_converged_is_believed() -> None:
    card = TrainingCard(converged=False, iterations=100, max_iterations=100)
    made = replace(synthetic(200), model_info={"large": ModelInfo(card=card)})
    found = trust(made)
    told = [flag for flag in found.flags if flag.kind == "under-trained"]
    assert [flag.about for flag in told] == ["large"]
    assert "after 100 iterations" in told[0].text
    assert found.members[1].converged is False
    assert found.members[0].converged is None


def rows(train: list[int], dev: list[int]) -> ModelColumns:
    return columns([*train, *dev])


def test_a_large_model_that_is_worse_everywhere_is_named() -> None:
    split = ["train"] * 10 + ["dev"] * 10
    small, large = rows([1] * 9 + [0], [1] * 9 + [0]), rows([1] * 5 + [0] * 5, [1] * 6 + [0] * 4)
    made = table([1] * 20, {"small": small, "large": large}, split=split)
    assert kinds(made) == {"large worse"}
    assert kinds(table([1] * 20, {"small": large, "large": small}, split=split)) == set()


def test_a_model_that_says_one_label_is_named() -> None:
    made = table([1] * 6 + [0] * 4, {"large": columns([1] * 10)}, split="dev")
    assert kinds(made) == {"no better than a constant"}


def test_overfit_is_called_overfit() -> None:
    made = table([1] * 20, {"m": rows([1] * 10, [1] * 7 + [0] * 3)}, split=["train"] * 10 + ["dev"] * 10)
    flag = trust(made).flags[0]
    assert (flag.kind, flag.about) == ("overfit", "m")
    assert "leak" in flag.text


def test_a_model_that_meets_its_own_training_file_is_named() -> None:
    info = {"large": ModelInfo(card=TrainingCard(data_hash="abc"))}
    sources = (Source(name="t.jsonl", hash="abc", split="test"), Source(name="d.jsonl", hash="xyz", split="dev"))
    assert kinds(replace(synthetic(100), model_info=info, sources=sources)) == {"own training file"}
    honest = tuple(replace_split(source) for source in sources)
    assert kinds(replace(synthetic(100), model_info=info, sources=honest)) == set()


def replace_split(source: Source) -> Source:
    return Source(name=source.name, hash=source.hash, split="train")


def test_likeness_ignores_case_space_and_punctuation_only() -> None:
    assert likeness("  Is it\tREADY?! ") == likeness("is it ready")
    assert likeness("ﬁne Straße") == likeness("FINE STRASSE")
    assert likeness("is it") != likeness("isit")
    assert likeness("你好，世界！") == likeness("你好 世界")


def test_repeats_across_splits_are_counted() -> None:
    texts = ["Hello!", "hello", "other", "HELLO ?", "alone", "?!", "??"]
    made = table([0] * 7, {"m": columns([0] * 7)}, split=["train", "train", "dev", "test", "test", "dev", "test"],
                 inputs=[json.dumps(text) for text in texts])  # fmt: skip
    found = overlaps(made)
    assert found is not None
    assert (found.groups, found.repeated, found.crossing, found.test_rows) == (5, 1, 1, 1)
    assert [flag.kind for flag in trust(made).flags] == ["split overlap"]
    assert overlaps(table([0], {"m": columns([0])})) is None


def test_features_are_compared_as_they_are() -> None:
    made = table([0] * 3, {"m": columns([0] * 3)}, split=list(SPLITS), inputs=['{"x":-1.5}', '{"x":1.5}', '{"x":1.5}'])
    found = overlaps(made)
    assert found is not None
    assert (found.groups, found.crossing) == (2, 1)


def test_reweighing_needs_scores_and_rows() -> None:
    assert reweighing(table([0, 1], {"m": columns([0, 1])}), "m") is None
    assert reweighing(synthetic(60), "large") is None
    assert reweighing(synthetic(1000), "large") is not None
