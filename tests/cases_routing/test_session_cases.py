"""Scores that tremble around a border, memory for sessions, and sessions whose model is out."""

from __future__ import annotations

import asyncio
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

from rheostat.engine.engine import Engine, Lane, Plan
from rheostat.engine.journey import Route
from rheostat.errors import ModelError
from rheostat.policies import parse_policy
from rheostat.pool import Pool
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.holds import MAX_KEY, Holds
from rheostat.resilience.ladder import FallbackSettings
from rheostat.resilience.ramp import RampSettings
from rheostat.testing import Act, VirtualLoop, run_virtual, scripted_model
from rheostat.testing.step import Ok
from rheostat.types import Prediction, Request, RouteRecord
from rheostat.types.duration import Duration
from tests.cases_routing.routed import routed

BAND: dict[str, Any] = {
    "binary": {"signal": "d", "threshold": 0.5, "hysteresis": [0.45, 0.55], "weak": "weak", "strong": "strong"}
}


class Level:
    """A difficulty that the text of the request says."""

    names = ("d",)

    def score(self, request: Request) -> dict[str, float]:
        return {"d": float(request.text)}


class Bench:
    """An engine over models that answer at once, in virtual time."""

    def __init__(self, node: Any, acts: dict[str, list[Act]], holds: Holds | None = None, **settings: Any) -> None:
        self.loop = VirtualLoop()
        self.records: list[RouteRecord] = []
        self.holds = holds or Holds()
        policy = parse_policy(node)
        pool = Pool({name: scripted_model(name, *each, **settings) for name, each in acts.items()})
        links = {name: model.link() for name, model in pool.models.items()}
        route = Route(policy=policy, fallback=FallbackSettings(retry=1), links=links, default=next(iter(acts)))
        held = ((policy.name, policy.key),) if getattr(policy, "hysteresis", None) is not None else ()  # type: ignore[attr-defined]
        live = bool(getattr(policy, "live", False))
        lane = Lane(name="default", route=route, held=held, scorers=(Level(),) if held else (), live=live)
        self.plan = Plan(version="v", lanes={"default": lane}, pool=pool)
        self.engine = Engine(self.loop, self.holds, (self.records.append,))

    async def ask(self, number: int, text: str, session: str | None) -> RouteRecord:
        now = self.loop.monotonic()
        request = Request(id=str(number), data=text, text=text, session=session, received=now, deadline=now + 5.0)
        return (await self.engine.serve(self.plan, request)).record

    def run(self, *values: float, session: str | None = "s1") -> list[RouteRecord]:
        async def main() -> list[RouteRecord]:
            return [await self.ask(number, str(value), session) for number, value in enumerate(values)]

        return run_virtual(main(), self.loop)


def plain() -> dict[str, list[Act]]:
    return {name: [Act(Prediction(name, 0.9))] for name in ("weak", "strong")}


def switches(models: list[str]) -> int:
    return sum(before != after for before, after in pairwise(models))


def test_case_seven_a_score_that_trembles_changes_the_model_once_at_most() -> None:
    """O-RTE-07: the switch comes with the first request beyond the band."""
    values = [0.49, 0.51] * 500 + [0.8] * 20 + [0.2] * 20
    records = Bench(BAND, plain()).run(*values)
    models = [record.selected_model for record in records]
    assert switches(models[:1000]) <= 1
    assert set(models[1000:1020]) == {"strong"}
    assert set(models[1020:]) == {"weak"}
    within = records[5]
    assert within.signals["d"] == values[5]
    assert within.held == {"binary": models[4]}
    assert within.reason == f"d 0.5100 in [0.45, 0.55): held {models[4]}"
    assert records[1000].reason == "d 0.8000 outside the band"


def test_case_seven_the_edges_of_the_band() -> None:
    """O-RTE-07: the upper edge belongs to strong, the lower one to the band."""
    assert [record.selected_model for record in Bench(BAND, plain()).run(0.1, 0.55)] == ["weak", "strong"]
    assert [record.selected_model for record in Bench(BAND, plain()).run(0.9, 0.45)] == ["strong", "strong"]
    assert [record.selected_model for record in Bench(BAND, plain()).run(0.9, 0.4499)] == ["strong", "weak"]


def test_case_eight_memory_for_sessions_has_a_limit() -> None:
    """O-RTE-08, scaled down ten times: 100,000 sessions, two puts each, a limit of 1,000."""
    limit = 1_000
    holds = Holds(limit=limit, idle_s=600.0)
    for number in range(limit):
        holds.put(f"route/binary/session-{number}", "weak", float(number))
    tracemalloc.start()
    full = tracemalloc.get_traced_memory()[0]
    for number in range(limit, 100 * limit):
        key = f"route/binary/session-{number}"
        holds.put(key, "weak", float(number))
        assert holds.get(key, float(number)) == "weak"
        holds.put(key, "weak", float(number))
        assert len(holds) <= limit
    grown = tracemalloc.get_traced_memory()[0] - full
    tracemalloc.stop()
    assert grown < 500 * limit, "no more than what the sessions kept weigh themselves"
    assert holds.get("route/binary/session-5", 1e5) is None
    assert holds.get(f"route/binary/session-{100 * limit - 1}", 1e5) == "weak"


def test_case_eight_the_longest_idle_go_first_and_age_counts_too() -> None:
    """O-RTE-08."""
    holds = Holds(limit=2, idle_s=600.0)
    holds.put("a", "x", 0.0)
    holds.put("b", "x", 1.0)
    assert holds.get("a", 2.0) == "x"
    holds.put("c", "x", 3.0)
    assert holds.get("b", 3.0) is None
    assert holds.get("a", 603.0) is None


def test_case_eight_no_request_fails_for_a_session_that_was_dropped_or_is_strange() -> None:
    """O-RTE-08: a dropped session starts anew; long ids are kept as a hash; without an id nothing is shared."""
    holds = Holds(limit=3)
    bench = Bench(BAND, plain(), holds)
    sessions = [f"s{number}" for number in range(50)] * 2 + ["x" * 1_000_000] * 2 + ["", ""]

    async def main() -> list[RouteRecord]:
        values = ["0.9"] * 50 + ["0.5"] * 50 + ["0.9", "0.48"] + ["0.9", "0.48"]
        pairs = enumerate(zip(values, sessions, strict=True))
        return [await bench.ask(number, value, session) for number, (value, session) in pairs]

    records = run_virtual(main(), bench.loop)
    assert {record.status for record in records} == {"ok"}
    assert len(holds) <= 3
    assert all(len(key) <= MAX_KEY for key in holds._entries)
    assert [record.selected_model for record in records[-4:]] == ["strong", "strong", "strong", "weak"]


def test_case_eight_a_gauge_shows_how_many_there_are(tmp_path: Path) -> None:
    """O-RTE-08."""

    async def main() -> None:
        policy = {"binary": {"signal": "length", "threshold": 10, "hysteresis": [5, 20], "weak": "weak", "strong": "strong"}}
        scripts = {"weak": [Ok(body="w")], "strong": [Ok(body="s")]}
        async with routed(tmp_path, policy, scripts, holds={"limit": 5}) as pool:
            for number in range(12):
                await pool.ask("short", session=f"s{number}")
            assert pool.metric("rheostat_holds").endswith(" 5")

    asyncio.run(main())


STICKY = {"balance": {"models": ["a", "b"], "sticky": "session"}}
GOOD = Act(Prediction("x", 0.9), 0.01)


def home(session: str) -> str:
    """The model that a session belongs to."""
    return Bench(STICKY, {"a": [GOOD], "b": [GOOD]}).run(0.0, session=session)[0].selected_model


def outage(ramp: RampSettings) -> tuple[str, str, list[RouteRecord], list[RouteRecord]]:
    """A request a second of two sessions; the model of the first one fails once and is then out for 30 s.

    Returns that model, the other one, and what became of the first session's and the other one's requests.
    """
    bound = home("s")
    other = "b" if bound == "a" else "a"
    elsewhere = next(name for name in (f"t{number}" for number in range(100)) if home(name) == other)
    breaker = BreakerSettings(failure_threshold=1, timeout_seconds=Duration(30.0), success_threshold=1)
    script = [GOOD, Act(ModelError("upstream_error", "500"), 0.01), GOOD]
    bench = Bench(STICKY, {bound: script, other: [GOOD]}, breaker=breaker, ramp=ramp)

    async def main() -> tuple[list[RouteRecord], list[RouteRecord]]:
        mine, theirs = [], []
        for number in range(150):
            mine.append(await bench.ask(number, "0", "s"))
            theirs.append(await bench.ask(1000 + number, "0", elsewhere))
            await asyncio.sleep(1.0)
        return mine, theirs

    return (bound, other, *run_virtual(main(), bench.loop))


def test_case_nine_a_session_yields_while_its_model_is_out_and_comes_back_once() -> None:
    """O-RTE-09: the rule is that a session goes back to its model as soon as that may have its traffic."""
    bound, other, mine, theirs = outage(RampSettings(start=1.0))
    assert all(record.error is None for record in (*mine, *theirs))
    attempts = [attempt.model for outcome in mine[1].outcomes for attempt in outcome.attempts]
    assert attempts == [bound, other], "the retry goes to the other model at once"
    models = [record.selected_model for record in mine]
    assert models[0] == bound
    assert set(models[1:28]) == {other}
    assert models[-1] == bound
    assert switches(models[1:]) == 1
    assert {record.selected_model for record in theirs} == {other}


def test_case_nine_on_a_ramp_one_request_is_the_probe_and_the_session_follows_once() -> None:
    """O-RTE-09: some request has to try a model that is out; apart from that one the session changes once."""
    bound, other, mine, theirs = outage(RampSettings())
    assert all(record.error is None for record in (*mine, *theirs))
    models = [record.selected_model for record in mine[1:]]
    probe = models.index(bound)
    assert switches(models[:probe] + models[probe + 1 :]) <= 1
    assert (models[0], models[-1]) == (other, bound)
    assert {record.selected_model for record in theirs} == {other}
