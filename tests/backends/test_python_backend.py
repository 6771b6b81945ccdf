import asyncio
import os
import sys
from pathlib import Path

import pytest

from rheostat.backends.python import PythonModel
from rheostat.errors import ConfigError, ContractError, ModelError
from rheostat.pool.backend import Backend, RemoteBackend
from rheostat.types import Prediction

SOURCE = """
labels = ("long", "short")
def batch(rows): return [("long" if len(row) > 5 else "short", 0.9) for row in rows]
def one(row):
    if row == "boom": raise RuntimeError("no " + row)
    return "short"
def fails(rows): raise ValueError("broken inside")
def spoils(rows):
    answers = [{"label": "short", "output": dict(row)} for row in rows]
    for row in rows: row["list"].append(1); row.clear()
    rows.clear()
    return answers
async def spoils_later(row): return spoils([row])[0]
async def exits(row): raise SystemExit(3)
def too_few(rows): return ["short"]
def text(rows): return "short"
def generator(rows): return ("short" for row in rows)
async def later(rows): return ["short"] * len(rows)
async def never(rows):
    import asyncio
    await asyncio.sleep(60)
async def each_later(row):
    if row == "boom": raise KeyError(row)
    return {"short": 0.75, "long": 0.25}
class Model:
    labels = ("a", "b")
    closed = 0
    def __init__(self, label="a"): self.label = label
    def __call__(self, rows): return [self.label] * len(rows)
    def close(self): Model.closed += 1
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "my_models.py").write_text(SOURCE)
    return str(tmp_path)


def opened(folder: str, name: str, **more: object) -> Backend:
    backend = PythonModel(callable=f"my_models:{name}", **more).open(folder)  # type: ignore[arg-type]
    assert isinstance(backend, Backend)
    return backend


def test_a_list_callable_from_the_config_folder(folder: str) -> None:
    before = list(sys.path)
    backend = opened(folder, "batch", labels=("long", "short"))
    assert backend.predict(["hello world", "hi"]) == [Prediction("long", 0.9), Prediction("short", 0.9)]
    assert sys.path == before


def test_code_that_changes_its_rows_changes_a_copy(folder: str) -> None:
    row = {"text": "a", "list": [1]}
    for reply in (
        *opened(folder, "spoils").predict([row]),
        *asyncio.run(PythonModel(callable="my_models:spoils_later", each=True).open(folder).apredict([row], 1.0)),  # type: ignore[union-attr]
    ):
        assert isinstance(reply, Prediction)
        assert reply.output == {"text": "a", "list": [1, 1]}
    assert row == {"text": "a", "list": [1]}


def test_a_coroutine_that_exits_fails_alone(folder: str) -> None:
    backend = PythonModel(callable="my_models:exits", each=True).open(folder)
    assert isinstance(backend, RemoteBackend)
    (reply,) = asyncio.run(backend.apredict(["x"], 1.0))
    assert isinstance(reply, ModelError)
    assert reply.kind == "crashed"


def test_each_fails_alone(folder: str) -> None:
    good, bad, also_good = opened(folder, "one", each=True).predict(["x", "boom", "y"])
    assert good == also_good == Prediction("short")
    assert isinstance(bad, ModelError)
    assert bad.kind == "crashed"
    assert "RuntimeError: no boom" in str(bad)


@pytest.mark.parametrize(
    ("name", "kind", "word"),
    [
        ("fails", "crashed", "broken inside"),
        ("too_few", "bad_output", "expected 2 answers"),
        ("text", "bad_output", "each: true"),
        ("generator", "bad_output", "generator"),
    ],
)
def test_a_broken_callable_fails_the_call(folder: str, name: str, kind: str, word: str) -> None:
    with pytest.raises(ModelError, match=word) as caught:
        opened(folder, name).predict(["a", "b"])
    assert caught.value.kind == kind


def test_what_code_raises_is_told_with_its_line(folder: str) -> None:
    deep = "import json\ndef read(row):\n    return json.loads(row)\ndef every(rows):\n    return [read(r) for r in rows]\n"
    Path(folder, "deep.py").write_text(deep)
    backend = PythonModel(callable="deep:every").open(folder)
    assert isinstance(backend, Backend)
    with pytest.raises(ModelError, match=r"^JSONDecodeError: .* \(deep\.py, line 3\)$"):
        backend.predict(["{"])  # not the library's line, which tells nobody anything
    later = PythonModel(callable="my_models:each_later", each=True).open(folder)
    assert isinstance(later, RemoteBackend)
    (bad,) = asyncio.run(later.apredict(["boom"], 1.0))
    line = 1 + SOURCE.split("\n").index('    if row == "boom": raise KeyError(row)')
    assert str(bad) == f"KeyError: 'boom' (my_models.py, line {line})"


def test_a_fault_of_the_call_itself_has_no_line(folder: str) -> None:
    Path(folder, "none.py").write_text("def nothing(): return []\n")
    backend = PythonModel(callable="none:nothing").open(folder)
    assert isinstance(backend, Backend)
    with pytest.raises(ModelError, match=r"takes 0 positional arguments but 1 was given$"):
        backend.predict(["a"])


def test_a_class_is_made_with_args_declares_labels_and_is_closed(folder: str) -> None:
    backend = opened(folder, "Model", args={"label": "b"})
    assert backend.labels == ("a", "b")
    assert backend.predict(["x"]) == [Prediction("b")]
    backend.close()
    assert sys.modules["my_models"].Model.closed == 1


def test_coroutine_functions_are_remote(folder: str) -> None:
    backend = PythonModel(callable="my_models:later").open(folder)
    assert isinstance(backend, RemoteBackend)
    assert not isinstance(backend, Backend)
    assert asyncio.run(backend.apredict(["x", "y"], 1.0)) == [Prediction("short")] * 2

    each = PythonModel(callable="my_models:each_later", each=True).open(folder)
    assert isinstance(each, RemoteBackend)
    good, bad = asyncio.run(each.apredict(["x", "boom"], float("inf")))
    assert good == Prediction("short", 0.75, {"short": 0.75, "long": 0.25})
    assert isinstance(bad, ModelError)
    assert bad.kind == "crashed"

    slow = PythonModel(callable="my_models:never").open(folder)
    assert isinstance(slow, RemoteBackend)
    with pytest.raises(ModelError) as caught:
        asyncio.run(slow.apredict(["x"], 0.01))
    assert caught.value.kind == "timeout"


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (PythonModel(callable="my_models.batch"), "package.module:name"),
        (PythonModel(callable="nowhere_to_be_found:batch"), "cannot be imported"),
        (PythonModel(callable="my_models:bach"), "did you mean 'batch'"),
        (PythonModel(callable="my_models:number"), "cannot be called"),
        (PythonModel(callable="my_models:batch", args={"x": 1}), "takes no args"),
        (PythonModel(callable="my_models:Model", args={"x": 1}), "cannot be made"),
        (PythonModel(callable="../evil:x"), "package.module:name"),
    ],
)
def test_what_cannot_be_opened_says_why(folder: str, settings: PythonModel, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        settings.open(folder)


def test_other_labels_than_configured_are_refused(folder: str) -> None:
    with pytest.raises(ContractError, match="'c'"):
        opened(folder, "Model", labels=("a", "c"))


def test_a_changed_file_and_another_folder_are_read_again(folder: str, tmp_path: Path) -> None:
    assert opened(folder, "one", each=True).predict(["x"]) == [Prediction("short")]
    source = tmp_path / "my_models.py"
    source.write_text("def one(row): return 'changed'\n")
    os.utime(source, ns=(1, 1))
    assert opened(folder, "one", each=True).predict(["x"]) == [Prediction("changed")]
    other = tmp_path / "other"
    other.mkdir()
    (other / "my_models.py").write_text("def one(row): return 'other'\n")
    assert opened(str(other), "one", each=True).predict(["x"]) == [Prediction("other")]
