"""Bytes, buffers and rows of a pool, read from the storages that its construction left alive.

Two sources are joined. A ledger notes every storage that torch hands out while the pool is built;
a walk over the pool's attributes finds which of them it holds, and where. What is alive and not
attributed to a component is ``other``, so that a pool which a future SGLang adds cannot hide.
"""

from __future__ import annotations

import functools
import re
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

__all__ = [
    "AllocationLedger",
    "Part",
    "Unattributed",
    "footprint",
    "homes",
    "storages",
    "tensors",
]


class AllocationLedger(TorchFunctionMode):
    """Notes every storage on a device that torch's functions return while it is active."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = torch.device(device).type
        self._noted: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],  # torch's signature
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.device.type == self._device:
            storage = result.untyped_storage()
            if storage._cdata not in self._noted or _expired(self._noted[storage._cdata][0]):
                self._noted[storage._cdata] = (_weak(storage), storage.nbytes())
        return result

    def alive(self) -> dict[int, int]:
        """Bytes of each noted storage that still exists, by its identity."""
        return {key: size for key, (ref, size) in self._noted.items() if not _expired(ref)}


def _weak(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # torch does not type it


def _expired(ref: StorageWeakRef) -> bool:
    return bool(ref.expired())  # type: ignore[no-untyped-call]  # torch does not type it


#: Nothing hangs below a value of these types. Exact types: looking one up is all that most of a
#: pool's attributes cost. What an object refers to weakly is another's: the tables that a pool
#: translates locations with are its allocator's.
_LEAVES = frozenset(
    {
        *(str, bytes, int, float, bool, complex, type(None), type, types.ModuleType, torch.dtype),
        *weakref.ProxyTypes,
    }
)


def tensors(root: object, *, skip: frozenset[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Every tensor that an object holds, with its attribute path.

    ``skip`` names attributes that are not followed: what belongs to somebody else.
    """
    stack: list[tuple[str, object]] = [("", root)]
    seen: set[int] = set()
    while stack:
        path, value = stack.pop()
        if isinstance(value, torch.Tensor):
            yield path, value
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        stack.extend(_children(path, value, skip))


def _children(path: str, value: object, skip: frozenset[str]) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        pairs = value.items()
        return [(f"{path}[{key!r}]", item) for key, item in pairs if type(item) not in _LEAVES]
    if isinstance(value, list | tuple | set | frozenset):
        items = enumerate(value)
        return [(f"{path}[{index}]", item) for index, item in items if type(item) not in _LEAVES]
    if not type(value).__module__.startswith(("sglang.", "contracts.")):
        return []
    attributes = dict(getattr(value, "__dict__", {}))
    for slot in _slots(type(value)):  # type: ignore[arg-type]  # mypy: a class is unhashable
        if hasattr(value, slot):
            attributes[slot] = getattr(value, slot)
    prefix = f"{path}." if path else ""
    return [
        (f"{prefix}{name}", item)
        for name, item in attributes.items()
        if type(item) not in _LEAVES and name not in skip
    ]


@functools.cache
def _slots(kind: type) -> tuple[str, ...]:
    """The slots that a class and its bases declare, without those of the language."""
    declared = [getattr(cls, "__slots__", ()) for cls in kind.__mro__]
    names = [(one,) if isinstance(one, str) else tuple(one) for one in declared]
    return tuple(name for group in names for name in group if not name.startswith("__"))


@dataclass(frozen=True, slots=True)
class Part:
    """Where a tensor belongs: a component, and the kind of layer that has one such buffer."""

    component: str
    kind: str | None


def footprint(
    pool: object,
    attribute: Callable[[str], Part | None],
    alive: Mapping[int, int],
    owners: Iterable[object],
) -> dict[str, dict[str, Any]]:
    """The components of a pool as JSON, shared storages counted once.

    ``attribute`` says for an attribute path which component the tensor there belongs to;
    ``alive`` are the storages that the pool's construction left behind; ``owners`` are other
    objects built with it, whose tensors are their own.

    Raises:
        Unattributed: the construction left storages that belong to no component and no owner, or
            one that belongs to two components.
    """
    counts: dict[Part, dict[int, tuple[int, int]]] = {}
    homes: dict[int, Part] = {}
    loose: dict[int, tuple[int, str]] = {}
    for path, tensor in tensors(pool, skip=_INDICES):
        storage = tensor.untyped_storage()
        part = attribute(path)
        if part is None:
            loose[storage._cdata] = (storage.nbytes(), path)
            continue
        home = homes.setdefault(storage._cdata, part)
        if home != part:
            raise Unattributed(f"{path}: {part.component} shares its storage with {home.component}")
        storages = counts.setdefault(part, {})
        # A view of a counted storage adds no bytes; the larger view states the rows.
        rows = max(tensor.shape[0] if tensor.ndim else 1, storages.get(storage._cdata, (0, 0))[1])
        storages[storage._cdata] = (storage.nbytes(), rows)
    known = homes.keys() | _held(owners)
    loose.update({key: (size, "(unnamed)") for key, size in alive.items() if key not in loose})
    other = {key: where for key, where in loose.items() if key not in known and where[0] > 0}
    if other:
        raise Unattributed(_other(sorted(other.values())))
    return {
        part.component: _count(part, storages)
        for part, storages in sorted(counts.items(), key=_name)
    }


def storages(pool: object) -> Iterator[tuple[int, int]]:
    """Identity and bytes of every storage that a pool holds."""
    for _path, tensor in tensors(pool, skip=_INDICES):
        storage = tensor.untyped_storage()
        yield storage._cdata, storage.nbytes()


def homes(pool: object, attribute: Callable[[str], Part | None]) -> dict[int, tuple[str, int]]:
    """The component of each attributed storage, and its place in the component's order."""
    placed: dict[str, list[tuple[list[int], int]]] = {}
    for path, tensor in tensors(pool, skip=_INDICES):
        part = attribute(path)
        if part is not None:
            place = [int(number) for number in re.findall(r"\[(\d+)\]", path)]
            key = tensor.untyped_storage()._cdata
            placed.setdefault(part.component, []).append((place, key))
    return {
        key: (name, index)
        for name, places in placed.items()
        for index, (_place, key) in enumerate(sorted(places))
    }


#: Attributes that only point at pools which have an attribute of their own.
_INDICES = frozenset({"layer_mapping"})
#: What an allocator or a request pool points at without owning it.
_NOT_THEIRS = frozenset({"_kvcache", "kvcache"})


def _name(item: tuple[Part, object]) -> str:
    return item[0].component


def _held(owners: Iterable[object]) -> set[int]:
    return {
        tensor.untyped_storage()._cdata
        for owner in owners
        for _path, tensor in tensors(owner, skip=_NOT_THEIRS)
    }


def _count(part: Part, storages: Mapping[int, tuple[int, int]]) -> dict[str, Any]:
    return {
        "buffers": len(storages),
        "rows": sum(rows for _size, rows in storages.values()),
        "bytes": sum(size for size, _rows in storages.values()),
        "kind": part.kind,
    }


class Unattributed(Exception):
    """A pool's construction left storages that no component, or more than one, accounts for."""


def _other(where: list[tuple[int, str]]) -> str:
    size = sum(bytes_ for bytes_, _path in where)
    named = ", ".join(f"{path} ({bytes_} bytes)" for bytes_, path in where[:5])
    return f"other: {size} bytes in {len(where)} buffers belong to no known component: {named}"
