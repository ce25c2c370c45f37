"""On every rank, tokens come in whole pages; compressed pools cover exactly the full tokens;
buffers that one page table indexes have equal page counts; the last legal location of every paged
buffer lies inside it, and no paged buffer has more than one reserved page beyond that location.

A location is handed out once, by the allocator of full tokens, and every pool finds its own slot
from it. A pool that is a page short is written beyond its end: other requests answer nonsense, or
the server dies. A pool that is pages too long holds memory that no location can ever reach. Where
two buffers of one page table differ in length, whatever is sized by one of them, as a transfer by
page is, does not fit the other.

The allocator of ``srt/mem_cache/allocator`` keeps page 0 for itself, so that its last page is one
beyond the configured size: that is the one page that ``DeepSeekV4SingleKVPool`` and
``DeepSeekV4IndexerPool`` (``srt/mem_cache/deepseek_v4_memory_pool.py``) reserve, until 0.5.20 by
``(size + page_size + 1) // page_size`` rows. From 0.5.21 on they reserve a page of full tokens
counted in compressed slots: 4 rows of a c4 buffer and 128 of a c128 buffer; 0.5.21 did so for c4
KV and not for its indexer, whose pages a PD transfer names by the same numbers. A table sized by
one number and indexed by another was sgl-project/sglang#26471.

One page table indexes the buffers of one ratio and one page; V4.1's indexers have pages of their
own. A pool that HiSparse shrinks maps its slots by itself: it must not be longer than the full
tokens, and its buffers are not compared with others. Of a location that a subject does not tell,
nothing is said.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import chain

from contracts.contract import Evidence, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _guard, _needs, _paged
from contracts.law._say import by_distance, contract_id, violation
from contracts.observation import Pool, Rank, View

_ID = contract_id(__name__)

#: The pool that HiSparse keeps in part on the host.
_SHRUNK = ("c4", "c4_kv")


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """What a server finally allocates."""
    return (Request(deployment=deployment, views=frozenset({"final"})),)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Check sizes, then page counts, then the ends of the buffers, on every rank."""
    (observation,) = _needs.observations(evidence, 1)
    parts = [_judge_rank(observation.deployment, rank) for rank in observation.ranks]
    yield from by_distance(_needs.decided(parts))


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """The rank that is judged, and which of its pools are shrunk."""

    rank: int
    of: int
    shrunk: tuple[str, ...]

    def differs(
        self,
        what: str,
        observed: int,
        expected: int,
        *,
        source: str,
        component: str | None = None,
        details: tuple[str, ...] = (),
        in_question: int | None = None,
    ) -> Violation:
        return violation(
            _ID,
            rank=self.rank,
            of=self.of,
            what=what,
            observed=observed,
            expected=expected,
            source=source,
            component=component,
            details=details,
            in_question=in_question,
        )


def _judge_rank(deployment: Deployment, rank: Rank) -> Iterator[Violation]:
    view = _needs.final(rank)
    shrunk = _SHRUNK if deployment.server_args.get("enable_hisparse") else ()
    place = _Place(rank.rank, deployment.pp_size, shrunk)
    parts = [
        _judge_sizes(place, view),
        _judge_counts(place, view.pool),
        _judge_ends(place, "", view.pool),
    ]
    if view.draft is not None:
        parts.append(_judge_ends(place, "draft.", view.draft))
    return chain.from_iterable(parts)


def _judge_sizes(place: _Place, view: View) -> Iterator[Violation]:
    page, tokens = _paged.page(view.pool), view.tokens
    for name, size in (("full", tokens), ("swa", view.sizes.get("swa"))):
        if size is not None and size % page:
            source = f"pages of {page}"
            yield place.differs(f"{name} tokens", size, size // page * page, source=source)
    for name, size in view.sizes.items():
        yield from _judge_cover(place, name, _paged.ratio(name), size, {tokens})
    for name, component in _paged.paged(view.pool).items():
        # A pool may count the page that is reserved anyway as part of its size.
        ratio, counts = _paged.ratio(component.kind), {tokens, tokens + page}
        for found in _judge_cover(place, name, ratio, component.size, counts):
            yield dataclasses.replace(found, component=name)


def _judge_cover(
    place: _Place, name: str, ratio: int | None, size: int | None, counts: set[int]
) -> Iterator[Violation]:
    """Check that a size times its ratio is one of the token counts."""
    if ratio is None or size is None:
        return
    slots = size * ratio
    covers = slots <= max(counts) if name in place.shrunk else slots in counts
    if not covers:
        yield place.differs(f"{name} size × {ratio}", slots, min(counts), source="full tokens")


def _judge_counts(place: _Place, pool: Pool) -> Iterator[Violation]:
    # One table serves the buffers of one ratio and page: equal numbers mean equal tokens there.
    tables: dict[tuple[str | None, int | None], dict[str, int]] = {}
    for name, component in _paged.paged(pool).items():
        if component.kind is not None and name not in place.shrunk:
            table = tables.setdefault((component.kind, component.page), {})
            table[name] = component.rows // component.buffers
    for counts in tables.values():
        most = max(counts, key=counts.__getitem__)
        for name, count in counts.items():
            if count != counts[most]:
                what = f"{name} pages"
                yield place.differs(what, count, counts[most], source=most, component=name)


def _judge_ends(place: _Place, owner: str, pool: Pool) -> Iterator[Violation]:
    for name, component in _paged.paged(pool).items():
        if component.last_row is None or component.page is None:
            continue
        # Up to and with the last legal location, instead of up to the configured size.
        reached = (component.last_row + 1) * component.page
        rows = _guard.rows(name, dataclasses.replace(component, size=reached))
        what = f"{owner + name} rows"
        if rows.beyond < 0:
            source = "up to the last legal location"
            yield place.differs(what, rows.rows, rows.needed, source=source, component=owner + name)
        elif rows.beyond > rows.allowed:
            yield place.differs(
                what,
                rows.rows,
                rows.needed + rows.allowed,
                source=f"at most: {rows.needed} up to the last legal location, "
                f"{rows.allowed} {rows.name}",
                component=owner + name,
                details=(f"{rows.excess_bytes} bytes in {rows.buffers} buffers lie beyond",),
                in_question=rows.excess_bytes,
            )
