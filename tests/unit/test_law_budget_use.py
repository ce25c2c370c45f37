"""budget-use: no page of tokens more would fit into what is left."""

import dataclasses

import pytest

from contracts.contract import Evidence, NotApplicable, NotJudged
from contracts.deployment import Deployment, Speculation
from contracts.law import budget_fit, marginal_bytes
from contracts.law.budget_use import judge, plan
from contracts.observation import View

from .observations import bend_configurator, bend_rank, bend_views, deployment
from .pools import bend_own, evidence, more_rows, without_geometry

SPECULATION = Speculation(algorithm="EAGLE")
#: One layer of 2 bytes a token: a page of tokens takes 512 bytes, and so does the reserved page.
PLAIN = deployment(0, swa_full_tokens_ratio=1)


def fewer(given: Evidence, pages: int, *, rank: int = 0) -> Evidence:
    """The own capacity has so many pages less than the budget allows."""

    def change(view: View) -> View:
        size = (view.pool.components["swa_kv"].size or 0) - 256 * pages
        shorter = more_rows(view, "swa_kv", -pages)
        part = dataclasses.replace(shorter.pool.components["swa_kv"], size=size)
        components = {**shorter.pool.components, "swa_kv": part}
        pool = dataclasses.replace(shorter.pool, components=components)
        return dataclasses.replace(shorter, tokens=view.tokens - 256 * pages, pool=pool)

    return bend_own(given, rank, change)


@pytest.mark.parametrize(
    "asked",
    [
        PLAIN,
        deployment(0, 4, 128, 4, pp_size=2, swa_full_tokens_ratio=0.25),
        deployment(0, 4, 128),
        deployment(0, 4, speculation=SPECULATION, swa_full_tokens_ratio=1),
        deployment(0, 4, max_total_tokens=1 << 40),
    ],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    """Red when what whole pages leave over counts as lost."""
    assert not list(judge(evidence(plan(asked))))


def test_the_plan_shares_its_requests() -> None:
    assert plan(PLAIN) == (*budget_fit.plan(PLAIN), *marginal_bytes.plan(PLAIN))


def test_capacity_is_lost() -> None:
    """Red when a budget need not be used (sgl-project/sglang#25750)."""
    (found,) = judge(fewer(evidence(plan(PLAIN)), 1 << 20))
    assert found.message == (
        "budget-use: rank 0 of 1: bytes of the budget = 1073741824, expected 536871424 "
        "(allocated at 268435456 tokens); 536870400 bytes are left, room for 268435200 tokens; "
        "a page of tokens takes 512; reserved page ±512 — ×2.00"
    )
    assert found.factor == 1073741824 / 536871424
    assert (found.component, found.bytes) == (None, 536870400)


@pytest.mark.parametrize(("pages", "violations"), [(1, 0), (2, 0), (3, 0), (4, 1)])
def test_a_page_and_the_guard_terms_may_be_left_and_no_more(pages: int, violations: int) -> None:
    """Red when the slack is a percentage of the budget."""
    # The reserved page lies in the budget: at 3 pages less, a page and a guard are left.
    assert len(list(judge(fewer(evidence(plan(PLAIN)), pages)))) == violations


def test_a_page_is_priced_by_what_it_takes() -> None:
    """Red when a configurator that charges too much is measured by its own charge."""
    bent = bend_configurator(fewer(evidence(plan(PLAIN)), 4), 0, bytes_per_full_token=99.0, at=1)
    assert list(judge(bent))


def test_a_draft_uses_the_budget_too() -> None:
    """Red when what a draft's pool takes counts as left."""
    asked = deployment(0, speculation=SPECULATION, swa_full_tokens_ratio=1)
    given = evidence(plan(asked))
    assert not list(judge(given))
    without = bend_own(given, 0, lambda view: dataclasses.replace(view, draft=None))
    assert [round(found.factor or 0, 2) for found in judge(without)] == [2.0]


def test_an_exceeded_budget_is_not_judged_here() -> None:
    given = evidence(plan(PLAIN))
    assert not list(judge(bend_own(given, 0, lambda view: more_rows(view, "swa_kv", 99))))


def test_a_rank_that_the_user_limits_is_not_judged() -> None:
    """Red when the tokens that the user forgoes count as lost."""
    asked = deployment(0, swa_full_tokens_ratio=1, max_total_tokens=4200)
    with pytest.raises(NotApplicable, match="max_total_tokens limits the capacity"):
        list(judge(evidence(plan(asked))))


def test_another_rank_is_judged_although_one_is_limited() -> None:
    """Red when one limited rank hides the loss of another."""
    asked = deployment(0, 0, pp_size=2, swa_full_tokens_ratio=1, max_total_tokens=4200)
    assert [found.rank for found in judge(fewer(evidence(plan(asked)), 1, rank=1))] == [1]


def test_the_worst_rank_comes_first() -> None:
    given = evidence(plan(deployment(0, 0, pp_size=2, swa_full_tokens_ratio=1)))
    bent = fewer(fewer(given, 9, rank=0), 99, rank=1)
    assert [found.rank for found in judge(bent)] == [1, 0]


def test_pools_that_do_not_grow_have_no_room_to_speak_of() -> None:
    """Red when a pool without growth is divided by."""
    given = fewer(evidence(plan(PLAIN)), 9)
    first = given.observations[1].ranks[0].at[0].pool
    flat = bend_views(given, 0, lambda view: dataclasses.replace(view, pool=first), at=1)
    (found,) = judge(flat)
    assert "bytes are left, for no token at all; a page of tokens takes 0;" in found.message


def test_not_judged_without_the_own_view() -> None:
    given = bend_rank(evidence(plan(PLAIN)), 0, lambda it: dataclasses.replace(it, own=None))
    with pytest.raises(NotJudged, match="rank 0 has no view of its own capacity"):
        list(judge(given))


def test_not_judged_when_the_growth_is_uneven() -> None:
    given = fewer(evidence(plan(PLAIN)), 9)

    def change(view: View) -> View:
        return more_rows(view, "swa_kv", view.tokens // 16_896)

    with pytest.raises(NotJudged, match="the pool is not affine between aligned sizes"):
        list(judge(bend_views(given, 0, change, at=1)))


def test_not_judged_when_the_requests_differ() -> None:
    given = fewer(evidence(plan(PLAIN)), 9)

    def change(view: View) -> View:
        return dataclasses.replace(view, max_running_requests=view.tokens // 512)

    with pytest.raises(NotJudged, match="serve different max_running_requests: "):
        list(judge(bend_views(given, 0, change, at=1)))


def test_not_judged_when_an_untold_geometry_might_explain_it() -> None:
    """Red when a guard that cannot be told is taken for none."""
    asked = deployment(4, swa_full_tokens_ratio=1)
    bent = bend_own(
        fewer(evidence(plan(asked)), 9), 0, lambda view: without_geometry(view, "c4_kv")
    )
    with pytest.raises(NotJudged, match="does not tell what size c4_kv"):
        list(judge(bent))
