"""What was served comes out again from its record, whatever the policy and whatever failed; what was changed is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rheostat.errors import ModelError
from rheostat.lab.consistency import Consistency, consistency, sampled
from rheostat.lab.redecide import Way
from rheostat.policies import parse_policy
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.ladder import FallbackSettings, Link, Preset
from rheostat.testing import Act, scripted_model
from rheostat.types import InputSummary, ModelView, Prediction, RouteRecord
from tests.cli.conftest import Run, evaluated, place, run
from tests.engine.test_engine import Bench
from tests.policies.test_policies import MODELS, nodes
from tests.test_seam import ANSWERS, CELL, Level

__all__ = ["evaluated", "place", "run"]
CASCADE = {"cascade": {"stages": ["m0", "m1"], "threshold": 0.8}}


def way(node: object, peers: tuple[str, ...] = (), preset: Preset | None = None, signal: float = 0.5, **given: Any) -> Way:
    return Way(
        policy=parse_policy(node),
        fallback=FallbackSettings(preset=preset, default=given.pop("default", None)),
        links={name: Link(peers, None, float(cost)) for cost, name in enumerate(MODELS, 1)},
        views={name: ModelView(name, cost=float(cost)) for cost, name in enumerate(MODELS, 1)},
        scorers=(Level(signal), *ANSWERS),
        **given,
    )


def served(
    node: object, cells: tuple[Any, ...], *, peers: tuple[str, ...] = (), preset: Preset | None = None, signal: float = 0.5,
    **options: Any,
) -> RouteRecord:  # fmt: skip
    """The record that a policy leaves, as it comes back from a store."""
    models = {}
    for cost, (name, (failure, label, confidence, ms)) in enumerate(zip(MODELS, cells, strict=True), 1):
        reply = ModelError(failure, "x") if failure else Prediction(label, confidence)
        off = BreakerSettings(failure_threshold=0)
        models[name] = scripted_model(name, Act(reply, ms / 1000), cost=float(cost), peers=peers, breaker=off)
    bench = Bench(node, models, retry=0, preset=preset, scorers=(Level(signal), *ANSWERS))
    record = bench.run(options)[0].record
    return msgspec.json.decode(msgspec.json.encode(record), type=RouteRecord)


@settings(deadline=None, max_examples=150)
@given(
    node=nodes(answers=True),
    cells=st.tuples(CELL, CELL, CELL),
    signal=st.floats(0, 1),
    peers=st.sampled_from([(), ("m2",)]),
    preset=st.booleans(),
    max_cost=st.sampled_from([float("inf"), 4.0]),
    force=st.sampled_from([{}, {}, {}, {"force_model": "m1"}, {"skip_route": True}]),
)
def test_what_was_served_comes_out_again(
    node: object, cells: tuple[Any, ...], signal: float, peers: tuple[str, ...], preset: bool, max_cost: float,
    force: dict[str, Any],
) -> None:  # fmt: skip
    """Every kind of policy, failures, peers that stand in, presets, budgets: an untouched record shows no difference."""
    last = Preset(label="p") if preset else None
    record = served(node, cells, peers=peers, preset=last, signal=signal, max_cost=max_cost, **force)
    found = consistency([record], {"default": way(node, peers, last, signal)})
    assert found.mismatches == ()
    assert found.records == 1
    if record.label is not None and record.weights:
        assert (found.mixed, found.agreed) == (1, 1)


SURE = ((None, "a", 0.9, 10), (None, "b", 0.95, 20), (None, "a", 0.5, 30))
TORN = ((None, "a", 0.6, 10), (None, "b", 0.95, 20), (None, "a", 0.5, 30))


def compared(record: RouteRecord, node: object = CASCADE, **given: Any) -> Consistency:
    return consistency([record], {"default": way(node, **given)})


def only(found: Consistency) -> tuple[str, str, str, str]:
    (one,) = found.mismatches
    return one.what, one.served, one.again, one.reason


def test_a_label_that_was_changed_afterwards_is_found() -> None:
    record = structs.replace(served(CASCADE, TORN), label="a")
    found = compared(record)
    assert found.agreed == 0
    assert [one.what for one in found.mismatches] == ["label", "label"]  # mixed again and decided again
    assert "the record was changed, or mixing was" in found.mismatches[0].reason


def test_a_confidence_that_was_changed_afterwards_is_found() -> None:
    record = structs.replace(served(CASCADE, SURE), confidence=0.91)
    assert only(compared(record))[:3] == ("confidence", "0.91", "0.9")
    near = structs.replace(served(CASCADE, SURE), confidence=0.9 + 1e-9)
    assert compared(near).mismatches == ()


def test_another_policy_than_the_one_that_served_is_found() -> None:
    record = served({"blend": {"weights": {"m0": 0.5, "m1": 0.5}}}, TORN)
    what, before, again, reason = only(compared(record, {"blend": {"weights": {"m0": 0.25, "m1": 0.75}}}))
    assert (what, before, again) == ("weights", "{m0: 0.5, m1: 0.5}", "{m0: 0.25, m1: 0.75}")
    assert "not the same policy" in reason
    calls = compared(record)
    assert [one.what for one in calls.mismatches] == ["weights"]


def test_a_model_that_was_not_asked_then_is_named() -> None:
    record = served(CASCADE, SURE)
    what, before, again, reason = only(compared(record, {"cascade": {"stages": ["m0", "m1"], "threshold": 0.95}}))
    assert (what, before, again) == ("calls", "['m0']", "['m0', 'm1']")
    assert reason == "it now asks m1, whose answer the record does not hold"


def test_a_call_that_was_cut_off_decides_nothing_again() -> None:
    parallel = {"delegate": {"weak": "m0", "strong": "m1", "low": 0.2, "high": 0.8, "parallel": True}}
    record = served(parallel, SURE)
    assert [(one.model, one.failure and one.failure.kind) for one in record.outcomes] == [("m0", None), ("m1", "cancelled")]
    assert (compared(record, parallel).agreed, compared(record, parallel).mismatches) == (1, ())
    calls = compared(record, {"cascade": {"stages": ["m0", "m1"], "threshold": 0.95}})
    assert "it now asks m1, whose answer the record does not hold" in [one.reason for one in calls.mismatches]


def test_a_policy_of_another_version_is_left_alone_unless_wanted() -> None:
    record = structs.replace(served(CASCADE, SURE), policy_version="old")
    ways = {"default": way(CASCADE, version="new")}
    found = consistency([record], ways)
    assert (found.decided, found.mixed, found.agreed) == (0, 1, 1)
    assert found.not_decided == {"served by policy version old, the config has new": 1}
    assert consistency([record], ways, any_version=True).decided == 1


def test_what_the_record_does_not_hold_is_not_guessed() -> None:
    rules = {"rules": [{"when": "text.size() > 3", "use": "m1"}, {"when": "true", "use": "m0"}]}
    record = served(rules, SURE)
    found = compared(record, rules)
    assert found.not_decided == {"its rules read the text, which the record does not hold": 1}
    kept = structs.replace(record, input=InputSummary("text", 1, "", "x"))
    assert compared(kept, rules).agreed == 1
    pool = {"rules": [{"when": "pool.m0.available", "use": "m0"}, {"when": "true", "use": "m1"}]}
    assert compared(served(pool, SURE), pool).not_decided == {
        "its rules read the pool's state, which the record does not hold": 1
    }
    elsewhere = consistency([record], {})
    assert elsewhere.not_decided == {"route default is not in the config": 1}


def test_a_signal_that_its_scorer_gives_no_longer_is_named() -> None:
    record = structs.replace(served(CASCADE, SURE, signal=0.25), input=InputSummary("text", 1, "", "x"))
    found = compared(record, signal=0.75)
    assert found.kinds["signal d"] == 1
    one = next(one for one in found.mismatches if one.what == "signal d")
    assert (one.served, one.again) == ("0.25", "0.75")
    assert "its file changed" in one.reason


def test_endings_that_cannot_be_compared_are_counted() -> None:
    broken = tuple(("upstream_error", "a", 0.5, 10) for _ in MODELS)
    late = served(CASCADE, TORN, deadline_s=0.015)
    found = consistency([served(CASCADE, broken), late], {"default": way(CASCADE)})
    assert found.not_mixed == {"it ended without an answer": 1}
    assert found.not_decided == {"its deadline ended it, and time is not replayed": 1}
    assert found.mismatches == ()


def test_a_sample_is_the_same_whatever_comes_in_between_and_holds_no_more() -> None:
    record = served(CASCADE, SURE)
    many = [structs.replace(record, id=str(number)) for number in range(300)]
    some = sampled(iter(many), 20)
    assert len(some) == 20
    assert [int(one.id) for one in some] == sorted(int(one.id) for one in some)
    assert {one.id for one in sampled(reversed(many), 20)} == {one.id for one in some}
    assert len(sampled(many, 1000)) == 300
    assert sampled([], 5) == []


def test_many_mismatches_are_counted_and_a_few_kept() -> None:
    record = structs.replace(served(CASCADE, SURE), confidence=0.1)
    found = consistency([record] * 30, {}, keep=5)
    assert (found.kinds, len(found.mismatches)) == ({"confidence": 30}, 5)


@pytest.mark.usefixtures("place")
def test_the_verb_compares_what_was_predicted(run: Run) -> None:
    for text in ("Breakpoints stop the debugger.", "Strings are immutable.", "A dict maps keys."):
        run(["predict", "rheostat.yaml", text])
    told = run(["consistency", "records.sqlite"]).stdout
    assert told.startswith("3 records: 3 mixed again, 3 decided again, 3 equal")
    assert "nothing differs" in told
    text = Path("rheostat.yaml").read_text().replace("threshold: 0.8", "threshold: 0.1")
    Path("other.yaml").write_text(text)
    assert "not decided again: 3 x served by policy version" in run(
        ["consistency", "records.sqlite", "--config", "other.yaml"]
    ).stdout  # fmt: skip
    differ = run(["consistency", "records.sqlite", "--config", "other.yaml", "--any-version"], code=1).stdout
    assert "weights" in differ or "calls" in differ
    found = msgspec.json.decode(
        run(["consistency", "records.sqlite", "--config", "other.yaml", "--any-version", "--json"], code=1).stdout
    )  # fmt: skip
    assert found["mismatches"][0]["request"]
    assert "no records at none.sqlite" in run(["consistency", "none.sqlite"], code=1).stderr
