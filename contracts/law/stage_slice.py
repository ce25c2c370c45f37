"""On every rank, the compress ratios that the configurator counts and those that the pool is
built for are the same: ``compress_ratios[start_layer:end_layer]``, the slice of the rank's stage.

The ratios decide which buffers a layer has. A configurator that counts the ratios of other layers
divides the budget by the wrong number of bytes: with too many, capacity is lost, about by the
factor ``pp_size``; with too few, the server runs out of memory.

This is sgl-project/sglang#25750 itself, fixed in 0.5.13: ``DSV4PoolConfigurator`` in
``srt/model_executor/pool_configurator.py`` took all of ``compress_ratios`` on every rank, while
``DeepSeekV4TokenToKVPool`` in ``srt/mem_cache/deepseek_v4_memory_pool.py`` took the stage's.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts.contract import Evidence, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _needs
from contracts.law._say import by_distance, contract_id, ratio_lists, violation
from contracts.observation import Observation, Rank

_ID = contract_id(__name__)


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """What a server finally allocates."""
    return (Request(deployment=deployment, views=frozenset({"final"})),)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare the configurator's and the pool's ratios with the slice, each for itself."""
    (observation,) = _needs.observations(evidence, 1)
    parts = [_judge_rank(observation, rank) for rank in observation.ranks]
    yield from by_distance(_needs.decided(parts))


def _judge_rank(observation: Observation, rank: Rank) -> Iterator[Violation]:
    deployment = observation.deployment
    start, end = rank.start_layer, rank.end_layer
    expected = deployment.model.compress_ratios[start:end]
    sides = (
        ("ratios counted by the configurator", rank.configurator.ratios),
        ("ratios that the pool is built for", _needs.final(rank).pool.stage_ratios),
    )
    for what, observed in sides:
        if observed == expected:
            continue
        shown, wanted, ratio = ratio_lists(observed, expected)
        yield violation(
            _ID,
            rank=rank.rank,
            of=deployment.pp_size,
            what=what,
            observed=shown,
            expected=wanted,
            source=f"compress_ratios[{start}:{end}]",
            ratio=ratio,
        )
