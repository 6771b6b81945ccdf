"""The numbers a model is made of, as files: read without running anything, stored once, and taken apart by difference."""

from rheostat.tensors.delta import apply_delta, make_delta, with_delta
from rheostat.tensors.file import TensorSet, read_tensors, write_tensors
from rheostat.tensors.store import WeightStore
from rheostat.tensors.tensor import Tensor, digest_of, hash_of

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
