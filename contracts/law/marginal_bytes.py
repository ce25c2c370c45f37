"""On every rank, the bytes that the configurator charges for one more full token are the bytes
that the target's pool really grows by, taken as the exact difference quotient between aligned
token counts.

This one number turns a byte budget into capacity. Charged too high, the GPU's memory lies idle;
charged too low, the pools outgrow their budget, the more so the larger it is. Constants (reserved
pages, ring rows, per-request state) cancel in the difference, so that only the slope is judged.
What is reserved for a draft is not: the contract draft-reserve judges that share.

The charge is the coefficient of ``DSV4PoolConfigurator`` in
``srt/model_executor/pool_configurator.py``; the bytes are those of the buffers that
``DeepSeekV4TokenToKVPool`` in ``srt/mem_cache/deepseek_v4_memory_pool.py`` creates.
sgl-project/sglang#25750 (fixed in 0.5.13) charged every rank for the whole model; up to 0.5.20 the
charge also knew nothing of pages that are padded to a multiple of 576 bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from fractions import Fraction

from contracts.contract import Evidence, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _aligned, _growth, _needs, _rounding
from contracts.law._say import by_distance, contract_id, number, numbers, violation
from contracts.observation import Rank, View

_ID = contract_id(__name__)


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """Pools at three aligned token counts: two would not show whether the growth is even."""
    return (Request(deployment=deployment, tokens=_aligned.token_counts(deployment)),)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare charge and growth on every rank."""
    (observation,) = _needs.observations(evidence, 1)
    deployment = observation.deployment
    counts = _aligned.token_counts(deployment)
    parts = [_judge_rank(rank, deployment.pp_size, counts) for rank in observation.ranks]
    yield from by_distance(_needs.decided(parts))


def _judge_rank(rank: Rank, of: int, counts: tuple[int, int, int]) -> Iterator[Violation]:
    views = [_needs.at(rank, tokens) for tokens in counts]
    _needs.same_requests(views)
    allocated = _grown(rank, views)
    charge = rank.configurator.target_bytes_per_full_token
    slack = _rounding.float_rounding(charge)
    total = sum(allocated.values(), Fraction())
    if abs(Fraction(charge) - total) <= slack:
        return
    component, details = _by_component(rank, allocated, slack)
    yield violation(
        _ID,
        rank=rank.rank,
        of=of,
        what="bytes charged per full token",
        observed=charge,
        expected=total,
        source="allocated",
        component=component,
        details=(*details, _rounding.say(slack)),
    )


def _grown(rank: Rank, views: list[View]) -> dict[str, Fraction]:
    """Bytes per further token of each component of the target's pool."""
    names = sorted({name for view in views for name in view.pool.components})
    return {
        name: _growth.per_token(rank, views, name, functools.partial(_bytes, name))
        for name in names
    }


def _bytes(name: str, view: View) -> int:
    component = view.pool.components.get(name)
    return 0 if component is None else component.bytes


def _by_component(
    rank: Rank, allocated: dict[str, Fraction], slack: Fraction
) -> tuple[str | None, list[str]]:
    """The component that is farthest off, and a clause for each that is off, farthest first."""
    charges = rank.configurator.charges
    if charges is None:
        # Without the charge's parts nobody can say which is wrong, so all are shown.
        grown = [(name, rate) for name, rate in allocated.items() if rate]
        return None, [f"{name} allocated {number(rate)}" for name, rate in grown]
    charged = {name: Fraction(charge) for name, charge in charges.items()}
    off = {
        name: abs(charged.get(name, Fraction()) - allocated.get(name, Fraction()))
        for name in {**charged, **allocated}
    }
    worst = sorted((name for name in off if off[name] > slack), key=off.__getitem__, reverse=True)
    clauses = []
    for name in worst:
        texts = numbers(charged.get(name, Fraction()), allocated.get(name, Fraction()))
        clauses.append(f"{name} charged {texts[0]}, allocated {texts[1]}")
    return (worst[0] if worst else None), clauses
