"""Limits of tokens and money: nothing drifts, nothing leaks, whatever comes and however it ends."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rheostat.config import load_config
from rheostat.engine.allowing import usage_of, used_tokens
from rheostat.errors import ConfigError, TooMany
from rheostat.resilience.allowance import DAY_S, Allowance, Allowances, AllowanceSettings
from rheostat.telemetry import SqliteSink
from rheostat.telemetry.spent import spent_since
from rheostat.testing import Act, run_virtual, scripted_model
from rheostat.types import Attempt, Failure, Outcome, Prediction, RouteRecord
from tests.chat.chat_servers import Chats, ask, chunk, completion, gateway, hello, model, record
from tests.engine.test_engine import CASCADE, HANG, Bench, pair

LIMITS = AllowanceSettings(tokens_per_minute=100, tokens_per_day=500, cost_per_day=10.0)
TEAM = Allowance(name="team", settings=LIMITS)


class Ledger(RuleBasedStateMachine):
    """Requests come, hold, and end with something else than was held; the sums are kept apart and compared."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.wall = 100.0, 20_000 * DAY_S + 80_000.0
        self.state = TEAM._at(TEAM.begin(self.now), self.now, self.wall)
        self.held: list[tuple[float, float]] = []
        self.day = int(self.wall // DAY_S)
        self.tokens = self.cost = 0.0
        self.taken: list[tuple[float, float]] = []  # (when, tokens) that were used
        self.over = 0.0  # how much more than held was used, all in all

    @rule(seconds=st.floats(0.0, 4000.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds
        if int(self.wall // DAY_S) > self.day:
            self.day, self.tokens, self.cost = int(self.wall // DAY_S), 0.0, 0.0

    @rule(seconds=st.floats(-200_000.0, 0.0))
    def the_wall_clock_goes_back_and_forth(self, seconds: float) -> None:
        before = TEAM._at(self.state, self.now, self.wall)
        assert TEAM._at(before, self.now, self.wall + seconds) == before

    @rule(tokens=st.floats(0.0, 120.0), cost=st.floats(0.0, 3.0))
    def a_request_comes(self, tokens: float, cost: float) -> None:
        wait = TEAM.wait_s(self.state, tokens, cost, self.now, self.wall)
        assert wait >= 0.0
        if tokens > 100.0:
            assert wait == float("inf")
        elif wait == 0.0:
            self.state = TEAM.held(self.state, tokens, cost, self.now, self.wall)
            self.held.append((tokens, cost))
        elif not self.held and wait < 3600.0:  # then nothing but time is in the way
            later = wait + 1e-6 * (1.0 + self.now)
            left = TEAM.wait_s(self.state, tokens, cost, self.now + later, self.wall + later)
            assert left == pytest.approx(0.0, abs=1e-6) or left > 60.0  # or the day is used up as well

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 50), tokens=st.floats(0.0, 150.0), cost=st.floats(0.0, 4.0), answered=st.booleans())
    def one_ends(self, which: int, tokens: float, cost: float, answered: bool) -> None:
        held = self.held.pop(which % len(self.held))
        self.state = TEAM.settled(self.state, held, (tokens, cost), tokens if answered else None, self.now, self.wall)
        self.tokens += tokens
        self.cost += cost
        self.taken.append((self.now, tokens))
        self.over += max(0.0, tokens - held[0])

    @invariant()
    def nothing_drifts(self) -> None:
        state = TEAM._at(self.state, self.now, self.wall)
        assert state.tokens == pytest.approx(self.tokens)
        assert state.cost == pytest.approx(self.cost)
        assert state.held_tokens == pytest.approx(sum(tokens for tokens, _ in self.held), abs=1e-6)
        assert state.held_cost == pytest.approx(sum(cost for _, cost in self.held), abs=1e-6)
        assert state.held_tokens >= 0.0
        assert state.level <= 100.0
        assert min(TEAM.shares(self.state, self.now, self.wall).values()) >= 0.0

    @invariant()
    def no_minute_takes_more_than_two_minutes_worth_and_what_was_not_foreseen(self) -> None:
        recent = sum(tokens for at, tokens in self.taken if at > self.now - 60.0)
        assert recent <= 200.0 + self.over + 1e-6


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_when_to_come_back() -> None:
    wall = 20_000 * DAY_S + DAY_S - 100.0
    state = TEAM.begin(0.0)
    assert TEAM.wait_s(state, 100.0, 0.0, 0.0, wall) == 0.0
    state = TEAM.settled(TEAM.held(state, 60.0, 0.0, 0.0, wall), (60.0, 0.0), (60.0, 0.0), 1.0, 0.0, wall)
    assert TEAM.wait_s(state, 70.0, 0.0, 0.0, wall) == pytest.approx(18.0)  # 30 tokens at 100 a minute
    assert TEAM.wait_s(state, 70.0, 0.0, 18.1, wall + 18.1) == 0.0
    state = TEAM.settled(state, (0.0, 0.0), (0.0, 9.5), 1.0, 0.0, wall)
    assert TEAM.wait_s(state, 0.0, 1.0, 0.0, wall) == pytest.approx(100.0)  # midnight
    assert TEAM.wait_s(state, 0.0, 1.0, 100.0, wall + 100.0) == 0.0
    waiting = TEAM.held(TEAM.begin(0.0), 0.0, 9.5, 0.0, wall)
    assert TEAM.wait_s(waiting, 0.0, 1.0, 0.0, wall) == 1.0  # one that is in flight may leave room


def test_every_tenant_for_itself_and_only_those_named() -> None:
    each = Allowance(name="each", settings=AllowanceSettings(tokens_per_day=10), per_tenant=True)
    allowances = Allowances()
    allowances.put(each, "a", each.settled(each.begin(0.0), (0, 0), (8.0, 0.0), 1.0, 0.0, 0.0))
    assert allowances.state(each, "a", 0.0).tokens == 8.0
    assert allowances.state(each, "b", 0.0).tokens == 0.0
    assert len(list(allowances.of(each))) == 1
    named = Allowance(name="n", settings=AllowanceSettings(tokens_per_day=10, tenants=("a",)))
    assert named.holds_for("a")
    assert not named.holds_for("b")
    assert not named.holds_for(None)
    small = Allowances(2)
    for tenant in "abc":
        small.put(each, tenant, each.begin(0.0))
    assert len(list(small.of(each))) == 2


def outcome(prediction: Prediction | None, *kinds: str | None, pieces: int = 0) -> Outcome:
    attempts = tuple(Attempt("m", 0.0, 0.1, Failure(kind) if kind else None, None, pieces) for kind in kinds)
    return Outcome("m", prediction, None if prediction else Failure(kinds[-1] or "timeout"), attempts, "m")


def test_what_calls_took() -> None:
    told = Prediction("hello", output=completion("hello"))  # tells 5 and 2
    assert used_tokens([outcome(told, None)], 100.0, 50.0) == (7.0, 2.0)
    assert used_tokens([outcome(Prediction("hello world!"), None)], 100.0, 50.0) == (103.0, 3.0)
    assert used_tokens([outcome(told, None), outcome(told, None)], 100.0, 50.0) == (14.0, 2.0)
    assert used_tokens([outcome(told, "timeout", None)], 100.0, 50.0) == (157.0, 2.0)
    assert used_tokens([outcome(None, "cancelled", pieces=9)], 100.0, 50.0) == (109.0, None)
    assert used_tokens([outcome(None, "cancelled")], 100.0, 50.0) == (150.0, None)
    for kind in ("input_refused", "rate_limited", "connection", "upstream_error"):
        assert used_tokens([outcome(None, kind)], 100.0, 50.0) == (0.0, None)
    assert used_tokens([], 100.0, 50.0) == (0.0, None)
    lent = msgspec.structs.replace(outcome(told, None), attempts=())
    assert used_tokens([outcome(told, None), lent], 100.0, 50.0) == (7.0, 2.0)


@pytest.mark.parametrize(
    "output",
    [None, b"", b"{}", b'{"usage":null}', b'{"usage":{"prompt_tokens":-1}}', b'{"usage":{"prompt_tokens":"x"}}', b"\xff",
     {}, {"prompt_tokens": None, "tokens": 1}, 7, "text"],
)  # fmt: skip
def test_a_usage_that_is_none_is_estimated(output: Any) -> None:
    assert usage_of(Prediction("x", output=output)) is None


def limited(bench: Bench, **limits: Any) -> Bench:
    allowance = Allowance(name="team", settings=AllowanceSettings(**limits))
    lane = msgspec.structs.replace(bench.plan.lanes["default"], allowances=(allowance,))
    bench.plan = msgspec.structs.replace(bench.plan, lanes={"default": lane})
    return bench


def state_of(bench: Bench) -> Any:
    (allowance,) = bench.plan.lanes["default"].allowances
    return bench.engine.allowing.kept.state(allowance, None, bench.loop.monotonic())


def test_a_budget_that_is_spent_refuses_and_says_until_when() -> None:
    bench = limited(Bench(CASCADE, pair([Act(Prediction("a", 0.99), 0.1)], [])), cost_per_day=2.5)
    served = bench.run(*[{} for _ in range(4)])
    errors = [each.error for each in served]
    assert [error is None for error in errors] == [True, True, False, False]
    assert isinstance(errors[2], TooMany)
    assert 0.0 < errors[2].retry_after_s <= DAY_S
    assert served[2].record.status == "rejected"
    assert bench.engine.allowing.kept.exceeded == {"team": 2}
    assert state_of(bench).held_cost == 0.0
    assert not bench.engine.allowing._stakes


def test_with_max_cost_a_spent_budget_leaves_the_cheap_models() -> None:
    unsure = [Act(Prediction("a", 0.1), 0.1)]
    bench = limited(Bench(CASCADE, pair(unsure, [Act(Prediction("b", 0.99), 0.1)])), cost_per_day=50.0, max_cost=5.0)
    served = bench.run(*[{} for _ in range(4)])
    labels = [each.prediction.label if each.prediction else None for each in served]
    assert labels == ["b", "a", "a", "a"]  # the first cost 41; then a second like it would be over the day's 50
    assert [o.failure.kind for o in served[1].record.outcomes if o.failure] == ["over_budget"]
    assert all(each.error is None for each in served)


def test_what_is_cut_off_gives_back_what_it_held() -> None:
    for options, leave in (({"deadline_s": 0.5}, None), ({}, 0.5)):
        bench = limited(Bench("a", {"a": scripted_model("a", HANG)}), tokens_per_minute=1000)
        if leave is None:
            (served,) = bench.run(options)
            assert served.error is not None
        else:
            with pytest.raises(asyncio.CancelledError):
                bench.run(options, leave_after=leave)
        after = state_of(bench)
        assert after.held_tokens == 0.0
        assert after.tokens > 0.0  # the model may have read it
        assert not bench.engine.allowing._stakes


def test_what_never_ran_gives_back_what_it_held() -> None:
    bench = limited(Bench("a", {"a": scripted_model("a", Act(raises=RuntimeError("x")))}), tokens_per_minute=1000)
    (served,) = bench.run()
    assert served.error is not None
    assert (state_of(bench).held_tokens, state_of(bench).tokens) == (0.0, 0.0)


def test_many_at_once_never_hold_more_than_there_is() -> None:
    bench = limited(Bench("a", {"a": scripted_model("a", Act(Prediction("y", 0.9), 1.0))}), tokens_per_minute=10)

    async def run() -> list[Any]:
        return await asyncio.gather(*(bench.one(str(number), {"data": "abcd"}, None) for number in range(30)))

    served = run_virtual(run(), bench.loop)
    answered = [each for each in served if each.error is None]
    assert len(answered) == 10  # a token each; what the answers have is not known yet
    assert all(isinstance(each.error, TooMany) for each in served if each.error is not None)
    assert state_of(bench).held_tokens == 0.0


def priced(server: Chats, more: str = "") -> str:
    return model(server, "cost: 0.001, price: {input: 100, output: 200}" + (f", {more}" if more else ""))


KEYS = "keys: [{key: key-of-tenant-a-1, tenant: a}, {key: key-of-tenant-b-1, tenant: b}]\n"
A, B = {"authorization": "Bearer key-of-tenant-a-1"}, {"authorization": "Bearer key-of-tenant-b-1"}


def test_over_http_each_tenant_has_a_day_which_outlives_a_restart(tmp_path: Path) -> None:
    server = Chats()
    config = (
        f"models: {{m: {priced(server)}}}\nroutes: {{default: {{policy: m}}}}\n{KEYS}"
        "budgets: {team: {per: tenant, limits: {tokens_per_day: 18}}}\n"
    )
    with gateway(tmp_path, config) as handle:
        for _ in range(2):
            reply = ask(handle.url, hello(), A)
            assert reply.status == 200
        assert record(tmp_path, reply).tokens == 7
        refused = ask(handle.url, hello(), A)
        assert refused.status == 429
        assert refused.json["error"]["type"] == "rate_limit_error"
        assert "`team`" in refused.json["error"]["message"]
        assert 0 < int(refused.headers["retry-after"]) <= 86_400
        assert ask(handle.url, hello(), B).status == 200
        large = ask(handle.url, hello("word " * 200), B)
        assert (large.status, large.json["error"]["code"]) == (413, "too_large")
        with urllib.request.urlopen(f"{handle.url}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
        used = next(line for line in lines if line.startswith('rheostat_budget_used{budget="team",limit="tokens_per_day"}'))
        assert float(used.split()[-1]) == pytest.approx(14 / 18)
        assert 'rheostat_budget_exceeded_total{budget="team"} 2' in lines
    with gateway(tmp_path, config) as handle:
        assert ask(handle.url, hello(), A).status == 429
        assert ask(handle.url, hello(), B).status == 200
        assert ask(handle.url, hello(), B).status == 429
    assert len(server.asked) == 4
    server.close()


def test_a_stream_is_settled_by_what_it_tells_and_one_that_is_left_by_what_it_sent(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}
    server = Chats(
        lambda _: [
            chunk({"content": "a"}),
            chunk({}, "stop"),
            chunk(None, usage=usage),
            b"data: [DONE]\n\n",
        ]
    )
    config = (
        f"models: {{m: {priced(server)}}}\nroutes: {{default: {{policy: m}}}}\n"
        "budgets: {all: {limits: {tokens_per_day: 50}}}\n"
    )
    with gateway(tmp_path, config) as handle:
        streamed = ask(handle.url, hello(stream=True))
        assert streamed.status == 200
        assert record(tmp_path, streamed).tokens == 42
        assert ask(handle.url, hello(stream=True)).status == 429
    server.close()


def test_cached_answers_take_nothing_and_are_given_when_all_is_spent(tmp_path: Path) -> None:
    server = Chats()
    config = (
        f"models: {{m: {priced(server)}}}\nroutes: {{default: {{policy: m, cache: {{ttl: 60s}}}}}}\n"
        "budgets: {all: {limits: {tokens_per_day: 12}}}\n"
    )
    with gateway(tmp_path, config) as handle:
        assert ask(handle.url, hello()).status == 200
        assert ask(handle.url, hello("another")).status == 429
        again = ask(handle.url, hello())
        assert (again.status, again.headers["x-rheostat-cache"]) == (200, "hit")
        assert record(tmp_path, again).tokens == 0
    server.close()


def test_an_answer_by_a_budget_that_is_spent_is_not_given_to_those_who_can_pay(tmp_path: Path) -> None:
    weak, strong = Chats(lambda _: completion("weak", logprobs=[-3.0])), Chats(lambda _: completion("strong"))
    config = (
        f"models: {{weak: {model(weak, 'cost: 1, confidence: mean_logprob')}, strong: {model(strong, 'cost: 20')}}}\n"
        "routes: {default: {policy: {cascade: {stages: [weak, strong], threshold: 0.9}},"
        " cache: {ttl: 60s, across_tenants: true}}}\n"
        f"{KEYS}budgets: {{day: {{limits: {{cost_per_day: 30, max_cost: 5, tenants: [a]}}}}}}\n"
    )
    with gateway(tmp_path, config) as handle:
        said = [ask(handle.url, hello(text), key) for text, key in (("1", A), ("2", A), ("2", B), ("2", A), ("2", B))]
        texts = [each.json["choices"][0]["message"]["content"] for each in said]
        assert texts == ["strong", "weak", "strong", "weak", "strong"]
        assert [each.headers["x-rheostat-cache"] for each in said] == ["miss", "miss", "miss", "miss", "hit"]
    weak.close()
    strong.close()


def test_what_was_spent_is_read_from_the_records(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "r.db")
    sink.write([
        RouteRecord(id=str(number), wall=wall, route="default", status="ok", tenant=tenant, cost=cost, tokens=tokens)
        for number, (wall, tenant, cost, tokens) in enumerate(
            [(10.0, "a", 1.0, 5), (20.0, "a", 2.0, 6), (30.0, "a", 0.5, 0), (40.0, None, 4.0, 7)])
    ])  # fmt: skip
    sink.close()
    found = {spent.tenant: spent[2:] for spent in spent_since(tmp_path / "r.db", 20.0)}
    assert found == {"a": (6, 2.5), None: (7, 4.0)}


BASE = "models: {m: {backend: template, label: a, cost: 2}}\nroutes: {default: {policy: m}}\n"


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ("{}", "nothing is limited"),
        ("{tokens_per_day: 0}", "above 0"),
        ("{cost_per_day: -1}", "above 0"),
        ("{tokens_per_day: 5, routes: [other]}", "unknown route"),
        ("{tokens_per_day: 5, tenants: [other]}", "unknown tenant"),
        ("{tokens_per_day: 5, max_cost: 1}", "so nothing could be asked"),
        ("{token_per_day: 5}", "did you mean `tokens_per_day`"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    path.write_text(f"{BASE}budgets: {{b: {{limits: {limits}}}}}\n")
    with pytest.raises(ConfigError, match=told):
        load_config(str(path))


def test_a_budget_of_limits_alone_has_no_threshold(tmp_path: Path) -> None:
    path = tmp_path / "rheostat.yaml"
    path.write_text(f"{BASE}budgets: {{b: {{limits: {{tokens_per_day: 5}}}}}}\n")
    assert not [each for each in load_config(str(path)).warnings if each.path.startswith("budgets")]
    path.write_text(
        "models: {m: {backend: template, label: a}, n: {backend: template, label: a}}\n"
        "routes: {default: {policy: {cascade: {stages: [m, n], threshold: spend.b}}}}\n"
        "budgets: {b: {limits: {tokens_per_day: 5}}}\n"
    )
    with pytest.raises(ConfigError, match=r"spend\.b"):
        load_config(str(path))
