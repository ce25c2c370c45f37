"""On every rank, the bytes reserved for the draft per token are those by which the draft's pool
grows, and what it has at any size is reserved up to named guard terms; a rank without a draft's
pool reserves nothing.

What is reserved and not used is capacity lost to every deployment that speculates; what is used and
not reserved makes it run out of memory.

``DSV4PoolConfigurator`` in ``srt/model_executor/pool_configurator.py`` reserves for a draft by
scaling what it charges to one layer more than the stage has: an average layer of the stage. But a
draft's layers have the ratio 0 and no compressed parts, so that its ``DeepSeekV4TokenToKVPool``
(``srt/mem_cache/deepseek_v4_memory_pool.py``) takes less than an average layer does; and a draft of
several layers, as DSpark's are, may take more. Where the SWA pool is sized by requests (V4.1), the
fixed bytes are scaled in the same way, the draft's pool does not grow, and what is reserved is
compared at one token count. bytedance-iaas/sglang#730 reserved on ranks that have no draft.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from contracts.contract import Evidence, NotApplicable, NotJudged, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _aligned, _growth, _guard, _needs, _rounding
from contracts.law._say import by_distance, contract_id, number, violation
from contracts.observation import Pool, Rank, View

_ID = contract_id(__name__)

#: Of the bytes that are reserved no part of one is.
_WHOLE_BYTES = 1


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """Pools at aligned token counts, and what the first of them is charged."""
    return _growth.grown_and_charged(deployment)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare the reserve with the draft's pool on every rank."""
    grown, charged = _needs.observations(evidence, 2)
    counts = _aligned.token_counts(grown.deployment)
    ranks = [
        _Seen(
            rank, tuple(_needs.at(rank, tokens) for tokens in counts), _needs.at(asked, counts[0])
        )
        for rank, asked in zip(grown.ranks, charged.ranks, strict=True)
    ]
    if not any(seen.has_part() for seen in ranks):
        raise NotApplicable("nothing is reserved for a draft, and there is none")
    parts = [_judge_rank(seen, grown.deployment.pp_size) for seen in ranks]
    yield from by_distance(_needs.decided(parts))


@dataclass(frozen=True, slots=True)
class _Seen:
    """A rank, its views at aligned token counts, and the first of them with its charge."""

    rank: Rank
    views: tuple[View, ...]
    charged: View

    def per_token(self) -> Fraction:
        """Bytes that the coefficient has for a draft."""
        configurator = self.rank.configurator
        both = Fraction(configurator.bytes_per_full_token)
        return both - Fraction(configurator.target_bytes_per_full_token)

    def rounding(self) -> Fraction:
        """How far float64 rounding can have moved the bytes that are reserved by the token."""
        configurator = self.rank.configurator
        charges = (configurator.bytes_per_full_token, configurator.target_bytes_per_full_token)
        return sum(map(_rounding.float_rounding, charges), Fraction())

    def is_scaled_at_any_size(self) -> bool:
        """Whether the SWA pool is sized by the requests, and so is a draft's, charged with it."""
        apart = self.rank.configurator.draft_fixed_bytes is not None
        return not apart and not _growth.by_tokens(*self.views[:2])

    def has_part(self) -> bool:
        """Whether the rank reserves for a draft, or has its pool."""
        return abs(self.per_token()) > self.rounding() or self.views[0].draft is not None


def _judge_rank(seen: _Seen, of: int) -> Iterator[Violation]:
    found = [] if seen.is_scaled_at_any_size() else list(_judge_growth(seen, of))
    # Of what differs by the token, the bytes at one token count only say the same again.
    yield from found or _judge_bytes(seen, of)


def _judge_growth(seen: _Seen, of: int) -> Iterator[Violation]:
    reserved = seen.per_token()
    grown = _growth.per_token(seen.rank, seen.views, "the draft's pool", _draft_bytes)
    rounding = seen.rounding()
    if abs(reserved - grown) <= rounding:
        return
    yield violation(
        _ID,
        rank=seen.rank.rank,
        of=of,
        what="bytes reserved for the draft per full token",
        observed=reserved,
        expected=grown,
        source="allocated",
        component="draft",
        details=(_rounding.say(rounding),),
    )


def _judge_bytes(seen: _Seen, of: int) -> Iterator[Violation]:
    first, second = seen.views[:2]
    rounding = first.tokens * seen.rounding()
    slack = _WHOLE_BYTES + rounding
    reserved = first.tokens * seen.per_token() + _fixed(seen)
    # Where the target's fixed bytes are scaled, those beyond its size are charged, or they are not;
    # so that more may be reserved than is told from the charge, and it is no violation either way.
    target = [first.pool] if seen.is_scaled_at_any_size() else []
    guard = _guard.guard([first.draft, *target])
    allocated = _draft_bytes(first)
    alignment = _growth.cut_off(first, second, _draft)
    too_much = reserved > allocated + alignment + slack
    if not too_much and not guard.is_exceeded_by(allocated + alignment - reserved - slack):
        return
    observed = reserved if too_much else reserved + _guard.guard(target).bytes
    yield violation(
        _ID,
        rank=seen.rank.rank,
        of=of,
        what="bytes reserved for the draft",
        observed=observed,
        expected=allocated,
        source=f"allocated at {first.tokens} tokens",
        component="draft",
        in_question=observed - allocated,
        details=(
            *(() if too_much else _guard.guard([first.draft]).say()),
            *([f"{_growth.ALIGNMENT} ±{number(alignment)}"] if alignment else ()),
            f"whole bytes ±{_WHOLE_BYTES}",
            _rounding.say(rounding),
        ),
    )


def _fixed(seen: _Seen) -> Fraction:
    """Bytes reserved at any size: what SGLang charges apart, or nothing.

    Where it scales what the target has at any size, it is what is charged as fixed beyond what
    the target's pool has as fixed.
    """
    if not seen.is_scaled_at_any_size():
        return Fraction(seen.rank.configurator.draft_fixed_bytes or 0)
    first = seen.views[0]
    charge = seen.charged.charge
    if charge is None:
        raise NotJudged(f"rank {seen.rank.rank} has no charge at {first.tokens} tokens")
    charged = charge - first.tokens * Fraction(seen.rank.configurator.bytes_per_full_token)
    slope = _growth.per_token(seen.rank, seen.views, "the pool", lambda view: view.pool.bytes)
    return charged - (first.pool.bytes - first.tokens * slope)


def _draft(view: View) -> Pool | None:
    return view.draft


def _draft_bytes(view: View) -> int:
    return 0 if view.draft is None else view.draft.bytes
