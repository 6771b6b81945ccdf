"""From an outcomes table to a file that is served: what was judged offline is what runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from weight_tables import MODELS, live_config, specialists

from rheostat import open_router
from rheostat.errors import ConfigError
from rheostat.lab.learned_file import read_card
from rheostat.lab.replay import replay
from rheostat.lab.weights.calibration import through_mix
from rheostat.lab.weights.fusion import FusionData, mixed
from rheostat.lab.weights.learn import Ask, LearnedWeights, learn_weights
from rheostat.lab.weights.rows import answer_features, distributions
from rheostat.policies import Blend, Delegate
from rheostat.signals import AnswersScorerSettings

pytest.importorskip("torch")

TABLE = specialists()
ASK = Ask(
    models=MODELS, features=("meta.kind=k0", "meta.kind=k1"), past=("meta.user",), cluster="meta.user", calibrate=False
)


@pytest.fixture(scope="module")
def learned() -> LearnedWeights:
    return learn_weights(TABLE, ASK)


def test_three_models_and_three_labels_beat_the_plain_ways(learned: LearnedWeights) -> None:
    assert learned.pays
    assert learned.top > 0.5
    assert list(learned.report.figures) == [
        f"{learned.report.best} alone", "fixed blend", "weights by margin", "stack", "learned weights",
    ]  # fmt: skip
    own = learned.report.figures["learned weights"]
    assert own.accuracy > learned.report.figures["fixed blend"].accuracy - 0.02
    assert not learned.notes


def test_offline_replay_and_live_are_the_same(learned: LearnedWeights, tmp_path: Path) -> None:
    learned.write(tmp_path / "weights.onnx")
    assert read_card(tmp_path / "weights.onnx").outputs == MODELS
    settings = AnswersScorerSettings(path="weights.onnx", outputs=MODELS)
    policy = Blend(weights=dict.fromkeys(MODELS, 1.0), signal="w")
    played = replay(policy, learned.judged, scorers=(settings.open("w", str(tmp_path)),))
    assert played.weights == pytest.approx(learned.weights, abs=1e-5)
    offline = mixed(distributions(learned.judged, MODELS), learned.weights)
    assert played.confidence == pytest.approx(offline.max(axis=1), abs=1e-5)
    signals = f"w: {{scorer: answers, path: weights.onnx, outputs: [{', '.join(MODELS)}]}}"
    weights = ", ".join(f"{name}: 1" for name in MODELS)
    config = live_config(tmp_path, TABLE, f"{{blend: {{weights: {{{weights}}}, signal: w}}}}", signals)
    with open_router(config) as router:
        for row in range(0, len(learned.judged), 60):
            request = learned.judged.request(row)
            record = router.predict(request.data, meta=dict(request.meta)).record
            assert record.label == learned.judged.labels[played.label[row]]
            assert record.confidence == pytest.approx(played.confidence[row], abs=1e-4)


def test_a_file_that_reads_a_model_which_is_not_there_is_refused(learned: LearnedWeights, tmp_path: Path) -> None:
    learned.write(tmp_path / "weights.onnx")
    two = replace(TABLE, columns={name: TABLE.columns[name] for name in MODELS[:2]})
    signals = f"w: {{scorer: answers, path: weights.onnx, outputs: [{', '.join(MODELS)}]}}"
    config = live_config(tmp_path, two, "{blend: {weights: {one: 1, two: 1}, signal: w}}", signals)
    with pytest.raises(ConfigError, match="answers of three, which the config does not have"), open_router(config):
        pass


def test_weights_of_requests_alone_save_calls(tmp_path: Path) -> None:
    two = specialists(800, labels=2, models=2)
    found = learn_weights(two, Ask(models=MODELS[:2], features=("meta.kind=k0",), answers="none"))
    found.write(tmp_path / "weights.onnx")
    scorer = AnswersScorerSettings(path="weights.onnx", outputs=MODELS[:2]).open("w", str(tmp_path))
    policy = Delegate(weak="one", strong="two", weight="w.two", low=0.4, high=0.6)
    played = replay(policy, found.judged, scorers=(scorer,))
    assert played.share("two") < 0.7
    mix = (found.weights[:, 1] >= 0.4) & (found.weights[:, 1] <= 0.6)
    assert played.called.all(axis=1).tolist() == mix.tolist()


def test_a_calibrator_is_kept_only_where_it_helps() -> None:
    squeezed = specialists(2000, known=0.98)
    found = learn_weights(squeezed, msgspec.structs.replace(ASK, calibrate=True))
    assert set(found.calibrators) <= set(MODELS)
    assert found.judged.model("one").label.tolist() == squeezed.select(split="test").model("one").label.tolist()
    sums = distributions(found.judged, MODELS).sum(axis=2)
    assert sums == pytest.approx(1.0, abs=1e-5)


def test_a_mix_of_calibrated_models_gets_the_sharpness_it_lacks() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 4000)
    odds = 2.0 * (2 * truth[:, None] - 1) + 2.0 * rng.normal(size=(4000, 2))  # each calibrated, and independent
    chance = 1.0 / (1.0 + np.exp(-odds))
    data = FusionData(np.zeros((4000, 0)), np.stack([1.0 - chance, chance], axis=2), truth)
    found = through_mix(data, [True, True])
    assert found.max() < 0.8
    assert through_mix(data, [True, False])[1] == 1.0


def test_equal_inputs_stay_on_one_side_when_one_split_is_halved() -> None:
    doubled = replace(TABLE, inputs=TABLE.inputs[np.arange(len(TABLE)) // 2])  # type: ignore[index]
    found = learn_weights(doubled, msgspec.structs.replace(ASK, fit="dev", stop="dev", cluster=""))
    assert found.rows < len(TABLE.select(split="dev"))


def test_names_of_numbers() -> None:
    assert answer_features(("a", "b"), ("no", "yes"), "first", ("meta.user",)) == (
        "confidence(a)", "margin(a)", "entropy(a)", "odds(a=yes)", "past(a;user)", "past(b;user)",
    )  # fmt: skip
    assert len(answer_features(("a", "b", "c"), ("x", "y", "z"), "all", ())) == 3 * 3 + 3 * 3
    with pytest.raises(ValueError, match="cannot stand in a feature"):
        answer_features(("a,b", "c"), ("no", "yes"), "all", ())
    with pytest.raises(ValueError, match="one of all, first, none"):
        answer_features(("a", "b"), ("no", "yes"), "some", ())


def test_what_cannot_be_learned_from_is_refused() -> None:
    memorised = TABLE.columns["one"]
    train = TABLE.split == 0
    by_heart = replace(memorised, label=np.where(train, TABLE.truth, memorised.label).astype(np.int32))
    table = replace(TABLE, columns={**TABLE.columns, "one": by_heart})
    with pytest.raises(ValueError, match="was trained on the rows of train"):
        learn_weights(table, ASK)
    for change, said in (
        ({"models": ("one",)}, "two models or more"),
        ({"models": ("one", "four")}, "no model four"),
        ({"report": "dev"}, "must be of fresh rows"),
        ({"answers": "none", "features": (), "past": ()}, "nothing to learn weights from"),
        ({"features": ("lenght",)}, "did you mean 'length'"),
        ({"cluster": "meta.page"}, r"no row has meta\.page"),
    ):
        with pytest.raises(ValueError, match=said):
            learn_weights(TABLE, msgspec.structs.replace(ASK, **change))
    with pytest.raises(ValueError, match="100 are needed"):
        learn_weights(TABLE.subset(np.arange(800)), ASK)
