"""Small consistent observations for the unit tests of the laws, and ways to bend one thing.

The numbers are arbitrary: what a layer costs here has nothing to do with SGLang. Consistent means
that what is charged is what is allocated, layer by layer and token by token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from contracts.contract import Evidence, Request
from contracts.deployment import Deployment, Model, Speculation
from contracts.observation import (
    Component,
    Configurator,
    Observation,
    Pool,
    Rank,
    SubjectInfo,
    View,
)

#: Component: the kind of layer that has it, and bytes per token of one such layer.
PARTS = {
    "swa_kv": ("total", Fraction(3, 2)),
    "c4_kv": ("c4", Fraction(5)),
    "c4_state": ("c4", Fraction(1, 4)),
    "c128_kv": ("c128", Fraction(1, 8)),
    "c128_state": ("c128", Fraction(0)),
}
#: Bytes that every buffer has at any number of tokens.
RESERVED = 40
FINAL_TOKENS = 4096
REQUESTS = 64


def deployment(
    *ratios: int,
    pp_size: int = 1,
    partition: tuple[int, ...] | None = None,
    speculation: Speculation | None = None,
    beyond: tuple[int, ...] = (),
    **server_args: Any,
) -> Deployment:
    """A deployment of one decoder layer a ratio; ``beyond`` are the MTP layers' ratios."""
    model = Model(num_hidden_layers=len(ratios), compress_ratios=(*ratios, *beyond))
    return Deployment(
        model=model,
        budget=1 << 30,
        pp_size=pp_size,
        partition=partition,
        speculation=speculation,
        server_args=server_args,
    )


def evidence(plan: tuple[Request, ...], *, baseline: bool = False) -> Evidence:
    """Consistent answers to everything that a contract asks for."""
    answers = tuple(observe(request) for request in plan)
    older = tuple(observe(request, label="older") for request in plan) if baseline else ()
    return Evidence(observations=answers, baseline=older)


def observe(request: Request, *, label: str = "subject") -> Observation:
    """A consistent observation that answers a request."""
    asked = request.deployment
    partition = asked.partition or _even(asked.model.num_hidden_layers, asked.pp_size)
    bounds = list(pairwise(accumulate(partition, initial=0)))
    ranks = tuple(
        _rank(request, index, *stage, last=index == len(bounds) - 1)
        for index, stage in enumerate(bounds)
    )
    return Observation(
        subject=SubjectInfo(label=label, version="1", era="test"),
        deployment=asked,
        ranks=ranks,
        final_tokens=FINAL_TOKENS if request.views & {"capacity", "final"} else None,
    )


def counts(ratios: tuple[int, ...]) -> dict[str, int]:
    """Layers by kind."""
    return {"total": len(ratios), "c4": ratios.count(4), "c128": ratios.count(128)}


def charges(ratios: tuple[int, ...]) -> dict[str, float]:
    """Bytes per token by component."""
    layers = counts(ratios)
    return {name: float(layers[kind] * rate) for name, (kind, rate) in PARTS.items()}


def pool(ratios: tuple[int, ...], tokens: int) -> Pool:
    """A pool for layers of these ratios."""
    layers = counts(ratios)
    return Pool(
        stage_ratios=ratios,
        components={
            name: Component(
                buffers=layers[kind],
                rows=layers[kind] * (tokens + 1),
                bytes=int(layers[kind] * (rate * tokens + RESERVED)),
                kind=kind,
            )
            for name, (kind, rate) in PARTS.items()
        },
    )


def configurator(ratios: tuple[int, ...], *, drafts: int = 0) -> Configurator:
    """What is charged for layers of these ratios."""
    target = sum(charges(ratios).values())
    inflation = (len(ratios) + drafts) / len(ratios)
    return Configurator(
        ratios=ratios,
        layers=counts(ratios),
        bytes_per_full_token=target * inflation,
        target_bytes_per_full_token=target,
        draft_layers=(inflation - 1) * len(ratios),
        charges=charges(ratios),
    )


def _even(layers: int, stages: int) -> tuple[int, ...]:
    return tuple((layers + index) // stages for index in range(stages))


def _rank(request: Request, index: int, start: int, end: int, *, last: bool) -> Rank:
    asked = request.deployment
    ratios = asked.model.compress_ratios[start:end]
    has_draft = last and asked.speculation is not None
    return Rank(
        rank=index,
        start_layer=start,
        end_layer=end,
        configurator=configurator(ratios, drafts=int(has_draft)),
        final=_view(ratios, FINAL_TOKENS, has_draft) if "final" in request.views else None,
        own=_view(ratios, FINAL_TOKENS, has_draft) if "own" in request.views else None,
        at=tuple(_view(ratios, tokens, has_draft) for tokens in request.tokens),
    )


def _view(ratios: tuple[int, ...], tokens: int, has_draft: bool) -> View:
    return View(
        tokens=tokens,
        sizes={"full": tokens, "swa": tokens // 8, "c4": tokens // 4, "c4_state": None},
        max_running_requests=REQUESTS,
        pool=pool(ratios, tokens),
        draft=pool((0,), tokens) if has_draft else None,
    )


# -- bending one thing -----------------------------------------------------------------------------


def bend(given: Evidence, at: int, change: Callable[[Observation], Observation]) -> Evidence:
    """The evidence with one observation changed."""
    answers = list(given.observations)
    answers[at] = change(answers[at])
    return dataclasses.replace(given, observations=tuple(answers))


def bend_rank(
    given: Evidence, rank: int, change: Callable[[Rank], Rank], *, at: int = 0
) -> Evidence:
    """The evidence with one rank of one observation changed."""

    def changed(observation: Observation) -> Observation:
        ranks = list(observation.ranks)
        ranks[rank] = change(ranks[rank])
        return dataclasses.replace(observation, ranks=tuple(ranks))

    return bend(given, at, changed)


def bend_configurator(given: Evidence, rank: int, *, at: int = 0, **fields: Any) -> Evidence:
    """The evidence with some of a configurator's numbers changed."""
    return bend_rank(
        given,
        rank,
        lambda it: dataclasses.replace(
            it, configurator=dataclasses.replace(it.configurator, **fields)
        ),
        at=at,
    )


def bend_views(
    given: Evidence, rank: int, change: Callable[[View], View], *, at: int = 0
) -> Evidence:
    """The evidence with every view of a rank changed."""

    def changed(it: Rank) -> Rank:
        final = None if it.final is None else change(it.final)
        return dataclasses.replace(it, final=final, at=tuple(map(change, it.at)))

    return bend_rank(given, rank, changed, at=at)


def with_component(view: View, name: str, **fields: Any) -> View:
    """A view whose pool has some of a component's numbers changed, or a new component."""
    parts = dict(view.pool.components)
    before = parts.get(name, Component(buffers=0, rows=0, bytes=0))
    parts[name] = dataclasses.replace(before, **fields)
    return dataclasses.replace(view, pool=dataclasses.replace(view.pool, components=parts))


def without_component(view: View, name: str) -> View:
    """A view whose pool does not mention a component."""
    parts = {other: part for other, part in view.pool.components.items() if other != name}
    return dataclasses.replace(view, pool=dataclasses.replace(view.pool, components=parts))


def ignoring_stages(given: Evidence, *, at: int = 0) -> Evidence:
    """The seed bug: every rank's configurator counts the ratios of the whole model."""

    def changed(observation: Observation) -> Observation:
        whole = configurator(observation.deployment.model.compress_ratios)
        ranks = [dataclasses.replace(rank, configurator=whole) for rank in observation.ranks]
        return dataclasses.replace(observation, ranks=tuple(ranks))

    return bend(given, at, changed)
