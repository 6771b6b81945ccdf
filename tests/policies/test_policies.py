"""Every policy, by example and by law."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rheostat.policies import KINDS, models_of, parse_policy, signals_of
from rheostat.testing import check_policy
from rheostat.types import Answer, Call, Context, Decline, Failure, ModelView, Outcome, Prediction, Request


def ctx(
    text: str = "hello", signals: dict[str, float] | None = None, held: dict[str, str] | None = None, **more: object
) -> Context:
    return Context(Request(id="r1", data=text, text=text, **more), signals or {}, {}, held or {})  # type: ignore[arg-type]


def ok(model: str, confidence: float | None = 0.9, label: str = "a") -> Outcome:
    return Outcome(model, Prediction(label, confidence), served_by=model)


def bad(model: str, kind: str = "timeout") -> Outcome:
    return Outcome(model, failure=Failure(kind), served_by=model)


CASCADE = {"cascade": {"stages": ["fast", "large"], "threshold": 0.8}}


@pytest.mark.parametrize(("confidence", "keeps"), [(0.0, False), (0.7999, False), (0.8, True), (1.0, True), (None, False)])
def test_cascade_border_belongs_to_the_cheap_side(confidence: float | None, keeps: bool) -> None:
    decision = parse_policy(CASCADE).decide(ctx(), (ok("fast", confidence),))
    assert isinstance(decision, Answer if keeps else Call)
    if confidence is None:
        assert "invalid_confidence" in decision.reason


def test_cascade_passes_a_failed_stage_and_declines_when_the_last_fails() -> None:
    policy = parse_policy(CASCADE)
    assert policy.decide(ctx(), ()) == Call(("fast",), "cheapest first", "cascade")
    assert policy.decide(ctx(), (bad("fast"),)).models == ("large",)  # type: ignore[union-attr]
    assert policy.decide(ctx(), (ok("fast", 0.1), bad("large"))) == Decline("the last stage failed: timeout", failed=True)


def test_cascade_escalates_once_by_default() -> None:
    three = {"stages": ["s", "m", "l"], "threshold": 0.9}
    history = (ok("s", 0.1), ok("m", 0.2))
    assert parse_policy({"cascade": three}).decide(ctx(), history).weights == {"m": 1.0}  # type: ignore[union-attr]
    twice = parse_policy({"cascade": three | {"max_escalations": 2}}).decide(ctx(), history)
    assert isinstance(twice, Call)
    assert twice.models == ("l",)


def test_cascade_blends_the_answer_it_passed_over() -> None:
    policy = parse_policy({"cascade": {"stages": ["fast", "large"], "threshold": 0.8, "blend": 0.25}})
    answer = policy.decide(ctx(), (ok("fast", 0.1), ok("large", 0.6)))
    assert answer.weights == {"fast": 0.25, "large": 0.75}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("confidence", "held", "keeps"),
    [
        (0.85, "kept", True),
        (0.85, "deferred", False),
        (0.85, None, False),  # the threshold of .9 decides
        (0.92, "deferred", True),  # the upper bound itself answers
        (0.80, "kept", True),  # the lower bound itself is inside the band
        (0.79, "kept", False),
    ],
)
def test_cascade_hysteresis(confidence: float, held: str | None, keeps: bool) -> None:
    policy = parse_policy({"cascade": {"stages": ["f", "l"], "threshold": 0.9, "hysteresis": [0.8, 0.92]}})
    context = ctx(held={"cascade": held} if held else {})
    decision = policy.decide(context, (ok("f", confidence),))
    assert isinstance(decision, Answer) is keeps
    if keeps:
        assert decision.hold == ("cascade", "kept")  # type: ignore[union-attr]
    else:
        end = policy.decide(context, (ok("f", confidence), ok("l")))
        assert end.hold == ("cascade", "deferred")  # type: ignore[union-attr]


def test_a_score_that_trembles_switches_once() -> None:
    policy = parse_policy(
        {"binary": {"signal": "d", "threshold": 0.5, "weak": "w", "strong": "s", "hysteresis": [0.45, 0.55]}}
    )
    held: dict[str, str] = {}
    chosen = []
    for value in [0.49, 0.51] * 500 + [0.8] * 20 + [0.2] * 20:
        context = ctx(signals={"d": value}, held=held)
        call = policy.decide(context, ())
        answer = policy.decide(context, (ok(call.models[0]),))  # type: ignore[union-attr]
        held = {answer.hold[0]: answer.hold[1]}  # type: ignore[union-attr,index]
        chosen.append(call.models[0])  # type: ignore[union-attr]
    assert sum(a != b for a, b in pairwise(chosen[:1000])) <= 1
    assert chosen[1000] == "s"
    assert chosen[1020] == "w"


def test_binary_buckets_small_changes_away_and_misses_its_signal_loudly() -> None:
    policy = parse_policy({"binary": {"signal": "d", "threshold": 0.5, "weak": "w", "strong": "s", "bucket": 0.1}})
    assert policy.decide(ctx(signals={"d": 0.41}), ()).models == policy.decide(ctx(signals={"d": 0.49}), ()).models  # type: ignore[union-attr]
    assert signals_of(policy) == ("d",)
    with pytest.raises(KeyError):
        policy.decide(ctx(), ())


def test_blend_leaves_out_what_failed_in_proportion() -> None:
    policy = parse_policy({"blend": {"weights": {"a": 0.5, "b": 0.3, "c": 0.2}}})
    assert policy.decide(ctx(), ()).models == ("a", "b", "c")  # type: ignore[union-attr]
    answer = policy.decide(ctx(), (ok("a"), bad("b"), ok("c")))
    assert answer.weights == pytest.approx({"a": 0.5 / 0.7, "c": 0.2 / 0.7})  # type: ignore[union-attr]
    assert answer.missing == ("b",)  # type: ignore[union-attr]
    assert isinstance(policy.decide(ctx(), (bad("a"), bad("b"), ok("c"))), Decline)  # .2 is under min_weight


def test_blend_sample_draws_by_weight_and_logs_the_propensity() -> None:
    policy = parse_policy({"blend": {"weights": {"a": 1, "b": 3}, "mode": "sample"}})
    drawn = {"a": 0, "b": 0}
    for i in range(4000):
        call = policy.decide(Context(Request(id=str(i), data="x")), ())
        assert isinstance(call, Call)
        drawn[call.models[0]] += 1
        assert call.propensity == (0.25 if call.models[0] == "a" else 0.75)
    assert 0.22 < drawn["a"] / 4000 < 0.28


@pytest.mark.parametrize(("weight", "models"), [(0.1, ("w",)), (0.2, ("w", "s")), (0.5, ("w", "s")), (0.9, ("s",))])
def test_delegate_cuts_save_the_other_call(weight: float, models: tuple[str, ...]) -> None:
    policy = parse_policy({"delegate": {"weak": "w", "strong": "s", "weight": "d", "low": 0.2, "high": 0.8}})
    assert policy.decide(ctx(signals={"d": weight}), ()).models == models  # type: ignore[union-attr]


def test_delegate_in_parallel_answers_early_when_the_weight_is_extreme() -> None:
    policy = parse_policy({"delegate": {"weak": "w", "strong": "s", "low": 0.2, "high": 0.8, "parallel": True}})
    assert policy.decide(ctx(), ()).models == ("w", "s")  # type: ignore[union-attr]
    assert policy.decide(ctx(), (ok("w", 0.95),)).weights == {"w": 1.0}  # type: ignore[union-attr]
    middle = policy.decide(ctx(), (ok("w", 0.6), ok("s")))
    assert middle.weights == pytest.approx({"w": 0.6, "s": 0.4})  # type: ignore[union-attr]
    assert policy.decide(ctx(), (bad("s"), ok("w", 0.1))).weights == {"w": 1.0}  # type: ignore[union-attr]


def test_split_is_stable_and_moves_only_what_it_must() -> None:
    def arms(a: float, b: float, name: str = "x", coverage: float = 1.0) -> list[str]:
        shares = [{"use": "A", "share": a}, {"use": "B", "share": b}]
        policy = parse_policy({"split": {"arms": shares, "key": "user", "name": name, "coverage": coverage}})
        out = []
        for i in range(10_000):
            decision = policy.decide(Context(Request(id="r", data="", meta={"user": f"u{i}"})), ())
            out.append(decision.models[0] if isinstance(decision, Call) else "-")
        return out

    half, more = arms(50, 50), arms(60, 40)
    assert half == arms(50, 50)
    assert abs(half.count("A") / 10_000 - 0.5) < 0.015
    moved = [(old, new) for old, new in zip(half, more, strict=True) if old != new]
    assert set(moved) == {("B", "A")}
    assert 0.09 < len(moved) / 10_000 < 0.11
    covered = arms(50, 50, coverage=0.2)
    assert all(now in ("-", was) for was, now in zip(half, covered, strict=True))
    assert 0.185 < sum(now != "-" for now in covered) / 10_000 < 0.215
    other = arms(50, 50, name="y")
    both = [new for old, new in zip(half, other, strict=True) if old == "A"]
    assert 0.47 < both.count("A") / len(both) < 0.53


TEXTS = [
    "REFUND",
    "ＲＥＦＵＮＤ",
    "re\u200bfund",
    "Refund😀",
    "ｒｅｆｕｎｄ",
    "我要退款！",
    "my re\u0301sume\u0301",
    "REFUNDİNG",
]


def rules(normalise: bool) -> dict[str, object]:
    return {"rules": {"normalise": normalise, "rules": [{"contains": ["refund", "退款", "résumé"], "use": "large"}]}}


@pytest.mark.parametrize("text", TEXTS)
def test_rules_read_text_in_every_spelling(text: str) -> None:
    assert isinstance(parse_policy(rules(True)).decide(ctx(text), ()), Call)


def test_rules_keep_look_alikes_and_exact_spelling_apart() -> None:
    assert parse_policy(rules(True)).decide(ctx("rеfund"), ()) == Decline("no rule holds")  # a Cyrillic е
    assert parse_policy(rules(False)).decide(ctx("REFUND"), ()) == Decline("no rule holds")
    assert isinstance(parse_policy(rules(False)).decide(ctx("refund"), ()), Call)


def test_rules_by_priority_then_by_order_and_missing_fields_do_not_hold() -> None:
    policy = parse_policy(
        {
            "rules": [
                {"name": "long", "when": "text.size() > 3", "use": "b"},
                {"name": "risk", "when": "meta.risk == 'high'", "use": "c"},
                {"name": "first", "when": "meta.vip == true", "use": "a", "priority": 5},
            ]
        }
    )
    assert policy.decide(ctx("long text"), ()).models == ("b",)  # type: ignore[union-attr]
    assert policy.decide(ctx("abc", meta={"risk": "high"}), ()).models == ("c",)  # type: ignore[union-attr]
    assert policy.decide(ctx("long text", meta={"vip": True}), ()).models == ("a",)  # type: ignore[union-attr]
    assert policy.decide(ctx("abc"), ()) == Decline("no rule holds")


@pytest.mark.parametrize(
    ("when", "meta", "holds"),
    [
        ("'vip' in meta", {"vip": 1}, True),
        ("'vip' in meta", {}, False),
        ("has(meta.vip) && meta.vip", {"vip": True}, True),
        ("has(meta.vip) && meta.vip", {}, False),
        ("meta.user.level > 2", {"user": {"level": 3}, "other": "x"}, True),
        ("meta.size() == 2", {"a": 1, "b": 2}, True),
        ("meta['a'] == 1", {"a": 1}, True),
        ("meta . a == 1 && text == 'meta'", {"a": 1}, False),
        ("data.startsWith('hel')", {}, True),
    ],
)
def test_rules_see_all_of_what_they_read(when: str, meta: dict[str, object], holds: bool) -> None:
    decision = parse_policy({"rules": [{"when": when, "use": "m"}]}).decide(ctx(meta=meta), ())
    assert isinstance(decision, Call) is holds


def test_a_condition_that_fails_on_a_request_names_its_rule() -> None:
    policy = parse_policy({"rules": [{"name": "old", "when": "meta.age > 3", "use": "m"}]})
    with pytest.raises(TypeError, match="rule 'old': No such overload"):
        policy.decide(ctx(meta={"age": "four"}), ())


def test_a_slow_pattern_is_linear_here() -> None:
    policy = parse_policy({"rules": [{"matches": "(a+)+$", "use": "x"}]})
    assert policy.decide(ctx("a" * 40 + "!"), ()) == Decline("no rule holds")


def test_chain_passes_what_does_not_apply_but_not_what_failed() -> None:
    policy = parse_policy({"chain": [{"rules": [{"when": "text == 'x'", "use": "big"}]}, CASCADE]})
    assert policy.decide(ctx("y"), ()).models == ("fast",)  # type: ignore[union-attr]
    assert policy.decide(ctx("x"), (bad("big"),)) == Decline("big failed: timeout", failed=True)
    assert models_of(policy) == ("big", "fast", "large")


@pytest.mark.parametrize(
    ("node", "word"),
    [
        ({"cascde": {}}, "did you mean `cascade`"),
        ({"cascade": {"stages": ["a"], "threshold": 0.5}}, "at least two"),
        ({"cascade": {"stages": ["a", "b"], "threshold": 1.5}}, "[0, 1]"),
        ({"cascade": {"stages": ["a", "b"], "treshold": 0.5}}, "treshold"),
        ({"blend": {"weights": {"a": 0, "b": 0}}}, "more than 0"),
        ({"blend": {"weights": {"a": -1, "b": 2}}}, "weights.a"),
        ({"blend": {"weights": {"a": float("nan"), "b": 1}}}, "weights.a"),
        ({"blend": {"weights": {"a": "x"}}}, "float"),
        ({"rules": [{"when": "text.size( > 3", "use": "a"}]}, "not a condition"),
        ({"rules": [{"when": "txet == 'a'", "use": "a"}]}, "did you mean `text`"),
        ({"rules": [{"when": "text.size > 1000", "use": "a"}]}, "can never be worked out"),
        ({"rules": [{"when": "nope(text)", "use": "a"}]}, "can never be worked out"),
        ({"rules": [{"matches": r"(a)\1", "use": "a"}]}, "RE2"),
        ({"no.such.Thing": {}}, "cannot import"),
        (7, "a policy is"),
    ],
)
def test_mistakes_are_refused_with_a_word_that_helps(node: object, word: str) -> None:
    with pytest.raises(ValueError, match=word.replace("[", r"\[").replace("(", r"\(")):
        parse_policy(node)


MODELS = ("m0", "m1", "m2")
LEAVES = st.sampled_from(MODELS)
PAIRS = st.permutations(MODELS).map(lambda names: names[:2])
CUTS = st.floats(0, 1)


def among_many(answers: bool = False) -> st.SearchStrategy[object]:
    """`cheapest` in its modes; it reads q.MODEL, with `answers` also a.MODEL, made from that model's answer."""
    mode = st.one_of(st.builds(lambda bar: {"bar": bar}, CUTS), st.builds(lambda trade: {"trade": trade}, CUTS))
    guard = st.one_of(st.just({}), st.builds(lambda m, best: {"best": best, "margin": m}, st.floats(-1, 1), LEAVES))
    again = st.one_of(
        st.just({}),
        st.builds(
            lambda asks, reveal, carry, read: {"asks": asks, "reveal": reveal, "carry": carry, "confidence": read},
            st.integers(2, 4), CUTS, CUTS, st.sampled_from([None, "a"] if answers else [None]),
        ),
    )  # fmt: skip
    fixed = {"of": list(MODELS), "quality": "q"}
    return st.builds(
        lambda *parts: {"cheapest": dict(fixed, **{k: v for p in parts for k, v in p.items()})}, mode, guard, again
    )


def answered() -> tuple[st.SearchStrategy[object], ...]:
    """Policies that read signals made from answers: `a.MODEL` from that model's, `both.MODEL` from m0's and m1's."""
    return (
        st.builds(
            lambda pair, signal, cuts, parallel, mode: {
                "delegate": {
                    "weak": pair[0], "strong": pair[1], "weight": signal, "low": min(cuts), "high": max(cuts),
                    "parallel": parallel, "mode": mode,
                }
            },
            PAIRS, st.sampled_from(["a.m0", "a.m2", "both.m1"]), st.tuples(CUTS, CUTS), st.booleans(),
            st.sampled_from(["mix", "sample"]),
        ),
        st.builds(
            lambda weights, signal, mode: {
                "blend": {"weights": dict(zip(MODELS, weights, strict=True)), "signal": signal, "mode": mode}
            },
            st.tuples(st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 1)), st.sampled_from(["a", "both"]),
            st.sampled_from(["mix", "sample"]),
        ),
        st.builds(
            lambda pair, signal, cut, parallel: {
                "cascade": {"stages": list(pair), "threshold": cut, "confidence": signal, "parallel": parallel}
            },
            PAIRS, st.sampled_from(["a", "both"]), CUTS, st.booleans(),
        ),
    )  # fmt: skip


def nodes(answers: bool = False) -> st.SearchStrategy[object]:
    """Any policy over three models, nested; with `answers` also those that read signals made from answers."""
    simple = st.one_of(
        LEAVES,
        among_many(answers),
        st.builds(
            lambda pair, cut, blend, parallel: {
                "cascade": {"stages": list(pair), "threshold": cut, "blend": blend, "parallel": parallel}
            },
            PAIRS, CUTS, st.floats(0, 0.9), st.booleans(),
        ),
        st.builds(
            lambda pair, cuts, parallel, mode: {
                "delegate": {
                    "weak": pair[0], "strong": pair[1], "low": min(cuts), "high": max(cuts),
                    "parallel": parallel, "mode": mode,
                }
            },
            PAIRS, st.tuples(CUTS, CUTS), st.booleans(), st.sampled_from(["mix", "sample"]),
        ),
        *(answered() if answers else ()),
        st.builds(
            lambda pair, algorithm, n, floor: {
                "bandit": {
                    "arms": list(pair), "algorithm": algorithm, "features": ["d"], "floor": floor,
                    "seen": {pair[0]: {"n": n, "mean": 0.7}},
                }
            },
            PAIRS, st.sampled_from(["thompson", "epsilon", "linucb"]), st.floats(0, 1e5), st.sampled_from([0.0, 0.1]),
        ),
        st.builds(
            lambda weights, mode: {"blend": {"weights": dict(zip(MODELS, weights, strict=True)), "mode": mode}},
            st.tuples(st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 1)), st.sampled_from(["mix", "sample"]),
        ),
    )  # fmt: skip
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            st.builds(
                lambda a, b, cut: {"binary": {"signal": "d", "threshold": cut, "weak": a, "strong": b}}, inner, inner, CUTS
            ),
            st.builds(
                lambda a, b, c: {"by_label": {"model": "m0", "map": {"a": a}, "default": b, "on_error": c}},
                inner,
                inner,
                inner,
            ),
            st.builds(lambda a, b: {"split": {"arms": [{"use": a, "share": 1}, {"use": b, "share": 2}]}}, inner, inner),
            st.builds(lambda a, b: {"chain": [{"rules": [{"when": "signals.d > 0.7", "use": a}]}, b]}, inner, inner),
            st.builds(
                lambda a, cut, label: {"review": {"policy": a, "below": cut, "label": label}},
                inner,
                st.floats(0.01, 1),
                st.sampled_from([None, "unsure"]),
            ),
            st.builds(
                lambda a, b, cut, margin: {"tiers": {"signal": "d", "cuts": [cut], "use": [a, b], "hysteresis": margin}},
                inner,
                inner,
                CUTS,
                st.sampled_from([None, 0.1]),
            ),
        ),
        max_leaves=4,
    )


@st.composite
def results(draw: st.DrawFn) -> dict[str, Outcome]:
    """One outcome per model."""
    out = {}
    for model in MODELS:
        if draw(st.booleans()) or draw(st.booleans()):
            confidence = draw(st.one_of(st.none(), st.floats(0, 1)))
            out[model] = ok(model, confidence, draw(st.sampled_from("ab")))
        else:
            out[model] = bad(model, draw(st.sampled_from(["timeout", "crashed", "unavailable"])))
    return out


@given(nodes(), results(), st.floats(0, 1), st.text(max_size=5))
def test_every_policy_obeys_the_laws(node: object, outcomes: dict[str, Outcome], signal: float, key: str) -> None:
    signals = {"d": signal} | {f"q.{model}": abs(signal - at / 3) for at, model in enumerate(MODELS)}
    pool = {model: ModelView(model, cost=float(at), available=at != 1) for at, model in enumerate(MODELS)}
    context = structs.replace(ctx(signals=signals, session=key), pool=pool)
    called = check_policy(parse_policy(node), context, outcomes)
    assert set(called) <= set(MODELS)


@pytest.mark.parametrize(
    ("when", "read"),
    [
        ('signals["spend.daily.left"] < 5.0', ("spend.daily.left",)),
        ("signals.length > 3.0 && signals['w.m'] < 0.5", ("length", "w.m")),
    ],
)
def test_a_rule_names_the_signals_it_reads(when: str, read: tuple[str, ...]) -> None:
    assert signals_of(parse_policy({"rules": [{"when": when, "use": "m0"}]})) == read


def test_every_kind_is_drawn() -> None:
    assert set(KINDS) == {
        "balance",
        "bandit",
        "binary",
        "blend",
        "cascade",
        "chain",
        "by_label",
        "cheapest",
        "delegate",
        "review",
        "rules",
        "split",
        "tiers",
    }
