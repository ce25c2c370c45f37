"""At pp_size 1 the stage is the whole decoder, and every size and buffer equals the one computed
without pipeline parallelism.

Most servers run without pipeline parallelism. Whatever is done to get stages right must not cost
them a token: a slice of the layers from the first to the last is all of them.

Since the fix of sgl-project/sglang#25750 in 0.5.13, ``DSV4PoolConfigurator`` in
``srt/model_executor/pool_configurator.py`` slices by ``start_layer`` and ``end_layer`` at any
pp_size, as ``DeepSeekV4TokenToKVPool`` in ``srt/mem_cache/deepseek_v4_memory_pool.py`` does; a
model without stages reaches the same code on another path.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts.contract import Evidence, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _needs, _same
from contracts.law._say import contract_id, violation
from contracts.observation import Observation

#: Read by the package: deployments with a pipeline tell no more.
SINGLE_RANK = True

_ID = contract_id(__name__)


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """The deployment at pp_size 1, and again as served without pipeline parallelism."""
    single, views = deployment.single_rank(), frozenset({"final"})
    return tuple(
        Request(deployment=single, views=views, pipeline=pipeline) for pipeline in (True, False)
    )


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Check the only stage, then compare everything with the other path."""
    staged, plain = _needs.observations(evidence, 2)
    if len(staged.ranks) != 1:
        yield violation(
            _ID,
            rank=None,
            of=staged.deployment.pp_size,
            what="ranks",
            observed=len(staged.ranks),
            expected=1,
            source="pp_size 1",
        )
        return
    differences = _same.differences(_ID, staged, plain, source="without pipeline parallelism")
    yield from _needs.decided([_judge_stage(staged), differences])


def _judge_stage(staged: Observation) -> Iterator[Violation]:
    rank, layers = staged.ranks[0], staged.deployment.model.num_hidden_layers
    if (rank.start_layer, rank.end_layer) != (0, layers):
        yield violation(
            _ID,
            rank=0,
            of=1,
            what="stage",
            observed=f"[{rank.start_layer},{rank.end_layer})",
            expected=f"[0,{layers})",
            source="the whole decoder",
        )
