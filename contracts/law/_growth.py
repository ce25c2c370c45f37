"""How a pool grows with its tokens, and what it has less because pages are whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from contracts.contract import NotJudged, Request
from contracts.deployment import Deployment
from contracts.law import _aligned, _guard
from contracts.observation import Component, Pool, Rank, View

__all__ = ["ALIGNMENT", "by_tokens", "cut_off", "grown_and_charged", "per_token"]

#: The name of what is cut off, in messages.
ALIGNMENT = "alignment"


def grown_and_charged(deployment: Deployment) -> tuple[Request, Request]:
    """Pools at three aligned token counts, and what the first of them is charged.

    The charge is asked for apart: it is found by bisection, and growth alone is asked for more.
    """
    counts = _aligned.token_counts(deployment)
    return (
        Request(deployment=deployment, tokens=counts),
        Request(deployment=deployment, tokens=counts[:1], views=frozenset({"charge"})),
    )


def per_token(
    rank: Rank, views: Sequence[View], what: str, measure: Callable[[View], int]
) -> Fraction:
    """Bytes per further token, the same between all neighbours of three aligned views.

    Raises:
        NotJudged: the growth is uneven.
    """
    first, second, third = views
    sizes = [measure(view) for view in views]
    below, above = sizes[1] - sizes[0], sizes[2] - sizes[1]
    if below != above:
        raise NotJudged(
            f"rank {rank.rank}: {what} is not affine between aligned sizes: it grows by "
            f"{below} bytes from {first.tokens} to {second.tokens} tokens, "
            f"by {above} to {third.tokens}"
        )
    return Fraction(below, second.tokens - first.tokens)


def by_tokens(first: View, second: View) -> bool:
    """Whether the SWA pool grows with the full tokens, or is sized by the requests."""
    size = first.sizes.get("swa")
    return size is None or size != second.sizes.get("swa")


def cut_off(first: View, second: View, pool: Callable[[View], Pool | None]) -> Fraction:
    """Bytes that the first of two aligned views lacks because its SWA tokens are whole pages.

    In proportion to its full tokens a pool would have some SWA tokens more, less than a page of
    them, and so would each component that is sized by SWA tokens.
    """
    sizes = (first.sizes.get("swa"), second.sizes.get("swa"))
    small, large = pool(first), pool(second)
    if sizes[0] is None or sizes[1] is None or small is None or large is None:
        return Fraction()
    grown, tokens = sizes[1] - sizes[0], second.tokens - first.tokens
    missing = Fraction(grown * first.tokens, tokens) - sizes[0]
    page = max((part.page or 0 for part in small.components.values()), default=0)
    if grown <= 0 or not 0 < missing < page:
        return Fraction()
    found = Fraction()
    for name, component, larger in _pairs(small, large):
        if component.size is None or larger.size is None or component.page is None:
            continue
        growth = larger.size - component.size
        slots = missing * growth / grown
        # What is sized by full tokens grows as evenly, but of that nothing is missing.
        if slots == Fraction(growth * first.tokens, tokens) - component.size:
            row = _guard.rows(name, component)
            found += slots / component.page * row.row_bytes * row.buffers
    return found


def _pairs(one: Pool, other: Pool) -> Iterator[tuple[str, Component, Component]]:
    for name, component in one.components.items():
        if component.bytes and name in other.components:
            yield name, component, other.components[name]
