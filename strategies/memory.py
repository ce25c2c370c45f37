"""Byte budgets and the server arguments that share them out.

A budget that cannot hold one request is refused by SGLang. That is no case for most contracts, so
budgets are drawn from a lower bound upwards that nearly all releases accept. :func:`least_budget`
is that bound: coarse, deliberately too high, the largest of what the releases ask for, and good
for nothing but drawing. It is no oracle; what a deployment really needs is SGLang's to say.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, fields
from fractions import Fraction
from math import ceil

from hypothesis import strategies as st

from contracts.units import GiB, MiB, TiB, format_bytes

__all__ = [
    "MAX_BUDGET",
    "MIN_BUDGET",
    "LayerCounts",
    "Load",
    "Memory",
    "check_budget",
    "least_budget",
    "least_tokens",
    "memories",
]

MIN_BUDGET = 256 * MiB
MAX_BUDGET = TiB

#: SGLang's page for these models, in tokens.
_PAGE = 256

#: What SGLang takes for V4 where ``swa_full_tokens_ratio`` or ``max_running_requests`` is unset.
_DEFAULT_RATIO = Fraction(1, 10)
_DEFAULT_REQUESTS = 256

#: Ratios in thousandths; None leaves it unset, a text draws a decimal of so many digits. The
#: stated 0.1 is the simplest: it means the same in every release, unset does not.
_RATIOS: tuple[int | str | None, ...] = (
    *[100] * 8,
    *[None] * 4,
    *[250] * 3,
    *[150] * 2,
    30,
    220,
    230,
    240,
    800,
    1000,
    "tenths",
    "hundredths",
    "hundredths",
    "thousandths",
)

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

#: ``max_total_tokens``; None leaves it unset, a text draws a number that no page divides.
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


@dataclass(frozen=True, slots=True)
class LayerCounts:
    """Layers by what they need: all of them, those of ratio 4, those of ratio 128."""

    layers: int
    c4: int
    c128: int

    @classmethod
    def of(cls, ratios: tuple[int, ...]) -> LayerCounts:
        """The counts of a list of compress ratios."""
        return cls(len(ratios), ratios.count(4), ratios.count(128))

    @classmethod
    def largest(cls, counts: Iterable[LayerCounts]) -> LayerCounts:
        """The largest of each count."""
        taken = tuple(counts)
        return cls(*(max(getattr(one, f.name) for one in taken) for f in fields(cls)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a budget must hold, as far as the lower bound is concerned."""

    whole: LayerCounts
    """The whole ratio list, which 0.5.12 charges to every rank."""
    stage: LayerCounts
    """The most that a single stage may have of each kind."""
    plain_stage: bool = False
    """Whether some stage may have no compressed layer at all."""
    window: int = 128
    draft_tokens: int = 0

    @classmethod
    def of(
        cls,
        ratios: tuple[int, ...],
        stages: Iterable[range],
        *,
        window: int = 128,
        draft_tokens: int = 0,
    ) -> Load:
        """The load of a ratio list whose stages are among ``stages``."""
        counts = [LayerCounts.of(ratios[stage.start : stage.stop]) for stage in stages]
        return cls(
            whole=LayerCounts.of(ratios),
            stage=LayerCounts.largest(counts),
            plain_stage=any(one.c4 + one.c128 == 0 for one in counts),
            window=window,
            draft_tokens=draft_tokens,
        )


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
    swa = (window + _PAGE) // _PAGE * _PAGE + _PAGE
    pages = ceil(swa / ((_DEFAULT_RATIO if ratio is None else ratio) * _PAGE))
    return (pages + 1) * _PAGE


def least_budget(load: Load, ratio: Fraction | None, max_running_requests: int | None) -> int:
    """A budget that is enough in every release: a bound to draw from, see the module's text.

    Bytes per token and per row are SGLang's, rounded up. ``ratio`` and ``max_running_requests``
    are None where they are left unset.
    """
    requests = _DEFAULT_REQUESTS if max_running_requests is None else max_running_requests
    speculative = 2 if load.draft_tokens else 1
    draft_layer = Fraction(load.whole.layers + 1, load.whole.layers) if load.draft_tokens else 1

    def compressed(counts: LayerCounts) -> int:
        return 180 * counts.c4 + 7 * counts.c128

    # Compress states are priced per window up to 0.5.14 (c128) and 0.5.20 (c4), later per page.
    per_window = speculative * max(Fraction(1), Fraction(128, load.window))
    swa_token = 585 * load.whole.layers + per_window * (
        640 * load.whole.c4 + 4096 * load.whole.c128
    )
    share = _DEFAULT_RATIO if ratio is None else ratio
    tokens = least_tokens(load.window, ratio) * (compressed(load.whole) + share * swa_token)

    # c128 states per request slot, since 0.5.15.
    slot = MiB // 2 * speculative
    fixed = (requests + 4) * slot * load.stage.c128

    # The SWA pool of a request cap, since 0.5.21, where the ratio is unset.
    capped = Fraction(0)
    if ratio is None:
        prefixes = 4 * requests * (load.window + _PAGE)
        running = requests * (load.window + 128 * max(1, load.draft_tokens) + 2 * _PAGE)
        chunks = 2 * 16_384 + 2 * _PAGE
        stage_token = 585 * load.stage.layers + 320 * speculative * load.stage.c4
        capped = Fraction((prefixes + running + chunks) * stage_token)
        capped += 4 * _PAGE * compressed(load.stage)
    return ceil(draft_layer * max(tokens, capped)) + fixed


def check_budget(max_budget: int, *, max_layers: int, window: int, draft_tokens: int) -> None:
    """Refuse a largest budget that some generated model would find too small.

    Raises:
        ValueError: the message says what would do.
    """
    extremes = (
        LayerCounts(max_layers + 3, max_layers + 3, 0),
        LayerCounts(max_layers + 3, 0, max_layers + 3),
    )
    least = max(
        least_budget(
            Load(whole=counts, stage=counts, window=window, draft_tokens=draft_tokens),
            Fraction(1),
            1,
        )
        for counts in extremes
    )
    _check(max(MIN_BUDGET, least), max_budget, f"{max_layers} layers")


def _check(least: int, max_budget: int, holding: str) -> None:
    if not least <= max_budget <= MAX_BUDGET:
        raise ValueError(
            f"max_budget={max_budget}: for {holding}, "
            f"{format_bytes(least)} to {format_bytes(MAX_BUDGET)} will do"
        )


def memories(load: Load, *, max_budget: int = MAX_BUDGET) -> st.SearchStrategy[Memory]:
    """Budgets up to ``max_budget`` for a load, and the arguments to share them out.

    The budget is as likely in one octave as in any other, from 256 MiB or the lower bound
    upwards. Shrinks to 1 GiB, or as near as the bound allows, with a stated ratio of 0.1.

    The ratio is left unset only where every stage has a compressed layer: for a stage without,
    0.5.21 to 0.5.23 fail with a division by zero.

    Raises:
        ValueError: ``max_budget`` is too small for the load, or too large.
    """
    _check(max(MIN_BUDGET, least_budget(load, Fraction(1), 1)), max_budget, "this load")
    return _memories(load, max_budget)


@st.composite
def _memories(draw: st.DrawFn, load: Load, max_budget: int) -> Memory:
    ratio = draw(_ratios(load, max_budget))
    requests = draw(_requests(load, ratio, max_budget))
    tokens = draw(_total_tokens(load, ratio))
    least = least_budget(load, ratio, requests)
    return Memory(
        budget=draw(_budgets(max(MIN_BUDGET, least), max_budget)),
        swa_full_tokens_ratio=None if ratio is None else float(ratio),
        max_running_requests=requests,
        max_total_tokens=tokens,
    )


@st.composite
def _ratios(draw: st.DrawFn, load: Load, max_budget: int) -> Fraction | None:
    """A ratio; one that no budget would suffice for gives way to the smallest that one does."""

    def fits(ratio: Fraction | None) -> bool:
        return least_budget(load, ratio, 1) <= max_budget

    chosen = draw(st.sampled_from(_RATIOS))
    if chosen is None and not load.plain_stage and fits(None):
        return None
    if isinstance(chosen, int):
        thousandths = chosen
    elif chosen == "tenths":
        thousandths = 100 * draw(st.integers(1, 10))
    elif chosen == "hundredths":
        thousandths = 10 * draw(st.integers(1, 99))
    elif chosen == "thousandths":
        thousandths = 10 * draw(st.integers(0, 99)) + draw(st.integers(1, 9))
    else:
        thousandths = int(1000 * _DEFAULT_RATIO)
    if fits(Fraction(thousandths, 1000)):
        return Fraction(thousandths, 1000)
    larger = range(thousandths + 1, 1001)
    smallest = bisect_left(larger, True, key=lambda one: fits(Fraction(one, 1000)))
    return Fraction(larger[smallest], 1000)


@st.composite
def _requests(draw: st.DrawFn, load: Load, ratio: Fraction | None, max_budget: int) -> int | None:
    """A request limit; one that no budget would suffice for gives way to the largest that does."""

    def needed(requests: int | None) -> int:
        return least_budget(load, ratio, requests)

    chosen = draw(st.sampled_from(_REQUESTS))
    requests = draw(st.integers(1, 99)) if isinstance(chosen, str) else chosen
    if needed(requests) <= max_budget:
        return requests
    return bisect_right(range(1, _DEFAULT_REQUESTS + 1), max_budget, key=needed)


@st.composite
def _total_tokens(draw: st.DrawFn, load: Load, ratio: Fraction | None) -> int | None:
    """A token limit that leaves the SWA pool room for a request."""
    chosen = draw(st.sampled_from(_TOKENS))
    if chosen is None:
        return None
    tokens = 4097 + 1009 * draw(st.integers(0, 99)) if isinstance(chosen, str) else chosen
    return max(tokens, least_tokens(load.window, ratio))


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
