"""Is the advice right on real sets? `python -m bench.advise [set ...]`

What is right was written down in EXPECTED before any figure of this bench was seen, from what the sets' READMEs say of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec

import msgspec

from bench.advise_tables import ROUTING, routing_table
from bench.labelled import TABLE_SETS, data_folder, why_absent
from bench.pools import outcomes, train_pool
from rheostat.lab.advise import Advice, advise
from rheostat.lab.outcomes import OutcomesTable


class Expected(msgspec.Struct, frozen=True):
    """What is right, None where the README does not say; `why` is the README's reason."""

    escalate: bool | None
    blend: bool | None
    why: str


EXPECTED = {
    "banking77": Expected(True, None, "large-only quality at a fifth of its calls"),
    "clinc150": Expected(True, None, "large-only quality at a fifth of its calls"),
    "sst2": Expected(True, None, "complementary: routing beats both models"),
    "goemotions_polarity": Expected(None, True, "the strongest blend: +3.9 points over the best single model"),
    "davidson_hate": Expected(False, None, "the large model is worse: don't escalate"),
    "online_shoppers": Expected(None, False, "nested information: blending must not be reported as a win"),
    "routerarena-sub10": Expected(False, False, "a cheaper and better model dominates: always gemini"),
    "headlines": Expected(True, None, "naive Bayes to the hybrid: most of its accuracy at half of its calls or fewer"),
    "digits": Expected(True, None, "small pictures to full pictures: a learnable cascade (APGR .85)"),
}


def main(arguments: Sequence[str]) -> int:
    """Advise on the named sets, all by default; return the exit status."""
    unknown = [name for name in arguments if name not in EXPECTED]
    if unknown:
        print(f"unknown set {unknown[0]!r}; known: {', '.join(EXPECTED)}")
        return 2
    lines = ["| set | test rows | expected | advice | right | in words |", "|---|---|---|---|---|---|"]
    told: list[str] = []
    hits = count = 0
    for name in arguments or EXPECTED:
        table = _table(name, told)
        if table is None:
            continue
        began = time.perf_counter()
        found = advise(table)
        print(f"{name} in {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
        right = _right(EXPECTED[name], found)
        hits, count = hits + right, count + 1
        rows = len(table.select(split="test"))
        cells = (name, str(rows), _wanted(EXPECTED[name]), _said(found), "yes" if right else "NO", found.headline)
        lines.append(f"| {' | '.join(cells)} |")
        told += [f"{name}: {reason}" for reason in found.reasons]
        told += [f"{name}: FLAG {flag.kind}, {flag.about}: {flag.text}" for flag in found.flags]
    print("\n".join(lines))
    print(f"\nright on {hits} of {count}\n")
    print("\n".join(told))
    return 0


def _table(name: str, told: list[str]) -> OutcomesTable | None:
    if name in ROUTING:
        found = routing_table(name)
        if found is None:
            told.append(f"{name} skipped: {data_folder() / 'routing'} has no such table; set RHEOSTAT_DATA")
        return found
    absent = why_absent(name)
    if absent is None and name in TABLE_SETS and find_spec("lightgbm") is None:
        absent = f"{name} skipped: its large model needs LightGBM (pip install lightgbm)"
    if absent is not None:
        told.append(absent)
        return None
    return outcomes(train_pool(name, lambda line: print(line, file=sys.stderr, flush=True)))


def _right(expected: Expected, found: Advice) -> bool:
    return expected.escalate in (None, found.escalate) and expected.blend in (None, found.blend)


def _wanted(expected: Expected) -> str:
    words = {True: "yes", False: "no", None: "-"}
    return f"escalate {words[expected.escalate]}, blend {words[expected.blend]}: {expected.why}"


def _said(found: Advice) -> str:
    words = {True: "yes", False: "no"}
    return f"{found.use}; escalate {words[found.escalate]}, blend {words[found.blend]}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
