from pathlib import Path
from typing import Any

import numpy as np
import pytest
from difficulty_tables import table
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score, roc_auc_score

from rheostat.errors import ConfigError
from rheostat.lab.difficulty import (
    LeakError,
    Setting,
    agreement,
    check_leaks,
    check_unseen,
    choose,
    edited,
    fit_net,
    flips,
    from_texts,
    margin_for,
    outcome_cuts,
    pseudo_difficulty,
    quantile_cuts,
    read_examples,
    save_net,
    tier_errors,
    tiers_form,
    with_edits,
    without_repeats,
)
from rheostat.lab.difficulty.net import auroc
from rheostat.lab.difficulty.tiers import agreement_cut
from rheostat.lab.learned_file import predict_learned
from rheostat.signals.feature_line import FeatureLine
from rheostat.signals.learned import LearnedScorerSettings
from rheostat.signals.text.bag import bag_names, is_bag
from rheostat.types import Request

FEATURES = ("length", "words", "rare_words", *bag_names(16))
SMALL = (
    Setting(features=FEATURES, hidden=0, penalty=1.0),
    Setting(features=FEATURES, hidden=4, penalty=1.0, epochs=20, members=2),
)


def rows(n: int = 240, seed: int = 0, shift: int = 0) -> Any:
    """Texts of which those that say `maybe` are wrong nine times of ten, the others one time of ten."""
    rng = np.random.default_rng(seed)
    hard = rng.random(n) < 0.4
    texts = [
        f"{'maybe' if h else 'please'} pay invoice {shift + i} today" + " soon" * int(i % 5) for i, h in enumerate(hard)
    ]
    error = np.where(rng.random(n) < 0.9, hard, ~hard)
    return from_texts(texts, error, np.full(n, shift > 0), FEATURES, data_hash="h")


FIT, DEV = rows(), rows(120, 1, 1000)


def test_a_net_learns_and_is_served_as_it_was_fitted(tmp_path: Path) -> None:
    net, chosen = choose(FIT, DEV, SMALL)
    assert chosen.auroc == max(value for _, value in chosen.tried) > 0.8
    for setting in SMALL:
        net = fit_net(FIT, setting)
        card = save_net(net, FIT, tmp_path / f"{setting.hidden}.onnx", notes=("n",))
        said = predict_learned(tmp_path / f"{setting.hidden}.onnx", DEV.x)[:, 0]
        assert said == pytest.approx(net.predict(DEV.x), abs=1e-5)
        assert (card.meaning, card.data_hash, card.rows, card.notes) == ("difficulty", "h", len(FIT), ("n",))
        assert list(card.quantiles) == sorted(card.quantiles)
        scorer = LearnedScorerSettings(path=f"{setting.hidden}.onnx").open("d", str(tmp_path))
        served = scorer.score(Request(id="1", data=DEV.texts[0], text=DEV.texts[0]))  # type: ignore[call-arg]
        assert served["d"] == pytest.approx(said[0], abs=1e-5)
    with pytest.raises(LeakError, match="fitted on train of this very table"):
        check_unseen(card, "h", "train")
    check_unseen(card, "h", "test")


def test_what_leaks_is_refused() -> None:
    check_leaks(FIT, DEV)
    with pytest.raises(LeakError, match=r"240 of the 240 rows to judge on are repeats .*--drop-repeats"):
        check_leaks(FIT, FIT)
    loud = from_texts([text.upper() + "!" for text in DEV.texts[:5]], DEV.error[:5], DEV.split[:5], FEATURES)
    both = from_texts((*FIT.texts, *DEV.texts[:5]), [*FIT.error, *DEV.error[:5]], np.zeros(len(FIT) + 5), FEATURES)
    with pytest.raises(LeakError, match="5 of the 5"):
        check_leaks(both, loud)
    assert len(without_repeats(both, loud)) == len(FIT)
    told = from_texts([f"{'x' * int(40 * e)}row {i}" for i, e in enumerate(FIT.error)], FIT.error, FIT.split, FEATURES)
    with pytest.raises(LeakError, match=r"feature 'length' alone tells errors with an AUROC of 1\.000"):
        check_leaks(told, DEV)
    seen = from_texts(FIT.texts, np.arange(len(FIT)) % 25 == 0, FIT.split, FEATURES)
    with pytest.raises(LeakError, match=r"of the rows to fit on .* it was trained on them"):
        check_leaks(seen, DEV)
    with pytest.raises(ValueError, match="always right on the rows to fit on"):
        check_leaks(from_texts(FIT.texts, np.zeros(len(FIT)), FIT.split, FEATURES), DEV)
    with pytest.raises(ValueError, match="both are needed"):
        check_leaks(FIT.take(np.zeros(len(FIT), dtype=bool)), DEV)
    with pytest.raises(ValueError, match="other features"):
        check_leaks(FIT.only(["length"]), DEV)
    with pytest.raises(ValueError, match="without NaN"):
        from_texts(["a"], [np.nan], [0], FEATURES)
    with pytest.raises(ValueError, match="no usable row of test"):
        FIT.part("test")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=40))
def test_auroc_is_the_known_one(pairs: list[tuple[bool, int]]) -> None:
    error, score = [float(wrong) for wrong, _ in pairs], [float(value) for _, value in pairs]
    if len(set(error)) < 2:
        with pytest.raises(ValueError, match="AUROC needs"):
            auroc(error, score)
    else:
        assert auroc(error, score) == pytest.approx(roc_auc_score(error, score))


@given(st.text(max_size=30), st.integers(0, 10_000))
def test_an_edit_changes_one_place(text: str, seed: int) -> None:
    made = edited(text, np.random.default_rng(seed))
    assert made != text
    assert abs(len(made) - len(text)) <= 1


def test_edits_are_learned_with_the_label_of_their_text() -> None:
    more = with_edits(FIT, 2)
    assert len(more) == 3 * len(FIT)
    assert (more.error.reshape(3, -1) == FIT.error).all()
    assert len(with_edits(FIT, 0)) == len(FIT)


def test_hysteresis_keeps_flips_below_what_was_asked_for() -> None:
    net = fit_net(FIT, SMALL[0])
    cuts = quantile_cuts(net.predict(FIT.x), (0.5, 0.3, 0.2))
    margin = margin_for(net.predict, FEATURES, FIT.texts[:80], cuts, most=0.05, seed=1)
    found = flips(net.predict, FEATURES, FIT.texts[:80], cuts, margin=margin, seed=1)
    assert found.held_worst <= 0.05 < found.worst
    assert found.single <= found.worst
    assert flips(lambda x: np.zeros(len(x)), FEATURES, FIT.texts[:9], cuts).worst == 0.0
    assert margin_for(lambda x: np.zeros(len(x)), FEATURES, FIT.texts[:9], cuts) == 0.0
    with pytest.raises(ValueError, match="at least one text"):
        flips(net.predict, FEATURES, [], cuts)


def test_tiers_from_quantiles_and_from_outcomes() -> None:
    score = np.arange(1000) / 1000
    assert quantile_cuts(score, (0.5, 0.3, 0.2)) == pytest.approx((0.4995, 0.7992), abs=1e-3)
    error = np.where(score < 0.3, 0.0, np.where(score < 0.8, np.arange(1000) % 2, 1.0))
    cuts = outcome_cuts(score, error, 3)
    assert cuts == pytest.approx((0.3, 0.8), abs=2e-3)
    each = tier_errors(score, error, cuts)
    assert [part.mean if part else None for part in each] == pytest.approx([0.0, 0.5, 1.0], abs=0.01)
    assert tier_errors(score, error, (5.0,))[1] is None
    for shares in ((1.0,), (0.5, 0.6), (0.2,) * 6, (1.5, -0.5)):
        with pytest.raises(ValueError, match="2 to 5 positive numbers"):
            quantile_cuts(score, shares)
    with pytest.raises(ValueError, match="cuts fall together"):
        quantile_cuts(np.zeros(9), (0.5, 0.3, 0.2))
    with pytest.raises(ValueError, match="only 1 tiers apart"):
        outcome_cuts(np.zeros(9), [0, 1, 0, 1, 0, 1, 0, 1, 0])
    assert tiers_form("d", (0.1, 0.2), ("a", "b"), 0.05) == (
        "policy:\n  tiers: {signal: d, cuts: [0.1000, 0.2000], use: [a, a, b], hysteresis: 0.05}"
    )


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=1, max_size=30))
@settings(max_examples=30)
def test_the_cut_of_best_agreement_is_the_best(pairs: list[tuple[bool, int]]) -> None:
    error, score = [float(wrong) for wrong, _ in pairs], [float(value) for _, value in pairs]
    found = agreement(score, error, agreement_cut(score, error))
    every = [agreement(score, error, cut).share.mean for cut in (*range(8),)]
    assert found.share.mean == max(every) >= found.constant - 1e-9
    said = [value >= 3 for value in score]
    if len(set(error)) > 1:
        assert agreement(score, error, 3.0).kappa == pytest.approx(cohen_kappa_score(error, said), abs=1e-9)


def test_pseudo_labels_call_long_nested_texts_harder() -> None:
    short = [f"thanks a lot number {i}" for i in range(60)]
    long = [
        f"Although the clerk {i} who wrote that letter, which nobody read, was gone, we asked, again, why it had been sent."
        for i in range(60)
    ]
    part = from_texts([*short, *long], np.zeros(120), np.zeros(120), ("words", "clauses", "syntax_depth", "length"))
    told = pseudo_difficulty(part, 4)
    assert told[60:].mean() > 0.9
    assert told[:60].mean() < 0.1
    with pytest.raises(ValueError, match="clusters need"):
        pseudo_difficulty(part.take(np.zeros(120, dtype=int)), 4)
    with pytest.raises(ValueError, match="at least one of the features"):
        pseudo_difficulty(part.only(["length"]))


def test_words_by_bucket() -> None:
    line = FeatureLine(("words", *bag_names(8)))
    one, other = (line.read(Request(id="1", data=text, text=text)) for text in ("Pay pay PAY", "我要退款"))
    assert one[0] == 3.0
    assert sorted(one[1:])[-1] == 3.0 == sum(one[1:])
    assert sum(other[1:]) == 4.0
    assert FeatureLine(("bag8.1", "meta.n")).read(Request(id="1", data="", text="", meta={"n": 2})) == [0.0, 2.0]
    assert not any(map(is_bag, ("bag8.8", "bag0.0", "bag8.01", "bag", "bag8")))
    with pytest.raises(ConfigError, match=r"no text feature 'bag8\.8'"):
        FeatureLine(("bag8.8",))


def test_a_table_without_text_is_refused() -> None:
    examples = read_examples(table([f"row {i}" for i in range(8)]), "fast", FEATURES)
    assert examples.error.tolist() == [0.0, 1.0] * 4
    with pytest.raises(ValueError, match="no row has text"):
        read_examples(table([{"a": 1}] * 8), "fast", FEATURES)
    with pytest.raises(ValueError, match="kept no inputs"):
        read_examples(table(None), "fast", FEATURES)
