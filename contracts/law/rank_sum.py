"""At equal tokens, the ranks' charges, layer counts and allocated bytes each sum exactly to those
of the same deployment at pp_size 1; a draft is charged once per draft pool.

Splitting a model over ranks creates no layers and loses none. If the ranks together charge more
than one rank alone would, each of them gives up capacity for layers that it does not have: with
PP4, 10 of 35.6 GiB were in use. And only ranks that own a draft pool need to pay for one.

sgl-project/sglang#25750 (fixed in 0.5.13) made the sum ``pp_size`` times too large:
``DSV4PoolConfigurator`` in ``srt/model_executor/pool_configurator.py`` charged every rank for all
layers, where ``DeepSeekV4TokenToKVPool`` in ``srt/mem_cache/deepseek_v4_memory_pool.py`` built only
the stage's. The same for drafts, charged on stages without one, is bytedance-iaas/sglang#730.

Components that do not come one buffer a layer may rightly exist on every rank; their bytes do not
sum and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from contracts.contract import Evidence, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _aligned, _needs, _rounding
from contracts.law._say import by_distance, contract_id, violation
from contracts.observation import Component, Observation, Rank, View

_ID = contract_id(__name__)


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """The deployment and the same at pp_size 1, both at one token count."""
    tokens = _aligned.token_counts(deployment)[:1]
    return tuple(
        Request(deployment=asked, tokens=tokens) for asked in (deployment, deployment.single_rank())
    )


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare the sums over the ranks with the single rank, then count drafts and draft pools."""
    split, single = (_seen(observation) for observation in _needs.observations(evidence, 2))
    parts = [
        _judge_charges(split, single),
        _judge_layers(split, single),
        _judge_components(split, single),
        _judge_drafts(split),
    ]
    if split.of > 1:
        # At pp_size 1 both observations are of the same deployment: once is enough.
        parts.append(_judge_drafts(single))
    yield from by_distance(_needs.decided(parts))


@dataclass(frozen=True, slots=True)
class _Seen:
    """An observation's ranks and their views at the one token count."""

    of: int
    ranks: tuple[Rank, ...]
    views: tuple[View, ...]


def _seen(observation: Observation) -> _Seen:
    tokens = _aligned.token_counts(observation.deployment)[0]
    views = tuple(_needs.at(rank, tokens) for rank in observation.ranks)
    return _Seen(observation.deployment.pp_size, observation.ranks, views)


def _summed(
    split: _Seen,
    what: str,
    observed: int | Fraction,
    expected: int | Fraction,
    *,
    component: str | None = None,
    details: tuple[str, ...] = (),
) -> Violation:
    return violation(
        _ID,
        rank=None,
        of=split.of,
        what=f"{what}, summed",
        observed=observed,
        expected=expected,
        source="pp_size 1",
        component=component,
        details=details,
    )


def _judge_charges(split: _Seen, single: _Seen) -> Iterator[Violation]:
    charges, whole = _charges(split), _charges(single)
    observed, expected = (sum(map(Fraction, part), Fraction()) for part in (charges, whole))
    # The fractions add exactly; each charge in the two sums brings its own rounding with it.
    slack = sum(map(_rounding.float_rounding, charges + whole), Fraction())
    if abs(observed - expected) > slack:
        what = "bytes charged per full token"
        yield _summed(split, what, observed, expected, details=(_rounding.say(slack),))


def _charges(seen: _Seen) -> list[float]:
    return [rank.configurator.target_bytes_per_full_token for rank in seen.ranks]


def _judge_layers(split: _Seen, single: _Seen) -> Iterator[Violation]:
    counted, whole = _layers(split), _layers(single)
    for kind in {**whole, **counted}:
        observed, expected = counted.get(kind, 0), whole.get(kind, 0)
        if observed != expected:
            yield _summed(split, f"{kind} layers charged", observed, expected)


def _layers(seen: _Seen) -> dict[str, int]:
    sums: dict[str, int] = {}
    for rank in seen.ranks:
        for kind, layers in rank.configurator.layers.items():
            sums[kind] = sums.get(kind, 0) + layers
    return sums


def _judge_components(split: _Seen, single: _Seen) -> Iterator[Violation]:
    _needs.same_requests((*split.views, *single.views))
    allocated, whole = _layerwise(split), _layerwise(single)
    for name in {**whole, **allocated}:
        parts = (allocated.get(name, []), whole.get(name, []))
        for unit in ("bytes", "buffers"):
            observed, expected = (sum(getattr(one, unit) for one in part) for part in parts)
            if observed != expected:
                what = f"{name} {unit} allocated"
                yield _summed(split, what, observed, expected, component=name)


def _layerwise(seen: _Seen) -> dict[str, list[Component]]:
    """The components that come one buffer a layer, by name, over all ranks."""
    found: dict[str, list[Component]] = {}
    for view in seen.views:
        for name, component in view.pool.components.items():
            if component.kind is not None:
                found.setdefault(name, []).append(component)
    return found


def _judge_drafts(seen: _Seen) -> Iterator[Violation]:
    """Count the ranks that charge for a draft; whether it is enough is for draft-reserve."""
    pools = sum(view.draft is not None for view in seen.views)
    charged = sum(
        abs(rank.configurator.draft_layers) > _draft_rounding(rank) for rank in seen.ranks
    )
    if charged == pools:
        return
    yield violation(
        _ID,
        rank=None,
        of=seen.of,
        what="drafts charged",
        observed=charged,
        expected=pools,
        source="draft pools",
        component="draft",
    )


def _draft_rounding(rank: Rank) -> Fraction:
    """How far float64 rounding can have moved a rank's draft layers.

    They are the coefficient with the draft over that without it, less 1, times the stage's
    layers L: off by a few roundings of the product, (L + draft) in size, before the subtraction.
    """
    configurator = rank.configurator
    size = len(configurator.ratios) + abs(configurator.draft_layers)
    return _rounding.FLOAT_ROUNDINGS * Fraction(math.ulp(size))
