"""budget-fit: what a rank's own capacity takes fits into its budget."""

import dataclasses

import pytest

from contracts.contract import Evidence, NotJudged
from contracts.deployment import Deployment, Speculation
from contracts.law.budget_fit import judge, plan
from contracts.observation import View

from .observations import bend_rank, deployment
from .pools import bend_own, evidence, more_rows, paged, with_part, without_geometry

SPECULATION = Speculation(algorithm="EAGLE")
BUDGET = 1 << 30


def filled(given: Evidence, over: int, *, rank: int = 0) -> Evidence:
    """A component without a guard of its own makes the pools exceed the budget by so much."""

    def change(view: View) -> View:
        size = BUDGET + over - view.bytes
        exact = dataclasses.replace(paged("total", 1, size, 1, 1), rows=size, bytes=size)
        return with_part(view, "rest_kv", exact)

    return bend_own(given, rank, change)


@pytest.mark.parametrize(
    "asked",
    [
        deployment(4),
        deployment(0, 4, 128, 4, pp_size=2, swa_full_tokens_ratio=0.25),
        deployment(0, 4, speculation=SPECULATION, swa_full_tokens_ratio=1),
        deployment(0, 4, max_total_tokens=4096),
    ],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    assert not list(judge(evidence(plan(asked))))


def test_only_the_own_capacity_is_asked_for() -> None:
    (request,) = plan(deployment(4))
    assert request.views == {"own"}
    assert not request.tokens


def test_over_budget() -> None:
    """Red when padding that nobody charges goes unnoticed (sgl-project/sglang until 0.5.20)."""
    given = evidence(plan(deployment(0, swa_full_tokens_ratio=1)))
    (found,) = judge(bend_own(given, 0, lambda view: more_rows(view, "swa_kv", 21)))
    assert found.message == (
        "budget-fit: rank 0 of 1: bytes allocated = 1073753088, expected 1073741824 (budget); "
        "11264 bytes over at 536870912 tokens; reserved page ±512; swa_kv 1073753088 — ×1.000010"
    )
    assert found.component == "swa_kv"
    assert found.factor == 1073753088 / 1073741824
    assert found.bytes == 11264


@pytest.mark.parametrize(("over", "violations"), [(0, 0), (512, 0), (513, 1)])
def test_the_guard_terms_are_allowed_for_and_no_more(over: int, violations: int) -> None:
    """Red when the slack is a percentage of the budget."""
    given = evidence(plan(deployment(0, swa_full_tokens_ratio=1)))
    assert len(list(judge(filled(given, over)))) == violations


def test_the_draft_is_part_of_it() -> None:
    """Red when only the target's pool is compared with the budget."""
    given = evidence(plan(deployment(0, speculation=SPECULATION, swa_full_tokens_ratio=1)))

    def change(view: View) -> View:
        assert view.draft is not None
        twice = dataclasses.replace(
            view.draft.components["swa_kv"], bytes=3 * view.draft.components["swa_kv"].bytes
        )
        draft = dataclasses.replace(view.draft, components={"swa_kv": twice})
        return dataclasses.replace(view, draft=draft)

    (found,) = judge(bend_own(given, 0, change))
    assert found.component == "draft"
    assert "; draft 1610614272; swa_kv 536871424 — ×2.00" in found.message


def test_only_the_largest_components_are_named() -> None:
    given = evidence(plan(deployment(0, 4, 128, swa_full_tokens_ratio=1)))
    (found,) = judge(filled(given, 1 << 29))
    assert found.component == "swa_kv"
    assert "; swa_kv " in found.message
    assert "c128_state" not in found.message


def test_the_worst_rank_comes_first() -> None:
    given = evidence(plan(deployment(0, 0, pp_size=2, swa_full_tokens_ratio=1)))
    bent = filled(filled(given, 10_000, rank=0), 20_000, rank=1)
    assert [found.rank for found in judge(bent)] == [1, 0]


def test_not_judged_without_the_own_view() -> None:
    given = bend_rank(
        evidence(plan(deployment(4))), 0, lambda it: dataclasses.replace(it, own=None)
    )
    with pytest.raises(NotJudged, match="rank 0 has no view of its own capacity"):
        list(judge(given))


def test_not_judged_when_an_untold_geometry_might_explain_it() -> None:
    """Red when a guard that cannot be told is taken for none."""
    given = filled(evidence(plan(deployment(0, swa_full_tokens_ratio=1))), 1)
    bent = bend_own(given, 0, lambda view: without_geometry(view, "swa_kv"))
    with pytest.raises(NotJudged, match="does not tell what size swa_kv"):
        list(judge(bent))
