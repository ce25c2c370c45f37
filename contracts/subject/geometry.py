"""The geometry of a DSV4 pool's buffers, as its parts and SGLang's own translation give it.

Sizes are in slots: tokens of a paged buffer, rows of a state buffer. The last row of a component
is asked of SGLang: the allocator's last location, taken through the function that SGLang itself
indexes the buffer with. Where a release has no such function to call, there is no last row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from contracts.subject.footprint import storages

__all__ = ["geometry", "transfers"]


@dataclass(frozen=True, slots=True)
class _Reach:
    """The last legal locations: of full tokens, of SWA tokens, and the last request slot."""

    full: int | None
    swa: int | None
    slot: int


def geometry(pool: Any, request_pool: Any, allocator: Any) -> dict[str, dict[str, int | None]]:
    """Size, page, ring, alignment and last row by component."""
    reach = _reach(request_pool, allocator)
    return {
        **dict(_paged(pool, reach)),
        **dict(_states(pool, "", reach)),
        **dict(_states(pool, "indexer_", reach)),
    }


def _reach(request_pool: Any, allocator: Any) -> _Reach:
    logical = getattr(allocator, "logical_attn_allocator", allocator)
    full = getattr(logical, "full_attn_allocator", logical)
    swa = getattr(logical, "swa_attn_allocator", None)
    slots = int(request_pool.req_to_token.shape[0])
    return _Reach(_last_location(full), None if swa is None else _last_location(swa), slots - 1)


def _last_location(allocator: Any) -> int:
    """Page 0 is reserved, so that the allocator's pages are 1 to ``num_pages``."""
    return int((allocator.num_pages + 1) * allocator.page_size - 1)


def _paged(pool: Any, reach: _Reach) -> Iterator[tuple[str, dict[str, int | None]]]:
    if pool.swa_kv_pool is not None:
        yield "swa_kv", _page(pool.swa_kv_pool, reach.swa)
    for name, ratio, part in [*_kv_pools(pool), *_index_pools(pool)]:
        # A compressed slot holds `ratio` full tokens. HiSparse maps c4 to device slots of its own.
        mapped = hasattr(part, "register_mapping")
        last = None if reach.full is None or mapped else reach.full // ratio
        yield name, _page(part, last)


def _page(part: Any, last: int | None) -> dict[str, int | None]:
    return {
        "size": int(part.size),
        "page": int(part.page_size),
        "last_row": None if last is None else last // int(part.page_size),
    }


def _kv_pools(pool: Any) -> Iterator[tuple[str, int, Any]]:
    pools: Mapping[int, Any] = getattr(
        pool, "kv_pools", {4: getattr(pool, "c4_kv_pool", None), 128: pool.c128_kv_pool}
    )
    for ratio, part in pools.items():
        if part is not None:
            yield f"c{ratio}_kv", ratio, part


def _index_pools(pool: Any) -> Iterator[tuple[str, int, Any]]:
    pools: Mapping[int, Any] = getattr(pool, "index_pools", {4: pool.c4_indexer_kv_pool})
    for ratio, part in pools.items():
        if part is not None:
            yield f"c{ratio}_indexer", ratio, part


def _states(pool: Any, prefix: str, reach: _Reach) -> Iterator[tuple[str, dict[str, int | None]]]:
    seen = set()
    for layer, part in enumerate(getattr(pool, f"{prefix}compress_state_pools")):
        ratio: int = pool.compression_ratios[layer]
        if part is None or ratio in seen:
            continue
        seen.add(ratio)
        yield (
            f"c{ratio}_{prefix}state",
            {
                "size": _state_size(pool, ratio, part),
                "page": 1,
                "ring": int(part.ring_size),
                "align": ratio,
                "last_row": _last_state_row(part, ratio, reach),
            },
        )


def _state_size(pool: Any, ratio: int, part: Any) -> int | None:
    if ratio == 2:
        # A pair ring a request slot, whose size no configured number states (V4.1).
        return int(pool.num_req_slots * part.ring_size)
    configs = getattr(pool, "compressed_pool_configs", None)
    if configs is not None:
        return int(configs[ratio].state_size) if ratio in configs else None
    return int(getattr(pool, f"c{ratio}_state_pool_size"))


def _last_state_row(part: Any, ratio: int, reach: _Reach) -> int | None:
    """The greatest row over the last pages of SWA locations, or over the last request's ring."""
    by_request = getattr(part, "request_scoped", ratio == 128 and hasattr(part, _BY_REQUEST))
    if by_request and hasattr(part, _BY_REQUEST):
        positions = torch.arange(2 * part.ring_size)
        slots = torch.full_like(positions, reach.slot)
        return int(getattr(part, _BY_REQUEST)(slots, positions).max()) + _banks(part)
    if not by_request and hasattr(part, _BY_LOCATION) and reach.swa is not None:
        # Within a page the row is location % ring: one page's worth of locations shows them all.
        locations = torch.arange(max(0, reach.swa + 1 - part.swa_page_size), reach.swa + 1)
        return int(getattr(part, _BY_LOCATION)(locations).max()) + _banks(part)
    return None


def _banks(part: Any) -> int:
    """How far the last bank of draft states lies behind the first (online c128 with MTP)."""
    drafts = int(getattr(part, "online_mtp_max_draft_tokens", 0))
    return drafts * int(getattr(part, "online_mtp_state_slot_offset", 0))


_BY_REQUEST = "translate_from_req_position_to_state_loc"
_BY_LOCATION = "translate_from_swa_loc_to_state_loc"

_LISTS = {
    "kv": ("get_contiguous_buf_infos",),
    "state": ("get_state_buf_infos",),
    "request_state": ("get_request_state_buf_infos", "get_c128_state_buf_infos"),
}


def transfers(pool: Any, homes: Mapping[int, tuple[str, int]]) -> dict[str, list[dict[str, Any]]]:
    """The pool's transfer lists, each entry by the buffer that its pointer is of.

    ``homes`` are components and places by storage. On ``meta`` every pointer is 0, so a tensor's
    pointer is its storage's identity for the while.
    """
    lists = {}
    sizes = dict(storages(pool))
    with _identities_for_pointers():
        for name, methods in _LISTS.items():
            method = next((method for method in methods if hasattr(pool, method)), None)
            if method is None:
                continue
            pointers, stated, _items = getattr(pool, method)()
            lists[name] = [
                _entry(pointer, length, homes, sizes)
                for pointer, length in zip(pointers, stated, strict=True)
            ]
    return lists


def _entry(
    pointer: int, stated: int, homes: Mapping[int, tuple[str, int]], sizes: Mapping[int, int]
) -> dict[str, Any]:
    component, index = homes.get(pointer, (None, None))
    return {
        "component": component,
        "index": index,
        "bytes": sizes.get(pointer),
        "stated": int(stated),
    }


def _identities_for_pointers() -> Any:
    from unittest import mock  # noqa: PLC0415 # only where the lists are read

    return mock.patch.object(
        torch.Tensor, "data_ptr", lambda tensor: tensor.untyped_storage()._cdata
    )
