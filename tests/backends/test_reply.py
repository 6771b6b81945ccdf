import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rheostat.backends.labels import settle_labels
from rheostat.backends.reply import as_reply
from rheostat.errors import ContractError, ModelError
from rheostat.types import Prediction

LABELS = ("ham", "spam")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("spam", Prediction("spam")),
        (np.str_("spam"), Prediction("spam")),
        (("spam", 0.7), Prediction("spam", 0.7)),
        (["spam", np.float32(0.5)], Prediction("spam", 0.5)),
        ({"ham": 0.25, "spam": 0.75}, Prediction("spam", 0.75, {"ham": 0.25, "spam": 0.75})),
        ({"label": "ham", "confidence": 0.9, "output": [1]}, Prediction("ham", 0.9, None, [1])),
        ({"label": "ham", "scores": {"ham": 0.6, "spam": 0.4}}, Prediction("ham", 0.6, {"ham": 0.6, "spam": 0.4})),
        (Prediction("ham", 0.1), Prediction("ham", 0.1)),
    ],
)
def test_every_accepted_form(raw: object, expected: Prediction) -> None:
    assert as_reply(raw, LABELS) == expected


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, None, "", "high", 1.7, -0.2, True, [1], 10**400])
def test_an_odd_confidence_is_no_confidence(odd: object) -> None:
    assert as_reply(("spam", odd), LABELS) == Prediction("spam", None, spoilt=odd is not None)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        "",
        "  ",
        {},
        [],
        1.5,
        b"spam",
        "phish",
        ("", 1.0),
        {"label": ""},
        {"label": None, "confidence": 1.0},
        {"ham": math.nan, "spam": 1.0},
        {"ham": 0.2, "spam": 0.2},
        {"ham": -0.5, "spam": 1.5},
        {"ham": "0.5", "spam": 0.5},
        {"ham": 0.5, "junk": 0.5},
        {"label": "ham", "scores": {"ham": 0.1, "spam": 0.9}},
        {"label": "ham", "scores": [0.1, 0.9]},
    ],
)
def test_a_broken_answer_is_bad_output_and_says_what_came(raw: object) -> None:
    reply = as_reply(raw, LABELS)
    assert isinstance(reply, ModelError)
    assert reply.kind == "bad_output"
    assert "expected" in str(reply)
    assert "got" in str(reply)


def test_a_label_named_label_may_be_scored() -> None:
    assert as_reply({"label": 0.75, "other": 0.25}).label == "label"  # type: ignore[union-attr]


def test_numbers_as_labels_become_their_names() -> None:
    assert as_reply(np.int64(3), ("3", "5")) == Prediction("3")


def test_an_error_is_handed_on() -> None:
    error = ModelError("crashed", "x")
    assert as_reply(error) is error


_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3) | st.tuples(inner),
    max_leaves=6,
)


@given(_junk)
def test_anything_gives_a_prediction_that_keeps_the_contract_or_an_error(raw: object) -> None:
    reply = as_reply(raw, None)
    if isinstance(reply, ModelError):
        assert reply.kind == "bad_output"
    else:
        assert reply.label.strip()
        assert reply.confidence is None or 0.0 <= reply.confidence <= 1.0
        if reply.scores is not None:
            assert abs(sum(reply.scores.values()) - 1.0) <= 1e-3
            assert reply.scores[reply.label] >= max(reply.scores.values()) - 1e-6


def test_labels_of_config_and_model_must_name_the_same_set() -> None:
    assert settle_labels(("spam", "ham"), ("ham", "spam"), "m.onnx") == ("ham", "spam")
    assert settle_labels((), None, "m.onnx") is None
    with pytest.raises(ContractError, match=r"missing in the model: \['spam'\].*not in the config: \['junk'\]"):
        settle_labels(("ham", "spam"), ("ham", "junk"), "m.onnx")
    with pytest.raises(ContractError, match="twice"):
        settle_labels(("ham", "ham"), None, "m.onnx")
