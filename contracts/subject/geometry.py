"""The geometry of a DSV4 pool's buffers, as its parts and SGLang's own translation give it.

Sizes are in slots: tokens of a paged buffer, rows of a state buffer. The last row of a component
is asked of SGLang: the allocator's last location, taken through the function that SGLang itself
indexes the buffer with. Where a release has no such function to call, there is no last row.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from contracts.subject.footprint import storages

__all__ = ["geometry", "transfers"]


@dataclass(frozen=True, slots=True)
class _Reach:
    """The last legal locations: of full tokens, of SWA tokens, of the c4 slots that HiSparse keeps
    on the device, and the last request slot."""

    full: int | None
    swa: int | None
    device: int | None
    slot: int


def geometry(pool: Any, request_pool: Any, allocator: Any) -> dict[str, dict[str, int | None]]:
    """Size, page, ring, alignment and last row by component."""
    reach = _reach(request_pool, allocator)
    return {
        **dict(_marks(reach)),
        **dict(_paged(pool, reach)),
        **dict(_states(pool, "", reach)),
        **dict(_states(pool, "indexer_", reach)),
    }


def _reach(request_pool: Any, allocator: Any) -> _Reach:
    logical = getattr(allocator, "logical_attn_allocator", allocator)
    full = getattr(logical, "full_attn_allocator", logical)
    swa = getattr(logical, "swa_attn_allocator", None)
    device = getattr(allocator, "hisparse_attn_allocator", None)
    slots = int(request_pool.req_to_token.shape[0])
    return _Reach(_last_location(full), _last_location(swa), _last_location(device), slots - 1)


def _last_location(allocator: Any) -> int | None:
    """Page 0 is reserved, so that the allocator's pages are 1 to ``num_pages``."""
    return None if allocator is None else (allocator.num_pages + 1) * allocator.page_size - 1


def _marks(reach: _Reach) -> Iterator[tuple[str, dict[str, int | None]]]:
    """One mark for each request slot, the first of which is nobody's; and pointers to buffers."""
    yield "c4_kv_pointers", {"size": 0, "page": 1}
    marks: dict[str, int | None] = {"size": reach.slot, "page": 1, "last_row": reach.slot}
    yield from dict.fromkeys(("swa_valid_from", "c128_pending"), marks).items()


def _paged(pool: Any, reach: _Reach) -> Iterator[tuple[str, dict[str, int | None]]]:
    if pool.swa_kv_pool is not None:
        # A draft's own ring is addressed by request, not by SWA location.
        ring = getattr(pool, "swa_req_ring_size", None)
        yield "swa_kv", _page(pool.swa_kv_pool, (reach.slot + 1) * ring - 1 if ring else reach.swa)
    window = getattr(pool, "request_window", None)
    if window is not None:
        # Beyond all rings lie the rows that are read and written in place of none.
        yield "window_kv", _page(window.state, int(window.sink_row))
        yield "window_tags", {"size": int(window.tags.shape[0]), "page": 1}
        if window.workspace is not None:
            yield "window_scratch", _page(window.workspace, None)
    for name, ratio, part in [*_kv_pools(pool), *_index_pools(pool)]:
        # A compressed slot holds `ratio` full tokens. HiSparse maps c4 to device slots of its own.
        mapped = hasattr(part, "register_mapping")
        covered = None if reach.full is None else reach.full // ratio
        yield name, _page(part, reach.device if mapped else covered)


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
                "last_row": _last_state_row(part, ratio, reach)
                or _last_planned_row(pool, part, ratio, reach),
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


def _last_planned_row(pool: Any, part: Any, ratio: int, reach: _Reach) -> int | None:
    """The greatest row that SGLang plans to write for the last page of SWA locations, in 0.5.12,
    where the translation is a step of ``create_paged_compressor_data``
    (layers/attention/dsv4/compressor.py). It plans for groups of ``ratio`` rows; a ring that has
    none (online c128) is planned by a kernel, which cannot be asked."""
    translates = hasattr(part, _BY_LOCATION) or hasattr(part, _BY_REQUEST)
    if translates or reach.swa is None or part.ring_size % ratio:
        return None
    module = "sglang.srt.layers.attention.dsv4.compressor"
    plan = getattr(importlib.import_module(module), "create_paged_compressor_data", None)
    if plan is None:
        return None
    page = int(pool.swa_page_size)
    lengths = torch.arange(ratio, page + 1, ratio)
    planned = plan(
        ratio,
        is_prefill=False,
        token_to_kv_pool=_Pages(page, int(part.ring_size)),
        req_to_token=torch.arange(reach.swa + 1 - page, reach.swa + 1).unsqueeze(0),
        req_pool_indices=torch.zeros_like(lengths),
        seq_lens=lengths,
    )
    return int(planned.write_loc.max()) * ratio + ratio - 1


@dataclass(frozen=True, slots=True)
class _Pages:
    """What a plan reads of a pool. The locations that it is asked about are SWA locations."""

    swa_page_size: int
    ring_size: int

    def get_ring_size(self, compress_ratio: int) -> int:
        """The rows of a ring; there is but the one that is asked about."""
        del compress_ratio
        return self.ring_size

    def translate_loc_from_full_to_swa(self, locations: torch.Tensor) -> torch.Tensor:
        """A location is where it is."""
        return locations


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
