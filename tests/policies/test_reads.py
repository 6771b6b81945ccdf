"""What a policy reads of a request besides its data."""

from __future__ import annotations

from msgspec import Struct

from rheostat.policies import Cascade, Chain, Rule, Rules, Split, Use
from rheostat.policies.parse import parse_policy
from rheostat.policies.reads import EVERYTHING, Reads, reads_of
from rheostat.policies.split import Arm
from rheostat.types import Context, Decision, Decline


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
