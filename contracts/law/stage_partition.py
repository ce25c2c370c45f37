"""The stages tile ``[0, num_hidden_layers)`` in order, without gap or overlap; none is empty, and
a stated partition is honoured stage by stage.

A layer that lies in no stage has no KV cache and the server answers nonsense or stops; one that
lies in two is paid for twice. Every other contract speaks of stages, so this one comes first.

The stages come from ``get_pp_indices`` in ``srt/distributed/utils.py``, which reads
``SGLANG_PP_LAYER_PARTITION``. It checks that the partition has as many entries as ranks and the
right sum, not that each entry is positive. sgl-project/sglang#25750, the bug that this project
started from, took the stages for granted on one side (the pool) and not on the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts.contract import Evidence, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _needs
from contracts.law._say import contract_id, violation
from contracts.observation import Rank

_ID = contract_id(__name__)


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """The stages alone: nothing need be allocated."""
    return (Request(deployment=deployment),)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Walk over the ranks and compare each stage with what is left to tile."""
    (observation,) = _needs.observations(evidence, 1)
    deployment, ranks = observation.deployment, observation.ranks
    if len(ranks) != deployment.pp_size:
        yield violation(
            _ID,
            rank=None,
            of=deployment.pp_size,
            what="stages",
            observed=len(ranks),
            expected=deployment.pp_size,
            source="pp_size",
        )
    reached = 0
    for index, rank in enumerate(ranks):
        last = index == len(ranks) - 1
        end = _end(deployment, index, last=last)
        start = reached if deployment.partition is None else sum(deployment.partition[:index])
        if wanted := _wanted(rank, start, end):
            yield violation(
                _ID,
                rank=rank.rank,
                of=deployment.pp_size,
                what="stage",
                observed=f"[{rank.start_layer},{rank.end_layer})",
                expected=wanted,
                source=_source(deployment, index, last=last),
            )
        reached = rank.end_layer


def _end(deployment: Deployment, index: int, *, last: bool) -> int | None:
    """Where a stage must end; None where only SGLang's own even split decides."""
    if deployment.partition is not None:
        return sum(deployment.partition[: index + 1])
    return deployment.model.num_hidden_layers if last else None


def _wanted(rank: Rank, start: int, end: int | None) -> str | None:
    """What a stage should have been, or None if it is that."""
    if rank.start_layer == start and rank.end_layer > start and end in (None, rank.end_layer):
        return None
    if end is None:
        return f"[{start},{start + 1}) or longer"
    return f"[{start},{end})" if end > start else "a layer or more"


def _source(deployment: Deployment, index: int, *, last: bool) -> str:
    if deployment.partition is not None:
        return f"partition {','.join(map(str, deployment.partition))}"
    begin = f"from where rank {index - 1} ends" if index else "from the first layer"
    return f"{begin} to the last layer" if last else begin
