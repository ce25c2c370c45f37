"""reported-bytes: a pool says how large it is."""

import dataclasses

import pytest

from contracts.contract import Evidence, NotJudged
from contracts.deployment import Deployment, Speculation
from contracts.law.reported_bytes import judge, plan
from contracts.observation import View

from .observations import bend_rank, bend_views, deployment
from .pools import evidence

SPECULATION = Speculation(algorithm="EAGLE")


def reporting(given: Evidence, reported: int | None, *, rank: int = 0) -> Evidence:
    def change(view: View) -> View:
        return dataclasses.replace(view, pool=dataclasses.replace(view.pool, reported=reported))

    return bend_views(given, rank, change)


@pytest.mark.parametrize(
    "asked",
    [deployment(4), deployment(0, 4, pp_size=2), deployment(0, speculation=SPECULATION)],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    assert not list(judge(evidence(plan(asked))))


def test_a_size_that_is_never_set() -> None:
    """Red when a pool that reports 0 counts as one that reports nothing."""
    (found,) = judge(reporting(evidence(plan(deployment(0, swa_full_tokens_ratio=1))), 0))
    assert found.message == (
        "reported-bytes: rank 0 of 1: bytes reported by the target's pool = 0, "
        "expected 8704 (allocated); gib_rounding ±9.1e-13 — ×0.00"
    )
    assert (found.factor, found.component, found.bytes) == (0.0, None, 8704)


@pytest.mark.parametrize("off", [-1, 1])
def test_a_byte_is_a_violation(off: int) -> None:
    """Red when the slack is a percentage, or a whole unit in GiB's last decimals."""
    given = evidence(plan(deployment(4)))
    size = given.observation.ranks[0].final
    assert size is not None
    assert len(list(judge(reporting(given, size.pool.bytes + off)))) == 1


def test_a_pool_so_large_that_gib_round_it() -> None:
    """Red when float64's own rounding is taken for a violation."""
    given = evidence(plan(deployment(4)))
    huge = (1 << 54) + 1

    def change(view: View) -> View:
        (name, part), *_others = view.pool.components.items()
        components = {name: dataclasses.replace(part, bytes=huge)}
        return dataclasses.replace(
            view, pool=dataclasses.replace(view.pool, components=components, reported=huge - 1)
        )

    assert not list(judge(bend_views(given, 0, change)))


def test_the_draft_reports_too() -> None:
    """Red when only the target's pool is looked at."""
    given = evidence(plan(deployment(0, speculation=SPECULATION)))

    def change(view: View) -> View:
        assert view.draft is not None
        return dataclasses.replace(view, draft=dataclasses.replace(view.draft, reported=1))

    (found,) = judge(bend_views(given, 0, change))
    assert (found.component, found.observed) == ("draft", 1)
    assert "bytes reported by the draft's pool = 1, expected 1024" in found.message


def test_not_judged_when_a_pool_reports_nothing() -> None:
    given = reporting(evidence(plan(deployment(4))), None)
    with pytest.raises(NotJudged, match="rank 0: the target's pool reports no size"):
        list(judge(given))


def test_a_violation_is_reported_although_another_rank_reports_nothing() -> None:
    given = evidence(plan(deployment(0, 4, pp_size=2)))
    found = list(judge(reporting(reporting(given, None, rank=0), 0, rank=1)))
    assert [one.rank for one in found] == [1]


def test_not_judged_without_the_final_view() -> None:
    given = bend_rank(
        evidence(plan(deployment(4))), 0, lambda it: dataclasses.replace(it, final=None)
    )
    with pytest.raises(NotJudged, match="rank 0 has no view of what a server finally allocates"):
        list(judge(given))
