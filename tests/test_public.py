"""The public names: sorted, importable, and nothing happens at import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rheostat


def test_public_names_are_sorted_and_there() -> None:
    assert list(rheostat.__all__) == sorted(rheostat.__all__)
    for name in rheostat.__all__:
        assert getattr(rheostat, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = rheostat.Nothing


def test_importing_costs_nothing_heavy() -> None:
    heavy = "{'numpy', 'onnxruntime', 'sklearn', 'pyarrow', 'aiohttp', 'starlette', 'matplotlib'}"
    code = f"import sys, rheostat, rheostat.cli; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
