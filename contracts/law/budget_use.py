"""On every rank, what the pools of target and draft leave of the byte budget at the rank's own
capacity is less than one more page of tokens takes, up to named guard terms.

Memory that is left is capacity that was paid for and lost: fewer requests at a time and fewer
cached prefixes, and nothing in the log says so. A page of tokens is priced by what it really takes,
the growth of the pools between aligned token counts, and not by what the configurator charges: a
configurator that charges too much must not excuse itself. After the minimum over the ranks all but
the tightest may rightly have bytes left, so it is each rank's own capacity that is judged; one that
``max_total_tokens`` limits is the user's wish.

sgl-project/sglang#25750 (fixed in 0.5.13) used 10 of 35.6 GiB with PP4, because
``DSV4PoolConfigurator`` in ``srt/model_executor/pool_configurator.py`` charged every rank for the
whole model. For a draft it still scales all that it charges as if the stage had a layer more, an
average one, where the draft's own layers have no compressed parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from contracts.contract import Evidence, NotApplicable, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _aligned, _growth, _guard, _needs, _paged
from contracts.law._say import by_distance, contract_id, number, violation
from contracts.observation import Rank

_ID = contract_id(__name__)


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """Each rank's own capacity, and pools at aligned token counts for the price of a page."""
    return (
        Request(deployment=deployment, views=frozenset({"own"})),
        Request(deployment=deployment, tokens=_aligned.token_counts(deployment)),
    )


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare what is left with the price of a page, on every rank that the budget limits."""
    owned, grown = _needs.observations(evidence, 2)
    deployment = owned.deployment
    parts = [
        _judge_rank(deployment, rank, other)
        for rank, other in zip(owned.ranks, grown.ranks, strict=True)
        if not _limited(deployment, rank)
    ]
    if not parts:
        raise NotApplicable("max_total_tokens limits the capacity, not the budget")
    yield from by_distance(_needs.decided(parts))


def _limited(deployment: Deployment, rank: Rank) -> bool:
    """Whether a rank has the tokens that the user limits it to."""
    limit = deployment.server_args.get("max_total_tokens")
    if limit is None:
        return False
    view = _needs.own(rank)
    page = _paged.page(view.pool)
    return bool(view.tokens == limit // page * page)


def _judge_rank(deployment: Deployment, rank: Rank, grown: Rank) -> Iterator[Violation]:
    view = _needs.own(rank)
    left = deployment.budget - view.bytes
    if left <= 0:
        return
    rate = _rate(deployment, grown)
    page = _paged.page(view.pool)
    guard = _guard.of_view(view)
    price = page * rate
    if left < price or not guard.is_exceeded_by(left - price):
        return
    yield violation(
        _ID,
        rank=rank.rank,
        of=deployment.pp_size,
        what="bytes of the budget",
        observed=deployment.budget,
        expected=view.bytes,
        source=f"allocated at {view.tokens} tokens",
        in_question=left,
        details=(
            f"{left} bytes are left, {_tokens(left, rate, page)}",
            f"a page of tokens takes {number(price)}",
            *guard.say(),
        ),
    )


def _rate(deployment: Deployment, grown: Rank) -> Fraction:
    """Bytes that target and draft really grow by for one more token."""
    views = [_needs.at(grown, tokens) for tokens in _aligned.token_counts(deployment)]
    _needs.same_requests(views)
    return _growth.per_token(grown, views, "the pool", lambda view: view.bytes)


def _tokens(left: int, rate: Fraction, page: int) -> str:
    # Pools that do not grow have room for any number of tokens.
    return f"room for {int(left / rate) // page * page} tokens" if rate else "for no token at all"
