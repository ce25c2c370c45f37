"""On every rank, the size that a pool reports of itself is its footprint, the target's and the
draft's.

The reported size goes into logs and metrics, and people plan with it. One that leaves a buffer out,
or counts one twice, sends them looking for memory in the wrong place; and one that is never set
says that the cache is empty.

A pool keeps its size in ``mem_usage``, in GiB as a float. The generic pools in
``srt/mem_cache/memory_pool.py`` set it when they have allocated their buffers;
``DeepSeekV4TokenToKVPool`` in ``srt/mem_cache/deepseek_v4_memory_pool.py`` leaves it at the 0 that
``KVCache`` starts from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from contracts.contract import Evidence, NotJudged, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _needs
from contracts.law._say import by_distance, contract_id, violation
from contracts.observation import Pool, Rank
from contracts.units import GiB

_ID = contract_id(__name__)


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """What a server finally allocates."""
    return (Request(deployment=deployment, views=frozenset({"final"})),)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare what each pool reports with its footprint."""
    (observation,) = _needs.observations(evidence, 1)
    of = observation.deployment.pp_size
    parts = []
    for rank in observation.ranks:
        view = _needs.final(rank)
        parts.append(_judge_pool(rank, of, view.pool, None))
        if view.draft is not None:
            parts.append(_judge_pool(rank, of, view.draft, "draft"))
    yield from by_distance(_needs.decided(parts))


def _judge_pool(rank: Rank, of: int, pool: Pool, component: str | None) -> Iterator[Violation]:
    whose = component or "target"
    if pool.reported is None:
        raise NotJudged(f"rank {rank.rank}: the {whose}'s pool reports no size")
    rounding = _gib_rounding(pool.bytes)
    if abs(pool.reported - pool.bytes) <= rounding:
        return
    yield violation(
        _ID,
        rank=rank.rank,
        of=of,
        what=f"bytes reported by the {whose}'s pool",
        observed=pool.reported,
        expected=pool.bytes,
        source="allocated",
        component=component,
        in_question=pool.reported - pool.bytes,
        details=(f"gib_rounding ±{float(rounding):.2g}",),
    )


def _gib_rounding(size: int) -> Fraction:
    """Half a unit in the last place of a size that is kept as a float of GiB."""
    return Fraction(math.ulp(size / GiB)) * GiB / 2
