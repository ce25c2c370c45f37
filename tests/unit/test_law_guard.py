"""Guard terms come from a buffer's geometry, and are no more than that allows."""

import dataclasses

import pytest

from contracts.contract import NotJudged
from contracts.law._guard import Guard, Term, guard, rows
from contracts.observation import Component, Pool

from .pools import paged, pool, state


def test_a_paged_buffer_may_reserve_one_page() -> None:
    found = rows("swa_kv", paged("total", 3, 512, 256, 10))
    assert (found.rows, found.needed, found.allowed, found.beyond) == (3, 2, 1, 1)
    assert (found.guard_bytes, found.excess_bytes) == (30, 0)


def test_a_page_that_is_begun_is_needed() -> None:
    """Red when a size that is no multiple of the page needs a page less."""
    found = rows("c4_kv", paged("c4", 1, 100, 64, 1))
    assert (found.needed, found.beyond) == (2, 1)


def test_no_more_than_one_page_is_guard() -> None:
    """Red when whatever a buffer has beyond its size counts as guard."""
    five = dataclasses.replace(paged("c4", 2, 64, 64, 10), rows=2 * 5, bytes=2 * 5 * 10)
    found = rows("c4_kv", five)
    assert (found.beyond, found.guard_bytes, found.excess_bytes) == (4, 20, 60)


def test_rows_that_are_missing_are_no_guard() -> None:
    """Red when a buffer that is too small gives a negative guard."""
    short = dataclasses.replace(paged("c4", 1, 640, 64, 10), rows=5, bytes=50)
    found = rows("c4_kv", short)
    assert (found.beyond, found.guard_bytes, found.excess_bytes) == (-5, 0, 0)
    assert guard([Pool(stage_ratios=(4,), components={"c4_kv": short})]).terms == ()


def test_a_state_buffer_may_have_a_ring_and_a_sentinel_rounded_up() -> None:
    """Red when the rounding, the ring or the sentinel is not allowed for."""
    found = rows("c4_state", state("c4", 2, 80, 8, 10))
    # 80 + 8 + 1, a multiple of 4.
    assert (found.rows, found.needed, found.allowed) == (92, 80, 12)
    assert found.guard_bytes == 2 * 12 * 10


def test_terms_add_up_by_name() -> None:
    """Red when target and draft give two terms of one name, or empty components give any."""
    one, other = pool((4,), 1024, 256), pool((0,), 1024, 256)
    found = guard([one, None, other])
    assert found.terms == (
        Term("reserved page", 512 + 256 + 512),
        Term("ring, sentinel and alignment", 12 * 32),
    )
    assert found.bytes == 1280 + 384
    assert found.say() == ("reserved page ±1280", "ring, sentinel and alignment ±384")
    assert found.unknown == ()


@pytest.mark.parametrize(
    ("component", "reason"),
    [
        (Component(buffers=1, rows=2, bytes=20), "does not tell what size"),
        (Component(buffers=1, rows=2, bytes=20, size=1), "does not tell what size"),
        (Component(buffers=2, rows=3, bytes=30, size=1, page=1), "3 rows and 30 bytes in 2 buf"),
        (Component(buffers=1, rows=3, bytes=31, size=1, page=1), "3 rows and 31 bytes in 1 buf"),
    ],
)
def test_an_untold_geometry_is_not_judged(component: Component, reason: str) -> None:
    with pytest.raises(NotJudged, match=reason):
        rows("c4_kv", component)


@pytest.mark.parametrize(("difference", "exceeded"), [(-1, False), (100, False), (101, True)])
def test_exceeded(difference: int, exceeded: bool) -> None:
    assert Guard((Term("reserved page", 100),)).is_exceeded_by(difference) is exceeded


@pytest.mark.parametrize("difference", [101, 150])
def test_what_an_unknown_guard_may_explain_is_not_judged(difference: int) -> None:
    """Red when a component without geometry makes a violation of its own guard."""
    given = Guard((Term("reserved page", 100),), ((Term("table", 50), "table is a mystery"),))
    with pytest.raises(NotJudged, match="table is a mystery"):
        given.is_exceeded_by(difference)


def test_what_no_unknown_guard_can_explain_is_exceeded() -> None:
    """Red when one component without geometry makes the whole pool undecidable."""
    given = Guard((Term("reserved page", 100),), ((Term("table", 50), "table is a mystery"),))
    assert given.is_exceeded_by(151)
    assert not given.is_exceeded_by(100)


def test_pointers_are_guard() -> None:
    """Red when a table of pointers, which no size configures, is taken for memory that is lost."""
    table = Component(buffers=1, rows=21, bytes=168, size=0, page=1)
    found = rows("c4_kv_pointers", table)
    assert (found.name, found.guard_bytes, found.excess_bytes) == ("pointers", 168, 0)
