"""Tensors of the Open Inference Protocol v2, as JSON, bytes and protobuf messages: read strictly, on both sides of it."""

from rheostat.tensors.tensor import FLOATS, INTEGERS, Tensor, TensorError

__all__ = ["FLOATS", "INTEGERS", "Tensor", "TensorError"]
