"""The trial of a module that shares parts with one in service: those answer what they answered to the same inputs before.

What a switch changes is tried for real, on what the shared parts really say; only they are not computed once more. A layer
of ten and a head are tried at a tenth of the price of the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from copy import copy
from typing import Any
from weakref import WeakKeyDictionary

from rheostat.backends.torch_module import twin

MOST_BYTES = 16 << 20
"""What is remembered of one model and its successors takes at most so much memory; the rest is computed again."""
LEAST_SHARE = 1 / 64
"""A part with fewer of the model's numbers than this is not worth remembering."""
_PLAIN = (bool, int, float, str, type(None))


class Memory:
    """What modules said to what, as long as they live: a module with other weights is another one."""

    def __init__(self) -> None:
        self._said: WeakKeyDictionary[Any, dict[bytes, Any]] = WeakKeyDictionary()

    def rehearsed(self, module: Any) -> Any:
        """Return what can be called like the module for its trial, and asks the memory about every part of it.

        It is not for traffic: code that looks for the class of a part finds another one."""
        return _Part(module, _Rehearsal(self._said, LEAST_SHARE * _numbers(module)))


class _Rehearsal:
    """One trial. What is said in it is remembered for later ones, so that a row asked twice is computed twice."""

    def __init__(self, said: WeakKeyDictionary[Any, dict[bytes, Any]], least: float) -> None:
        self._said = said
        self._least = least
        self._known: Collection[int] = {id(module) for module in said}

    def ask(self, module: Any, values: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return what the module says: remembered, or computed now."""
        key = _key((values, named))
        if key is not None and id(module) in self._known and key in self._said.get(module, ()):
            return _copied(self._said[module][key])
        inner = twin(module, self._parts(module)) if module._modules else module
        said = inner(*values, **named)
        if key is not None and _key((values, named)) == key:  # one that writes into its arguments has to do so every time
            self._keep(module, key, said)
        return said

    def _parts(self, module: Any) -> dict[str, Any]:
        return {key: None if child is None else self._part(child) for key, child in module._modules.items()}

    def _part(self, module: Any) -> Any:
        import torch

        if type(module) in (torch.nn.ModuleList, torch.nn.ModuleDict):  # never called, only looked into
            return twin(module, self._parts(module))
        return _Part(module, self) if module._modules or module._parameters or module._buffers else module

    def _keep(self, module: Any, key: bytes, said: Any) -> None:
        kept = _copied(said)
        if kept is None or _numbers(module) < self._least:
            return
        if _bytes(kept) + sum(_bytes(each) for calls in self._said.values() for each in calls.values()) <= MOST_BYTES:
            self._said.setdefault(module, {})[key] = kept


class _Part:
    """Stands where a module stands; whoever looks for its tensors or settings finds the module's own."""

    def __init__(self, module: Any, rehearsal: _Rehearsal) -> None:
        self._rehearsed = (module, rehearsal)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rehearsed[0], name)

    def __call__(self, *values: Any, **named: Any) -> Any:
        module, rehearsal = self._rehearsed
        return rehearsal.ask(module, values, named)


def _numbers(module: Any) -> int:
    own = (*module._parameters.values(), *module._buffers.values())
    children = sum(_numbers(child) for child in module._modules.values() if child is not None)
    return children + sum(int(tensor.numel()) for tensor in own if tensor is not None)


def _key(value: Any) -> bytes | None:
    """What is equal for equal arguments; None of what is neither tensors nor plain values."""
    found = hashlib.sha256()
    return found.digest() if _fed(value, found) else None


def _fed(value: Any, found: Any) -> bool:
    import torch

    found.update(f"{type(value)}".encode())
    if isinstance(value, torch.Tensor):
        found.update(f"{value.dtype}{list(value.shape)}".encode())
        found.update(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return True
    if isinstance(value, dict):
        return all(_fed(key, found) and _fed(each, found) for key, each in value.items())
    if isinstance(value, tuple | list):
        found.update(f"{len(value)}".encode())
        return all(_fed(each, found) for each in value)
    found.update(repr(value).encode())
    return type(value) in _PLAIN


def _copied(value: Any) -> Any:
    """A copy that later writes do not reach; None of what is neither tensors nor plain values, which is not remembered."""
    import torch

    if type(value) is torch.Tensor:
        return value.detach().clone()
    if isinstance(value, dict):  # libraries give classes of their own, whose entries are attributes too
        made = copy(value)
        for key, each in value.items():
            made[key] = _copied(each)
            if made[key] is None is not each:
                return None
        return made
    if type(value) in (tuple, list):
        parts = [_copied(each) for each in value]
        return None if any(part is None is not each for part, each in zip(parts, value, strict=True)) else type(value)(parts)
    return value if type(value) in _PLAIN else None


def _bytes(value: Any) -> int:
    import torch

    if isinstance(value, torch.Tensor):
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(map(_bytes, value.values()))
    return sum(map(_bytes, value)) if isinstance(value, tuple | list) else 0
