"""A torch module whose tensors are put in, or exchanged while another module goes on with the old ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from rheostat.errors import WeightsError

_SHOWN = 5


class _Slot(NamedTuple):
    """One tensor of a module: every name it has, and every place it stands at (more than one when it is tied)."""

    tensor: Any
    names: list[str]
    places: list[tuple[Any, str]]


def fill(module: Any, values: Mapping[str, Any], kept: Collection[str] | None = None) -> None:
    """Put tensors in the module's places, in place; tied ones stay tied.

    Args:
        kept: names of tensors that are in the module already and stay; None: every parameter and every buffer that is saved
            must be given.

    Raises:
        WeightsError: a tensor is missing, not expected, of another shape or type than the module's, or one of two that the
            module ties and the file does not; all are named.
    """
    import torch

    whole = kept is None
    slots = _slots(module)
    known = {name for slot in slots for name in slot.names}
    saved = set(module.state_dict(keep_vars=True)) if whole else set()
    problems = _listed("the module has no", [name for name in values if name not in known])
    problems += _listed(
        "missing:",
        [slot.names[0] for slot in slots if not saved.isdisjoint(slot.names) and values.keys().isdisjoint(slot.names)],
    )
    for slot in slots:
        given = [name for name in slot.names if name in values]
        if not given:
            continue
        value = values[given[0]]
        others = [name for name in given if not _same(values[name], value)]
        others += [name for name in slot.names if name in (kept or ())]
        if others:
            problems.append(f"{given[0]} and {others[0]} are one tensor in the module and differ in the weights")
        if value.shape != slot.tensor.shape or value.dtype != slot.tensor.dtype:
            problems.append(
                f"{slot.names[0]} is {_kind(value)} in the file and {_kind(slot.tensor)} in the module"
                + ("" if value.shape != slot.tensor.shape else f" (the factory can return module.to({value.dtype}))")
            )
            continue
        if problems:
            continue
        parameter = isinstance(slot.tensor, torch.nn.Parameter)
        new = torch.nn.Parameter(value, requires_grad=False) if parameter else value
        for owner, key in slot.places:
            setattr(owner, key, new)
    if problems:
        raise WeightsError(
            "; ".join(problems[:_SHOWN]) + (f"; and {len(problems) - _SHOWN} more" if problems[_SHOWN:] else "")
        )
    if whole:
        empty = [slot.names[0] for slot in _slots(module) if slot.tensor.is_meta]
        if empty:
            told = "is on `meta` and not in the file: make it in the factory under torch.device('cpu')"
            raise WeightsError(f"{', '.join(empty[:_SHOWN])} {told}")


def copied(module: Any, names: Mapping[str, Any]) -> Any | None:
    """Return a copy of the module in which the tensors `names` can be exchanged. Only modules on the way to them are copied;
    all others, such as a trunk above which a head changes, are the same objects in both.

    None when such a copy would not be safe: a module on the way keeps tensors or modules where torch does not look for them,
    or has hooks.
    """
    changed = {id(slot.tensor) for slot in _slots(module) if not names.keys().isdisjoint(slot.names)}
    done: dict[int, Any] = {}
    made = _copy(module, changed, done)
    return None if any(_entangled(each) for each in done.values() if each is not None) else made


def twin(module: Any, children: Mapping[str, Any]) -> Any:
    """Return a module of the same class over `children`, with the same tensors, which can be exchanged in one of the two."""
    made = module.__class__.__new__(module.__class__)
    made.__dict__ = module.__dict__ | {
        "_modules": dict(children), "_parameters": dict(module._parameters), "_buffers": dict(module._buffers)
    }  # fmt: skip
    return made


def _copy(module: Any, changed: set[int], done: dict[int, Any]) -> Any:
    """The module itself, or a copy where something below it changes; `done` has the copies by the original's id."""
    if id(module) in done:
        return done[id(module)] or module
    children = {key: None if child is None else _copy(child, changed, done) for key, child in module._modules.items()}
    own = (*module._parameters.values(), *module._buffers.values())
    same = all(children[key] is child for key, child in module._modules.items())
    if same and not any(id(tensor) in changed for tensor in own if tensor is not None):
        done[id(module)] = None
        return module
    done[id(module)] = twin(module, children)
    return done[id(module)]


def _entangled(module: Any) -> bool:
    registered = ("_modules", "_parameters", "_buffers")
    for key, value in module.__dict__.items():
        if (key.endswith("_hooks") and value) or (key not in registered and _holds_tensors(value)):
            return True
    return False


def _holds_tensors(value: Any, depth: int = 3) -> bool:
    import torch

    if isinstance(getattr(value, "__self__", value), torch.nn.Module | torch.Tensor):
        return True
    if depth and isinstance(value, list | tuple | set | dict):
        inner = value.values() if isinstance(value, dict) else value
        return any(_holds_tensors(each, depth - 1) for each in inner)
    return bool(getattr(value, "__closure__", None))  # a function made inside another may hold anything


def _slots(module: Any) -> list[_Slot]:
    slots: dict[int, _Slot] = {}
    _gather(module, "", slots, set())
    return list(slots.values())


def _gather(module: Any, prefix: str, slots: dict[int, _Slot], seen: set[int]) -> None:
    """Note every tensor in and below the module; one that is reached on two ways has two names, but one place."""
    for held in (module._parameters, module._buffers):
        for key, tensor in held.items():
            if tensor is not None:
                slot = slots.setdefault(id(tensor), _Slot(tensor, [], []))
                slot.names.append(prefix + key)
                if id(module) not in seen:
                    slot.places.append((module, key))
    seen.add(id(module))
    for key, child in module._modules.items():
        if child is not None:
            _gather(child, f"{prefix}{key}.", slots, seen)


def _same(one: Any, other: Any) -> bool:
    import torch

    if one is other or (one.shape, one.dtype, one.data_ptr()) == (other.shape, other.dtype, other.data_ptr()):
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))))


def _listed(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else ""
    return [f"{what} {', '.join(names[:_SHOWN])}{more}"]


def _kind(tensor: Any) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
