"""Entries of every shape, for property tests."""

from hypothesis import strategies as st

from rheostat.types import Attempt, Failure, Feedback, InputSummary, Outcome, Prediction, RouteRecord, Step

# Text that a row can carry as it is: no control characters but tab, CR, LF, and no lone surrogates.
clean = st.text(
    st.one_of(
        st.sampled_from("\t\r\n\\\"{}'\u2028\u2029\u202e👩\u200d🔬中ا"), st.characters(exclude_categories=("Cc", "Cs"))
    ),
    max_size=20,
)
hard = st.text(
    st.one_of(st.sampled_from("\x00\x07\x1b\x7f\x85\ud800\udfff\r\n\u2028"), st.characters()), max_size=20
)  # fmt: skip
number = st.floats(0, 1e6)


def json_value(text):
    leaf = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | text
    return st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=5
    )


def records(text):
    table = st.dictionaries(text, st.floats(0, 1), max_size=3)
    failure = st.builds(
        Failure, st.sampled_from(["timeout", "crashed"]), text, st.none() | st.integers(400, 599), st.none() | number
    )
    attempt = st.builds(Attempt, text, number, number, st.none() | failure)
    prediction = st.builds(Prediction, text, st.none() | st.floats(0, 1), st.none() | table, json_value(text))
    outcome = st.builds(
        Outcome, text, st.none() | prediction, st.none() | failure, st.lists(attempt, max_size=2).map(tuple), text, text,
        st.integers(0, 2), number, number,
    )  # fmt: skip
    step = st.builds(Step, number, text, st.lists(text, max_size=2).map(tuple), text, st.floats(0, 1), table)
    return st.builds(
        RouteRecord, id=text, wall=st.floats(0, 4e9), route=text, status=st.sampled_from(["ok", "degraded", "error"]),
        reason=text, label=st.none() | text, confidence=st.none() | st.floats(0, 1), scores=st.none() | table, weights=table,
        signals=table, held=st.dictionaries(text, text, max_size=2), steps=st.lists(step, max_size=2).map(tuple),
        outcomes=st.lists(outcome, max_size=2).map(tuple), meta=st.dictionaries(text, json_value(text), max_size=3),
        input=st.none() | st.builds(InputSummary, text, st.integers(0, 10**9), text, st.none() | text),
        session=st.none() | text, tenant=st.none() | text, error=st.none() | text, elapsed_s=number, cost=number,
    )  # fmt: skip


def feedbacks(text):
    return st.builds(
        Feedback, request_id=text, wall=st.floats(0, 4e9), label=st.none() | text, reward=st.none() | number, source=text
    )


def entries(text):
    return records(text) | feedbacks(text)
