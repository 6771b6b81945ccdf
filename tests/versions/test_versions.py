"""Every config that served is kept, and one action goes back: here, in other gateways, and over a restart."""

from __future__ import annotations

import asyncio
import functools
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rheostat.config.difference import difference, model_as_in
from rheostat.errors import BadRequest, ConfigError, NotFound, StoreError
from rheostat.router import Router
from rheostat.sqlite_file import connect
from rheostat.versioning import Versioning
from rheostat.versions.store import (
    LAYOUT,
    Change,
    Pin,
    Version,
    find_version,
    keep_version,
    last_good,
    list_changes,
    set_pin,
)

CONFIG = """\
models:
  m: {{backend: python, callable: "said:{m}", version: "{m}"}}
  n: {{backend: python, callable: "said:{n}", version: "{n}"}}
routes: {{default: {{policy: m}}, other: {{policy: n}}}}
versions: {{path: versions.sqlite}}
"""


def run_async(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write the config with models that say `m` and `n`, and return its path."""
    path = tmp_path / "rheostat.yaml"
    words = ("one", "two", "three")
    said = [f"def {word}(rows): return [('{word}', 0.9) for _ in rows]" for word in words]
    (tmp_path / "said.py").write_text("\n".join(said))

    def written(m: str, n: str = "one", more: str = "") -> str:
        path.write_text(CONFIG.format(m=m, n=n) + more)
        return str(path)

    return written


@asynccontextmanager
async def opened(path: str, count: int = 1) -> AsyncIterator[list[Router]]:
    """Open gateways of one config."""
    routers = [await Router.open(path) for _ in range(count)]
    try:
        yield routers
    finally:
        for router in routers:
            await router.aclose()


def versioning(router: Router) -> Versioning:
    assert router.versioning is not None
    return router.versioning


async def said(router: Router, route: str = "default") -> str:
    served = await router.apredict("x", route=route)
    assert served.prediction is not None
    assert served.record.config_version == router.plan.version
    return served.prediction.label


async def until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(20.0):
        while not found():
            await asyncio.sleep(0.02)


@run_async
async def test_one_action_goes_back_in_every_gateway_and_stays_over_a_restart(write: Callable[..., str]) -> None:
    path = write("one")
    async with opened(path, 2) as (here, there):
        first = here.plan.version
        write("two")
        assert await here.reload()
        assert await there.reload()
        second = here.plan.version
        done = await versioning(here).go_back(None, None, "ann", "worse")
        assert (done.version, done.before, done.pinned, done.changed) == (first, second, True, ())
        assert await said(here) == "one"
        await until(lambda: there.plan.version == first)
        assert await said(there) == "one"
        assert not await there.reload()  # the file has not changed: what was gone back from does not come again by itself
        assert "rheostat rollback file" in (there.last_error or "")
        assert there.status()["versions"]["pinned"] == first
        assert there.file_version == second
    async with opened(path) as (again,):
        assert await said(again) == "one"
        changes = await versioning(again).store.changes(10)
        assert [(each.action, each.version, each.who, each.why) for each in changes] == [
            ("rollback", first, "ann", "worse"), ("serve", second, "file", ""), ("serve", first, "file", ""),
        ]  # fmt: skip


@run_async
async def test_another_file_ends_it_and_so_does_the_word_file(write: Callable[..., str]) -> None:
    path = write("one")
    async with opened(path, 2) as (here, there):
        write("two")
        assert await here.reload()
        await versioning(here).go_back(None, None, "", "")
        await until(lambda: there.status()["versions"]["pinned"] is not None)
        write("three")
        assert await here.reload()
        assert await said(here) == "three"
        assert here.status()["versions"]["pinned"] is None
        await until(lambda: there.status()["versions"]["pinned"] is None)
        assert await said(there) == "three"
        back = await versioning(there).go_back(None, None, "", "")
        assert await said(there) == "one"  # from `two` somebody has gone back
        await versioning(there).go_back("file", None, "", "")
        assert await said(there) == "three"
        await until(lambda: here.plan.version == back.before and here.status()["versions"]["pinned"] is None)
        with pytest.raises(BadRequest, match="whole"):
            await versioning(there).go_back("file", "m", "", "")


@run_async
async def test_one_model_goes_back_alone(write: Callable[..., str]) -> None:
    path = write("one", "one")
    async with opened(path) as (router,):
        write("two", "two")
        assert await router.reload()
        write("two", "three")
        assert await router.reload()
        await versioning(router).go_back(None, "n", "", "")
        assert (await said(router), await said(router, "other")) == ("two", "two")
        with pytest.raises(NotFound, match="no kept version"):
            await versioning(router).go_back(None, "unknown", "", "")
        first = (await versioning(router).store.changes(10))[-1].version
        await versioning(router).go_back(first[:8], "m", "", "")
        assert (await said(router), await said(router, "other")) == ("one", "two")
        with pytest.raises(NotFound, match="is now as it was"):
            await versioning(router).go_back(first, "m", "", "")


@run_async
async def test_what_cannot_serve_any_more_changes_nothing(write: Callable[..., str], tmp_path: Path) -> None:
    path = write("one")
    async with opened(path) as (router,):
        (tmp_path / "words.tsv").write_text("x\t1.0\n")
        listed = "{backend: rules, lexicon: words.tsv, cuts: [{label: no, below: 0}, {label: gone}], default: {label: gone}}"
        text = Path(path).read_text()
        Path(path).write_text(re.sub(r"  m: .*", f"  m: {listed}", text))
        assert await router.reload(), router.last_error
        assert await said(router) == "gone"
        write("two")
        assert await router.reload()
        (tmp_path / "words.tsv").unlink()
        version = router.plan.version
        with pytest.raises(ConfigError, match="words"):
            await versioning(router).go_back(None, None, "", "")
        assert router.plan.version == version
        assert [each.action for each in await versioning(router).store.changes(10)] == ["serve"] * 3
        with pytest.raises(NotFound, match="no version"):
            await versioning(router).go_back("ffff", None, "", "")


@run_async
async def test_what_is_not_written_down_is_not_done(write: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("one")
    async with opened(path) as (router,):
        write("two")
        assert await router.reload()

        async def full(*_: object) -> None:
            raise StoreError("no room")

        monkeypatch.setattr(versioning(router).store, "pinned", full)
        with pytest.raises(StoreError, match="no room"):
            await versioning(router).go_back(None, None, "", "")
        assert await said(router) == "two"
        assert versioning(router).pin is None


@run_async
async def test_a_gateway_serves_although_versions_cannot_be_kept(write: Callable[..., str], tmp_path: Path) -> None:
    path = write("one")
    (tmp_path / "versions.sqlite").write_bytes(b"not a database, whatever it is" * 100)
    async with opened(path) as (router,):
        assert await said(router) == "one"
        assert "versions" in router.status()["versions"]["last_error"]
        write("two")
        assert await router.reload()
        assert await said(router) == "two"


@run_async
async def test_models_whose_files_are_not_as_they_were_are_named(write: Callable[..., str]) -> None:
    async with opened(write("one")) as (router,):
        store = versioning(router).store
        write("two")
        assert await router.reload()
        stamps = ('{"m": [["path", 1, 2]]}',)
        await store.file.run(lambda database: database.execute("UPDATE versions SET stamps = ?", stamps))
        assert (await versioning(router).go_back(None, None, "", "")).changed == ("m",)


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    return connect(str(tmp_path / "v.sqlite"), LAYOUT)


def served(database: sqlite3.Connection, name: str, action: str = "serve", before: str = "", keep: int = 100) -> int:
    version = Version(name, {"": name.encode(), "policy.yaml": b"the same"}, {"m": [["path", 1, 2]]})
    return keep_version(database, version, Change(0, 1.0, name, action, before), keep)  # type: ignore[arg-type]


def test_a_version_is_found_by_the_beginning_of_its_name(database: sqlite3.Connection) -> None:
    assert [served(database, name) for name in ("abc1", "abd2", "abd2", "a_c3")] == [1, 2, 0, 3]
    kept = Version("abd2", {"": b"abd2", "policy.yaml": b"the same"}, {"m": [["path", 1, 2]]})
    assert find_version(database, "abd") == kept
    assert find_version(database, "a_").version == "a_c3"
    for name, told in (("ab", "several"), ("x", "no version"), ("", "no version"), ("%", "no version")):
        with pytest.raises(NotFound, match=told):
            find_version(database, name)
    assert database.execute("SELECT count(*) FROM blobs").fetchone() == (4,)  # equal content is kept once


def test_the_oldest_go_but_not_one_that_is_pinned(database: sqlite3.Connection) -> None:
    served(database, "v0")
    set_pin(database, Pin(1, "v0", "file"))
    for number in range(1, 6):
        served(database, f"v{number}", keep=2)
    kept = {version for (version,) in database.execute("SELECT version FROM versions")}
    assert kept == {"v0", "v4", "v5"}
    assert database.execute("SELECT count(*) FROM blobs").fetchone() == (4,)
    assert len(list_changes(database, 100)) == 6
    with pytest.raises(NotFound):
        find_version(database, "v1")


def test_the_last_good_one_is_one_from_which_nobody_went_back(database: sqlite3.Connection) -> None:
    with pytest.raises(NotFound, match="go back to"):
        last_good(database, "v1")
    for name in ("v1", "v2", "v3"):
        served(database, name)
    assert last_good(database, "v3") == "v2"
    served(database, "v2", "rollback", "v3")
    assert last_good(database, "v2") == "v1"
    served(database, "v1", "rollback", "v2")
    with pytest.raises(NotFound):
        last_good(database, "v1")


def test_a_difference_hides_what_is_secret_in_either() -> None:
    before = {"": b"admin: {secret: 0123456789abcdefg}\nmodels: {m: {api_key: ${KEY}}}\n", "p.yaml": b"a: 1\n"}
    after = {"": b"admin: {secret: another-secret-text}\nmodels: {m: {api_key: ${KEY}}}\n"}
    found = difference(before, after, ("A", "B"), lambda text: text)
    assert "0123456789abcdefg" not in found
    assert "another-secret-text" not in found
    assert found.splitlines() == [
        "--- A/config", "+++ B/config", "@@ -1,2 +1,2 @@", "-admin: {secret: [secret]}", "+admin: {secret: [secret]}",
        " models: {m: {api_key: ${KEY}}}", "--- A/p.yaml", "+++ B/p.yaml", "@@ -1 +0,0 @@", "-a: 1",
    ]  # fmt: skip
    assert difference(after, after, ("A", "B"), lambda text: text) == ""


def test_a_model_is_put_back_with_what_stands_in_the_file() -> None:
    now = {"": b'models: {m: {path: new.onnx, api_key: "${KEY}", version: "2e5"}, n: {path: n.onnx}}\n'}
    then = {"": b'models: {m: {path: old.onnx, api_key: "${KEY}", version: "1e5"}}\n', "p.yaml": b"x"}
    made = model_as_in(now, then, "m")
    assert made is not None
    assert made.keys() == {""}
    assert model_as_in(made, then, "m") is None
    assert b"${KEY}" in made[""]
    assert b"n.onnx" in made[""]
    with pytest.raises(NotFound):
        model_as_in(now, then, "n")
