"""On every rank and for every component that comes one buffer a layer, the layers that the
configurator charges are the buffers that the pool allocates.

A layer charged and not allocated is memory that no token can use; a layer allocated and not
charged is memory that nobody reserved, and the server dies of it under load or at start.

``DSV4PoolConfigurator`` (``srt/model_executor/pool_configurator.py``) counts the layers of each
compress ratio; ``DeepSeekV4TokenToKVPool`` (``srt/mem_cache/deepseek_v4_memory_pool.py``) counts
them again. They disagreed in sgl-project/sglang#25750 (the configurator counted every stage's) and
can again wherever the pool is handed a global layer count, as in sgl-project/sglang#29106.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts.contract import Evidence, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _needs
from contracts.law._say import by_distance, contract_id, violation
from contracts.observation import Rank

_ID = contract_id(__name__)


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """What a server finally allocates."""
    return (Request(deployment=deployment, views=frozenset({"final"})),)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare charged and allocated layers, component by component."""
    (observation,) = _needs.observations(evidence, 1)
    ranks = observation.deployment.pp_size
    parts = [_judge_rank(rank, ranks) for rank in observation.ranks]
    yield from by_distance(_needs.decided(parts))


def _judge_rank(rank: Rank, of: int) -> Iterator[Violation]:
    charged = rank.configurator.layers
    components = _needs.final(rank).pool.components
    for name, component in components.items():
        if component.kind is None:
            continue
        layers = charged.get(component.kind, 0)
        if layers != component.buffers:
            yield _disagree(rank, of, what=name, charged=layers, allocated=component.buffers)
    # A pool need not mention a kind that it has no layers of, but then nothing may be charged.
    kinds = {component.kind for component in components.values()}
    for kind, layers in charged.items():
        if kind not in kinds and layers > 0:
            yield _disagree(rank, of, what=kind, charged=layers, allocated=None)


def _disagree(rank: Rank, of: int, *, what: str, charged: int, allocated: int | None) -> Violation:
    return violation(
        _ID,
        rank=rank.rank,
        of=of,
        what=f"{what} layers charged",
        observed=charged,
        expected=allocated or 0,
        source="allocated",
        component=None if allocated is None else what,
    )
