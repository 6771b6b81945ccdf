"""A million requests in storms of random faults, in virtual time: `python -m bench.storm [--schedules N] [--first SEED]`.

Each schedule is a config (pool, policy, ladder, limits) and faults drawn from its seed; 100 requests run through a whole
router, some as streams, while the config is reloaded and the store of promises fails. Prints how they ended, what happened,
and every law that was broken, with its seed (`rheostat.testing.storm_laws` has the laws).
"""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter

from rheostat.testing.storm import Storm

REQUESTS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)  # breakers tell of every turn
    began = time.perf_counter()
    endings: Counter[str] = Counter()
    levels: Counter[int] = Counter()
    happened: Counter[str] = Counter()
    broken = 0
    for seed in range(given.first, given.first + given.schedules):
        result = Storm(seed).run(REQUESTS)
        endings.update(result.endings)
        levels.update(result.levels)
        happened.update(result.happened)
        broken += bool(result.violations)
        for told in result.violations[:3]:
            print(f"seed {seed}: {told}")
        if (seed + 1) % 1_000 == 0:
            print(f"{seed + 1 - given.first} schedules, {broken} with a violation", flush=True)
    print(f"{sum(endings.values())} requests over {given.schedules} schedules in {time.perf_counter() - began:.0f} s")
    print("endings: " + ", ".join(f"{name} {count}" for name, count in endings.most_common()))
    print("levels: " + ", ".join(f"L{level} {count}" for level, count in sorted(levels.items())))
    print("happened: " + ", ".join(f"{name} {count}" for name, count in happened.most_common()))
    print(f"schedules with a violation: {broken}")


if __name__ == "__main__":
    main()
