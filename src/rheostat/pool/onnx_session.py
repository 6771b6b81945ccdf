"""An ONNX file opened for one thread a call, its weights shared between models and processes where that is wanted."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rheostat.errors import ConfigError, Problem

# How protobuf writes the key of an external-data entry: field 1, 8 bytes, "location", field 2.
_EXTERNAL_MARK = b"\n\x08location\x12"


def open_session(path: Path, threads: int, field: str, share: bool = False) -> Any:
    """Return an `onnxruntime.InferenceSession` on the CPU with `threads` (>= 1) threads inside one call.

    Reading an ONNX file runs no code of it.

    Args:
        field: the config field that names the file, for errors.
        share: leave weights that lie in an external-data file unpacked, so that all who use it map the same pages.

    Raises:
        ConfigError: there is no such file, it is no ONNX model, or there is nothing to share.
    """
    import onnxruntime

    if not path.is_file():
        raise ConfigError([Problem(field, None, f"{path.name} is not there: no file {path}")])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if share:
        if not _has_external_data(path):
            told = f"the weights of {path.name} stand in it; save it with external data, or remove `share`"
            raise ConfigError([Problem("share", None, told)])
        options.add_session_config_entry("session.disable_prepacking", "1")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of its own for every reason
        raise ConfigError([Problem(field, None, _told(path.name, str(error)))]) from error


def named_labels(path: Path, session: Any) -> list[str] | None:
    """Return the labels the model carries, in the order of its outputs, or None.

    They stand in `<path>.json` as `{"labels": [...]}`, or in the file's own metadata under `labels` as a JSON list.

    Raises:
        ConfigError: the place is there and holds no list of labels.
    """
    sidecar = path.with_name(path.name + ".json")
    if sidecar.is_file():
        found, source = sidecar.read_text(encoding="utf-8"), sidecar.name
    else:
        found, source = session.get_modelmeta().custom_metadata_map.get("labels"), f"the metadata of {path.name}"
        if not found:
            return None
    try:
        value = json.loads(found)
    except ValueError as error:
        raise ConfigError([Problem("labels", None, f"{source} is not JSON: {error}")]) from error
    labels = value.get("labels") if isinstance(value, Mapping) else value
    if labels is None:
        return None
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str | int) for label in labels):
        raise ConfigError([Problem("labels", None, f'{source}: expected {{"labels": ["a", "b", ...]}}')])
    return [str(label) for label in labels]


def _told(name: str, message: str) -> str:
    if "construct locale" in message:
        return (
            f"{name} folds letter case in a locale this machine lacks (en_US.UTF-8 unless the file says otherwise): install "
            "the locale, or export again with the skl2onnx option {TfidfVectorizer: {'locale': 'C.UTF-8'}}"
        )
    return f"{name} is not an ONNX model that can be run: {message.splitlines()[0][:300] if message else 'no reason given'}"


def _has_external_data(path: Path) -> bool:
    if path.stat().st_size == 0:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_EXTERNAL_MARK) >= 0
