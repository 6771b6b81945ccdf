"""An ONNX file with 8-bit weights."""

from __future__ import annotations

import os
from pathlib import Path


def quantize_file(source: Path, target: Path) -> Path:
    """Write the ONNX model with 8-bit weights (dynamic quantisation by ONNX Runtime), whole or not at all.

    Weights get a scale for each channel and seven bits of range, so that processors without 8-bit dot products do not
    overflow. Activations are scaled by what is in the batch: serve the file with `chunk: 1`. Source of the method:
    Jacob et al. (2018), integer arithmetic with a scale and a zero point.

    Raises:
        OSError: `source` is not there, or `target` cannot be written.
    """
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    if not source.is_file():
        raise FileNotFoundError(2, "no such file", str(source))
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    logger = logging.getLogger()
    before = logger.level
    logger.setLevel(logging.ERROR)  # it advises a preprocessing step that changes nothing here
    try:
        quantize_dynamic(
            source, part, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True,
            extra_options={"MatMulConstBOnly": True},
        )  # fmt: skip
        part.replace(target)
    finally:
        logger.setLevel(before)
        part.unlink(missing_ok=True)
    return target
