"""Small consistent observations whose buffers have a geometry, and ways to bend one thing.

Like those in ``observations`` the numbers are arbitrary, but pages are pages: a pool has one
reserved page a paged buffer, and a ring and a sentinel row a state buffer, which nobody charges
(those of ``c128_state`` excepted: it is charged row by row). A draft is charged what it takes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from contracts.contract import Evidence, Request
from contracts.deployment import Deployment
from contracts.observation import (
    Component,
    Configurator,
    Observation,
    Pool,
    Rank,
    SubjectInfo,
    Transfer,
    View,
)

from .observations import REQUESTS, bend_rank, counts

PAGE = 256
#: Bytes of a row of each component's buffers.
ROW = {"swa_kv": 512, "c4_kv": 256, "c4_state": 32, "c128_state": 16}
LISTS = {"kv": ("c4_kv",), "state": ("swa_kv", "c4_state"), "request_state": ("c128_state",)}
FINAL_TOKENS = 4096


def evidence(plan: tuple[Request, ...]) -> Evidence:
    """Consistent answers to everything that a contract asks for."""
    return Evidence(observations=tuple(map(observe, plan)))


def observe(request: Request) -> Observation:
    """A consistent observation that answers a request."""
    asked = request.deployment
    layers, stages = asked.model.num_hidden_layers, asked.pp_size
    partition = asked.partition or [(layers + index) // stages for index in range(stages)]
    return Observation(
        subject=SubjectInfo(label="subject", version="1", era="test"),
        deployment=asked,
        ranks=tuple(
            _rank(request, index, start, end)
            for index, (start, end) in enumerate(pairwise(accumulate(partition, initial=0)))
        ),
        final_tokens=FINAL_TOKENS if "final" in request.views else None,
    )


def pool(ratios: tuple[int, ...], tokens: int, swa: int) -> Pool:
    """A pool for layers of these ratios."""
    layers = counts(ratios)
    states = (REQUESTS + 1) * 128
    return Pool(
        stage_ratios=ratios,
        components={
            "swa_kv": paged("total", layers["total"], swa, PAGE, ROW["swa_kv"]),
            "c4_kv": paged("c4", layers["c4"], tokens // 4, PAGE // 4, ROW["c4_kv"]),
            "c4_state": state("c4", layers["c4"], swa // PAGE * 8, 8, ROW["c4_state"]),
            "c128_state": state("c128", layers["c128"], states, 128, ROW["c128_state"]),
        },
    )


def paged(kind: str | None, buffers: int, size: int, page: int, row: int) -> Component:
    """Buffers of pages, with one reserved page each."""
    rows = buffers * (-(-size // page) + 1)
    return Component(buffers=buffers, rows=rows, bytes=rows * row, kind=kind, size=size, page=page)


def state(kind: str, buffers: int, size: int, ring: int, row: int) -> Component:
    """Buffers of state rows, with one more ring and a sentinel, rounded up."""
    align = int(kind[1:])
    rows = buffers * (-(-(size + ring + 1) // align) * align)
    return Component(
        buffers=buffers,
        rows=rows,
        bytes=rows * row,
        kind=kind,
        size=size,
        page=1,
        ring=ring,
        align=align,
    )


def _rank(request: Request, index: int, start: int, end: int) -> Rank:
    asked = request.deployment
    ratios = asked.model.compress_ratios[start:end]
    drafts = asked.speculation is not None
    configurator = _configurator(ratios, float(asked.swa_ratio() or 0.1), drafts=drafts)
    return Rank(
        rank=index,
        start_layer=start,
        end_layer=end,
        configurator=configurator,
        final=_view(request, configurator, FINAL_TOKENS) if "final" in request.views else None,
        own=_view(request, configurator, _capacity(asked, configurator))
        if "own" in request.views
        else None,
        at=tuple(_view(request, configurator, tokens) for tokens in request.tokens),
    )


def _configurator(ratios: tuple[int, ...], share: float, *, drafts: bool) -> Configurator:
    layers = counts(ratios)
    slots = {name: ROW[name] / PAGE for name in ("swa_kv", "c4_kv")}
    charges = {
        "swa_kv": share * slots["swa_kv"] * layers["total"],
        "c4_kv": slots["c4_kv"] * layers["c4"],
        "c4_state": share * 8 / PAGE * ROW["c4_state"] * layers["c4"],
    }
    target = sum(charges.values())
    reserve = share * slots["swa_kv"] if drafts else 0.0
    return Configurator(
        ratios=ratios,
        layers=layers,
        bytes_per_full_token=target + reserve,
        target_bytes_per_full_token=target,
        draft_layers=reserve / target * layers["total"],
        charges=charges,
    )


def fixed(ratios: tuple[int, ...]) -> int:
    """Bytes charged at any size: those of ``c128_state``, with its guard."""
    return pool(ratios, PAGE, PAGE).components["c128_state"].bytes


def _capacity(asked: Deployment, configurator: Configurator) -> int:
    left = asked.budget - fixed(configurator.ratios)
    tokens = int(left / configurator.bytes_per_full_token)
    limit = asked.server_args.get("max_total_tokens") or tokens
    return min(tokens, limit) // PAGE * PAGE


def _view(request: Request, configurator: Configurator, tokens: int) -> View:
    asked, ratios = request.deployment, configurator.ratios
    swa = int(tokens * float(asked.swa_ratio() or 0.1)) // PAGE * PAGE
    target = reporting(pool(ratios, tokens, swa))
    if "transfers" in request.views:
        target = dataclasses.replace(target, transfers=transfers(target))
    draft = reporting(pool((0,), tokens, swa)) if asked.speculation else None
    charge = fixed(ratios) + math.ceil(Fraction(configurator.bytes_per_full_token) * tokens)
    return View(
        tokens=tokens,
        sizes={"full": tokens, "swa": swa},
        max_running_requests=REQUESTS,
        pool=target,
        draft=draft,
        charge=charge if "charge" in request.views else None,
    )


def reporting(one: Pool) -> Pool:
    """A pool that reports its true size."""
    return dataclasses.replace(one, reported=one.bytes)


def transfers(one: Pool) -> dict[str, tuple[Transfer, ...]]:
    """Lists that name every buffer of a pool once, in order."""
    return {
        name: tuple(
            _entry(component, one.components[component], index)
            for component in components
            for index in range(one.components[component].buffers)
        )
        for name, components in LISTS.items()
    }


def _entry(name: str, component: Component, index: int) -> Transfer:
    size = component.bytes // component.buffers
    return Transfer(component=name, index=index, bytes=size, stated=size)


# -- bending one thing -----------------------------------------------------------------------------


def bend_own(given: Evidence, rank: int, change: Callable[[View], View]) -> Evidence:
    """The evidence with a rank's view of its own capacity changed."""

    def changed(it: Rank) -> Rank:
        return dataclasses.replace(it, own=None if it.own is None else change(it.own))

    return bend_rank(given, rank, changed)


def more_rows(view: View, name: str, rows: int) -> View:
    """A view whose pool has so many rows more in each buffer of a component."""
    before = view.pool.components[name]
    row = before.bytes // before.rows
    after = dataclasses.replace(
        before,
        rows=before.rows + rows * before.buffers,
        bytes=before.bytes + rows * before.buffers * row,
    )
    return with_part(view, name, after)


def without_geometry(view: View, *names: str) -> View:
    """A view whose subject does not tell the geometry of components."""
    untold: dict[str, Any] = {"size": None, "page": None, "ring": None, "align": None}
    for name in names:
        component = dataclasses.replace(view.pool.components[name], **untold)
        view = with_part(view, name, component)
    return view


def with_part(view: View, name: str, component: Component) -> View:
    """A view whose pool has a component in place of that of the same name."""
    parts = {**view.pool.components, name: component}
    return dataclasses.replace(view, pool=dataclasses.replace(view.pool, components=parts))
