"""What a policy reads of a request besides its data, and of the live load."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from rheostat.policies import Cascade, Chain, Rule, Rules, Split, Use, live_of
from rheostat.policies.parse import parse_policy
from rheostat.policies.reads import EVERYTHING, Reads, reads_of, without_load
from rheostat.policies.rules import LOAD
from rheostat.policies.split import Arm
from rheostat.types import Context, Decision, Decline, ModelView


class Own(Struct, frozen=True):
    """A policy of somebody's own."""

    def decide(self, ctx: Context, history: object) -> Decision:  # noqa: ARG002
        return Decline("never")


def ruled(*whens: str) -> Rules:
    return Rules(rules=tuple(Rule(when=when, use=Use("a")) for when in whens))


def test_a_rule_names_the_fields_it_reads() -> None:
    policy = ruled("meta.risk == 'high' && meta['shop'] == 1", "headers['x-tier'] == 'gold'", "text.size() > 3")
    assert reads_of(policy) == Reads(("risk", "shop"), ("x-tier",), False)
    assert reads_of(Chain(policies=(policy, Use("a")))) == Reads(("risk", "shop"), ("x-tier",), False)


def test_a_root_that_is_used_whole_may_mean_any_field() -> None:
    assert reads_of(ruled("meta.size() > 3")) == Reads(None, (), False)


def test_a_choice_that_sticks_reads_its_key_and_hysteresis_does_not() -> None:
    arms = (Arm(use=Use("a"), share=1.0), Arm(use=Use("b"), share=1.0))
    assert reads_of(Split(arms=arms)) == Reads((), (), True)
    assert reads_of(Split(arms=arms, key="shop")) == Reads(("shop",), (), False)
    cascade = Cascade(stages=("a", "b"), threshold=0.9, hysteresis=(0.8, 0.95), key="session")
    assert reads_of(cascade) == Reads()


def test_a_strangers_policy_may_read_everything() -> None:
    assert reads_of(Chain(policies=(Own(), Use("a")))) == EVERYTHING


def test_a_segment_makes_two_requests_different_questions() -> None:
    policy = parse_policy({"blend": {"weights": {"a": 1, "b": 1}, "stand_in": "mean", "segment": "site"}})
    assert reads_of(policy).meta == ("site",)


def test_a_tag_makes_another_question() -> None:
    reads = reads_of(parse_policy({"balance": {"models": ["a", "b"], "tags": "X-Tag"}}))
    assert (reads.meta, reads.headers, reads.session) == (("X-Tag",), ("x-tag",), False)
    assert reads_of(parse_policy({"balance": ["a", "b"]})).headers == ()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a", ()),
        ({"cascade": {"stages": ["a", "b"], "threshold": 0.9}}, ()),
        ({"balance": {"models": ["a", "b"], "choose": "least_loaded"}}, ("in_flight", "queued", "ramp")),
        ({"balance": ["a", "b"]}, ("in_flight", "queued", "latency_s", "error_rate", "ramp")),
        (
            {"split": {"arms": [{"use": {"rules": [{"when": "pool.a.queued > 3", "use": "b"}]}, "share": 1}]}},
            ("pool.a.queued",),
        ),
    ],
)
def test_a_policy_says_what_it_reads_of_the_load(written: Any, read: tuple[str, ...]) -> None:
    policy = parse_policy(written)
    assert live_of(policy) == read
    said = without_load(policy)
    assert bool(said) == bool(read)
    assert all(name in said for name in read)


@pytest.mark.parametrize(
    ("when", "read"),
    [
        ("pool.a.limit - pool['b'].in_flight > 2", ("pool.a.limit", "pool['b'].in_flight")),
        ("pool.a.available && pool.b.cost < 3.0 && pool.a.loaded && pool.a.tier > 0 && pool.a.quality > 0.5", ()),
        ("pool.a.latency_s < 0.2 || pool.a.error_rate > 0.1", ("pool.a.latency_s", "pool.a.error_rate")),
        ("has(pool.a) && size(pool) > 2", ("pool.a", "pool")),
        ("meta.pool == 'x'", ()),
    ],
)
def test_a_condition_reads_load_where_it_reads_what_moves(when: str, read: tuple[str, ...]) -> None:
    assert live_of(ruled(when)) == read


def test_what_is_load_is_what_a_view_has_of_it() -> None:
    """A field added to the view has to be sorted: it moves with the load, or a table knows it as well."""
    known = {"name", "available", "loaded", "cost", "tier", "quality", "tags", "means"}
    assert known | LOAD == set(ModelView.__struct_fields__)


def test_a_policy_of_ones_own_says_it_itself() -> None:
    class Busy(Own, frozen=True):
        def live(self) -> tuple[str, ...]:
            return ("queued",)

    assert live_of(Chain(policies=(Busy(), Use("a")))) == ("queued",)
    assert live_of(Own()) == ()
