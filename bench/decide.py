"""What a decision costs: microseconds per policy and per rule, signals that need no model included.

    python -m bench.decide

A decision is everything from the request to the answer that is not a model: signals, every call of `decide`, the journey
around it. The models' outcomes are ready-made. Figures are wall-clock time of a single thread, P50 and P99 over single
decisions; beside them, as a yardstick of the machine in the same run, the cost of encoding a small JSON object with the
standard library.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from rheostat.engine.journey import Journey, Route
from rheostat.policies import models_of, parse_policy, signals_of
from rheostat.resilience.ladder import FallbackSettings, Link
from rheostat.signals import FEATURES, TextFeatures
from rheostat.types import Context, Outcome, Prediction, Request

TEXT = "My card was charged twice for the same ticket last Tuesday, can you please refund one of the two payments?"
RULE = {"name": "risk", "when": "meta.risk_level == 'high'", "use": "large"}
RULES: dict[str, list[dict[str, Any]]] = {
    "1 CEL rule": [RULE],
    "8 CEL rules": [
        {"when": f"text.size() > {2000 + n} && meta.channel == 'mail'", "use": "large"}
        if n % 2
        else {"when": f"meta.risk_level == 'l{n}'", "use": "large"}
        for n in range(8)
    ],
    "8 word rules": [{"contains": [f"never{n}", f"nowhere{n}"], "use": "large"} for n in range(8)],
    "8 pattern rules": [{"matches": rf"\bcode[ -]?{n}\d+\b", "use": "large"} for n in range(8)],
}
CASCADE = {"cascade": {"stages": ["fast", "large"], "threshold": 0.9}}
POLICIES: dict[str, Any] = {
    "one model": "fast",
    "cascade, kept": {"cascade": {"stages": ["fast", "large"], "threshold": 0.6}},
    "cascade, escalated": CASCADE,
    "cascade, hysteresis": {"cascade": {"stages": ["fast", "large"], "threshold": 0.9, "hysteresis": [0.8, 0.92]}},
    "binary on 3 text signals": {
        "chain": [
            {"rules": [{"when": "signals.words > 400.0 || signals.digits > 0.9", "use": "large"}]},
            {"binary": {"signal": "length", "threshold": 900, "weak": "fast", "strong": "large"}},
        ]
    },
    "blend, mix": {"blend": {"weights": {"fast": 0.3, "large": 0.7}}},
    "blend, sample": {"blend": {"weights": {"fast": 0.3, "large": 0.7}, "mode": "sample"}},
    "delegate": {"delegate": {"weak": "fast", "strong": "large", "low": 0.2, "high": 0.8}},
    "split": {"split": {"arms": [{"use": "fast", "share": 1}, {"use": "large", "share": 1}]}},
    "8 rules, then cascade": {"chain": [{"rules": RULES["8 CEL rules"]}, CASCADE]},
}
OUTCOMES = {
    "fast": Outcome("fast", Prediction.from_scores({"a": 0.7, "b": 0.3}), served_by="fast", cost=1.0),
    "large": Outcome("large", Prediction.from_scores({"a": 0.95, "b": 0.05}), served_by="large", cost=40.0),
}
LINKS = {"fast": Link(cost=1.0), "large": Link(cost=40.0)}


def decision(node: Any) -> Callable[[], None]:
    """Return a function that takes one request through the policy in `node`."""
    policy = parse_policy(node)
    route = Route(policy=policy, fallback=FallbackSettings(), links=LINKS, default=models_of(policy)[0])
    features = tuple(name for name in signals_of(policy) if name in FEATURES)
    scorer = TextFeatures(features) if features else None
    request = Request(id="r", data=TEXT, text=TEXT, meta={"risk_level": "low", "channel": "web"}, session="s")

    def run() -> None:
        signals = scorer.score(request) if scorer is not None else {}
        journey = Journey(route, Context(request, signals, {}, {}))
        waiting = list(journey.start(0.0))
        while journey.ending is None:
            waiting.extend(journey.arrived(OUTCOMES[waiting.pop(0)], 0.0))

    return run


def measure(run: Callable[[], object], rounds: int = 4_000) -> tuple[float, float]:
    """Return the P50 and P99 of one call, in microseconds."""
    clock = time.perf_counter_ns
    for _ in range(200):
        run()
    times = []
    for _ in range(rounds):
        began = clock()
        run()
        times.append(clock() - began)
    times.sort()
    return times[len(times) // 2] / 1000, times[len(times) * 99 // 100] / 1000


def per_rule(rules: Sequence[dict[str, Any]]) -> float:
    """Return what trying one of these rules costs, none of which holds, in microseconds at P50."""
    policy = parse_policy({"rules": list(rules)})
    request = Request(id="r", data=TEXT, text=TEXT, meta={"risk_level": "low", "channel": "web"})
    p50, _ = measure(lambda: policy.decide(Context(request), ()))
    return p50 / len(rules)


def main() -> None:
    """Print the table."""
    print(f"{platform.machine()}, Python {platform.python_version()}, text of {len(TEXT)} characters")
    yardstick, _ = measure(lambda: json.dumps({"label": "a", "confidence": 0.7, "scores": {"a": 0.7, "b": 0.3}}))
    print(f"yardstick, json.dumps of a small object: {yardstick:.1f} us\n")
    print(f"{'decision':28} {'P50 us':>8} {'P99 us':>8} {'x yardstick':>12}")
    for name, node in POLICIES.items():
        p50, p99 = measure(decision(node))
        print(f"{name:28} {p50:8.1f} {p99:8.1f} {p50 / yardstick:12.1f}")
    print(f"\n{'rule':28} {'us each':>8}")
    for name, rules in RULES.items():
        print(f"{name:28} {per_rule(rules):8.1f}")
    print(f"\nmedian over policies: {statistics.median(measure(decision(node))[0] for node in POLICIES.values()):.1f} us")


if __name__ == "__main__":
    main()
