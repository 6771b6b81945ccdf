"""The short form of the outage bench: a server is killed, stopped and slowed under load; every request is answered."""

import asyncio
from pathlib import Path

import pytest
from bench import outage, triton

pytest.importorskip("matplotlib")
if not triton.installed():
    pytest.skip(f"Triton is not installed: {triton.WANTED}", allow_module_level=True)


def test_every_request_is_answered_while_the_large_model_fails(tmp_path: Path) -> None:
    picture = tmp_path / "outage.png"
    samples = asyncio.run(outage.outage(("large",), 60.0, 1.5, 3.0, picture))
    assert len(samples) > 500
    assert [sample.said for sample in samples if not sample.right] == []
    assert {sample.level for sample in samples} > {0}  # peers stood in
    assert {sample.model for sample in samples} == set(outage.MODELS)
    assert picture.stat().st_size > 10_000
