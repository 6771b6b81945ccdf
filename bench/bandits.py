"""Bandits on nine real models: what they earn in one pass, and a model that joins midway, cold or warm.

    python -m bench.bandits [--shuffles 5] [--every 1]

The stream is LLMRouter's table (6,108 queries of 14 tasks, the score of each of nine models in [0, 1]; MIT licence): every
query comes once, in shuffled order, and only the chosen model's score is seen. The policies are the product's own, taking
rewards in as `rheostat train bandit` does, after every reward or after each batch. The settings are the defaults; the
defaults for `prior` and `width` were picked on eight other shuffles of the same rows, so the last half point is not news.
"""

from __future__ import annotations

import argparse
import csv
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.labelled import data_folder
from rheostat.chance import chance
from rheostat.lab.bandit import Learner
from rheostat.policies.bandit import ALL, Bandit, drawn

NEW = "llama-3.1-nemotron-51b-instruct"  # the best single model: the one whose late arrival matters most
ROUNDS = 6_000
WARM_ROWS = 200
START_ROWS = 500
Floats = NDArray[np.float64]


class Stream(NamedTuple):
    """Scores (rows x models), the task of each row, and its features."""

    models: tuple[str, ...]
    scores: Floats
    tasks: tuple[str, ...]
    features: Floats


class Played(NamedTuple):
    """One pass: the reward of each round, and the row it came from."""

    rewards: Floats
    rows: NDArray[np.int64]


def main(argv: Sequence[str] | None = None) -> None:
    """Print both tables as Markdown."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--shuffles", type=int, default=5)
    arguments.add_argument("--every", type=int, default=1, help="rewards between two updates (linucb: at least 50)")
    given = arguments.parse_args(argv)
    stream = read_stream()
    if stream is None:
        return
    means = stream.scores.mean(axis=0)
    best = float(means.max())
    tasks = np.array(stream.tasks)
    by_task = sum(stream.scores[tasks == task].mean(axis=0).max() * (tasks == task).mean() for task in set(stream.tasks))
    print(f"{platform.machine()}, NumPy {np.__version__}; {len(tasks):,} queries, {len(stream.models)} models\n")
    print(
        f"best single model {best:.4f}, best per task {by_task:.4f}, random {means.mean():.4f}; all known afterwards only\n"
    )
    compared(stream, best, given.shuffles, given.every)
    print()
    started_warm(stream, given.shuffles, given.every)
    print()
    joined(stream, given.shuffles, given.every)


def read_stream() -> Stream | None:
    """Return the table, or None after saying where it should be."""
    folder = data_folder() / "routing" / "llmrouter-9models"
    if not (folder / "train.csv").is_file():
        print(
            f"skipped: the table is not shipped (ulab-uiuc/LLMRouter, dcrouter_preprocessed); its CSV files go to {folder}"
        )
        return None
    csv.field_size_limit(10**9)
    rows: list[dict[str, Any]] = []
    for name in ("train.csv", "test.csv"):
        with (folder / name).open(encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file)
    models = tuple(key.removeprefix("score__") for key in rows[0] if key.startswith("score__"))
    scores = np.array([[float(row[f"score__{model}"]) for model in models] for row in rows])
    return Stream(models, scores, tuple(row["task"] for row in rows), np.load(folder / "emb_pca64.npy").astype(np.float64))


def policies(models: tuple[str, ...]) -> Mapping[str, Bandit]:
    """Return what is compared, by name."""
    signals = tuple(f"e{i}" for i in range(64))
    return {
        "epsilon-greedy": Bandit(arms=models, algorithm="epsilon"),
        "Thompson": Bandit(arms=models),
        "Thompson per task": Bandit(arms=models, segment="task"),
        "Thompson per task, prior 2": Bandit(arms=models, segment="task", prior=2.0),
        "Thompson per task, floor .002": Bandit(arms=models, segment="task", floor=0.002),
        "Thompson per task, floor .03": Bandit(arms=models, segment="task", floor=0.03),
        "Thompson per task, floor .03, no guard": Bandit(arms=models, segment="task", floor=0.03, guard=1.0),
        "epsilon-greedy per task": Bandit(arms=models, algorithm="epsilon", segment="task"),
        "LinUCB, 64 features": Bandit(arms=models, algorithm="linucb", features=signals, width=0.5, epsilon=0.02),
    }


def compared(stream: Stream, best: float, shuffles: int, every: int) -> None:
    """The whole pass and its last quarter, and the worst shuffle after 6,000 rounds against the best single model - 2 %."""
    print("| policy | update after | all rounds | last quarter | worst of the shuffles after 6,000 | least that is asked |")
    print("|---|---|---|---|---|---|")
    plan = [
        (name, policy, 50 if policy.algorithm == "linucb" else every) for name, policy in policies(stream.models).items()
    ]
    plan.append(("Thompson per task", policies(stream.models)["Thompson per task"], 250))
    for name, policy, step in plan:
        print(f"{name} ...", file=sys.stderr, flush=True)
        runs = [play(stream, policy, shuffle, max(step, every)).rewards for shuffle in range(shuffles)]
        whole = [run.mean() for run in runs]
        late = [run[-len(run) // 4 :].mean() for run in runs]
        worst = min(float(run[:ROUNDS].mean()) for run in runs)
        print(
            f"| {name} | {max(step, every)} | {np.mean(whole):.4f} | {np.mean(late):.4f} ± {np.std(late):.4f} | "
            f"{worst:.4f} | {0.98 * best:.4f} {'kept' if worst >= 0.98 * best else 'missed'} |"
        )


def play(stream: Stream, policy: Bandit, shuffle: int, every: int, start: int = 0, rows: int | None = None) -> Played:
    """Let a bandit serve the stream in one shuffled order, from round `start` on."""
    order = np.random.default_rng(shuffle).permutation(len(stream.scores))[start:rows]
    place = [stream.models.index(arm) for arm in policy.arms]
    learner, rewards = Learner(policy), np.empty(len(order))
    for turn, row in enumerate(order):
        if turn and not turn % every:
            policy = learner.policy()
        segment = stream.tasks[row] if policy.segment is not None else ALL
        values = stream.features[row].tolist() if policy.features else []
        arm = drawn(policy.shares(segment, values), chance(policy.name, f"{shuffle}/{start + turn}"))
        rewards[turn] = stream.scores[row, place[arm]]
        learner.learn(policy.arms[arm], float(rewards[turn]), segment, values)
    return Played(rewards, order)


def started_warm(stream: Stream, shuffles: int, every: int) -> None:
    """The same bandit over all but the last 500 rows of each shuffle, with and without those 500 as pseudo-counts."""
    ends: dict[str, list[list[float]]] = {"cold": [], "warm": []}
    arms = policies(stream.models)["Thompson per task"]
    for shuffle in range(shuffles):
        print(f"warm start, shuffle {shuffle + 1} ...", file=sys.stderr, flush=True)
        learner = Learner(arms)
        for row in np.random.default_rng(shuffle).permutation(len(stream.scores))[-START_ROWS:]:
            for model, score in zip(stream.models, stream.scores[row].tolist(), strict=True):
                learner.learn(model, score, stream.tasks[row], weight=0.5)
        for how, policy in (("cold", arms), ("warm", learner.policy())):
            run = play(stream, policy, shuffle, every, rows=len(stream.scores) - START_ROWS).rewards
            ends[how].append([float(part.mean()) for part in (run[:500], run, run[-len(run) // 4 :])])
    print(f"Thompson per task, {START_ROWS} labelled rows (weight 0.5) known before the first request, served the others\n")
    print("| start | first 500 | all rounds | last quarter |")
    print("|---|---|---|---|")
    for how, parts in ends.items():
        print(f"| {how} | " + " | ".join(f"{value:.4f}" for value in np.mean(parts, axis=0)) + " |")


def joined(stream: Stream, shuffles: int, every: int) -> None:
    """Half of the stream with eight models; then the ninth joins, known from nothing or from 200 labelled rows."""
    old = tuple(model for model in stream.models if model != NEW)
    half = len(stream.scores) // 2
    ends: dict[str, list[list[float]]] = {"without it": [], "cold": [], "warm": []}
    for shuffle in range(shuffles):
        print(f"joining, shuffle {shuffle + 1} ...", file=sys.stderr, flush=True)
        learner = half_way(stream, Bandit(arms=old, segment="task"), shuffle, half, every)
        known = learner.policy()
        for how, policy in (
            ("without it", known),
            ("cold", extended(known)),
            ("warm", warmed(extended(known), stream, shuffle)),
        ):
            run = play(stream, policy, shuffle, every, start=half, rows=len(stream.scores) - WARM_ROWS)
            ends[how].append([float(part.mean()) for part in (run.rewards[:500], run.rewards[500:1500], run.rewards)])
    print(f"{NEW} joins after {half:,} of the rounds (Thompson per task); reward afterwards, {shuffles} shuffles\n")
    print("| the new model | first 500 | next 1,000 | all after |")
    print("|---|---|---|---|")
    for how, parts in ends.items():
        print(f"| {how} | " + " | ".join(f"{value:.4f}" for value in np.mean(parts, axis=0)) + " |")
    gap = np.array(ends["warm"])[:, 0] - np.array(ends["cold"])[:, 0]
    print(
        f"\nwarm minus cold over the first 500: {gap.mean():+.4f} ± {gap.std():.4f}; warm: {WARM_ROWS} labelled rows at 0.5"
    )


def half_way(stream: Stream, policy: Bandit, shuffle: int, half: int, every: int) -> Learner:
    """Return a learner that has served the first half of the stream."""
    order = np.random.default_rng(shuffle).permutation(len(stream.scores))[:half]
    place = [stream.models.index(arm) for arm in policy.arms]
    learner = Learner(policy)
    for turn, row in enumerate(order):
        if turn and not turn % every:
            policy = learner.policy()
        arm = drawn(policy.shares(stream.tasks[row]), chance(policy.name, f"{shuffle}/{turn}"))
        learner.learn(policy.arms[arm], float(stream.scores[row, place[arm]]), stream.tasks[row])
    return learner


def extended(policy: Bandit) -> Bandit:
    """The same bandit with the new model as one more arm, of which nothing is known."""
    from msgspec import structs

    return structs.replace(policy, arms=(*policy.arms, NEW))


def warmed(policy: Bandit, stream: Stream, shuffle: int) -> Bandit:
    """Take the new model's scores on 200 rows that are served to nobody as pseudo-counts of half a request each."""
    order = np.random.default_rng(shuffle).permutation(len(stream.scores))[-WARM_ROWS:]
    learner = Learner(policy)
    for row in order:
        learner.learn(NEW, float(stream.scores[row, stream.models.index(NEW)]), stream.tasks[row], weight=0.5)
    return learner.policy()


if __name__ == "__main__":
    main()
