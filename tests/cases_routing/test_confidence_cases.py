"""Odd confidence values, and answers that are empty."""

from __future__ import annotations

import asyncio
from math import inf, nan
from pathlib import Path

import pytest

from rheostat.errors import RheostatError
from rheostat.testing.step import Raw, Score, Status, Step
from tests.cases_routing.routed import log, routed

CASCADE = {"cascade": {"stages": ["small", "big"], "threshold": 0.8}}
BIG = Score(label="y", confidence=0.99)
INVALID: tuple[Step, ...] = (
    *(Score(label="x", confidence=value) for value in (nan, inf, -inf, None, 1.7, -0.2)),
    *(
        Raw(body=f'{{"label":"x"{more}}}')
        for more in ("", ',"confidence":""', ',"confidence":"high"', ',"confidence":"NaN"')
    ),
)
VALID = {0.0: "y", 0.7999: "y", 0.8: "x", 1.0: "x"}


def test_case_one_a_value_that_is_no_confidence_goes_on_and_the_border_belongs_to_the_cheap_side(tmp_path: Path) -> None:
    """O-RTE-01."""

    async def main() -> None:
        script = [*INVALID, *(Score(label="x", confidence=value) for value in VALID)]
        off = {"breaker": {"failureThreshold": 0}}
        async with routed(tmp_path, CASCADE, {"small": script, "big": [BIG]}, models={"small": off}) as pool:
            for _ in INVALID:
                served = await pool.ask()
                assert served.record.label == "y"
                assert served.record.reason == "small: invalid_confidence"
            assert [(await pool.ask()).record.label for _ in VALID] == list(VALID.values())
            assert f'{{model="small"}} {len(INVALID)}' in pool.metric("rheostat_invalid_confidence_total")
            page = pool.router.metrics.render().decode().lower()
            assert "nan" not in page.replace("finance", "")
        assert len(log(tmp_path)) == len(INVALID) + len(VALID)

    asyncio.run(main())


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"label":[]}',
        '{"label":"","confidence":1.0}',
        '{"labels":[],"confidence":1.0}',
        '{"confidence":1.0}',
        "[]",
        "",
    ],
)
def test_case_two_an_empty_answer_is_a_failed_attempt_and_is_not_kept(body: str, tmp_path: Path) -> None:
    """O-RTE-02."""

    async def main() -> None:
        ladder = {"retry": 0, "lighter": True, "cached": True}
        scripts = {"small": [Raw(body=body)], "big": [BIG, Status(code=500)]}
        async with routed(tmp_path, CASCADE, scripts, fallback=ladder) as pool:
            served = await pool.ask("first")
            assert (served.record.label, served.record.selected_model) == ("y", "big")
            small = served.record.outcomes[0]
            assert small.failure is not None
            assert small.failure.kind == "bad_output"
            assert len(small.attempts) == 1
            again = await pool.ask("another")  # nothing was kept for it, and big has nothing to say any more
            assert again.prediction is None
            assert isinstance(again.error, RheostatError)
            kept = await pool.ask("first")
            assert (kept.record.label, kept.record.level) == ("y", 4)

    asyncio.run(main())
