"""Small consistent observations whose buffers have a last legal location, and outcomes of them.

The pools are those of ``pools``, with an indexer and a c128 buffer more; as in ``observations``,
every view has as many tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from contracts.contract import Evidence, Request
from contracts.observation import Component, Observation, Outcome, Pool, Rank, View

from . import observations, pools
from .observations import bend_rank, counts
from .pools import PAGE


def evidence(plan: tuple[Request, ...]) -> Evidence:
    """Consistent answers to everything that a contract asks for."""
    return of_outcomes(*map(observe, plan))


def of_outcomes(*outcomes: Outcome) -> Evidence:
    """The evidence for a contract that judges refusals."""
    observed = tuple(outcome for outcome in outcomes if isinstance(outcome, Observation))
    return Evidence(observations=observed, outcomes=outcomes)


def observe(request: Request) -> Observation:
    """A consistent observation that answers a request."""
    plain = observations.observe(request)
    ranks = tuple(_views(rank, _located) for rank in plain.ranks)
    return dataclasses.replace(plain, ranks=ranks)


def bend_both(given: Evidence, rank: int, change: Callable[[View], View]) -> Evidence:
    """The evidence with a rank's final view and that of its own capacity changed."""
    return bend_rank(given, rank, lambda it: _views(it, change))


def _views(rank: Rank, change: Callable[[View], View]) -> Rank:
    final = None if rank.final is None else change(rank.final)
    own = None if rank.own is None else change(rank.own)
    return dataclasses.replace(rank, final=final, own=own)


def _located(view: View) -> View:
    tokens = view.tokens
    swa = tokens // 8
    sizes = {"full": tokens, "swa": swa, "c4": tokens // 4, "c128": tokens // 128}
    sizes = {**sizes, "c4_state": swa // PAGE * 8, "c128_state": 128}
    draft = None if view.draft is None else pool(view.draft.stage_ratios, tokens, swa)
    target = pool(view.pool.stage_ratios, tokens, swa)
    return dataclasses.replace(view, sizes=sizes, pool=target, draft=draft)


def pool(ratios: tuple[int, ...], tokens: int, swa: int) -> Pool:
    """A pool for layers of these ratios whose last row is the one that can be reached last."""
    layers = counts(ratios)
    bare = pools.pool(ratios, tokens, swa)
    components = {
        **bare.components,
        "c4_indexer": pools.paged("c4", layers["c4"], tokens // 4, PAGE // 4, 64),
        "c128_kv": pools.paged("c128", layers["c128"], tokens // 128, PAGE // 128, 8),
    }
    located = {name: _reached(component) for name, component in components.items()}
    return dataclasses.replace(bare, components=located)


def _reached(component: Component) -> Component:
    assert component.size is not None
    assert component.page is not None
    if component.ring is None:
        # The allocator's page 0 is reserved, so that its last page has the number of all pages.
        return dataclasses.replace(component, last_row=component.size // component.page)
    by_page = component.kind == "c4"
    last_row = component.size + (component.ring if by_page else 0) - 1
    return dataclasses.replace(component, last_row=last_row)
