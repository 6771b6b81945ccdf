"""Advice: what is right is advised, traps are named, and chance alone seldom convinces it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from lab_tables import columns, synthetic, table

from rheostat.lab.advise import Settings, advise
from rheostat.lab.outcomes import ModelColumns, OutcomesTable


def with_columns(base: OutcomesTable, name: str, **changes: object) -> OutcomesTable:
    return replace(base, columns={**base.columns, name: replace(base.columns[name], **changes)})  # type: ignore[arg-type]


def sharp(n: int) -> OutcomesTable:
    """A small model that is right on 98 % of the easy rows and on half of the hard ones, and knows which are which."""
    rng = np.random.default_rng(7)
    truth, hard = rng.integers(0, 2, n), rng.random(n) < 0.25
    chance = np.where(hard, 0.5, 0.98)
    small = np.where(rng.random(n) < chance, truth, 1 - truth)
    large = np.where(rng.random(n) < 0.96, truth, 1 - truth)
    confidence = np.clip(chance + rng.uniform(-0.02, 0.02, n), 0.0, 1.0)
    split = rng.choice(["dev", "test"], n).tolist()
    models = {"small": columns(small.tolist(), confidence.tolist()), "large": columns(large.tolist(), cost=20.0)}
    return table(truth.tolist(), models, split=split)


def kinds(found: object) -> set[str]:
    return {flag.kind for flag in found.flags}  # type: ignore[attr-defined]


def test_a_small_model_that_knows_when_it_errs_is_worth_a_cascade() -> None:
    found = advise(sharp(6000), settings=Settings(max_share=0.3))
    assert found.escalate
    assert found.routes
    assert found.levels == 2
    assert found.sure > 0.95
    assert found.followed is not None
    assert found.followed.tuned.reported.share.mean < 0.4
    assert "Route" in found.headline


def test_the_policy_is_chosen_without_a_look_at_the_test_rows() -> None:
    base = synthetic(3000, small=0.8, large=0.95)
    test = base.split == 2
    spoilt = base.columns["small"].confidence.copy()
    spoilt[test] = np.random.default_rng(5).permutation(spoilt[test])
    first, second = advise(base), advise(with_columns(base, "small", confidence=spoilt))
    assert [each.tuned.policy for each in first.claims] == [each.tuned.policy for each in second.claims]


def test_a_dearer_model_that_is_worse_is_not_asked() -> None:
    base = synthetic(4000, small=0.9, large=0.75)
    found = advise(with_columns(base, "large", confidence=np.full(len(base), np.nan), scores=None))
    assert (found.use, found.escalate) == ("small", False)
    assert "dominated" in kinds(found)
    assert "Don't route: use small alone" in found.headline


def test_confidences_without_meaning_are_no_reason_to_route() -> None:
    rng = np.random.default_rng(3)
    base = synthetic(4000, small=0.8, large=0.9)
    found = advise(with_columns(base, "small", confidence=rng.random(len(base)), scores=None))
    assert not found.escalate
    assert found.use == "large"


def test_constant_confidences_are_named() -> None:
    base = synthetic(2000)
    found = advise(with_columns(base, "small", confidence=np.full(len(base), 0.7)))
    assert "constant scores" in kinds(found)
    assert not found.escalate


def test_missing_confidences_lead_to_a_learned_signal() -> None:
    base = synthetic(2000)
    found = advise(with_columns(base, "small", confidence=np.full(len(base), np.nan)))
    assert any("rheostat train router" in flag.text for flag in found.flags)
    assert not found.escalate


def test_one_class_ends_in_no_advice() -> None:
    split = ["dev", "test"] * 50
    found = advise(table([1] * 100, {"a": columns([1] * 100, [0.9] * 100), "b": columns([1] * 100)}, split=split))
    assert found.use == ""
    assert "one class" in kinds(found)
    assert "No advice" in found.headline


def test_labels_that_do_not_match_are_named() -> None:
    truth = [0, 1] * 50
    models = {"a": columns([2] * 100, [0.5] * 100), "b": columns(truth)}
    found = advise(table(truth, models, split=["dev", "dev", "test", "test"] * 25, labels=("no", "yes", "NO")))
    assert "label mismatch" in kinds(found)
    assert "'NO'" in found.headline


def test_an_empty_split_is_named() -> None:
    base = synthetic(300)
    found = advise(base.subset(base.split != 2))
    assert "no rows" in kinds(found)


def test_few_rows_are_named_with_what_they_can_show() -> None:
    found = advise(synthetic(300))
    assert any(flag.kind == "too few rows" and "points can be shown" in flag.text for flag in found.flags)


def test_equal_prices_save_nothing() -> None:
    base = synthetic(2000)
    found = advise(with_columns(base, "large", cost=np.ones(len(base))))
    assert "no prices" in kinds(found)
    assert not any(each.kind == "save" and each.proven for each in found.claims)


def test_models_that_know_the_same_are_not_blended_and_others_are() -> None:
    rng = np.random.default_rng(0)
    n, truth = 6000, rng.integers(0, 2, 6000)
    parts = [truth * 2.0 - 1.0 + rng.normal(0.0, 1.2, n) for _ in range(2)]

    def model(evidence: np.ndarray, cost: float) -> ModelColumns:
        chance = 1.0 / (1.0 + np.exp(-2.0 * evidence / 1.44))
        scores = np.stack([1.0 - chance, chance], axis=1)
        return columns(scores.argmax(axis=1).tolist(), scores.max(axis=1).tolist(), cost=cost, scores=scores)

    split = rng.choice(["dev", "test"], n).tolist()
    same = table(truth.tolist(), {"a": model(parts[0], 1.0), "b": model(sum(parts) / 1.0, 20.0)}, split=split)
    apart = table(truth.tolist(), {"a": model(parts[0], 1.0), "b": model(parts[1], 20.0)}, split=split)
    assert not advise(same).blend
    assert advise(apart).blend


def test_chance_alone_seldom_convinces() -> None:
    """Two models equally good, confidences of no meaning: false advice in at most 5 % of tables (20 here: at most 3)."""
    wrong = 0
    for seed in range(20):
        base = synthetic(900, seed=seed, small=0.8, large=0.8)
        noise = np.random.default_rng(seed).random(len(base))
        wrong += advise(with_columns(base, "small", confidence=noise, scores=None)).routes
    assert wrong <= 3


def test_settings_name_their_field() -> None:
    with pytest.raises(ValueError, match=r"`max_share`.*write 0\.2"):
        Settings(max_share=20.0)
    with pytest.raises(ValueError, match="at least two models"):
        advise(synthetic(100), models=("small",))


def test_a_third_level_is_advised_only_where_it_brings_something() -> None:
    """The middle model knows what the small one is unsure of, at a tenth of the large one's price."""
    n, rng = 6000, np.random.default_rng(11)
    truth, level = rng.integers(0, 2, n), rng.choice(3, n, p=[0.6, 0.3, 0.1])
    split = rng.choice(["dev", "test"], n).tolist()

    def model(able: int, cost: float) -> ModelColumns:
        chance = np.where(level <= able, 0.99, 0.5)
        label = np.where(rng.random(n) < chance, truth, 1 - truth)
        return columns(label.tolist(), (chance - 0.01 * rng.random(n)).tolist(), cost=cost)

    pool = {"small": model(0, 1.0), "middle": model(1, 10.0), "large": model(2, 100.0)}
    found = advise(table(truth.tolist(), pool, split=split))
    assert found.escalate
    assert found.levels == 3
    assert found.followed is not None
    assert found.followed.tuned.stages == ("small", "middle", "large")
    useless = advise(
        table(truth.tolist(), {**pool, "middle": replace(pool["middle"], label=pool["small"].label)}, split=split)
    )
    assert useless.levels < 3
