"""Rules on text in many spellings, slow patterns, and tags."""

from __future__ import annotations

import asyncio
import locale
import time
from pathlib import Path
from typing import Any

import pytest

from rheostat.config import load_config
from rheostat.errors import ConfigError
from rheostat.testing.step import Ok, Status, Step
from tests.cases_routing.routed import NO_LADDER, log, routed, write

WORDS = [{"contains": word, "use": "a", "name": word} for word in ("refund", "退款", "résumé")]
ANSWERS: dict[str, list[Step]] = {"a": [Ok(body="A")], "b": [Ok(body="B")]}
SPELLINGS = [
    "REFUND", "ＲＥＦＵＮＤ", "re\u200bfund", "Refund😀", "ｒｅｆｕｎｄ", "我要退款！", "我要退款項",
    "my r\u00e9sum\u00e9", "my re\u0301sume\u0301", "my RE\u0301SUME\u0301", "REFUND\u0130NG",
]  # fmt: skip
LOOK_ALIKE = "r\u0435fund"  # a Cyrillic letter


def ruled(**more: Any) -> dict[str, Any]:
    return {"chain": [{"rules": {"rules": WORDS, **more}}, "b"]}


def test_case_twelve_every_spelling_of_a_word_is_the_word(tmp_path: Path) -> None:
    """O-RTE-12: look-alike letters stay apart, there is no option that folds them; the model gets the original."""

    async def main() -> None:
        async with routed(tmp_path, ruled(), ANSWERS) as pool:
            for text in SPELLINGS:
                record = (await pool.ask(text)).record
                assert (record.selected_model, record.reason.startswith("rule '")) == ("a", True), text
                assert pool.up["a"].calls[-1].text == text
            assert (await pool.ask(LOOK_ALIKE)).record.selected_model == "b"
            assert (await pool.ask("hello")).record.selected_model == "b"

    asyncio.run(main())


def test_case_twelve_without_normalisation_only_the_exact_spelling(tmp_path: Path) -> None:
    """O-RTE-12: the version of the policy in the log row tells the setting."""

    async def main() -> str:
        async with routed(tmp_path, ruled(normalise=False), ANSWERS) as pool:
            went = {text: (await pool.ask(text)).record.selected_model for text in (*SPELLINGS, "a refund")}
            exact = ("a refund", "我要退款！", "我要退款項", "my r\u00e9sum\u00e9")
            assert went == {text: "a" if text in exact else "b" for text in went}
        return str(log(tmp_path)[0]["policy_version"])

    off = asyncio.run(main())

    async def on() -> str:
        async with routed(tmp_path, ruled(), ANSWERS) as pool:
            return (await pool.ask("hello")).record.policy_version

    assert off != asyncio.run(on())


def test_case_twelve_the_locale_of_the_host_changes_nothing(tmp_path: Path) -> None:
    """O-RTE-12."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "tr_TR.UTF-8")
    except locale.Error:
        pytest.skip("this machine has no Turkish locale")
    try:
        test_case_twelve_every_spelling_of_a_word_is_the_word(tmp_path)
    finally:
        locale.setlocale(locale.LC_ALL, before)


def test_case_thirteen_a_slow_pattern_is_matched_in_linear_time(tmp_path: Path) -> None:
    """O-RTE-13: a backtracking engine needs 2^40 steps for this text; the patience here is far above what is needed."""

    async def main() -> None:
        policy = {"chain": [{"rules": [{"matches": "(a+)+$", "use": "a", "name": "slow"}]}, "b"]}
        async with routed(tmp_path, policy, ANSWERS) as pool:
            began = time.monotonic()
            for text, model in (("a" * 40 + "!", "b"), ("a" * 20_000 + "!", "b"), ("a" * 40, "a")):
                assert (await pool.ask(text)).record.selected_model == model
            assert time.monotonic() - began < 5.0
            plain = await asyncio.gather(*(pool.ask("hello") for _ in range(50)))
            assert {served.record.selected_model for served in plain} == {"b"}

    asyncio.run(main())


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)b", "(?<!a)b", "a{2000}{2000}", "("])
def test_case_thirteen_a_pattern_without_a_linear_engine_is_refused_at_load(pattern: str, tmp_path: Path) -> None:
    """O-RTE-13."""
    made = {"a": {"backend": "http", "url": "http://127.0.0.1:9/predict"}}
    policy = {"chain": [{"rules": [{"matches": pattern, "use": "a"}]}, "a"]}
    with pytest.raises(ConfigError, match="`matches` is not a pattern RE2 accepts"):
        load_config(write(tmp_path, {"models": made, "routes": {"default": {"policy": policy}}}))


TAGGED = {"f": {"tags": ["free"]}, "p": {"tags": ["paid"]}, "d": {"tags": ["default"]}}
BALANCE = {"balance": {"models": ["f", "p", "d"], "tags": "x-tag"}}


def each_ok(**but: Step) -> dict[str, list[Step]]:
    return {name: [but.get(name, Ok(body=name))] for name in "fpd"}


def test_case_fourteen_tags_are_kept_and_what_nobody_knows_is_the_default(tmp_path: Path) -> None:
    """O-RTE-14: a tag that no model has is served as without one."""

    async def main() -> None:
        async with routed(tmp_path, BALANCE, each_ok(), models=TAGGED) as pool:
            for tag, model in (("free", "f"), ("paid", "p"), (None, "d"), ("gold", "d")):
                headers = {} if tag is None else {"x-tag": tag}
                went = {(await pool.ask(headers=headers)).record.selected_model for _ in range(50)}
                assert went == {model}, tag

    asyncio.run(main())


def test_case_fourteen_a_tag_whose_model_is_out_follows_the_ladder_and_not_the_default(tmp_path: Path) -> None:
    """O-RTE-14: without rungs it is an error, with `peers` it is the peer that was named."""

    async def main() -> None:
        broken = each_ok(f=Status(code=500))
        async with routed(tmp_path, BALANCE, broken, models=TAGGED, fallback=NO_LADDER) as pool:
            assert {(await pool.ask(headers={"x-tag": "free"})).prediction for _ in range(20)} == {None}
            assert pool.calls("d") == pool.calls("p") == 0
        named = TAGGED | {"f": {"tags": ["free"], "peers": ["p"]}}
        async with routed(tmp_path, BALANCE, broken, models=named, fallback={"retry": 0, "lighter": False}) as pool:
            record = (await pool.ask(headers={"x-tag": "free"})).record
            assert (record.selected_model, record.level) == ("p", 2)
            assert pool.calls("d") == 0

    asyncio.run(main())
