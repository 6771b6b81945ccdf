"""Every verb that reads an outcomes table meets every trap with a clear word, and never with a traceback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from traps import TRAPS, sound
from typer.testing import CliRunner

from rheostat.cli.app import app
from rheostat.lab.outcomes_file import save
from rheostat.lab.traps import flat_confidence, label_mismatch, not_better, one_class, repeats, traps

CASCADE = "{cascade: {stages: [small, large], threshold: 0.8}}"
PAIR = ("small", "large")
VERBS = {
    "calibrate": ["calibrate", "TABLE", "--model", "small", "--out", "calibration.json"],
    "tune": ["tune", "TABLE", "--goal", "max-share=0.4", "--force"],
    "report": ["report", "TABLE", "--goal", "max-share=0.4"],
    "experiment": ["experiment", "TABLE", "--policy", "small=small", "--policy", f"two={CASCADE}"],
    "replay": ["replay", "TABLE", "--policy", CASCADE],
    "curve": ["curve", "TABLE"],
    "advise": ["advise", "TABLE"],
    "retune": ["retune", "sound.yaml", "--before", "TABLE", "--after", "TABLE"],
    "router": ["train", "router", "TABLE", "--learner", "ridge", "--force"],
    "quality": ["train", "quality", "TABLE", "--method", "ridge", "--force"],
    "weights": ["train", "weights", "TABLE", "--fit-on", "dev", "--choose-on", "dev", "--force"],
    "difficulty": ["train", "difficulty", "TABLE", "--force"],
    "bandit": ["train", "bandit", "TABLE", "--force"],
}
EASY = ("tune", "report", "experiment", "replay", "curve", "advise", "retune")
NO_ROWS = "no row|no rows|0 rows|empty|no row id in common|nothing to calibrate"
# trap -> verb -> (a word of what it says, exit code)
SAID: dict[str, dict[str, tuple[str, int]]] = {
    "one class": {
        **dict.fromkeys(
            (*EASY, "calibrate", "router", "bandit"), ("every right label.* is 'l0': any constant is perfect", 0)
        ),
        "advise": ("every right label on dev and test is 'l0'", 1),
        "quality": ("every right label.* is 'l0'", 0),
    },
    "constant": {
        **dict.fromkeys(("tune", "curve", "retune", "calibrate"), ("small: its confidence is 0.9 on every row", 0)),
        "advise": ("constant scores, small: its confidence is 0.9 on every row", 0),
        "experiment": ("two: .* no difference shown|No policy is shown to differ", 0),
        "replay": ("no difference shown", 0),
    },
    "tied": {
        **dict.fromkeys(("tune", "curve", "retune", "calibrate"), ("it has 2 distinct confidences only", 0)),
        "advise": ("Don't route|Route", 0),
    },
    "no confidence": {
        "calibrate": ("nothing to calibrate on", 1),
        "tune": ("no confidence was recorded, so no cascade can pass on from it", 1),
        "report": ("no confidence was recorded", 1),
        "curve": ("no confidence was recorded", 0),
        "advise": ("no confidence was recorded", 0),
        "retune": ("no confidence was recorded", 0),
    },
    "some confidence": dict.fromkeys(
        ("tune", "curve", "retune", "calibrate"), (r"\d\.\d% of its answers have no confidence", 0)
    ),
    "no dev": {
        "calibrate": ("small on dev: no samples", 1),
        **dict.fromkeys(("tune", "report"), ("the table has no rows in the split 'dev'", 2)),
        "curve": ("no row can be used: the table is empty", 2),
        "advise": ("no row of dev can be used", 1),
        "weights": ("dev: 0 rows on which all models answered", 2),
        "difficulty": ("dev", 2),
    },
    "no test": {
        "calibrate": ("small on test: no row with a known label", 1),
        **dict.fromkeys(("tune", "report"), ("the table has no rows in the split 'test'", 2)),
        "advise": ("no row of test can be used", 1),
        "experiment": ("rows of train and dev are among these", 0),
        "retune": ("test", 1),
        "difficulty": ("test", 2),
    },
    "empty": {
        **dict.fromkeys(("tune", "report", "experiment", "replay", "curve", "router", "quality", "weights"), (NO_ROWS, 2)),
        **dict.fromkeys(("calibrate", "advise", "retune"), (NO_ROWS, 1)),
        "difficulty": ("no ", 2),
    },
    "strangers": {
        **dict.fromkeys(
            ("tune", "report", "experiment", "replay", "curve", "calibrate", "quality", "bandit"),
            ("100% of its answers are labels that are never right", 0),
        ),
        "calibrate": ("100% of its answers are labels that are never right.*all 186 answers are wrong", 1),
        "advise": ("No advice can be given: small: 100% of its answers are labels that are never right", 1),
        "router": ("100% of its answers are labels that are never right", 2),
        "retune": ("in the (old|new) table: 100% of its answers are labels that are never right", 1),
    },
    "repeated": dict.fromkeys(
        (*EASY, "calibrate", "router", "quality", "bandit"), ("distinct inputs (stand|occur) in more than one split", 0)
    ),
    "no better": {
        "tune": ("large is not better than small on test", 0),
        "report": ("large is not better than small on test", 0),
        "curve": ("large: not shown to be better than small on dev", 0),
        "advise": ("Don't route: use small alone", 0),
        "experiment": ("No policy is shown to differ from small", 0),
        "router": ("strong|better|gap", 2),
        "quality": ("small alone; .* no routing is shown to be better", 0),
    },
    "worse": {
        "tune": ("large is not better than small on test", 0),
        "curve": ("large: not shown to be better than small on dev", 0),
        "advise": ("Don't route: use small alone", 0),
        "experiment": ("two is worse|No policy is shown", 0),
        "router": ("strong|better|gap", 2),
    },
}
CASES = [(trap, verb, *said) for trap, verbs in SAID.items() for verb, said in verbs.items()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("traps")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        save(sound(), "sound.parquet")
        assert CliRunner().invoke(app, ["tune", "sound.parquet", "--out", "sound.yaml"]).exit_code == 0
        for trap, make in TRAPS.items():
            save(make(), f"{trap}.parquet")
        yield place


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("trap", "verb", "word", "code"), CASES, ids=lambda value: str(value)[:24])
def test_a_verb_says_what_is_wrong(trap: str, verb: str, word: str, code: int) -> None:
    if verb == "report":
        pytest.importorskip("matplotlib")
    if verb == "weights":
        pytest.importorskip("torch")
    arguments = [f"{trap}.parquet" if each == "TABLE" else each for each in VERBS[verb]]
    found = CliRunner().invoke(app, arguments, env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"})
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    said = re.sub(r"[\s│]+", " ", found.output)
    assert re.search(word, said), found.output
    assert found.exit_code == code, found.output
    assert "Traceback" not in said
    assert not re.search(r"\bnan\b|\binf\b", said), found.output


def test_a_sound_table_has_no_trap() -> None:
    made = sound()
    assert traps(made, PAIR) == []
    assert repeats(made) == []
    assert not_better(made, PAIR) == []


def test_traps_are_named_by_kind() -> None:
    assert [flag.kind for flag in one_class(TRAPS["one class"](), "dev")] == ["one class"]
    assert [flag.about for flag in label_mismatch(TRAPS["strangers"](), PAIR)] == ["small", "large"]
    assert [flag.kind for flag in flat_confidence(TRAPS["tied"](), PAIR, steps=True)] == ["ties", "constant scores"]
    assert flat_confidence(TRAPS["tied"](), ("small",)) == []
    assert [flag.kind for flag in flat_confidence(TRAPS["some confidence"](), ("small",), steps=True)] == [
        "some without confidence"
    ]
    assert [flag.about for flag in not_better(TRAPS["worse"](), PAIR)] == ["large"]
    assert [flag.kind for flag in repeats(TRAPS["repeated"]())] == ["split overlap"]
    assert traps(TRAPS["empty"](), PAIR) == []
    assert not_better(TRAPS["empty"](), PAIR) == []
