"""On every rank, every state row that SGLang's own translation can address exists, and no more
rows exist than addressable ones and the guard: one more ring and a sentinel row, rounded up to
what a buffer's rows are a multiple of.

Compress states are rings: a few rows for each SWA page or each request slot, found from a location
by arithmetic. A row that does not exist is another layer's memory. Rows that no location leads to
are memory for nothing, and there were many: until 0.5.20 ``DSV4PoolConfigurator``
(``srt/model_executor/pool_configurator.py``) counted one c4 ring for each 128 SWA tokens (the
model's window) and, until 0.5.14, so many c128 rings, while ``CompressStatePool``
(``srt/mem_cache/deepseek_v4_compress_state.py``) finds a ring by the SWA page, which has 256.
Half of the rows could never be reached; with Flash in 60 GiB that is 18 GiB.

The other direction is sgl-project/sglang#26471 (a table of as many entries as running requests,
indexed by request slot) and sgl-project/sglang#34189 (a ring that a batch of drafts outgrew).

Where no function of SGLang's tells how far it addresses, the contract does not apply. In 0.5.12 the
function is ``create_paged_compressor_data`` (``srt/layers/attention/dsv4/compressor.py``), which
plans the rows of a decode step; the one state of an online c128 layer is found in a kernel there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from contracts.contract import Evidence, NotApplicable, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _guard, _needs
from contracts.law._say import contract_id, violation
from contracts.observation import Component, Rank

_ID = contract_id(__name__)


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """What a server finally allocates."""
    return (Request(deployment=deployment, views=frozenset({"final"})),)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare the rows of every state buffer with those that can be addressed."""
    (observation,) = _needs.observations(evidence, 1)
    states = [
        (rank, name, component)
        for rank in observation.ranks
        for name, component in _states(rank).items()
    ]
    if not states:
        raise NotApplicable("no layer of the model keeps a compress state")
    told = [state for state in states if state[2].last_row is not None]
    if not told:
        # Held it is not: where this is so of every deployment, the contract is not judged.
        raise NotApplicable("the subject has no function that translates to a row of its states")
    # All of them are off by about the same factor: the largest says the most.
    told.sort(key=lambda state: state[2].bytes, reverse=True)
    of = observation.deployment.pp_size
    yield from _needs.decided(_judge_state(of, *state) for state in told)


def _states(rank: Rank) -> dict[str, Component]:
    view = _needs.final(rank)
    pools = {"": view.pool} if view.draft is None else {"": view.pool, "draft.": view.draft}
    return {
        owner + name: component
        for owner, pool in pools.items()
        for name, component in pool.components.items()
        if component.buffers and component.ring is not None
    }


def _judge_state(of: int, rank: Rank, name: str, component: Component) -> Iterator[Violation]:
    assert component.last_row is not None
    # Up to and with the last addressable row, instead of up to the configured size.
    rows = _guard.rows(name, dataclasses.replace(component, size=component.last_row + 1))
    if 0 <= rows.beyond <= rows.allowed:
        return
    expected, source, details = rows.needed, "addressable", []
    if rows.beyond > 0:
        expected = rows.needed + rows.allowed
        source = f"at most: {rows.needed} addressable, {rows.allowed} {rows.name}"
        details = [f"{rows.excess_bytes} bytes in {rows.buffers} buffers lie beyond"]
    yield violation(
        _ID,
        rank=rank.rank,
        of=of,
        what=f"{name} rows",
        observed=rows.rows,
        expected=expected,
        source=source,
        component=name,
        in_question=(rows.rows - expected) * rows.row_bytes * rows.buffers,
        details=details,
    )
