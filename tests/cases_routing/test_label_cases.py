"""Labels nobody mapped, labels after an upgrade, and a classifier of the router's own that fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rheostat.errors import ConfigError, NoAnswer
from rheostat.router import Router
from rheostat.testing import FaultyUpstream
from rheostat.testing.step import Hang, Ok, Score, Scores, Step
from tests.cases_routing.routed import log, routed, write

PHISH = Score(label="phish", confidence=0.97)
LEFT: dict[str, list[Step]] = {name: [Score(label=f"from {name}", confidence=0.9)] for name in "abc"}


def by_label(**more: Any) -> dict[str, Any]:
    return {"by_label": {"model": "clf", "map": {"spam": "a", "ham": "b"}, **more}}


def test_case_three_a_label_nobody_mapped_goes_to_the_default_and_says_so(tmp_path: Path) -> None:
    """O-RTE-03."""

    async def main() -> None:
        scripts = {"clf": [PHISH, Score(label="spam", confidence=0.97)], **LEFT}
        async with routed(tmp_path, by_label(default="c"), scripts) as pool:
            strange, known = await pool.ask(), await pool.ask()
            assert (strange.record.label, pool.calls("b")) == ("from c", 0)
            assert strange.record.reason.startswith("unknown_label 'phish' of clf")
            assert (known.record.selected_model, known.record.reason) == ("a", "clf says 'spam'")
            page = pool.router.metrics.render().decode()
            assert "phish" not in page
        row = log(tmp_path)[0]
        assert row["reason"].startswith("unknown_label 'phish'")
        assert row["outcomes"][0]["prediction"]["label"] == "phish"

    asyncio.run(main())


@pytest.mark.parametrize("ladder", [{}, {"lighter": False}])
def test_case_three_without_a_default_it_is_an_error_and_never_an_entry(ladder: dict[str, bool], tmp_path: Path) -> None:
    """O-RTE-03."""

    async def main() -> None:
        async with routed(tmp_path, by_label(), {"clf": [PHISH], **LEFT}, fallback=ladder) as pool:
            served = await pool.ask()
            assert isinstance(served.error, NoAnswer)
            assert served.error.http_status >= 500
            assert "unknown_label 'phish' of clf" in str(served.error)
            assert pool.calls("a") == pool.calls("b") == pool.calls("c") == 0

    asyncio.run(main())


def test_case_four_labels_have_names_and_no_places_and_one_that_is_used_cannot_go(tmp_path: Path) -> None:
    """O-RTE-04: a tensor of scores, whose order is that of the model's `labels`."""

    async def main() -> None:
        spam = Scores(values={"ham": 0.1, "spam": 0.9, "junk": 0.0})
        async with (
            FaultyUpstream(spam, labels=("ham", "spam")) as first,
            FaultyUpstream(spam, labels=("spam", "ham")) as second,
            FaultyUpstream(spam, labels=("junk", "ham")) as third,
            FaultyUpstream(Score(label="a", confidence=0.9)) as a,
            FaultyUpstream(Score(label="b", confidence=0.9)) as b,
        ):

            def config(server: FaultyUpstream, version: str, labels: list[str]) -> dict[str, Any]:
                clf = {
                    "backend": "inference_protocol", "base_url": server.url, "model": "clf", "version": version,
                    "labels": labels, "output": "probs", "input": {"name": "input"},
                }  # fmt: skip
                plain = {name: {"backend": "http", "url": f"{up.url}/predict"} for name, up in (("a", a), ("b", b))}
                return {
                    "models": {"clf": clf, **plain},
                    "routes": {"default": {"policy": by_label(), "deadline": "5s"}, "plain": {"policy": "clf"}},
                }

            router = await Router.open(write(tmp_path, config(first, "1", ["ham", "spam"])))

            async def said() -> tuple[str, str | None, str | None]:
                plain = (await router.apredict("x", route="plain")).record
                return plain.selected_version, plain.label, (await router.apredict("x")).record.label

            assert await said() == ("1", "spam", "a")
            write(tmp_path, config(second, "2", ["spam", "ham"]))
            assert await router.reload()
            assert await said() == ("2", "spam", "a")
            write(tmp_path, config(third, "3", ["junk", "ham"]))
            assert not await router.reload()
            assert router.last_error is not None
            assert "routes.default.policy.by_label.map.spam" in router.last_error
            assert "`spam` is no label of `clf` version 3, which has junk, ham" in router.last_error
            assert await said() == ("2", "spam", "a")
            await router.aclose()
            with pytest.raises(ConfigError, match=r"by_label\.map\.spam"):
                await Router.open(str(tmp_path / "rheostat.yaml"))

    asyncio.run(main())


def test_case_eleven_a_classifier_that_hangs_is_asked_a_few_times_and_found_again(tmp_path: Path) -> None:
    """O-RTE-11, with shorter times: the limit is 50 ms, the breaker opens for 400 ms."""

    async def main() -> None:
        policy = {"by_label": {"model": "clf", "map": {"easy": "weak"}, "on_error": "strong"}}
        settings = {
            "clf": {"timeout": "50ms", "breaker": {"failureThreshold": 3, "timeoutSeconds": 0.4, "successThreshold": 1}}
        }
        scripts: dict[str, list[Step]] = {"clf": [Hang()], "weak": [Ok(body="W")], "strong": [Ok(body="S")]}
        async with routed(tmp_path, policy, scripts, models=settings) as pool:
            served = [await pool.ask() for _ in range(60)]
            assert {each.record.selected_model for each in served} == {"strong"}
            assert {each.record.status for each in served} == {"degraded"}
            assert all(each.record.fallback_reason.startswith("router_unavailable: clf ") for each in served)
            slow = [number for number, each in enumerate(served) if any(o.attempts for o in each.record.outcomes[:1])]
            assert slow[:3] == [0, 1, 2]
            assert len(slow) == pool.calls("clf") <= 5
            counted = pool.metric('rheostat_router_errors_total{reason="router_unavailable"}')
            assert counted.endswith(" 60")
            pool.up["clf"].script(Score(label="easy", confidence=0.9))
            before = pool.calls("clf")
            await asyncio.sleep(0.9)  # a probe that hung may have doubled the wait
            back = [(await pool.ask()).record for _ in range(20)]
            assert pool.calls("clf") > before
            assert "weak" in {record.selected_model for record in back}
            assert back[-1].status == "ok" or back[-1].fallback_reason.endswith("ramping")

    asyncio.run(main())
