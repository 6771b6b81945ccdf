"""The reference page: up to date, complete, and its example works."""

from __future__ import annotations

import pathlib
import re

from config_files import load, problems
from msgspec import Struct

from rheostat.backends import BACKENDS
from rheostat.config import Config, Parts
from rheostat.config.hints import fields_of
from rheostat.config.parts import places
from rheostat.config.reference import INTRO, reference
from rheostat.policies import KINDS, Rule
from rheostat.signals import SCORERS

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "config.md"


def test_the_page_is_what_the_code_says() -> None:
    remedy = "run: python -m rheostat.config.reference > docs/reference/config.md"
    assert PAGE.read_text(encoding="utf-8") == reference(), remedy


def test_every_field_is_named_in_its_section() -> None:
    sections = re.split(r"^#{2,4} ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    by_title = {section.partition("\n")[0]: section for section in sections}
    titled: dict[str, type[Struct]] = {"The file": Config, "an item of rules": Rule}
    titled |= {f"backend: {tag}": cls for tag, cls in BACKENDS.items()}
    titled |= {f"scorer: {tag}": cls for tag, cls in SCORERS.items()}
    titled |= dict(KINDS)
    for title, cls in titled.items():
        section = by_title[title] + (by_title["models.NAME"] if title.startswith("backend") else "")
        for key in fields_of(cls):
            assert f"\n| `{key}` | " in section, (title, key)
    for key in places(Parts.builtin()):
        assert f"\n| `{key}` | " in PAGE.read_text(encoding="utf-8"), key


def test_the_example_of_the_page_loads(tmp_path: pathlib.Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", INTRO, flags=re.DOTALL)
    for name in ("fast.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"")
    loaded = load(tmp_path, example, {"LARGE_URL": "http://localhost:8000/v1"})
    assert loaded.warnings == ()
    assert [problem.line for problem in problems(tmp_path, example, {})] == [3]
