import asyncio
import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Union

import msgspec
import pytest

from rheostat.backends import BACKENDS, check_contract, check_remote_contract
from rheostat.backends.check import TEXT_PROBES
from rheostat.backends.python import PythonModel
from rheostat.backends.template import TemplateModel
from rheostat.backends.text_rules import Fallback, RulesModel
from rheostat.clock import ManualClock
from rheostat.errors import ContractError, ModelError
from rheostat.pool.backend import ModelSettings, Reply
from rheostat.types import Prediction

SETTINGS = PythonModel(callable="m:f")


class Scripted:
    """Answers by a function of the rows."""

    def __init__(self, answer: Callable[[Sequence[Any]], Any], labels: tuple[str, ...] | None = ("a", "b")) -> None:
        self.labels = labels
        self.calls: list[list[Any]] = []
        self._answer = answer

    def predict(self, rows: Sequence[Any]) -> Any:
        self.calls.append(list(rows))
        return self._answer(rows)

    def close(self) -> None:
        pass


def always(reply: Any) -> Scripted:
    return Scripted(lambda rows: [reply] * len(rows))


def test_a_good_model_passes_and_is_timed() -> None:
    clock = ManualClock()

    def answer(rows: Sequence[Any]) -> list[Reply]:
        clock.advance(0.5 if len(rows) == 1 and len(rows[0]) > 5_000 else 0.01)
        return [Prediction("a", 0.7, {"a": 0.7, "b": 0.3})] * len(rows)

    report = check_contract("m", Scripted(answer), SETTINGS, clock=clock)
    assert report.rows == len(TEXT_PROBES)
    assert report.row_s == pytest.approx(0.01)
    assert report.slowest_s == pytest.approx(0.5)
    assert report.skipped == ""


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (Prediction("c"), "'c' is none of"),
        (Prediction(""), "expected a label"),
        (Prediction("a", 1.2), "confidence"),
        (Prediction("a", math.nan), "confidence"),
        (Prediction("a", 0.5, {"a": 0.5, "b": math.nan}), "finite"),
        (Prediction("a", 0.5, {"a": 0.5, "b": 0.4}), "sum to 1"),
        (Prediction("a", 0.5, {"a": 0.4, "b": 0.6}), "highest score"),
        ("a", "expected a Prediction"),
        (None, "expected a Prediction"),
    ],
)
def test_every_breach_is_found(reply: object, word: str) -> None:
    with pytest.raises(ContractError, match=word) as caught:
        check_contract("mine", always(reply), SETTINGS)
    assert "model mine" in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (lambda rows: [Prediction("a")] * (len(rows) + 1), "5 rows gave 6 replies"),
        (lambda _: [], "5 rows gave 0 replies"),
        (lambda rows: [Prediction("a" if len(rows) > 1 else "b")] * len(rows), "alone and in a batch"),
        (lambda rows: [ModelError("crashed", "boom") if row == "" else Prediction("a") for row in rows], "crashed: boom"),
    ],
)
def test_breaches_of_count_and_order(answer: Callable[[Sequence[Any]], Any], word: str) -> None:
    with pytest.raises(ContractError, match=word):
        check_contract("m", Scripted(answer), SETTINGS)


def test_a_model_that_answers_by_chance_is_refused() -> None:
    turn = itertools.count()
    with pytest.raises(ContractError, match="asked twice"):
        check_contract("m", Scripted(lambda rows: [Prediction("aab"[next(turn) % 3]) for _ in rows]), SETTINGS)


def test_a_batch_in_another_order_is_refused() -> None:
    def swapped(rows: Sequence[Any]) -> list[Reply]:
        return [Prediction("a" if row == "x" else "b") for row in reversed(rows)]

    with pytest.raises(ContractError, match="alone and in a batch"):
        check_contract("m", Scripted(swapped), SETTINGS, ["x", "y"])


def test_refusing_a_row_is_no_breach() -> None:
    backend = Scripted(lambda rows: [Prediction("a") if row else ModelError("input_refused", "empty") for row in rows])
    assert check_contract("m", backend, SETTINGS).rows == 5


def test_which_rows_are_tried() -> None:
    assert always(Prediction("a")).calls == []
    given = always(Prediction("a"))
    check_contract("m", given, SETTINGS, [{"x": 1}])
    assert given.calls[0] == [{"x": 1}]
    for probe, rows in (({"x": 2}, [{"x": 2}]), (["p", "q"], ["p", "q"])):
        configured = always(Prediction("a"))
        check_contract("m", configured, msgspec.structs.replace(SETTINGS, probe=probe))
        assert configured.calls[0] == rows
    own = always(Prediction("a"))
    own.probes = ((1.0, 2.0),)  # type: ignore[attr-defined]
    check_contract("m", own, SETTINGS)
    assert own.calls[0] == [(1.0, 2.0)]


def test_a_model_whose_every_answer_breaks_the_contract_is_not_taken_for_one_that_takes_no_text() -> None:
    with pytest.raises(ContractError, match="one of the labels"):
        check_contract("m", always(ModelError("bad_output", "expected one of the labels ['yes'], got 'no'")), SETTINGS)


def test_a_model_that_takes_no_text_is_passed_over_and_it_is_said() -> None:
    report = check_contract("m", always(ModelError("crashed", "no column x")), SETTINGS)
    assert report.rows == 0
    assert "set probe" in report.skipped
    assert "no column x" in report.skipped
    with pytest.raises(ContractError, match="no column x"):
        check_contract("m", always(ModelError("crashed", "no column x")), SETTINGS, ["a row"])


@pytest.mark.parametrize(
    "settings",
    [
        TemplateModel(label="x", template="{text}"),
        RulesModel(keywords={"a": ("late",), "b": ("很好",)}, default=Fallback(label="c")),
    ],
)
def test_our_own_models_keep_it(settings: ModelSettings) -> None:
    report = check_contract("m", settings.open(""), settings)  # type: ignore[arg-type]
    assert report.rows == len(TEXT_PROBES)


class Elsewhere:
    labels = ("a", "b")

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.called = 0

    async def apredict(self, rows: Sequence[Any], timeout_s: float) -> Sequence[Reply]:  # noqa: ARG002
        self.called += 1
        return [self.reply] * len(rows)

    async def aclose(self) -> None:
        pass


def test_a_remote_model_is_called_only_for_its_own_probe() -> None:
    probed = msgspec.structs.replace(SETTINGS, probe="hello")
    quiet = Elsewhere(Prediction("c"))
    report = asyncio.run(check_remote_contract("m", quiet, SETTINGS))
    assert check_contract("m", quiet, probed).skipped
    assert (quiet.called, report.rows) == (0, 0)
    assert report.skipped
    assert asyncio.run(check_remote_contract("m", Elsewhere(Prediction("a", 0.5)), probed)).rows == 1
    with pytest.raises(ContractError, match="'c' is none of"):
        asyncio.run(check_remote_contract("m", quiet, probed))
    down = asyncio.run(check_remote_contract("m", Elsewhere(ModelError("connection", "refused")), probed))
    assert "refused" in down.skipped


def test_the_registry_decodes_every_kind_by_its_name() -> None:
    union = Union[tuple(BACKENDS.values())]  # type: ignore[valid-type]  # noqa: UP007
    for name, kind in BACKENDS.items():
        assert kind.__struct_config__.tag == name
    settings = msgspec.convert({"backend": "template", "label": "x"}, union)
    assert isinstance(settings, TemplateModel)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"backend": "template", "label": "x", "lable": "y"}, union)


def test_importing_the_backends_loads_nothing_heavy() -> None:
    heavy = ["numpy", "onnxruntime", "sklearn", "aiohttp", "re2", "tokenizers", "joblib"]
    code = f"import sys, rheostat.backends; print([m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
