"""state-rows: every row that is addressed exists, and hardly any other."""

import dataclasses
from typing import Any

import pytest

from contracts.contract import Evidence, NotApplicable, NotJudged, Violation
from contracts.deployment import Deployment
from contracts.law.state_rows import judge, plan
from contracts.observation import View

from .locations import evidence
from .observations import bend_rank, bend_views, deployment, with_component
from .pools import more_rows


def found(given: Evidence) -> list[Violation]:
    return list(judge(given))


def rows(name: str, more: int, asked: Deployment) -> list[Violation]:
    """What is found where a component of rank 0 has so many rows more in each buffer."""
    given = evidence(plan(asked))
    return found(bend_views(given, 0, lambda view: more_rows(view, name, more)))


def untold(given: Evidence, rank: int, *names: str) -> Evidence:
    fields: dict[str, Any] = {"last_row": None}

    def change(view: View) -> View:
        for name in names:
            view = with_component(view, name, **fields)
        return view

    return bend_views(given, rank, change)


@pytest.mark.parametrize(
    "asked",
    [deployment(4), deployment(128), deployment(0, 4, 128, 4, pp_size=4)],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    assert not found(evidence(plan(asked)))


# 2 SWA pages and page 0 make 3 rings of 8; with one more and the sentinel 33, rounded up to 36.
@pytest.mark.parametrize(("count", "violations"), [(23, 1), (24, 0), (36, 0), (37, 1)])
def test_the_guard_is_a_ring_and_a_sentinel_rounded_up(count: int, violations: int) -> None:
    """Red when a row is missing, or one is allowed that has no name."""
    assert len(rows("c4_state", count - 28, deployment(4))) == violations


def test_twice_the_rows() -> None:
    """Red when rings by window pass although they are found by page (until 0.5.20)."""
    (one,) = rows("c4_state", 28, deployment(0, 4, 4, pp_size=1))
    assert (one.rank, one.component) == (0, "c4_state")
    assert one.message == (
        "state-rows: rank 0 of 1: c4_state rows = 56, expected 36 (at most: 24 addressable, "
        "12 ring, sentinel and alignment); 1280 bytes in 2 buffers lie beyond — ×1.56"
    )
    assert one.bytes == 1280


def test_a_row_that_does_not_exist() -> None:
    """Red when a translation may lead beyond the buffer (sgl-project/sglang#26471)."""
    (one,) = rows("c128_state", -400, deployment(128))
    assert one.message == (
        "state-rows: rank 0 of 1: c128_state rows = 8176, expected 8320 (addressable) — ×0.983"
    )
    assert one.bytes is not None
    assert one.bytes > 0


def test_the_largest_comes_first() -> None:
    """Red when a small buffer is shown where a large one is off as much."""
    given = evidence(plan(deployment(4, 128)))
    given = bend_views(given, 0, lambda view: more_rows(view, "c4_state", 100))
    given = bend_views(given, 0, lambda view: more_rows(view, "c128_state", 9000))
    assert [one.component for one in found(given)] == ["c128_state", "c4_state"]


def test_a_state_that_is_not_told_is_left_out() -> None:
    given = untold(evidence(plan(deployment(4, 128))), 0, "c4_state")
    given = bend_views(given, 0, lambda view: more_rows(view, "c4_state", 100))
    assert not found(given)


def test_it_does_not_apply_where_no_state_is_told() -> None:
    """Red when a deployment passes of which no row can be told (online c128 in 0.5.12)."""
    given = untold(evidence(plan(deployment(4, 128))), 0, "c4_state", "c128_state")
    with pytest.raises(NotApplicable, match="no function that translates to a row of its states"):
        found(given)


def test_not_applicable_without_states() -> None:
    with pytest.raises(NotApplicable, match="no layer of the model keeps a compress state"):
        found(evidence(plan(deployment(0, 0))))


def test_not_judged_where_buffers_are_not_alike() -> None:
    given = evidence(plan(deployment(4, 4)))
    with pytest.raises(NotJudged, match=r"c4_state has 57 rows .* they are not alike"):
        found(bend_views(given, 0, lambda view: with_component(view, "c4_state", rows=57)))


def test_not_judged_without_a_final_view() -> None:
    given = evidence(plan(deployment(4)))
    with pytest.raises(NotJudged, match="rank 0 has no view of what a server finally allocates"):
        found(bend_rank(given, 0, lambda it: dataclasses.replace(it, final=None)))
