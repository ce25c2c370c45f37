"""On every rank, what the target's pool has at any size beyond the bytes that grow with its tokens
is what the configurator charges as fixed, up to named guard terms.

State that is kept a request, not a token, costs the same whatever the capacity. Where it is not
charged it is taken from nowhere, and small budgets and long request lists run out of memory first;
where more is charged than there is, every server gives up the difference.

The charge is SGLang's own: the least byte budget from which ``DSV4PoolConfigurator`` in
``srt/model_executor/pool_configurator.py`` makes so many tokens, less its coefficient for each.
Until 0.5.14 nothing was fixed; since 0.5.15 the c128 states are, and the configurator repeats the
arithmetic by which ``CompressStatePool`` in ``srt/mem_cache/deepseek_v4_compress_state.py`` rounds
up their rows. Pages that a buffer reserves are not charged to this day. One of each buffer is taken
for granted here, and so are a state buffer's ring and sentinel.

With a draft all that is charged is scaled up, and what of it is fixed cannot be told: the contract
draft-reserve judges such deployments.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from contracts.contract import Evidence, NotApplicable, NotJudged, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _aligned, _growth, _guard, _needs, _rounding
from contracts.law._say import by_distance, contract_id, number, violation
from contracts.observation import Pool, Rank, View

_ID = contract_id(__name__)

#: The least budget is a whole number of bytes, what is charged need not be.
_WHOLE_BYTES = 1


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """Pools at three aligned token counts, and what the first of them is charged."""
    return _growth.grown_and_charged(deployment)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare what is charged and what is allocated beyond the growth, on every rank."""
    grown, charged = _needs.observations(evidence, 2)
    if grown.deployment.speculation is not None:
        raise NotApplicable("a draft's reserve is judged by draft-reserve")
    parts = [
        _judge_rank(grown.deployment, rank, asked)
        for rank, asked in zip(grown.ranks, charged.ranks, strict=True)
    ]
    yield from by_distance(_needs.decided(parts))


def _judge_rank(deployment: Deployment, rank: Rank, asked: Rank) -> Iterator[Violation]:
    counts = _aligned.token_counts(deployment)
    views = [_needs.at(rank, tokens) for tokens in counts]
    charge = _needs.at(asked, counts[0]).charge
    if charge is None:
        raise NotJudged(f"rank {rank.rank} has no charge at {counts[0]} tokens")
    _needs.same_requests(views)
    alignment = _growth.cut_off(views[0], views[1], _pool)
    slope = _growth.per_token(rank, views, "the pool", lambda view: view.pool.bytes)
    allocated = views[0].pool.bytes + alignment - counts[0] * slope
    charged = charge - counts[0] * Fraction(rank.configurator.bytes_per_full_token)
    # The tokens come out of a float64 division of the budget.
    rounding = _rounding.float_rounding(float(charge))
    slack = _WHOLE_BYTES + rounding
    guard = _guard.guard([views[0].pool])
    over = guard.is_exceeded_by(allocated - charged - slack)
    if not over and allocated >= charged - slack:
        return
    expected = charged + guard.bytes if over else charged
    component, beyond = _beyond(views[0].pool) if over else (None, ())
    yield violation(
        _ID,
        rank=rank.rank,
        of=deployment.pp_size,
        what="bytes allocated at any size",
        observed=allocated,
        expected=expected,
        source=f"{number(charged)} charged, with guard terms" if over else "charged",
        component=component,
        in_question=allocated - expected,
        details=(
            *beyond,
            *(guard.say() if over else ()),
            *([f"{_growth.ALIGNMENT} ±{number(alignment)}"] if alignment else ()),
            f"whole bytes ±{_WHOLE_BYTES}",
            _rounding.say(rounding),
        ),
    )


def _pool(view: View) -> Pool:
    return view.pool


def _beyond(pool: Pool) -> tuple[str | None, list[str]]:
    """The components that have more than their size and its guard, the largest first."""
    found = []
    for name, component in pool.components.items():
        if component.bytes == 0:
            continue
        try:
            found.append((name, _guard.rows(name, component)))
        except NotJudged:
            continue
    beyond = sorted(
        ((name, rows) for name, rows in found if rows.excess_bytes),
        key=lambda item: item[1].excess_bytes,
        reverse=True,
    )
    clauses = [
        f"{name} has {rows.beyond} rows a buffer beyond its size where {rows.allowed} would do "
        f"({rows.excess_bytes} bytes too many)"
        for name, rows in beyond
    ]
    return (beyond[0][0] if beyond else None), clauses
