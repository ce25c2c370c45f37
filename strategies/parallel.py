"""Pipeline layouts: how many stages, and how the layers are shared out among them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from hypothesis import strategies as st

from strategies.layers import MAX_LAYERS
from strategies.sizes import Span, sizes

__all__ = ["MAX_PP_SIZE", "Pipeline", "pipelines"]

#: The most stages that are generated.
MAX_PP_SIZE = 32

_PARTITIONS = ("even", "even", "even", "rotated", "free", "free")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline of ``pp_size`` stages; without a ``partition`` SGLang shares out the layers."""

    pp_size: int = 1
    partition: tuple[int, ...] | None = None

    def possible_stages(self, layers: int) -> tuple[range, ...]:
        """Every run of layers that may be a stage.

        With a partition these are the stages. Without one they are all runs as long as an even
        share, rounded down or up: where exactly the cuts fall is for SGLang to say.
        """
        if self.partition is not None:
            ends = tuple(accumulate(self.partition))
            return tuple(
                range(end - size, end) for end, size in zip(ends, self.partition, strict=True)
            )
        lengths = {layers // self.pp_size, -(-layers // self.pp_size)}
        return tuple(
            range(start, start + length)
            for length in sorted(lengths)
            for start in range(layers - length + 1)
        )


def pipelines(*, layers: int, max_pp_size: int = MAX_PP_SIZE) -> st.SearchStrategy[Pipeline]:
    """Pipelines for a model of ``layers`` layers, with a layer or more in every stage.

    ``pp_size`` goes from 1 to ``max_pp_size`` or, for a smaller model, to one stage per layer. Half
    of the pipelines leave the split to SGLang. The others state a partition: the even one
    rotated (10,11,11,11 becomes 11,11,11,10) or any other. Shrinks to one stage.

    Raises:
        ValueError: ``layers`` or ``max_pp_size`` is out of range.
    """
    if not 1 <= layers <= MAX_LAYERS:
        raise ValueError(f"layers={layers}: 1 to {MAX_LAYERS} can be shared out")
    if not 1 <= max_pp_size <= MAX_PP_SIZE:
        raise ValueError(f"max_pp_size={max_pp_size}: 1 to {MAX_PP_SIZE} can be generated")
    return _pipelines(layers, min(layers, max_pp_size))


@st.composite
def _pipelines(draw: st.DrawFn, layers: int, largest: int) -> Pipeline:
    pp_size = draw(sizes(_pp_sizes(largest)))
    if pp_size == 1:
        return Pipeline()
    kind = draw(st.sampled_from(_PARTITIONS))
    if kind == "even":
        return Pipeline(pp_size)
    if kind == "rotated":
        return Pipeline(pp_size, _rotated(layers, pp_size, draw(st.integers(0, pp_size - 1))))
    partition = []
    spare = layers - pp_size
    for _ in range(pp_size - 1):
        size = draw(st.integers(1, 1 + spare))
        partition.append(size)
        spare -= size - 1
    return Pipeline(pp_size, (*partition, 1 + spare))


def _pp_sizes(largest: int) -> tuple[Span, ...]:
    # Every rank is sized and allocated: long pipelines are rare, they cost the most.
    spans = [Span(1, largest), *[Span(1, 8)] * 3, *[Span(1, 1)] * 8]
    spans += [*[Span(2, 2)] * 5, *[Span(4, 4)] * 3, Span(8, 8), Span(largest, largest)]
    return tuple(span.within(largest) for span in spans)


def _rotated(layers: int, pp_size: int, by: int) -> tuple[int, ...]:
    share, surplus = divmod(layers, pp_size)
    even = [share] * (pp_size - surplus) + [share + 1] * surplus
    return tuple(even[by:] + even[:by])
