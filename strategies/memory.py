"""Byte budgets and the server arguments that share them out.

A budget that cannot hold one request is refused by SGLang. That is no case for most contracts, so
budgets are drawn from a lower bound upwards. :func:`least_budget` is that bound: coarse,
deliberately too high for every single release, and good for nothing but drawing. It is no oracle;
what a deployment really needs is SGLang's to say.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from hypothesis import strategies as st

from contracts.units import GiB, MiB, TiB, format_bytes
from strategies.layers import MAX_EXTRA_ENTRIES, RATIOS
from strategies.settings import DECODE, Settings

__all__ = [
    "MAX_BUDGET",
    "MIN_BUDGET",
    "Load",
    "Memory",
    "check_budget",
    "least_budget",
    "least_tokens",
    "memories",
    "suffices",
]

MIN_BUDGET = 256 * MiB
MAX_BUDGET = TiB

#: SGLang's page for these models, in tokens.
_PAGE = 256

#: What SGLang takes for V4 where ``swa_full_tokens_ratio`` or ``max_running_requests`` is unset.
#: (For V4.1 an unset ratio has the SWA pool sized by requests instead.)
_DEFAULT_RATIO = Fraction(1, 10)
_DEFAULT_REQUESTS = 256

#: Ratios in thousandths; None leaves it unset, a text draws a decimal of so many digits.
_SWA_RATIOS: tuple[int | str | None, ...] = (
    *[None] * 4,
    *[100] * 8,
    *[250] * 3,
    *[150] * 2,
    *[30] * 2,
    220,
    230,
    240,
    *[800] * 2,
    1000,
    "tenths",
    "hundredths",
    "hundredths",
    "thousandths",
)

#: Those of V4.1 models, which without a ratio have their SWA pool sized by requests.
_SHARED_SWA_RATIOS: tuple[int | str | None, ...] = (*[None] * 8, *[100] * 2, 250, "hundredths")

#: ``max_running_requests``; None leaves it unset, a text draws any number below 100.
_REQUESTS: tuple[int | str | None, ...] = (
    *[None] * 6,
    *[256] * 2,
    128,
    64,
    64,
    48,
    32,
    16,
    8,
    4,
    1,
    1,
    "any",
)

#: ``max_total_tokens``; None leaves it unset, a text draws a number that hardly a page divides.
_TOKENS: tuple[int | str | None, ...] = (
    *[None] * 14,
    4096,
    20_000,
    32_768,
    163_840,
    3_000_000,
    "odd",
)

#: A budget's octave is divided into so many steps, and a step twice more into as many.
_STEPS = 64

#: The longest prefill chunk that SGLang chooses itself, in tokens.
_DEFAULT_CHUNK = 16_384
#: Cached prefix tails a running request that SGLang keeps where none are stated.
_DEFAULT_TAILS = 4
#: Up to so many requests a decode server keeps twice as many slots more, if none are stated.
_FEW_REQUESTS = 32
#: More draft tokens than any speculation here has.
_DRAFT_TOKENS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a budget must hold, as far as the lower bound is concerned.

    Layers are counted over the whole ratio list, which 0.5.12 charges to every rank; the c128
    states of later releases lie with the stages, of which ``stage_c128`` has the most c128 layers.
    ``sources`` are the layers that own storage of a V4.1 model, and None of any other.
    """

    layers: int
    c4: int
    c128: int
    stage_c128: int
    sources: int | None = None
    window: int = 128
    speculative: bool = False
    settings: Settings = field(default_factory=Settings)

    @classmethod
    def of(
        cls,
        ratios: tuple[int, ...],
        stages: Iterable[range],
        *,
        sources: int | None = None,
        window: int = 128,
        speculative: bool = False,
        settings: Settings | None = None,
    ) -> Load:
        """The load of a ratio list whose stages are among ``stages``."""
        return cls(
            layers=len(ratios),
            c4=ratios.count(4),
            c128=ratios.count(128),
            stage_c128=max(ratios[stage.start : stage.stop].count(128) for stage in stages),
            sources=sources,
            window=window,
            speculative=speculative,
            settings=settings or Settings(),
        )

    def slots(self, max_running_requests: int | None) -> int:
        """Request slots of a DP rank, with those that a decode server has more."""
        requests = self.requests(max_running_requests)
        if self.settings.role != DECODE:
            return requests
        extra = self.settings.extra_slots
        return requests + (2 * min(requests, _FEW_REQUESTS) if extra is None else extra)

    def requests(self, max_running_requests: int | None) -> int:
        """Running requests of a DP rank."""
        stated = _DEFAULT_REQUESTS if max_running_requests is None else max_running_requests
        return max(1, stated // self.settings.dp_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A byte budget, and the server arguments that decide how it is shared out."""

    budget: int
    swa_full_tokens_ratio: float | None = None
    max_running_requests: int | None = None
    max_total_tokens: int | None = None

    def server_args(self) -> dict[str, float | int]:
        """The stated arguments, by SGLang's names."""
        stated = {
            "swa_full_tokens_ratio": self.swa_full_tokens_ratio,
            "max_running_requests": self.max_running_requests,
            "max_total_tokens": self.max_total_tokens,
        }
        return {name: value for name, value in stated.items() if value is not None}


def least_tokens(window: int, ratio: Fraction | None) -> int:
    """A full-token count that gives the SWA pool room for a request in every release.

    From 0.5.20 on SGLang refuses an SWA pool of no more than the window and a page.
    """
    share = _DEFAULT_RATIO if ratio is None else ratio
    return ceil(_admitting_swa_tokens(window) / share / _PAGE) * _PAGE


def _admitting_swa_tokens(window: int) -> int:
    """Whole pages above the window and a page, and one more to make up for any rounding."""
    return (window + _PAGE) // _PAGE * _PAGE + 2 * _PAGE


def least_budget(load: Load, ratio: Fraction | None, max_running_requests: int | None) -> int:
    """A budget that is enough in every release: a bound to draw from, see the module's text.

    Bytes per token and per row are SGLang's, rounded up, with the terms of all releases added up.
    ``ratio`` and ``max_running_requests`` are None where they are left unset. A smaller ratio or
    more requests never need less.
    """
    if load.sources is not None:
        return _least_shared_budget(load, load.sources, ratio, max_running_requests)
    share = _DEFAULT_RATIO if ratio is None else ratio
    rings = 2 if load.speculative else 1

    # Compress states are priced by windows, c128 up to 0.5.14 and c4 up to 0.5.20.
    states = rings * max(Fraction(1), Fraction(128, load.window))
    swa_token = 585 * load.layers + states * (640 * load.c4 + 4096 * load.c128)
    full_token = 180 * load.c4 + 7 * load.c128 + share * swa_token
    if load.speculative:
        # A draft is charged as one more layer like those of the decoder.
        full_token += full_token / max(1, load.layers - MAX_EXTRA_ENTRIES)

    # From 0.5.15 on c128 states are kept by request slot, and a few slots more.
    slots = load.slots(max_running_requests)
    fixed = (slots + 4) * rings * (MiB // 2) * load.stage_c128
    return ceil(_admitting_swa_tokens(load.window) * full_token / share) + fixed


def _least_shared_budget(
    load: Load, sources: int, ratio: Fraction | None, max_running_requests: int | None
) -> int:
    """The bound for a V4.1 model, whose SWA pool is sized by requests where no ratio is stated."""
    swa_tokens = _admitting_swa_tokens(load.window)
    full_tokens = ceil(swa_tokens / (_DEFAULT_RATIO if ratio is None else ratio))
    if ratio is None:
        swa_tokens = _swa_tokens_of_requests(load, max_running_requests)
    # A draft is charged as one more layer here too.
    layers = load.layers + 1 if load.speculative else load.layers
    tokens = 660 * (sources + 1) * full_tokens + 585 * layers * swa_tokens
    # Pairs of ratio 2 wait in a ring of 2 tokens a request, or of 16.
    slots = load.slots(max_running_requests) + 2
    fixed = slots * 16 * 4096 * sources
    if load.settings.replay:
        # A window a request and layer, drafts' rings, and a workspace for a step.
        fixed += slots * 2 * _PAGE * 600 * (layers + MAX_EXTRA_ENTRIES) + MiB * slots
        fixed += 4 * 600 * (_chunk(load) + slots * 256 + _PAGE)
    return tokens + fixed


def _swa_tokens_of_requests(load: Load, max_running_requests: int | None) -> int:
    """SWA tokens that requests in flight can hold, and what is kept for reuse beside them."""
    requests, slots = load.requests(max_running_requests), load.slots(max_running_requests)
    drafts = _DRAFT_TOKENS if load.speculative else 1
    interval, tails = load.settings.interval, load.settings.tails
    each = load.window + (128 if interval is None else interval) * drafts + 4 * _PAGE
    kept = _DEFAULT_TAILS * requests if tails is None else tails
    held = (kept + slots - requests) * (load.window + _PAGE)
    return requests * each + held + 2 * _chunk(load) + 2 * _PAGE


def _chunk(load: Load) -> int:
    stated = load.settings.chunk
    return _DEFAULT_CHUNK if stated is None else max(0, stated)


def check_budget(max_budget: int, *, max_layers: int, window: int, speculative: bool) -> None:
    """Refuse a largest budget that some generated model would find too small.

    Raises:
        ValueError: the message says what would do.
    """
    entries = max_layers + MAX_EXTRA_ENTRIES
    largest = [
        Load.of((ratio,) * entries, [range(entries)], window=window, speculative=speculative)
        for ratio in RATIOS
    ]
    largest.append(Load.of((0,) * entries, [range(entries)], sources=entries, speculative=True))
    least = max(least_budget(load, Fraction(1), 1) for load in largest)
    _check(max(MIN_BUDGET, least), max_budget, f"{max_layers} layers")


def _check(least: int, max_budget: int, holding: str) -> None:
    if not least <= max_budget <= MAX_BUDGET:
        raise ValueError(
            f"max_budget={max_budget}: for {holding}, "
            f"{format_bytes(least)} to {format_bytes(MAX_BUDGET)} will do"
        )


def memories(*loads: Load, max_budget: int = MAX_BUDGET) -> st.SearchStrategy[Memory]:
    """Budgets up to ``max_budget`` for any of some loads, and the arguments to share them out.

    The budget is as likely in one octave as in any other, from 256 MiB or the lower bound
    upwards. Shrinks to 1 GiB, or as near as the bound allows, and no argument.

    Raises:
        ValueError: ``max_budget`` is too small for the loads, or too large.
    """
    bound = _Bound(loads)
    _check(max(MIN_BUDGET, bound.least), max_budget, "this load")
    return _memories(bound, max_budget)


def suffices(max_budget: int, *loads: Load) -> bool:
    """Whether there is a way to serve each of some loads within a largest budget."""
    return _Bound(loads).least <= max_budget


@dataclass(frozen=True, slots=True)
class _Bound:
    """The lower bound that holds for each of some loads."""

    loads: tuple[Load, ...]

    def __call__(self, ratio: Fraction | None, max_running_requests: int | None) -> int:
        return max(least_budget(load, ratio, max_running_requests) for load in self.loads)

    @property
    def least(self) -> int:
        """The bound at the ratio and the request limit that need least."""
        return self(Fraction(1), 1)

    @property
    def least_requests(self) -> int:
        """One request for each DP rank."""
        return max(load.settings.dp_size for load in self.loads)

    @property
    def is_shared(self) -> bool:
        """Whether one of the loads is of a V4.1 model."""
        return any(load.sources is not None for load in self.loads)

    @property
    def window(self) -> int:
        """The widest window."""
        return max(load.window for load in self.loads)


@st.composite
def _memories(draw: st.DrawFn, bound: _Bound, max_budget: int) -> Memory:
    ratio = draw(_swa_ratios(bound, max_budget))
    requests = draw(_requests(bound, ratio, max_budget))
    tokens = draw(_total_tokens(bound.window, ratio))
    least = bound(ratio, requests)
    return Memory(
        budget=draw(_budgets(max(MIN_BUDGET, least), max_budget)),
        swa_full_tokens_ratio=None if ratio is None else float(ratio),
        max_running_requests=requests,
        max_total_tokens=tokens,
    )


@st.composite
def _swa_ratios(draw: st.DrawFn, bound: _Bound, max_budget: int) -> Fraction | None:
    """A ratio; one that no budget would suffice for gives way to the smallest that one does."""

    def fits(ratio: Fraction | None) -> bool:
        return bound(ratio, 1) <= max_budget

    chosen = draw(st.sampled_from(_SHARED_SWA_RATIOS if bound.is_shared else _SWA_RATIOS))
    if chosen == "tenths":
        chosen = 100 * draw(st.integers(1, 10))
    elif chosen == "hundredths":
        chosen = 10 * draw(st.integers(1, 99))
    elif chosen == "thousandths":
        chosen = 10 * draw(st.integers(0, 99)) + draw(st.integers(1, 9))
    ratio = Fraction(chosen, 1000) if isinstance(chosen, int) else None
    if fits(ratio):
        return ratio
    thousandths = range(1, 1001)
    return Fraction(
        thousandths[bisect_left(thousandths, True, key=lambda n: fits(Fraction(n, 1000)))], 1000
    )


@st.composite
def _requests(
    draw: st.DrawFn, bound: _Bound, ratio: Fraction | None, max_budget: int
) -> int | None:
    """A request limit; one that no budget would suffice for gives way to the largest that does."""

    def needed(requests: int | None) -> int:
        return bound(ratio, requests)

    chosen = draw(st.sampled_from(_REQUESTS))
    requests = draw(st.integers(1, 99)) if isinstance(chosen, str) else chosen
    if requests is not None:
        requests = max(requests, bound.least_requests)
    if needed(requests) <= max_budget:
        return requests
    return bisect_right(range(1, _DEFAULT_REQUESTS + 1), max_budget, key=needed)


@st.composite
def _total_tokens(draw: st.DrawFn, window: int, ratio: Fraction | None) -> int | None:
    """A token limit that leaves the SWA pool room for a request."""
    chosen = draw(st.sampled_from(_TOKENS))
    if chosen is None:
        return None
    tokens = 4097 + 1009 * draw(st.integers(0, 99)) if isinstance(chosen, str) else chosen
    return max(tokens, least_tokens(window, ratio))


@st.composite
def _budgets(draw: st.DrawFn, least: int, most: int) -> int:
    """A number of bytes from ``least`` to ``most``; half of them are round."""
    octave = draw(st.integers(_octave(least), max(_octave(least), _octave(most - 1))))
    unit = GiB << octave if octave >= 0 else GiB >> -octave
    step = unit // _STEPS
    first = max(0, -(-(least - unit) // step))
    last = min(_STEPS, (most - unit) // step)
    budget = unit + step * draw(st.integers(first, max(first, last)))
    if draw(st.booleans()):
        coarse, fine, odd = (draw(st.integers(0, _STEPS - 1)) for _ in range(3))
        budget += step * (_STEPS * coarse + fine) // _STEPS**2 + odd
    return min(budget, most)


def _octave(size: int) -> int:
    """The power of two below a size, counted from 1 GiB."""
    return size.bit_length() - GiB.bit_length()
