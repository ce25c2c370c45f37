"""Sizes with a preferred range: the drawing habit that the other modules share.

Two rules hold for every draw in this package:

* **No case depends on what else is imported.** Hypothesis mixes the integer constants of locally
  imported modules into integer draws, leaving out those below 100. So no integer drawn here lies
  outside ``0 … LARGEST_DRAW``; larger numbers are put together from several draws.
* **Weights are tables**: an option that is drawn more often stands in its table more often, and
  the simplest stands first, because Hypothesis shrinks towards the front.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

__all__ = ["LARGEST_DRAW", "Span", "sizes"]

#: No integer draw reaches beyond this, on either side of 0 (see the module's first rule).
LARGEST_DRAW = 99


@dataclass(frozen=True, slots=True)
class Span:
    """The sizes from ``low`` to ``high``, both included."""

    low: int
    high: int

    def within(self, largest: int) -> Span:
        """This span with both ends cut down to ``largest``."""
        return Span(min(self.low, largest), min(self.high, largest))


@st.composite
def sizes(draw: st.DrawFn, spans: tuple[Span, ...]) -> int:
    """A size in one of ``spans``, each as likely as it is often listed.

    The widest span belongs in front: shrinking exchanges any other span for it and keeps the size.
    """
    span = draw(st.sampled_from(spans))
    return draw(st.integers(span.low, span.high))
