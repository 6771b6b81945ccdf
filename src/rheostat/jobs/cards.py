"""What an outcomes table says about a model: its settings, its trainer's card, and which files answered."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from rheostat.jobs.lines import DataError
from rheostat.lab.outcomes import ModelInfo, TrainingCard
from rheostat.pool import ModelSettings

_NOT_ANSWERS = frozenset({"api_key", "headers", "parallel", "threads", "max_retry_after"})
"""Settings that do not change what a model says."""


def model_info(settings: ModelSettings, base: str) -> ModelInfo:
    """Describe a model of a config whose relative paths start from `base`.

    Raises:
        DataError: its training card cannot be read.
    """
    return ModelInfo(
        version=settings.version,
        cost=settings.cost,
        tier=settings.tier,
        tags=settings.tags,
        peers=settings.peers,
        lighter=settings.lighter,
        card=training_card(settings, base),
        calibrated=settings.calibration is not None,
        digest=_digest(settings, base),
    )


def training_card(settings: ModelSettings, base: str) -> TrainingCard | None:
    """Return what stands in `<path of the model>.card.json` (for an encoder with a head: of the head), or None.

    Raises:
        DataError: it is there and is no training card.
    """
    name = getattr(settings, "head", None) or getattr(settings, "path", None)
    if not isinstance(name, str):
        return None
    place = Path(base, f"{name}.card.json")
    try:
        return msgspec.json.decode(place.read_bytes(), type=TrainingCard)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        known = ", ".join(TrainingCard.__struct_fields__)
        raise DataError(f"{place} is no training card ({error}); its fields are {known}, all optional") from error


def _digest(settings: ModelSettings, base: str) -> str:
    """Hash the settings that a backend adds and the files they name."""
    digest = hashlib.sha256(type(settings).__name__.encode())
    common = set(ModelSettings.__struct_fields__) - {"labels", "calibration", "prepare"}
    for field in settings.__struct_fields__:
        if field in common or field in _NOT_ANSWERS:
            continue
        value = getattr(settings, field)
        digest.update(msgspec.json.encode([field, value], order="sorted", enc_hook=str))
        if isinstance(value, str) and 0 < len(value) < 1024:
            for place in _files(value, base):
                digest.update(_content(place))
    return digest.hexdigest()[:16]


def _files(value: str, base: str) -> tuple[Path, ...]:
    """The files that a setting may mean: itself, its label list, or the module of a dotted name."""
    module = value.partition(":")[0].replace(".", "/")
    return (Path(base, value), Path(base, f"{value}.json"), Path(base, f"{module}.py"))


def _content(place: Path) -> bytes:
    try:
        with place.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except (OSError, ValueError):  # no such file: the setting is no name of one
        return b""
