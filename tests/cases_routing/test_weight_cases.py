"""Weights that cannot be used, a member of a blend that is missing, and assignment to variants."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rheostat.config import load_config
from rheostat.errors import ConfigError, NoAnswer
from rheostat.policies import Policy, parse_policy
from rheostat.testing.step import Hang, Raw, Scores, Status, Step
from rheostat.types import Call, Context, Request
from tests.cases_routing.routed import NO_LADDER, log, routed, write


def refused(folder: Path, policy: Any) -> str:
    made = {name: {"backend": "http", "url": "http://127.0.0.1:9/predict"} for name in "ab"}
    with pytest.raises(ConfigError) as caught:
        load_config(write(folder, {"models": made, "routes": {"default": {"policy": policy}}}))
    return str(caught.value)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"a": 0, "b": 0}, "must sum to more than 0"),
        ({"a": -1, "b": 2}, "`weights.a` must be 0 or more, got -1"),
        ({"a": float("nan"), "b": 1}, "weights.a"),
        ({"a": float("inf"), "b": 1}, "weights.a"),
        ({"a": "x", "b": 1}, "expected a number"),
        ([0.2, 0.3, 0.5], "weights"),
        ({}, "must sum to more than 0"),
        ({"a": 0.5, "nobody": 0.5}, "unknown model `nobody`"),
    ],
)
def test_case_five_weights_that_cannot_be_used_are_refused_with_their_place(weights: Any, said: str, tmp_path: Path) -> None:
    """O-RTE-05."""
    message = refused(tmp_path, {"blend": {"weights": weights}})
    assert "routes.default.policy.blend" in message
    assert said in message


def test_case_five_no_weights_at_all_are_refused(tmp_path: Path) -> None:
    """O-RTE-05."""
    assert "`weights` is missing" in refused(tmp_path, {"blend": {}})


@pytest.mark.parametrize("shares", [[0, 0], [-1, 2], [float("nan"), 1], ["x", 1]])
def test_case_five_shares_of_a_split_are_held_to_the_same(shares: list[Any], tmp_path: Path) -> None:
    """O-RTE-05."""
    arms = [{"use": name, "share": share} for name, share in zip("ab", shares, strict=True)]
    assert "routes.default.policy.split" in refused(tmp_path, {"split": {"arms": arms}})


def test_case_five_with_only_the_weightless_member_healthy_the_ladder_decides(tmp_path: Path) -> None:
    """O-RTE-05: a member of weight 0 is never called by the blend; L3 may call it, and without L3 it is an error."""

    async def main() -> None:
        scripts = {"a": [Status(code=503)], "b": [Scores(values={"x": 0.6, "y": 0.4})]}
        for ladder, label in (({"retry": 0}, "x"), (NO_LADDER, None)):
            async with routed(tmp_path, {"blend": {"weights": {"a": 1, "b": 0}}}, scripts, fallback=ladder) as pool:
                served = await pool.ask()
                assert served.record.label == label
                assert served.record.level == (3 if label else 0)
                assert label or isinstance(served.error, NoAnswer)

    asyncio.run(main())


@pytest.mark.parametrize("silent", [Hang(), Raw(body='{"label":"x","scores":{"x":NaN,"y":0.5}}')])
def test_case_six_a_missing_member_is_left_out_and_the_rest_still_sums_to_one(silent: Step, tmp_path: Path) -> None:
    """O-RTE-06."""

    async def main() -> None:
        scripts = {"a": [Scores(values={"x": 0.8, "y": 0.2})], "b": [silent], "c": [Scores(values={"x": 0.4, "y": 0.6})]}
        policy = {"blend": {"weights": {"a": 0.5, "b": 0.3, "c": 0.2}}}
        short = {name: {"timeout": "300ms"} for name in "abc"}
        async with routed(tmp_path, policy, scripts, models=short) as pool:
            record = (await pool.ask()).record
            assert record.scores == pytest.approx({"x": 0.48 / 0.7, "y": 0.22 / 0.7}, abs=1e-9)
            assert sum((record.scores or {}).values()) == pytest.approx(1.0, abs=1e-9)
            assert record.missing == ("b",)
            assert "without b" in record.reason
        (row,) = log(tmp_path)
        (failed,) = [each for each in row["outcomes"] if each["model"] == "b"]
        assert failed["failure"]["kind"] in ("timeout", "bad_output")

    asyncio.run(main())


def test_case_six_when_too_much_is_missing_the_blend_fails_over(tmp_path: Path) -> None:
    """O-RTE-06."""

    async def main() -> None:
        scripts = {"a": [Status(code=500)], "b": [Scores(values={"x": 0.9, "y": 0.1})]}
        policy = {"blend": {"weights": {"a": 0.6, "b": 0.4}, "min_weight": 0.5}}
        async with routed(tmp_path, policy, scripts) as pool:
            record = (await pool.ask()).record
            assert (record.level, record.status) == (3, "degraded")
            assert "too much of the blend is missing: a" in record.fallback_reason

    asyncio.run(main())


IDS = [f"user-{number}" for number in range(10_000)]


def split(first: float, second: float, *, name: str = "one", coverage: float = 1.0) -> Policy:
    arms = [{"use": "a", "share": first}, {"use": "b", "share": second}]
    return parse_policy({"split": {"arms": arms, "key": "session", "name": name, "coverage": coverage}})


def assigned(policy: Policy) -> dict[str, str]:
    """Who goes where; those not covered are not in it."""
    found = {}
    for number, each in enumerate(IDS):
        decision = policy.decide(Context(Request(id=str(number), data="x", session=each)), ())
        if isinstance(decision, Call):
            found[each] = decision.models[0]
    return found


def test_case_ten_an_id_keeps_its_variant() -> None:
    """O-RTE-10. Nothing but names and ids goes in, so a restart or another worker gives the same."""
    old = assigned(split(50, 50))
    share = sum(arm == "a" for arm in old.values()) / len(IDS)
    assert share == pytest.approx(0.5, abs=0.015)
    assert assigned(split(50, 50)) == old
    grown = assigned(split(60, 40))
    moved = {each: (old[each], grown[each]) for each in IDS if old[each] != grown[each]}
    assert set(moved.values()) == {("b", "a")}
    assert 0.09 <= len(moved) / len(IDS) <= 0.11
    fewer = assigned(split(50, 50, coverage=0.2))
    assert len(fewer) / len(IDS) == pytest.approx(0.2, abs=0.015)
    assert all(old[each] == arm for each, arm in fewer.items())
    assert assigned(split(50, 50, coverage=1.0)) == old
    other = assigned(split(50, 50, name="two"))
    among = [other[each] for each in IDS if old[each] == "a"]
    assert 0.47 <= among.count("a") / len(among) <= 0.53


def test_case_ten_another_process_assigns_the_same() -> None:
    """O-RTE-10: the hash of a text is another one in each process; the assignment must not be."""
    import os
    import subprocess
    import sys

    program = (
        "from tests.cases_routing.test_weight_cases import IDS, assigned, split\n"
        "print(''.join(arm for arm in assigned(split(50, 50)).values()))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert told == {"".join(assigned(split(50, 50)).values())}
