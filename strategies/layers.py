"""Model shapes: how many layers, which compress ratio on each, which entries beyond them.

Every ratio list is a head, written once, and a body of runs that repeats until the layers are
filled. That one form yields the published shapes, cut or extended (Flash is the head ``0, 0`` and
the run ``4, 128``), single-kind, periodic and blocky lists and long irregular ones, and since
all of them are drawn alike, any of them shrinks to any simpler one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, cycle, islice

from hypothesis import strategies as st

from contracts.deployment import Model
from strategies.sizes import Span, sizes

__all__ = [
    "MAX_EXTRA_ENTRIES",
    "MAX_LAYERS",
    "RATIOS",
    "WINDOWS",
    "LayerRatios",
    "compress_ratios",
    "models",
]

#: The compress ratios that every release with the DSV4 pool knows.
RATIOS = (0, 4, 128)

#: The most layers that can be asked for.
MAX_LAYERS = 96

#: The most entries that a ratio list has beyond its layers: 0, 1 (an MTP layer) or 3 (DSpark).
MAX_EXTRA_ENTRIES = 3

#: The sliding windows that can be asked for; see :func:`models` on why only 128 is the default.
WINDOWS = (128, 64, 256)

#: The layer counts of published models.
_PUBLISHED_COUNTS = (40, 43, 61)

_HEADS: tuple[tuple[int, ...], ...] = (
    *[()] * 5,
    *[(0, 0)] * 2,
    *[(128, 128)] * 2,
)
_UNITS: tuple[tuple[int, ...], ...] = (
    *[(0,)] * 2,
    *[(4,)] * 2,
    *[(128,)] * 2,
    *[(4, 128)] * 5,
    (128, 4),
    (0, 4),
    (0, 128),
    (0, 4, 128),
)
_TIMES = (1, 1, 1, 1, 2, 3, 5, 8, 13)

_EXTRA_COUNTS = (0, 1, 1, 1, MAX_EXTRA_ENTRIES, MAX_EXTRA_ENTRIES)
_EXTRA_RATIOS = (0, 0, 0, 4, 128)


@dataclass(frozen=True, slots=True)
class LayerRatios:
    """The compress ratios of a model: those of its decoder, then those of its MTP layers."""

    decoder: tuple[int, ...]
    extra: tuple[int, ...] = ()

    def model(self, *, sliding_window: int = 128) -> Model:
        """A model that has these layers."""
        return Model(
            num_hidden_layers=len(self.decoder),
            compress_ratios=self.decoder + self.extra,
            sliding_window=sliding_window,
        )


def compress_ratios(*, max_layers: int = MAX_LAYERS) -> st.SearchStrategy[LayerRatios]:
    """Ratio lists of 1 to ``max_layers`` layers, with 0, 1 or 3 entries beyond them.

    Shrinks to one layer of ratio 0 and nothing beyond it.

    Raises:
        ValueError: ``max_layers`` is not from 1 to 96.
    """
    if not 1 <= max_layers <= MAX_LAYERS:
        raise ValueError(f"max_layers={max_layers}: 1 to {MAX_LAYERS} can be generated")
    return _layer_ratios(max_layers)


def models(
    *, max_layers: int = MAX_LAYERS, windows: tuple[int, ...] = (128,)
) -> st.SearchStrategy[Model]:
    """Models of 1 to ``max_layers`` layers; all else is as the published V4 models have it.

    ``windows`` are the sliding windows to draw from. Another window than 128 passes SGLang's
    argument checks, its sizing and its pools in every release, but no release could serve it:
    the attention backends have a window of 128 written into them.

    Raises:
        ValueError: ``max_layers`` or ``windows`` is out of range.
    """
    if not windows or not set(windows) <= set(WINDOWS):
        raise ValueError(f"windows={windows}: one or more of {WINDOWS} can be generated")
    ratios = compress_ratios(max_layers=max_layers)
    ordered = sorted(set(windows), key=WINDOWS.index)
    return st.builds(
        lambda layers, window: layers.model(sliding_window=window),
        ratios,
        st.sampled_from([ordered[0]] * 3 + ordered),
    )


#: One run of layers: a unit, some times over.
_RUNS: st.SearchStrategy[tuple[int, ...]] = st.builds(
    lambda unit, times: unit * times, st.sampled_from(_UNITS), st.sampled_from(_TIMES)
)
_BODIES = st.one_of(
    st.lists(_RUNS, min_size=1, max_size=2),
    st.lists(_RUNS, min_size=1, max_size=2),
    st.lists(_RUNS, min_size=1, max_size=6),
    st.lists(_RUNS, min_size=8, max_size=24),
)


@st.composite
def _layer_ratios(draw: st.DrawFn, max_layers: int) -> LayerRatios:
    count = draw(sizes(_counts(max_layers)))
    head = draw(st.sampled_from(_HEADS))
    body = draw(_BODIES)
    decoder = islice(chain(head, cycle(chain.from_iterable(body))), count)
    extra_count = draw(st.sampled_from(_EXTRA_COUNTS))
    extra = tuple(draw(st.sampled_from(_EXTRA_RATIOS)) for _ in range(extra_count))
    return LayerRatios(tuple(decoder), extra)


def _counts(max_layers: int) -> tuple[Span, ...]:
    spans = [Span(1, max_layers)] * 4 + [Span(1, 8)] * 3
    spans += [Span(count, count) for count in _PUBLISHED_COUNTS]
    spans.append(Span(max_layers, max_layers))
    return tuple(span.within(max_layers) for span in spans)
