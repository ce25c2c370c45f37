"""Guard terms: what a buffer has beyond its configured size, by name and from its own geometry.

A paged buffer may reserve one page, which an allocator's page 0 makes of it. A buffer of state may
have one more ring and a sentinel row, rounded up to what its rows are a multiple of. A table of
pointers, for which no size is configured, is guard as a whole. What lies beyond that is no guard.
Nothing here is a percentage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from contracts.contract import NotJudged
from contracts.observation import Component, Pool, View

__all__ = ["Guard", "Rows", "Term", "guard", "of_view", "rows"]

RESERVED_PAGE = "reserved page"
RING = "ring, sentinel and alignment"
POINTERS = "pointers"

#: Rows that a state buffer has for everything that is not there: SGLang writes to row -1.
_SENTINEL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of each buffer of one component.

    ``needed`` hold what was configured; of those beyond, ``allowed`` are the guard ``name`` at
    most.
    """

    name: str
    rows: int
    needed: int
    allowed: int
    row_bytes: int
    buffers: int

    @property
    def beyond(self) -> int:
        """Rows beyond the needed ones; negative where they are too few."""
        return self.rows - self.needed

    @property
    def guard_bytes(self) -> int:
        """Bytes of the guard in all buffers: what they have of it, and no more than allowed."""
        return self._bytes(min(self.beyond, self.allowed))

    @property
    def excess_bytes(self) -> int:
        """Bytes in all buffers that are neither needed nor guard."""
        return self._bytes(self.beyond - self.allowed)

    def _bytes(self, count: int) -> int:
        return max(0, count) * self.row_bytes * self.buffers


@dataclass(frozen=True, slots=True)
class Term:
    """A named number of bytes."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Guard:
    """The guard terms of some pools, each name once.

    ``unknown`` are the components whose guard nobody can tell, with their bytes and the reason.
    """

    terms: tuple[Term, ...] = ()
    unknown: tuple[tuple[Term, str], ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of all terms together."""
        return sum(term.bytes for term in self.terms)

    def is_exceeded_by(self, difference: int | Fraction) -> bool:
        """Whether a number of bytes is more than the guards.

        Raises:
            NotJudged: it is, but no more than components might explain whose guard is unknown.
        """
        rest = difference - self.bytes
        if rest <= 0:
            return False
        if self.unknown and rest <= sum(term.bytes for term, _reason in self.unknown):
            raise NotJudged(self.unknown[0][1])
        return True

    def say(self) -> tuple[str, ...]:
        """A clause for each term, for a message."""
        return tuple(f"{term.name} ±{term.bytes}" for term in self.terms)


def rows(name: str, component: Component) -> Rows:
    """The rows of each buffer of a component that has buffers.

    Raises:
        NotJudged: the subject does not tell its geometry, or its buffers are not alike.
    """
    size, page, ring, align = component.size, component.page, component.ring, component.align
    if size is None or page is None:
        raise NotJudged(f"the subject does not tell what size {name} was configured with")
    each, other = divmod(component.rows, component.buffers)
    if other or component.bytes % component.rows:
        raise NotJudged(
            f"{name} has {component.rows} rows and {component.bytes} bytes in "
            f"{component.buffers} buffers: they are not alike"
        )
    if size == 0 and component.kind is None:
        # It holds nothing but where the buffers are: one pointer for each of them.
        return Rows(
            name=POINTERS,
            rows=each,
            needed=0,
            allowed=each,
            row_bytes=component.bytes // component.rows,
            buffers=component.buffers,
        )
    if ring is None:
        needed, allowed = -(-size // page), 1
    else:
        needed = size
        allowed = _round_up(size + ring + _SENTINEL, align or 1) - size
    return Rows(
        name=RESERVED_PAGE if ring is None else RING,
        rows=each,
        needed=needed,
        allowed=allowed,
        row_bytes=component.bytes // component.rows,
        buffers=component.buffers,
    )


def guard(pools: Iterable[Pool | None]) -> Guard:
    """The guard terms of pools together; a pool may be absent."""
    sums: dict[str, int] = {}
    unknown = []
    for pool in pools:
        for name, component in pool.components.items() if pool else ():
            # Nothing allocated needs no geometry.
            if component.bytes == 0:
                continue
            try:
                found = rows(name, component)
            except NotJudged as reason:
                unknown.append((Term(name, component.bytes), str(reason)))
                continue
            if found.guard_bytes:
                sums[found.name] = sums.get(found.name, 0) + found.guard_bytes
    return Guard(tuple(Term(*item) for item in sums.items()), tuple(unknown))


def of_view(view: View) -> Guard:
    """The guard terms of a view's target and draft."""
    return guard((view.pool, view.draft))


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
