"""Footprints of small pools, on ``meta``, that are no SGLang's."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from contracts.subject.footprint import AllocationLedger, Part, Unattributed, footprint, tensors

KV, STATE = Part("c4_kv", "c4"), Part("c4_state", "c4")


class Pool:
    """Holds whatever a test gives it; taken for an object of SGLang."""

    __module__ = "sglang.fake"

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


class Slotted:
    """Holds tensors in slots, of its own and of its base."""

    __module__ = "sglang.fake"
    __slots__ = ("__dict__", "kv", "unset")

    kv: torch.Tensor


class Derived(Slotted):
    """Adds a slot, and states it without a list."""

    __module__ = "sglang.fake"
    __slots__ = "more"  # noqa: PLC0205

    more: torch.Tensor


class Foreign:
    """An object of somebody else's module."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def buffer(rows: int, width: int = 8) -> torch.Tensor:
    return torch.zeros(rows, width, dtype=torch.uint8, device="meta")


def by_name(path: str) -> Part | None:
    """Attribute by the path's beginning."""
    if path.startswith("kv"):
        return KV
    return STATE if path.startswith("state") else None


def measured(
    build: Callable[[], tuple[Any, list[Any]]],
    attribute: Callable[[str], Part | None] = by_name,
    device: str = "meta",
) -> dict[str, dict[str, Any]]:
    """The footprint of a pool that is built under a ledger, with its other owners."""
    with AllocationLedger(device) as ledger:
        pool, owners = build()
    return footprint(pool, attribute, ledger.alive(), owners)


def of(**attributes: object) -> dict[str, dict[str, Any]]:
    """The footprint of a pool with these attributes."""
    return measured(lambda: (Pool(**attributes), []))


def counted(buffers: int, rows: int, size: int, kind: str | None = "c4") -> dict[str, Any]:
    return {"buffers": buffers, "rows": rows, "bytes": size, "kind": kind}


def test_buffers_rows_and_bytes() -> None:
    """Red when a buffer, a row or a byte of a component is lost, or the components are mixed."""
    found = of(kv=[buffer(10), buffer(20)], state=buffer(3, 4))
    assert found == {"c4_kv": counted(2, 30, 240), "c4_state": counted(1, 3, 12)}
    assert list(found) == ["c4_kv", "c4_state"]


def test_bytes_are_those_of_the_storage() -> None:
    """Red when the size is that of a tensor's elements and not of what was allocated."""
    whole = buffer(100)
    assert of(kv=whole[:10]) == {"c4_kv": counted(1, 10, 800)}


def test_a_shared_storage_counts_once() -> None:
    """Red when a buffer with two names counts twice."""
    shared = buffer(10)
    assert of(kv=shared, kv_again=[shared, shared]) == {"c4_kv": counted(1, 10, 80)}


def test_a_view_adds_nothing() -> None:
    """Red when a view of a counted buffer adds bytes, or decides its rows."""
    whole = buffer(10)
    views = {"kv": whole[2:4], "kv_whole": whole, "kv_flat": whole[0]}
    assert of(**views) == {"c4_kv": counted(1, 10, 80)}
    assert of(**dict(reversed(views.items()))) == {"c4_kv": counted(1, 10, 80)}


def test_a_storage_of_two_components() -> None:
    """Red when one buffer is counted for two components, so that they sum to too much."""
    whole = buffer(10)
    with pytest.raises(Unattributed, match=r"(kv|state): c4_\w+ shares its storage with c4_\w+"):
        of(kv=whole[:5], state=whole[5:])


def test_a_scalar_is_one_row() -> None:
    """Red when a tensor without dimensions has no row, or raises."""
    assert of(kv=torch.zeros((), device="meta")) == {"c4_kv": counted(1, 1, 4)}


def test_nested_containers_are_followed() -> None:
    """Red when a buffer hides in a list of lists, a dictionary, a tuple or an object in them."""
    inner = Pool(part={4: (buffer(1), [buffer(2)])})
    pool = Pool(kv=[inner, {"x": buffer(3)}], kv_none=None, kv_name="not a buffer")
    paths = {path for path, _ in tensors(pool)}
    assert paths == {"kv[0].part[4][0]", "kv[0].part[4][1][0]", "kv[1]['x']"}
    assert measured(lambda: (pool, [])) == {"c4_kv": counted(3, 6, 48)}


def test_slots_are_followed() -> None:
    """Red when an attribute in a slot, its class's or its base's, is not seen."""
    pool = Derived()
    pool.kv, pool.more = buffer(1), buffer(2)
    vars(pool)["state"] = buffer(3)
    assert {path for path, _ in tensors(pool)} == {"kv", "more", "state"}


def test_cycles_end() -> None:
    """Red when a pool that points back at itself is walked for ever."""
    pool = Pool(kv=buffer(1))
    vars(pool)["me"] = [pool, {"again": pool}]
    assert [path for path, _ in tensors(pool)] == ["kv"]


def test_what_only_points_at_pools_is_not_followed() -> None:
    """Red when the mapping from layers to pools is taken for a place of its own."""
    held = buffer(1)
    assert of(kv=held, layer_mapping=[held]) == {"c4_kv": counted(1, 1, 8)}


def test_what_is_held_weakly_is_another_s() -> None:
    """Red when a table that the allocator made and lends to the pool is counted with the pool."""
    table = buffer(3)
    lent = Pool(kv=buffer(1), kv_table=weakref.proxy(table))
    assert measured(lambda: (lent, [Pool(table=table)])) == {"c4_kv": counted(1, 1, 8)}


def test_a_named_other() -> None:
    """Red when a buffer that no component knows passes, or is not named with its size."""
    with pytest.raises(Unattributed) as error:
        of(kv=buffer(1), hidden=[buffer(5), buffer(6)])
    assert str(error.value) == (
        "other: 88 bytes in 2 buffers belong to no known component: "
        "hidden[0] (40 bytes), hidden[1] (48 bytes)"
    )


def test_an_unnamed_other() -> None:
    """Red when a buffer that the pool's construction left somewhere else is not seen."""
    kept = []

    def build() -> tuple[Any, list[Any]]:
        kept.append(buffer(5))
        return Pool(kv=buffer(1)), []

    with pytest.raises(Unattributed, match=r"other: 40 bytes in 1 buffers .*: \(unnamed\)"):
        measured(build)


def test_objects_of_other_modules_hide_nothing() -> None:
    """Red when what a foreign object holds is not reported, though it cannot be named."""
    with pytest.raises(Unattributed, match=r"\(unnamed\) \(40 bytes\)"):
        measured(lambda: (Pool(kv=buffer(1), hook=Foreign(buffer(5))), []))


def test_an_empty_other_is_none() -> None:
    """Red when a placeholder without bytes makes a pool unreadable."""
    assert of(kv=buffer(1), empty=buffer(0)) == {"c4_kv": counted(1, 1, 8)}


def test_what_is_gone_is_no_other() -> None:
    """Red when scratch space of the construction counts as allocated."""

    def build() -> tuple[Any, list[Any]]:
        scratch = buffer(500)
        del scratch
        return Pool(kv=buffer(1)), []

    assert measured(build) == {"c4_kv": counted(1, 1, 8)}


def test_tensors_of_another_owner() -> None:
    """Red when the allocator's free list counts as the pool's, or as other."""

    def build() -> tuple[Any, list[Any]]:
        return Pool(kv=buffer(1)), [Pool(free_pages=buffer(50)), Pool(req_to_token=buffer(60))]

    assert measured(build) == {"c4_kv": counted(1, 1, 8)}


@pytest.mark.parametrize("link", ["_kvcache", "kvcache"])
def test_an_owner_that_points_at_the_pool_owns_nothing_of_it(link: str) -> None:
    """Red when a hidden buffer passes for the allocator's, because that knows the pool."""

    def build() -> tuple[Any, list[Any]]:
        pool = Pool(kv=buffer(1), hidden=buffer(5))
        return pool, [Pool(free_pages=buffer(50), **{link: pool})]

    with pytest.raises(Unattributed, match=r"other: 40 bytes in 1 buffers .*: hidden"):
        measured(build)


def test_the_ledger_notes_its_own_device_only() -> None:
    """Red when index tensors on the CPU count as allocated on the device."""
    kept = []

    def build() -> tuple[Any, list[Any]]:
        kept.append(torch.zeros(100))
        return Pool(kv=buffer(1)), []

    assert measured(build) == {"c4_kv": counted(1, 1, 8)}
    with pytest.raises(Unattributed, match="400 bytes"):
        measured(build, device="cpu")


def test_the_ledger_tells_the_living_from_the_gone() -> None:
    """Red when a storage is missed that came after others were freed, or a freed one counts."""
    with AllocationLedger("cpu") as ledger:
        kept = []
        for _ in range(200):
            torch.zeros(16)
            kept.append(torch.zeros(4))
    assert sorted(ledger.alive().values()) == [16] * 200
    del kept
    assert ledger.alive() == {}


def test_the_kind_of_a_component() -> None:
    """Red when the kind of layer that a component follows is lost, or one is invented."""
    assert measured(lambda: (Pool(x=buffer(1)), []), lambda _: Part("single", None)) == {
        "single": counted(1, 1, 8, kind=None)
    }
