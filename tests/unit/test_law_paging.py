"""paging: whole pages, equal page counts, and ends that every location lies inside of."""

import dataclasses
from typing import Any

import pytest

from contracts.contract import Evidence, NotJudged, Violation
from contracts.deployment import Deployment, Speculation
from contracts.law.paging import judge, plan
from contracts.observation import View

from .locations import evidence
from .observations import (
    bend_rank,
    bend_views,
    deployment,
    with_component,
)
from .pools import more_rows, without_geometry

SPECULATION = Speculation(algorithm="EAGLE")


def found(given: Evidence) -> list[Violation]:
    return list(judge(given))


def sized(view: View, **sizes: int) -> View:
    return dataclasses.replace(view, sizes={**view.sizes, **sizes})


def bent(name: str, asked: Deployment | None = None, **fields: Any) -> list[Violation]:
    """What is found where a component of rank 0 has some numbers changed."""
    given = evidence(plan(asked or deployment(0, 4, 128, 4)))
    return found(bend_views(given, 0, lambda view: with_component(view, name, **fields)))


@pytest.mark.parametrize(
    "asked",
    [
        deployment(0),
        deployment(4),
        deployment(0, 4, 128, 4, pp_size=4),
        deployment(0, 4, 128, speculation=SPECULATION),
    ],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    """Red when the page that every allocator reserves is one too many."""
    assert not found(evidence(plan(asked)))


def test_only_the_final_view_is_asked_for() -> None:
    (request,) = plan(deployment(4))
    assert request.views == {"final"}
    assert not request.tokens


@pytest.mark.parametrize(("rows", "violations"), [(0, 0), (1, 0), (2, 1)])
def test_one_reserved_page_beyond_and_no_more(rows: int, violations: int) -> None:
    """Red when a page is allowed that nobody can name, or the one that may be is not."""
    given = evidence(plan(deployment(128, 128)))
    given = bend_views(given, 0, lambda view: more_rows(view, "c128_kv", rows))
    assert len(found(given)) == violations


def test_many_pages_beyond() -> None:
    """Red when it is not said how much memory no location can reach (0.5.21 to 0.5.23)."""
    given = evidence(plan(deployment(0, 128, 128, pp_size=2, partition=(1, 2))))
    (one,) = found(bend_views(given, 1, lambda view: more_rows(view, "c128_kv", 127)))
    assert (one.rank, one.component) == (1, "c128_kv")
    assert one.message == (
        "paging: rank 1 of 2: c128_kv rows = 144, expected 18 (at most: 17 up to the last legal "
        "location, 1 reserved page); 2016 bytes in 2 buffers lie beyond — ×8.00"
    )
    assert one.bytes == 2016


def test_a_page_short() -> None:
    """Red when a location may lie beyond its buffer."""
    given = evidence(plan(deployment(0, 128)))
    (one,) = found(bend_views(given, 0, lambda view: more_rows(view, "c128_kv", -1)))
    assert one.message == (
        "paging: rank 0 of 1: c128_kv rows = 16, expected 17 (up to the last legal location) "
        "— ×0.941"
    )


def test_the_draft_s_pool_has_ends_too() -> None:
    """Red when only the target's buffers are looked at."""
    given = evidence(plan(deployment(4, speculation=SPECULATION)))

    def change(view: View) -> View:
        assert view.draft is not None
        lent = dataclasses.replace(view, pool=view.draft)
        return dataclasses.replace(view, draft=more_rows(lent, "swa_kv", 5).pool)

    (one,) = found(bend_views(given, 0, change))
    assert (one.component, one.observed, one.expected) == ("draft.swa_kv", 8, 4)


def test_page_counts_of_one_table() -> None:
    """Red when an indexer may have other pages than the KV beside it (0.5.21)."""
    given = evidence(plan(deployment(4)))
    (one,) = found(bend_views(given, 0, lambda view: more_rows(view, "c4_kv", 1)))
    assert one.message == (
        "paging: rank 0 of 1: c4_indexer pages = 17, expected 18 (c4_kv) — ×0.944"
    )


def test_buffers_of_another_page_have_another_table() -> None:
    """Red when V4.1's indexers, of smaller pages than the KV, must have as many."""
    given = {"page": 32, "rows": 33, "bytes": 33 * 64, "last_row": 32}
    assert not bent("c4_indexer", deployment(4), **given)


@pytest.mark.parametrize(
    ("tokens", "violations"), [(4096, 0), (4096 + 128, 1), (4096 + 255, 1), (4096 + 256, 0)]
)
def test_full_tokens_come_in_pages(tokens: int, violations: int) -> None:
    given = bend_views(
        evidence(plan(deployment(0))),
        0,
        lambda view: dataclasses.replace(sized(view, full=tokens, c4=0, c128=0), tokens=tokens),
    )
    stray = [one for one in found(given) if "full tokens = " in one.message]
    assert len(stray) == violations


def test_swa_tokens_come_in_pages() -> None:
    given = bend_views(evidence(plan(deployment(0))), 0, lambda view: sized(view, swa=700))
    (one,) = found(given)
    assert one.message == (
        "paging: rank 0 of 1: swa tokens = 700, expected 512 (pages of 256) — ×1.37"
    )


def test_a_compressed_size_covers_the_full_tokens() -> None:
    """Red when a configured size is not compared with the tokens that it stands for."""
    given = bend_views(evidence(plan(deployment(0))), 0, lambda view: sized(view, c128=31))
    (one,) = found(given)
    assert one.message == (
        "paging: rank 0 of 1: c128 size × 128 = 3968, expected 4096 (full tokens) — ×0.969"
    )


def test_a_pool_s_size_covers_the_full_tokens() -> None:
    """Red when only configured sizes are compared, and not those that pools were built for."""
    (one,) = bent("c4_kv", size=1000)
    assert (one.component, one.observed, one.expected) == ("c4_kv", 4000, 4096)


def test_a_size_may_count_the_reserved_page() -> None:
    """Red when V4.1's indexers, whose size has the reserved page in it, do not pass."""
    assert not bent("c4_indexer", size=(4096 + 256) // 4)
    assert bent("c4_indexer", size=(4096 + 512) // 4)


def hisparse(c4: int) -> list[Violation]:
    given = evidence(plan(deployment(0, 4, 128, enable_hisparse=True)))

    def change(view: View) -> View:
        rows = {"size": c4, "rows": c4 // 64 + 1, "bytes": (c4 // 64 + 1) * 256, "last_row": None}
        return with_component(sized(view, c4=c4), "c4_kv", **rows)

    return found(bend_views(given, 0, change))


def test_hisparse_shrinks_c4() -> None:
    """Red when a pool that keeps a part on the host is taken for too short."""
    assert not hisparse(512)
    assert not hisparse(1024)


def test_hisparse_does_not_stretch_c4() -> None:
    assert {one.component for one in hisparse(2048)} == {None, "c4_kv"}


def test_without_hisparse_c4_may_not_shrink() -> None:
    given = bend_views(evidence(plan(deployment(0))), 0, lambda view: sized(view, c4=512))
    assert [one.factor for one in found(given)] == [0.5]


def test_a_location_that_is_not_told_is_left_out() -> None:
    assert not bent("c128_kv", rows=200, bytes=1600, last_row=None)


def test_not_judged_without_any_page() -> None:
    """Red when buffers of which nothing is known pass for paged."""
    given = evidence(plan(deployment(0)))
    with pytest.raises(NotJudged, match="does not tell the page of any buffer"):
        found(bend_views(given, 0, lambda view: without_geometry(view, "swa_kv")))


def test_not_judged_where_buffers_are_not_alike() -> None:
    with pytest.raises(NotJudged, match=r"c4_kv has 35 rows .* in 2 buffers: they are not alike"):
        bent("c4_kv", rows=35)


def test_not_judged_without_a_final_view() -> None:
    given = evidence(plan(deployment(0)))
    with pytest.raises(NotJudged, match="rank 0 has no view of what a server finally allocates"):
        found(bend_rank(given, 0, lambda it: dataclasses.replace(it, final=None)))


def test_a_violation_stands_although_another_rank_is_not_judged() -> None:
    given = evidence(plan(deployment(0, 128, pp_size=2)))
    given = bend_views(given, 0, lambda view: without_geometry(view, "swa_kv"))
    given = bend_views(given, 1, lambda view: more_rows(view, "c128_kv", -1))
    assert [one.rank for one in found(given)] == [1]
