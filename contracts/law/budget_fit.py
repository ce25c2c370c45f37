"""On every rank, the pools of target and draft that the rank's own capacity takes fit into the byte
budget, up to named guard terms.

The budget is what SGLang has measured to be free for the pools. Pools that need more die of it at
start, or leave less than was promised for activations and CUDA graphs, and the server dies under
load. People then lower ``--mem-fraction-static`` until it holds, and pay with capacity.

``DSV4PoolConfigurator`` in ``srt/model_executor/pool_configurator.py`` makes tokens of the budget,
``DeepSeekV4TokenToKVPool`` in ``srt/mem_cache/deepseek_v4_memory_pool.py`` makes buffers of the
tokens. From 0.5.13 to 0.5.20 they outgrew the budget by up to a few percent: pages are padded to a
multiple of 576 bytes, which the charge did not know. Since 0.5.21 it does, but the compressed
buffers reserve 256 slots each, not one page, and nobody charges those.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts.contract import Evidence, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _guard, _needs
from contracts.law._say import by_distance, contract_id, violation
from contracts.observation import Rank, View

_ID = contract_id(__name__)

#: So many components are named, the largest of them.
_NAMED = 3


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """Each rank's own capacity, before the minimum over the ranks."""
    return (Request(deployment=deployment, views=frozenset({"own"})),)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare the pools with the budget on every rank."""
    (observation,) = _needs.observations(evidence, 1)
    parts = [_judge_rank(observation.deployment, rank) for rank in observation.ranks]
    yield from by_distance(_needs.decided(parts))


def _judge_rank(deployment: Deployment, rank: Rank) -> Iterator[Violation]:
    view = _needs.own(rank)
    guard = _guard.of_view(view)
    over = view.bytes - deployment.budget
    if not guard.is_exceeded_by(over):
        return
    largest = _largest(view)
    yield violation(
        _ID,
        rank=rank.rank,
        of=deployment.pp_size,
        what="bytes allocated",
        observed=view.bytes,
        expected=deployment.budget,
        source="budget",
        component=largest[0][0],
        in_question=over,
        details=(
            f"{over} bytes over at {view.tokens} tokens",
            *guard.say(),
            *(f"{name} {size}" for name, size in largest),
        ),
    )


def _largest(view: View) -> list[tuple[str, int]]:
    """The largest components by bytes; all of a draft's count as one."""
    sizes = {name: component.bytes for name, component in view.pool.components.items()}
    if view.draft is not None:
        sizes["draft"] = view.draft.bytes
    allocated = [item for item in sizes.items() if item[1]]
    return sorted(allocated, key=lambda item: item[1], reverse=True)[:_NAMED]
