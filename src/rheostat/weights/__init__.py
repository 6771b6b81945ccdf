"""The numbers a model is made of, as files: read without running anything, stored once, and taken apart by difference."""

from rheostat.weights.delta import apply_delta, make_delta, with_delta
from rheostat.weights.file import TensorSet, read_tensors, write_tensors
from rheostat.weights.store import WeightStore
from rheostat.weights.tensor import Tensor, digest_of, hash_of

__all__ = [
    "Tensor",
    "TensorSet",
    "WeightStore",
    "apply_delta",
    "digest_of",
    "hash_of",
    "make_delta",
    "read_tensors",
    "with_delta",
    "write_tensors",
]
