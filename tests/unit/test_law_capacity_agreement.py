"""capacity-agreement: all ranks serve the least capacity, and what it takes stays as it was."""

import dataclasses
from typing import Any

import pytest

from contracts.contract import Evidence, NotJudged, Violation
from contracts.deployment import Deployment, Speculation
from contracts.law.capacity_agreement import judge, plan
from contracts.observation import Rank, View

from .locations import bend_both, evidence
from .observations import FINAL_TOKENS, bend, bend_rank, bend_views, deployment, with_component
from .pools import bend_own, more_rows

SPECULATION = Speculation(algorithm="EAGLE")


def found(given: Evidence) -> list[Violation]:
    return list(judge(given))


def messages(given: Evidence) -> list[str]:
    return [one.message for one in found(given)]


def with_tokens(view: View, tokens: int) -> View:
    return dataclasses.replace(view, tokens=tokens)


def budgeted(given: Evidence, budget: int) -> Evidence:
    asked = given.observation.deployment.with_budget(budget)
    return bend(given, 0, lambda it: dataclasses.replace(it, deployment=asked))


@pytest.mark.parametrize(
    "asked",
    [
        deployment(0),
        deployment(0, 4, 128, 4, pp_size=4),
        deployment(4, 128, speculation=SPECULATION),
    ],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    assert not found(evidence(plan(asked)))


def test_a_roomier_rank_gives_way() -> None:
    """Red when a rank whose own capacity is larger must keep the sizes of it."""

    def roomier(view: View) -> View:
        return more_rows(with_tokens(view, 2 * FINAL_TOKENS), "swa_kv", 40)

    given = evidence(plan(deployment(0, 4, pp_size=2)))
    assert not found(bend_own(given, 1, roomier))


def test_both_views_are_asked_for() -> None:
    (request,) = plan(deployment(4))
    assert request.views == {"final", "own"}
    assert not request.tokens


def test_not_the_minimum() -> None:
    """Red when the ranks may agree on another count than the tightest rank's."""
    given = evidence(plan(deployment(0, 0, 0, pp_size=3)))
    given = bend_own(given, 1, lambda view: with_tokens(view, 3840))
    assert messages(given) == [
        "capacity-agreement: all 3 ranks: agreed tokens = 4096, "
        "expected 3840 (the least capacity, rank 1's) — ×1.067"
    ]


def test_a_rank_that_does_not_agree() -> None:
    given = evidence(plan(deployment(0, 0, pp_size=2)))
    given = bend_views(given, 1, lambda view: with_tokens(view, 8192))
    assert messages(given) == [
        "capacity-agreement: rank 1 of 2: tokens = 8192, expected 4096 (agreed) — ×2.00"
    ]


@pytest.mark.parametrize("name", ["full", "swa", "c4_state"])
def test_sizes_are_alike(name: str) -> None:
    """Red when a rank may have fewer SWA tokens than the one that admits requests."""
    given = evidence(plan(deployment(4, 4, pp_size=2)))

    def change(view: View) -> View:
        return dataclasses.replace(view, sizes={**view.sizes, name: 2})

    (one,) = found(bend_both(given, 1, change))
    assert (one.rank, one.observed, one.component) == (1, 2, None)
    assert f"rank 1 of 2: {name} size = 2, expected " in one.message
    assert "(as on rank 0)" in one.message


def test_sizes_that_follow_a_rank_s_layers_may_differ() -> None:
    """Red when a stage without c4 layers must have c4 states."""
    given = evidence(plan(deployment(0, 4, pp_size=2)))

    def change(view: View) -> View:
        return dataclasses.replace(view, sizes={**view.sizes, "c4_state": 0})

    assert not found(bend_both(given, 0, change))


def test_requests_differ() -> None:
    given = evidence(plan(deployment(0, 4, pp_size=2)))

    def change(view: View) -> View:
        return dataclasses.replace(view, max_running_requests=8)

    assert messages(bend_both(given, 1, change)) == [
        "capacity-agreement: rank 1 of 2: max_running_requests = 8, "
        "expected 64 (as on rank 0) — ×0.12"
    ]


def test_deriving_from_tokens_gives_other_buffers() -> None:
    """Red when a rank that gives way may build other buffers for a layer than the tightest."""
    given = evidence(plan(deployment(0, 0, 0, pp_size=2)))
    given = bend_own(given, 0, lambda view: with_tokens(view, 2 * FINAL_TOKENS))
    (one,) = found(bend_views(given, 0, lambda view: more_rows(view, "swa_kv", 3)))
    assert (one.rank, one.component) == (0, "swa_kv")
    assert one.message == (
        "capacity-agreement: rank 0 of 2: swa_kv bytes in a buffer = 3072, "
        "expected 1536 (as on rank 1) — ×2.00"
    )


def roomier_but_larger(own_bytes: int, final_bytes: int) -> Evidence:
    """Rank 1 gives way to rank 0 and takes so many bytes of 1 GiB before and after."""
    given = evidence(plan(deployment(0, 0, pp_size=2)))

    def filled(view: View, size: int) -> View:
        return with_component(view, "rest", buffers=1, rows=1, bytes=size - view.bytes)

    def change(it: Rank) -> Rank:
        assert it.final is not None
        assert it.own is not None
        own = with_tokens(filled(it.own, own_bytes), 2 * FINAL_TOKENS)
        return dataclasses.replace(it, own=own, final=filled(it.final, final_bytes))

    return bend_rank(given, 1, change)


BUDGET = 1 << 30


@pytest.mark.parametrize(
    ("own", "final"),
    [(BUDGET - 9, BUDGET - 9), (BUDGET - 9, BUDGET), (BUDGET + 9, BUDGET + 9)],
)
def test_within_the_budget_or_as_far_over_it_as_before(own: int, final: int) -> None:
    """Red when what budget-fit judges is judged again, for other tokens."""
    assert not found(roomier_but_larger(own, final))


def test_over_the_budget_at_the_agreed_tokens() -> None:
    """Red when fewer tokens may need more than the budget."""
    assert messages(roomier_but_larger(BUDGET - 9, 2 * BUDGET)) == [
        "capacity-agreement: rank 1 of 2: bytes allocated at the agreed tokens = 2147483648, "
        "expected 1073741824 (at most: budget) — ×2.00"
    ]


def test_farther_over_the_budget_than_before() -> None:
    (one,) = found(roomier_but_larger(BUDGET + 9, BUDGET + 10))
    assert one.expected == BUDGET + 9
    assert "(at most: its own capacity)" in one.message


def test_deriving_again_changes_a_buffer() -> None:
    """Red when sizing from tokens may give other buffers than sizing from the budget."""
    given = evidence(plan(deployment(0, 4)))
    (one,) = found(bend_views(given, 0, lambda view: more_rows(view, "c4_kv", 17)))
    assert one.component == "c4_kv"
    assert one.message == (
        "capacity-agreement: rank 0 of 1: c4_kv bytes = 8704, expected 4352 "
        "(its own capacity, of as many tokens) — ×2.00"
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rows": 99}, "c4_kv rows = 99, expected 17"),
        ({"buffers": 2}, "c4_kv buffers = 2, expected 1"),
        ({"size": 1}, "c4_kv size = 1, expected 1024"),
        ({"last_row": None}, "c4_kv last_row = absent, expected 16"),
    ],
)
def test_deriving_again_changes_a_number(fields: dict[str, Any], said: str) -> None:
    given = evidence(plan(deployment(4)))
    given = bend_views(given, 0, lambda view: with_component(view, "c4_kv", **fields))
    assert [said in message for message in messages(given)] == [True]


def test_deriving_again_changes_a_size() -> None:
    given = evidence(plan(deployment(4)))

    def change(view: View) -> View:
        return dataclasses.replace(view, sizes={**view.sizes, "c4_state": 8})

    (one,) = found(bend_views(given, 0, change))
    assert one.component is None
    assert one.message == (
        "capacity-agreement: rank 0 of 1: c4_state size = 8, expected 16 "
        "(its own capacity, of as many tokens) — ×0.50"
    )


def test_deriving_again_changes_the_draft() -> None:
    """Red when only the target's buffers are compared."""
    given = evidence(plan(deployment(4, speculation=SPECULATION)))

    def change(view: View) -> View:
        assert view.draft is not None
        return dataclasses.replace(view, draft=dataclasses.replace(view.draft, components={}))

    names = {one.component for one in found(bend_views(given, 0, change))}
    assert {"draft.swa_kv", "draft.c4_kv"} <= names


def without(view: str, rank: int = 0) -> Evidence:
    given = evidence(plan(deployment(0, 0, pp_size=2)))
    fields: dict[str, Any] = {view: None}
    return bend_rank(given, rank, lambda it: dataclasses.replace(it, **fields))


def test_not_judged_without_an_agreed_count() -> None:
    given = evidence(plan(deployment(0)))
    given = bend(given, 0, lambda it: dataclasses.replace(it, final_tokens=None))
    with pytest.raises(NotJudged, match="does not tell how many tokens the ranks agree on"):
        found(given)


def test_not_judged_without_a_view() -> None:
    with pytest.raises(NotJudged, match="rank 1 has no view of what a server finally allocates"):
        found(without("final", 1))
    with pytest.raises(NotJudged, match="rank 1 has no view of its own capacity"):
        found(without("own", 1))
