"""The demo's models: what is written for serving says what was trained."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rheostat.backends import check_contract
from rheostat.backends.onnx import OnnxModel
from rheostat.backends.text_rules import RulesModel
from rheostat.demo.bag import Bag, write_onnx
from rheostat.demo.data import LABELS, Sentence, Split
from rheostat.demo.train import Tier, train, write_data
from rheostat.errors import ConfigError, ContractError
from rheostat.lab.outcomes import TrainingCard
from rheostat.signals.calibrate import load_calibrator

pytest.importorskip("onnx")
pytest.importorskip("skl2onnx")

_WORDS = {"good": 1.0, "great": 1.0, "fine": 0.6, "bad": -1.0, "awful": -1.0, "dull": -0.6}
_FILLER = ("the", "film", "was", "a", "plot", "and", "it", "very")
_VOCABULARY = {word: code for code, word in enumerate(("[UNK]", *_FILLER, *_WORDS))}


def _tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(_VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


def _encoder(path: Path) -> None:
    """A real, tiny encoder: a table of word vectors and one matrix, in the large model's own shape."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    parts = {
        "table": rng.normal(size=(len(_VOCABULARY), 16)),
        "matrix": rng.normal(size=(16, 12)),
        "shift": rng.normal(size=16),
    }
    parts["table"][_VOCABULARY["[UNK]"]] *= 100.0  # one outlier widens the 8-bit scale for its whole batch
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            helper.make_node("Add", ["rows", "shift"], ["shifted"]),  # so that MatMul quantises its input by the batch
            helper.make_node("MatMul", ["shifted", "matrix"], ["last_hidden_state"]),
        ],
        "encoder",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["n", "t", 12])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in parts.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def _sentences(count: int, seed: int) -> tuple[Sentence, ...]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        words = [*rng.choice(_FILLER, 4), *rng.choice(list(_WORDS), 2)]
        rating = sum(_WORDS.get(word, 0.0) for word in words) + rng.normal() * 0.3
        made.append(Sentence(" ".join(rng.permutation(words)), LABELS[rating > 0], float(rating), "tweet"))
    return tuple(made)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Split, dict[str, Tier], list[tuple[int, int]]]:
    folder = tmp_path_factory.mktemp("models")
    _tokenizer(folder / "tokenizer.json")
    _encoder(folder / "encoder.onnx")
    made = Split(_sentences(600, 1), _sentences(200, 2), _sentences(200, 3))
    ticks: list[tuple[int, int]] = []
    digest = write_data(made, folder / "data")
    tiers = train(_WORDS, made, folder, digest, [].append, lambda done, of: ticks.append((done, of)))
    return folder, made, tiers, ticks


def test_every_tier_opens_from_its_settings_and_beats_a_guess(trained) -> None:  # type: ignore[no-untyped-def]
    folder, made, tiers, _ = trained
    assert list(tiers) == ["rules", "fast", "large"]
    for tier in tiers.values():
        backend = tier.settings.open(str(folder))
        replies = backend.predict([sentence.text for sentence in made.test])
        right = [reply.label == sentence.label for reply, sentence in zip(replies, made.test, strict=True)]
        assert np.mean(right) > 0.7
        assert tier.cpu_ms > 0
        load_calibrator(str(folder / tier.settings.calibration))
        backend.close()


def test_cards_tell_how_training_ended(trained) -> None:  # type: ignore[no-untyped-def]
    folder, _, tiers, _ = trained
    for name, file in (("fast", "fast.onnx"), ("large", "head.onnx")):
        card = msgspec.json.decode((folder / f"{file}.card.json").read_bytes(), type=TrainingCard)
        assert card == tiers[name].card
        assert card.converged
        assert card.train_accuracy is not None
        assert card.train_accuracy > 0.7
        assert card.iterations is not None
        assert 1 < card.iterations < (card.max_iterations or 0)
        assert len(card.data_hash or "") == 64


def test_progress_ends_at_all_of_it(trained) -> None:  # type: ignore[no-untyped-def]
    _, made, _, ticks = trained
    total = len(made.train) + len(made.dev)
    assert ticks[-1] == (total, total)
    assert ticks == sorted(ticks)


def test_data_files_hold_every_row_once(trained) -> None:  # type: ignore[no-untyped-def]
    folder, made, _, _ = trained
    for part in ("train", "dev", "test"):
        rows = [msgspec.json.decode(line) for line in (folder / "data" / f"{part}.jsonl").read_bytes().splitlines()]
        assert [(row["text"], row["label"]) for row in rows] == [(s.text, s.label) for s in getattr(made, part)]
        assert len({row["id"] for row in rows}) == len(rows)


_ids = st.lists(st.integers(0, len(_VOCABULARY) - 1), min_size=1, max_size=9)


@settings(max_examples=30, deadline=None)
@given(st.lists(_ids, min_size=2, max_size=12), st.integers(2, 5))
def test_the_written_bag_says_what_the_trained_one_says(texts: list[list[int]], count: int) -> None:
    import onnxruntime

    bag = Bag(len(_VOCABULARY))
    features = bag.fit(texts)
    rng = np.random.default_rng(count)
    weights, bias = rng.normal(size=(count, bag.width)), rng.normal(size=count)
    logits = features @ weights.T + bias
    wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    longest = max(map(len, texts))
    ids = np.array([text + [3] * (longest - len(text)) for text in texts], dtype=np.int64)
    mask = np.array([[1] * len(text) + [0] * (longest - len(text)) for text in texts], dtype=np.int64)
    session = onnxruntime.InferenceSession(_written(bag, weights, bias), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input_ids": ids, "attention_mask": mask})
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def _written(bag: Bag, weights: np.ndarray, bias: np.ndarray) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bag.onnx"
        write_onnx(bag, weights, bias, [f"label {code}" for code in range(len(bias))], path)
        return path.read_bytes()


def test_the_bag_answers_alike_alone_and_in_a_batch(trained) -> None:  # type: ignore[no-untyped-def]
    folder, made, tiers, _ = trained
    settings_of_fast = tiers["fast"].settings
    assert isinstance(settings_of_fast, OnnxModel)
    backend = settings_of_fast.open(str(folder))
    texts = [sentence.text for sentence in made.test[:40]] + ["", "unknown words only", "good"]
    together = backend.predict(texts)
    alone = [backend.predict([text])[0] for text in texts]
    assert [reply.confidence for reply in together] == pytest.approx([reply.confidence for reply in alone], abs=1e-6)


def test_the_word_list_is_sure_only_where_it_knows_a_word(trained) -> None:  # type: ignore[no-untyped-def]
    folder, _, tiers, _ = trained
    assert isinstance(tiers["rules"].settings, RulesModel)
    backend = tiers["rules"].settings.open(str(folder))
    sure, unsure = backend.predict(["a great film", "the plot"])
    assert (sure.label, unsure.label) == ("positive", "positive")
    assert sure.confidence > unsure.confidence == 0.5


def test_the_eight_bit_encoder_keeps_the_contract_one_text_at_a_time(trained) -> None:  # type: ignore[no-untyped-def]
    folder, made, tiers, _ = trained
    served = tiers["large"].settings
    assert served.chunk == 1
    texts = [*(sentence.text for sentence in made.test[:20]), "zebra"]
    backend = served.open(str(folder))
    assert check_contract("large", backend, served, texts).rows == len(texts)
    backend.close()
    batched = msgspec.structs.replace(served, chunk=64)
    with pytest.raises(ContractError, match="set chunk: 1"):
        check_contract("large", batched.open(str(folder)), batched, texts)


def test_a_batch_of_no_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="chunk: expected 1 or more rows, got 0"):
        OnnxModel(path="any.onnx", chunk=0).open(str(tmp_path))
