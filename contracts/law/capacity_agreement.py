"""After SGLang's minimum over the pipeline ranks, all ranks have the same tokens, the least of
their own capacities; each rank still fits its budget, and deriving the pools again from that token
count changes nothing: a layer's buffers are the same on every rank.

The ranks of a pipeline serve the same requests, each with an allocator of its own, and the first
one admits them. A rank with fewer tokens, SWA tokens or requests than the first is handed
locations that it does not have.

``KVCacheConfigurator`` (``srt/mem_cache/kv_cache_configurator.py``; until 0.5.15
``srt/model_executor/model_runner_kv_cache_mixin.py``) first turns the budget into tokens, then
takes the minimum over the ranks and sizes the pools again, from the tokens: two ways to the same
sizes, of which the second knows nothing of the budget. It is only gone on a rank that gives way. So
the pools of such a rank are compared with those of the tightest one, whose tokens are still those
of the budget: layer by layer they must be alike.

Whether a rank's own capacity fits its budget is what the contract budget-fit judges. Here a rank
must not need more than its budget, or than its own capacity needs where that is over the budget
already: no guard terms are called for. On a rank whose own capacity is the agreed one, as on the
only rank at pp_size 1, the final pools are its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from contracts.contract import Evidence, NotJudged, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _needs, _paged
from contracts.law._say import by_distance, contract_id, violation
from contracts.observation import Observation, Rank, View

_ID = contract_id(__name__)

_GEOMETRY = ("bytes", "rows", "buffers", "size", "page", "ring", "align", "last_row")


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """What a server finally allocates, and each rank's own capacity."""
    return (Request(deployment=deployment, views=frozenset({"final", "own"})),)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Check the minimum, then rank by rank its agreement, its budget and its own capacity."""
    (observation,) = _needs.observations(evidence, 1)
    if observation.final_tokens is None:
        raise NotJudged("the subject does not tell how many tokens the ranks agree on")
    parts = [
        _judge_minimum(observation, observation.final_tokens),
        _judge_alike(observation, observation.final_tokens),
    ]
    for rank in observation.ranks:
        parts += [
            _judge_tokens(observation.deployment, rank, observation.final_tokens),
            _judge_budget(observation.deployment, rank),
            _judge_own(observation.deployment, rank, observation.final_tokens),
        ]
    yield from by_distance(_needs.decided(parts))


def _judge_minimum(observation: Observation, agreed: int) -> Iterator[Violation]:
    capacities = {rank.rank: _needs.own(rank).tokens for rank in observation.ranks}
    tightest = min(capacities, key=capacities.__getitem__)
    if agreed != capacities[tightest]:
        yield violation(
            _ID,
            rank=None,
            of=observation.deployment.pp_size,
            what="agreed tokens",
            observed=agreed,
            expected=capacities[tightest],
            source=f"the least capacity, rank {tightest}'s",
        )


def _judge_tokens(deployment: Deployment, rank: Rank, agreed: int) -> Iterator[Violation]:
    tokens = _needs.final(rank).tokens
    if tokens != agreed:
        yield violation(
            _ID,
            rank=rank.rank,
            of=deployment.pp_size,
            what="tokens",
            observed=tokens,
            expected=agreed,
            source="agreed",
        )


def _judge_alike(observation: Observation, agreed: int) -> Iterator[Violation]:
    """Compare each rank with the first that has the same thing, the tightest rank before all."""
    ranks = sorted(observation.ranks, key=lambda rank: _needs.own(rank).tokens != agreed)
    first: dict[str, tuple[int, int]] = {}
    for rank in ranks:
        for component, what, number in _shared(observation.deployment, rank):
            of_rank, expected = first.setdefault(what, (rank.rank, number))
            if number != expected:
                yield violation(
                    _ID,
                    rank=rank.rank,
                    of=observation.deployment.pp_size,
                    what=what,
                    observed=number,
                    expected=expected,
                    source=f"as on rank {of_rank}",
                    component=component,
                )
                # What else differs follows from it.
                break


def _shared(deployment: Deployment, rank: Rank) -> Iterator[tuple[str | None, str, int]]:
    """What ranks of the same tokens have in common, as far as this rank has layers for it."""
    view = _needs.final(rank)
    ratios = deployment.model.compress_ratios[rank.start_layer : rank.end_layer]
    for name, size in view.sizes.items():
        ratio = _paged.ratio(name.partition("_")[0])
        if size is not None and (ratio is None or ratio in ratios):
            yield None, f"{name} size", size
    if view.max_running_requests is not None:
        yield None, "max_running_requests", view.max_running_requests
    for name, component in view.pool.components.items():
        if component.kind is not None and component.buffers:
            each, other = divmod(component.bytes, component.buffers)
            if not other:
                yield name, f"{name} bytes in a buffer", each


def _judge_budget(deployment: Deployment, rank: Rank) -> Iterator[Violation]:
    final, own = _needs.final(rank).bytes, _needs.own(rank).bytes
    if final > max(deployment.budget, own):
        yield violation(
            _ID,
            rank=rank.rank,
            of=deployment.pp_size,
            what="bytes allocated at the agreed tokens",
            observed=final,
            expected=max(deployment.budget, own),
            source="at most: its own capacity" if own > deployment.budget else "at most: budget",
        )


def _judge_own(deployment: Deployment, rank: Rank, agreed: int) -> Iterator[Violation]:
    final, own = _needs.final(rank), _needs.own(rank)
    if own.tokens != agreed:
        return
    for name, observed, expected in _differing(_sizes(final), _sizes(own)):
        yield _changed(deployment, rank, name, observed, expected)
    buffers, capacity = _buffers(final), _buffers(own)
    for component in {**capacity, **buffers}:
        # What is otherwise built differs in most of its numbers; the first says it.
        differing = _differing(buffers.get(component, {}), capacity.get(component, {}))
        for name, observed, expected in differing[:1]:
            what = f"{component} {name}"
            yield _changed(deployment, rank, what, observed, expected, component=component)


def _changed(
    deployment: Deployment,
    rank: Rank,
    what: str,
    observed: int | str,
    expected: int | str,
    *,
    component: str | None = None,
) -> Violation:
    return violation(
        _ID,
        rank=rank.rank,
        of=deployment.pp_size,
        what=what,
        observed=observed,
        expected=expected,
        source="its own capacity, of as many tokens",
        component=component,
    )


_Numbers = Mapping[str, int | None]


def _sizes(view: View) -> _Numbers:
    sizes = {f"{name} size": size for name, size in view.sizes.items()}
    return {**sizes, "max_running_requests": view.max_running_requests}


def _buffers(view: View) -> dict[str, _Numbers]:
    pools = {"": view.pool} if view.draft is None else {"": view.pool, "draft.": view.draft}
    return {
        owner + name: {number: getattr(component, number) for number in _GEOMETRY}
        for owner, pool in pools.items()
        for name, component in pool.components.items()
    }


def _differing(ours: _Numbers, theirs: _Numbers) -> list[tuple[str, int | str, int | str]]:
    """What differs, by name, and both sides of it."""
    return [
        (name, _side(ours.get(name)), _side(theirs.get(name)))
        for name in {**theirs, **ours}
        if ours.get(name) != theirs.get(name)
    ]


def _side(number: int | None) -> int | str:
    return "absent" if number is None else number
