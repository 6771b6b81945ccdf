"""Ways to spread requests over models that can answer the same, through the whole engine, in virtual time.

    python -m bench.balance               # every set-up and way, and what a decision costs
    python -m bench.balance slowed --seed 1       # one set-up, with other chance

Requests come as a Poisson stream, whoever is slow, and latencies count from when each was due. A server works on 4 calls at
a time, in the order they came, each for an exponentially distributed time. Set-ups, at 70 % of what all servers can do:

* equal: four servers, 40 ms a call;
* kinds: four servers of 20, 40, 80 and 160 ms a call;
* parallel: two servers that take any number of calls at once, 40 ms each, beside one of 10 ms that takes one at a time;
* slowed: four servers of 40 ms at 45 %, one of them five times slower for 20 s: `left` and `back` are the seconds until its
  share of the requests is under half, and again over 80 %, of a quarter, over 2 s (-: it never is);
* gateways: as kinds, through eight gateways that know nothing of each other;
* herd: four equal servers, all idle and unknown after a restart, 200 requests in 10 ms: the standard deviation of what each
  has in hand at the end of it, the mean and the worst of 20 such bursts; herds: through eight gateways.

Ways: `shortest_wait`, `least_loaded`, `two_choices` and `weighted` (the formula) are the product's; the others exist in this
file only: round robin; random; forecast, the shortest of all by (in hand + 1) / forecast throughput. Breakers and limits are
off: with the usual limit of 1000 calls at a model, what round robin sends to a server that cannot keep up would be answered
by the others of the ladder, and its shares would not be its own. Of kinds and gateways, round robin and random give the two
slow servers more than these can do, so their latencies only say how long the run was.
Virtual time makes every figure but the processor's the same in every run.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import mean, median, pstdev
from typing import Any

from msgspec import Struct

from rheostat.chance import chance
from rheostat.engine.engine import Engine, Lane, Plan
from rheostat.engine.journey import Route
from rheostat.policies import Policy, parse_policy
from rheostat.policies.balance import FLOOR
from rheostat.policies.base import History
from rheostat.pool import Model, ModelSettings, Pool, Reply, Row
from rheostat.resilience.breaker import BreakerSettings
from rheostat.resilience.holds import Holds
from rheostat.resilience.ladder import FallbackSettings
from rheostat.testing import VirtualLoop, run_virtual
from rheostat.types import Answer, Call, Context, Decision, Decline, ModelView, Outcome, Prediction, Request

SLOW_FROM, SLOW_TO = 20.0, 40.0
PLACES = 4
PATIENCE_S = 600.0
COSTED = 2_000
BURSTS = 20
Pick = Callable[[Context, Sequence[str]], str]


class Server:
    """A remote backend that works on `places` calls at a time, in the order they came."""

    def __init__(
        self, loop: VirtualLoop, name: str, usual_s: float, places: int, slow: Mapping[str, float], seed: int
    ) -> None:
        self.labels: tuple[str, ...] | None = None
        self.loop, self.usual_s, self.places, self.slow = loop, usual_s, places, slow.get(name, 1.0)
        self.dice = Random(f"{name}/{seed}")
        self.free = places
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def apredict(self, rows: Sequence[Row], timeout_s: float) -> Sequence[Reply]:  # noqa: ARG002
        if self.free:
            self.free -= 1
        else:
            ticket = self.loop.create_future()
            self.waiting.append(ticket)
            await ticket
        slower = self.slow if SLOW_FROM <= self.loop.time() - 1_000.0 < SLOW_TO else 1.0
        await asyncio.sleep(self.dice.expovariate(1.0) * self.usual_s * slower)
        if self.waiting:
            self.waiting.popleft().set_result(None)
        else:
            self.free += 1
        return [Prediction("x", 1.0) for _ in rows]

    async def aclose(self) -> None:
        """Nothing to give back."""


class SetUp(Struct, frozen=True):
    """Servers (seconds a call, places), how busy they are all together, for how long, and which is slowed down how much."""

    servers: dict[str, tuple[float, int]]
    rate: float
    seconds: float = 60.0
    slow: dict[str, float] = {}
    gateways: int = 1


EQUAL = dict.fromkeys("abcd", (0.04, PLACES))
SETS = {
    "equal": SetUp(EQUAL, 0.7 * 400.0),
    "kinds": SetUp({name: (0.02 * 2**index, PLACES) for index, name in enumerate("abcd")}, 0.7 * 375.0),
    "parallel": SetUp({"a": (0.04, 1000), "b": (0.04, 1000), "c": (0.01, 1)}, 150.0),
    "gateways": SetUp({name: (0.02 * 2**index, PLACES) for index, name in enumerate("abcd")}, 0.7 * 375.0, gateways=8),
    "slowed": SetUp(EQUAL, 0.45 * 400.0, slow={"a": 5.0}),
    "herd": SetUp(EQUAL, 20_000.0, 0.01),
    "herds": SetUp(EQUAL, 20_000.0, 0.01, gateways=8),
}


class Picked(Struct, frozen=True):
    """A way that is only measured here; the first failure ends the request."""

    of: tuple[str, ...]
    pick: Pick
    name: str = "picked"

    def live(self) -> tuple[str, ...]:
        """Say that the load is read, so that every request gets a view of its own."""
        return ("in_flight", "queued", "throughput")

    def models(self) -> tuple[str, ...]:
        """Return who may be asked."""
        return self.of

    def decide(self, ctx: Context, history: History) -> Decision:
        """Ask the one that is picked."""
        if history:
            return Answer({history[0].model: 1.0}, "it answered") if history[0].ok else Decline("it failed", failed=True)
        return Call((self.pick(ctx, self.of),), "picked")


def _forecast(ctx: Context, of: Sequence[str]) -> str:
    """As the shortest wait in the product, but by the forecast; a rate not known yet counts as the best of the known."""
    id, views = ctx.request.id, ctx.pool
    if chance("again", id) < FLOOR:
        return of[int(chance("other", id) * len(of))]
    best = max([views[name].throughput for name in of]) or 1.0
    waits = {name: (views[name].in_flight + views[name].queued + 1) / (views[name].throughput or best) for name in of}
    return min(of, key=lambda name: (waits[name], chance(name, id)))


PICKS: dict[str, Pick] = {
    "round robin": lambda ctx, of: of[int(ctx.request.id) % len(of)],
    "random": lambda ctx, of: of[int(chance("random", ctx.request.id) * len(of))],
    "forecast": _forecast,
}
WAYS = ("round robin", "random", "least_loaded", "two_choices", "weighted", "shortest_wait", "forecast")


def way_of(way: str, names: Sequence[str]) -> Policy:
    """Return the policy that goes this way."""
    if way in PICKS:
        return Picked(tuple(names), PICKS[way])
    return parse_policy({"balance": {"models": list(names), "choose": way}})


class Seen(Struct):
    """What became of the requests: (when due, seconds until answered, by whom), and what each had in hand at the end."""

    answers: list[tuple[float, float, str]] = []
    in_hand: list[int] = []


def _plan(policy: Policy, servers: Mapping[str, Server]) -> Plan:
    models = {
        name: Model(name, ModelSettings(breaker=BreakerSettings(failure_threshold=0, max_concurrent=0)), server)
        for name, server in servers.items()
    }
    links = {name: model.link() for name, model in models.items()}
    route = Route(policy=policy, fallback=FallbackSettings(retry=0), links=links, default="a")
    lane = Lane(name="default", route=route, live=True, deadline_s=PATIENCE_S)
    return Plan(version="v", lanes={"default": lane}, pool=Pool(models))


def play(setup: SetUp, way: str, seed: int = 0) -> Seen:
    """Send the stream through an engine and wait for all answers."""
    loop = VirtualLoop()
    servers = {
        name: Server(loop, name, usual_s, places, setup.slow, seed) for name, (usual_s, places) in setup.servers.items()
    }
    policy = way_of(way, tuple(servers))
    plans = [_plan(policy, servers) for _ in range(setup.gateways)]
    engine, dice, seen = Engine(loop, Holds(), ()), Random(f"arrivals/{seed}"), Seen()

    async def one(number: int) -> None:
        due = loop.time()
        plan = plans[dice.randrange(len(plans))]
        served = await engine.serve(plan, Request(id=str(number), data="x", received=due, deadline=due + PATIENCE_S))
        assert served.prediction is not None, served.record
        seen.answers.append((due - 1_000.0, loop.time() - due, next(iter(served.record.weights))))

    async def all_of_them() -> None:
        tasks: list[asyncio.Task[None]] = []
        while loop.time() < 1_000.0 + setup.seconds:
            await asyncio.sleep(dice.expovariate(setup.rate))
            tasks.append(asyncio.ensure_future(one(len(tasks))))
        await asyncio.sleep(0.0)
        seen.in_hand = [sum(plan.pool[name].in_flight for plan in plans) for name in servers]
        await asyncio.gather(*tasks)
        models = [plan.pool[name] for plan in plans for name in servers]
        assert all((model.in_flight, model.throughput.active) == (0, 0) for model in models)

    run_virtual(all_of_them(), loop)
    return seen


def share(answers: Sequence[tuple[float, float, str]], name: str, start: float, end: float) -> float:
    """Return the model's share of the requests that were due in this time."""
    found = [model for due, _, model in answers if start <= due < end]
    return found.count(name) / max(1, len(found))


def until(answers: Sequence[tuple[float, float, str]], start: float, end: float, holds: Callable[[float], bool]) -> str:
    """Return the seconds after `start` until the slowed model's share over 2 s is such that it `holds`."""
    for half in range(int((end - start) * 2)):
        at = start + half / 2
        if holds(share(answers, "a", at, at + 2.0)):
            return f"{half / 2:.1f}"
    return "-"


def row(name: str, setup: SetUp, way: str, seed: int = 0) -> str:
    """Return a line of the table."""
    if name.startswith("herd"):
        hands = [play(setup, way, seed + burst).in_hand for burst in range(BURSTS)]
        worst = max(hands, key=pstdev)
        return f"{way:<15}{mean(map(pstdev, hands)):>8.1f}{pstdev(worst):>8.1f}   {'/'.join(map(str, worst))}"
    seen = play(setup, way, seed)
    took = sorted(took for due, took, _ in seen.answers if due >= 2.0 and (not setup.slow or SLOW_FROM <= due < SLOW_TO))
    p50, p95, p99 = (1e3 * took[int(len(took) * part)] for part in (0.5, 0.95, 0.99))
    counts = Counter(model for _, _, model in seen.answers)
    shares = "/".join(f"{100 * counts[model] / len(seen.answers):.0f}" for model in setup.servers)
    line = f"{way:<15}{p50:>8.0f}{p95:>8.0f}{p99:>8.0f}   {shares:<12}"
    if setup.slow:
        during = share(seen.answers, "a", SLOW_FROM + 2.0, SLOW_TO)
        left = until(seen.answers, SLOW_FROM, SLOW_TO, lambda part: part < 0.125)
        back = until(seen.answers, SLOW_TO, setup.seconds - 2.0, lambda part: part > 0.2)
        line += f"{during:>7.0%}{left:>7}{back:>7}"
    return line


def cost(rounds: int = 9) -> dict[str, float]:
    """Return the microseconds of processor time of a decision (both calls of `decide`) by way, a plain cascade's for
    comparison, and of the view of four models that a decision by load has made for itself."""
    names = tuple("abcd")
    views = {name: ModelView(name, latency_s=0.04, in_flight=3, throughput=90.0) for name in names}
    policies: dict[str, Any] = {"cascade": parse_policy({"cascade": {"stages": ["a", "b"], "threshold": 0.9}})}
    policies |= {way: way_of(way, names) for way in WAYS}
    outcomes = {name: Outcome(name, Prediction("x", 0.95)) for name in names}
    times: dict[str, list[float]] = {way: [] for way in (*policies, "view")}
    pool = Pool({name: Model(name, ModelSettings(), Server(VirtualLoop(), name, 0.04, PLACES, {}, 0)) for name in names})
    requests = [Request(id=str(number), data="x") for number in range(COSTED)]
    for _ in range(rounds):
        for way, policy in policies.items():
            began = time.process_time()
            for request in requests:
                ctx = Context(request, pool=views)
                call = policy.decide(ctx, ())
                policy.decide(ctx, (outcomes[call.models[0]],))
            times[way].append(time.process_time() - began)
        began = time.process_time()
        for number in range(COSTED):
            pool.view(float(number), fresh=True)
        times["view"].append(time.process_time() - began)
    return {way: 1e6 * median(found) / COSTED for way, found in times.items()}


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS), help=f"of {', '.join(SETS)}")
    parser.add_argument("--seed", type=int, default=0, help="of arrivals and answer times")
    given = parser.parse_args()
    for name in given.sets:
        setup = SETS[name]
        print(
            f"{name}: {setup.rate:.0f} requests/s for {setup.seconds:g} s"
            if not name.startswith("herd")
            else f"{name}: {BURSTS} times 200 requests"
        )
        head = f"{'way':<15}{'P50 ms':>8}{'P95':>8}{'P99':>8}   {'shares %':<12}"
        print(
            f"{'way':<15}{'std':>8}{'worst':>8}   in hand at the worst"
            if name.startswith("herd")
            else head + ("   slow   left   back" if setup.slow else "")
        )
        for way in WAYS:
            print(row(name, setup, way, given.seed), flush=True)
        print()
    print("microseconds of a decision: " + ", ".join(f"{way} {us:.1f}" for way, us in cost().items()))


if __name__ == "__main__":
    main()
