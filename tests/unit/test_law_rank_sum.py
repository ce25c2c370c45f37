"""rank-sum: splitting a model over ranks neither makes nor loses layers."""

import dataclasses
import math

import pytest

from contracts.contract import Evidence, NotJudged
from contracts.deployment import Deployment, Speculation
from contracts.law._aligned import token_counts
from contracts.law.rank_sum import judge, plan
from contracts.observation import View

from .observations import (
    bend_configurator,
    bend_rank,
    bend_views,
    deployment,
    evidence,
    ignoring_stages,
    with_component,
    without_component,
)

SPECULATION = Speculation(algorithm="EAGLE")


def messages(given: Evidence) -> list[str]:
    return [found.message for found in judge(given)]


@pytest.mark.parametrize(
    "asked",
    [
        deployment(4),
        deployment(4, speculation=SPECULATION),
        deployment(0, 4, 128, 4, pp_size=3),
        deployment(*(0, 4, 128) * 20, pp_size=4, speculation=SPECULATION),
    ],
    ids=lambda asked: f"pp{asked.pp_size}-{len(asked.model.compress_ratios)}",
)
def test_held(asked: Deployment) -> None:
    """Red when the draft's reserve, known only as a ratio of floats, is not within its slack."""
    assert not messages(evidence(plan(asked)))


def test_both_observations_are_at_one_token_count() -> None:
    asked = deployment(4, 4, pp_size=2)
    split, single = plan(asked)
    assert split.tokens == single.tokens == token_counts(asked)[:1]
    assert (split.deployment, single.deployment) == (asked, asked.single_rank())


def test_the_seed_bug() -> None:
    """Red when the ranks together may be charged more than one (sgl-project/sglang#25750)."""
    given = ignoring_stages(evidence(plan(deployment(4, 4, pp_size=2))))
    found = list(judge(given))
    assert [one.message for one in found] == [
        "rank-sum: all 2 ranks: bytes charged per full token, summed = 27, "
        "expected 13.5 (pp_size 1); float_rounding ±8.5e-14 — ×2.00",
        "rank-sum: all 2 ranks: total layers charged, summed = 4, expected 2 (pp_size 1) — ×2.00",
        "rank-sum: all 2 ranks: c4 layers charged, summed = 4, expected 2 (pp_size 1) — ×2.00",
    ]
    assert {one.rank for one in found} == {None}


@pytest.mark.parametrize(("ulps", "violations"), [(0, 0), (16 * 3, 0), (16 * 3 + 8, 1)])
def test_the_slack_grows_with_the_terms_and_no_more(ulps: int, violations: int) -> None:
    """Red when the slack is a percentage, or one charge's rounding must do for three."""
    # 13.5 and the two 6.75 that make it: 16 ulp of 13.5, twice 16 ulp of 6.75 (half as large).
    charge = 6.75 + ulps * math.ulp(6.75) * 4 / 3
    given = evidence(plan(deployment(4, 4, pp_size=2)))
    given = bend_configurator(given, 1, target_bytes_per_full_token=charge)
    assert len(messages(given)) == violations


def test_a_rank_allocates_a_layer_twice() -> None:
    """Red when only charges are summed."""
    given = bend_views(
        evidence(plan(deployment(4, 4, pp_size=2))),
        1,
        lambda view: with_component(view, "c4_kv", buffers=2),
    )
    (found,) = judge(given)
    assert found.component == "c4_kv"
    assert found.message == (
        "rank-sum: all 2 ranks: c4_kv buffers allocated, summed = 3, expected 2 (pp_size 1) — ×1.50"
    )


def test_bytes_that_do_not_sum() -> None:
    """Red when buffers are counted and their sizes are not."""
    given = bend_views(
        evidence(plan(deployment(4, 4, pp_size=2))),
        0,
        lambda view: with_component(view, "c4_kv", bytes=view.pool.components["c4_kv"].bytes + 1),
    )
    (found,) = judge(given)
    assert "c4_kv bytes allocated, summed" in found.message
    assert found.observed == found.expected + 1


def test_a_component_that_only_one_side_has() -> None:
    """Red when only the components of the split side are summed."""
    given = evidence(plan(deployment(4, 4, pp_size=2)))
    for rank in (0, 1):
        given = bend_views(given, rank, lambda view: without_component(view, "c4_kv"))
    assert {(found.component, found.factor) for found in judge(given)} == {("c4_kv", 0.0)}


def test_what_is_not_layer_wise_need_not_sum() -> None:
    given = evidence(plan(deployment(4, 4, pp_size=2)))

    def change(view: View) -> View:
        return with_component(view, "table", buffers=1, rows=1, bytes=8)

    given = bend_views(bend_views(given, 0, change), 1, change)
    assert not messages(bend_views(given, 0, change, at=1))


def test_a_draft_is_charged_on_a_rank_without_one() -> None:
    """Red when every rank may pay for the draft of one (bytedance-iaas/sglang#730)."""
    given = evidence(plan(deployment(4, 4, pp_size=2, speculation=SPECULATION)))
    (found,) = judge(bend_configurator(given, 0, draft_layers=1.0))
    assert (found.component, found.rank, found.factor) == ("draft", None, 2.0)
    assert found.message == (
        "rank-sum: all 2 ranks: drafts charged = 2, expected 1 (draft pools) — ×2.00"
    )


def test_a_draft_pool_that_nobody_charges() -> None:
    given = evidence(plan(deployment(4, speculation=SPECULATION)))
    given = bend_configurator(bend_configurator(given, 0, draft_layers=0.0), 0, at=1)
    assert [found.factor for found in judge(given)] == [0.0]
    assert messages(given)[0].startswith("rank-sum: the only rank: drafts charged = 0, ")


def test_the_single_rank_is_judged_too() -> None:
    """Red when only the split deployment's drafts are counted."""
    given = evidence(plan(deployment(4, 4, pp_size=2, speculation=SPECULATION)))
    assert messages(bend_configurator(given, 0, at=1, draft_layers=0.0))[0].startswith(
        "rank-sum: the only rank: drafts charged = 0, expected 1 (draft pools)"
    )


def other_requests(given: Evidence) -> Evidence:
    return bend_views(
        given, 0, lambda view: dataclasses.replace(view, max_running_requests=7), at=1
    )


def test_not_judged_when_the_requests_differ() -> None:
    """Red when pools for different numbers of requests are summed."""
    with pytest.raises(NotJudged, match="different max_running_requests: 64, 7"):
        messages(other_requests(evidence(plan(deployment(4, 4, pp_size=2)))))


def test_charges_are_judged_although_the_requests_differ() -> None:
    """Red when an incomparable pool hides a violation that needs no pool."""
    given = other_requests(ignoring_stages(evidence(plan(deployment(4, 4, pp_size=2)))))
    assert len(messages(given)) == 3


def test_not_judged_without_the_single_rank() -> None:
    given = evidence(plan(deployment(4, 4, pp_size=2)))
    with pytest.raises(NotJudged, match="2 observations were planned, 1 came back"):
        messages(Evidence(observations=given.observations[:1]))


def test_not_judged_without_a_view() -> None:
    given = evidence(plan(deployment(4, 4, pp_size=2)))
    with pytest.raises(NotJudged, match="rank 1 has no view at"):
        messages(bend_rank(given, 1, lambda it: dataclasses.replace(it, at=())))


def test_a_kind_that_only_one_side_counts() -> None:
    """Red when only the kinds that both sides charge are summed."""
    given = evidence(plan(deployment(4, 4, pp_size=2)))
    layers = {"total": 1, "c4": 1, "c128": 0}
    given = bend_configurator(given, 0, layers={**layers, "c2": 1})
    given = bend_configurator(given, 0, at=1, layers={"total": 2, "c4": 2, "c128": 0, "c1": 3})
    assert [(found.observed, found.expected) for found in judge(given)] == [(0, 3), (1, 0)]


@pytest.mark.parametrize("layers", [0.57, 2.0, 3.0])
def test_a_draft_may_be_charged_by_any_measure(layers: float) -> None:
    """Red when an exact reserve, which no average layer is, counts as a draft too few or many."""
    given = evidence(plan(deployment(4, 4, pp_size=2, speculation=SPECULATION)))
    assert not messages(bend_configurator(given, 1, draft_layers=layers))


@pytest.mark.parametrize(("ulps", "violations"), [(16, 0), (17, 1)])
def test_the_draft_s_slack_is_rounding_and_no_more(ulps: int, violations: int) -> None:
    """Red when rounding counts as a draft, or a rank may charge somewhat for none."""
    given = evidence(plan(deployment(4, 4, 4)))
    # Three layers: the product that was rounded is about 3 in size, with the draft's share.
    given = bend_configurator(given, 0, draft_layers=ulps * math.ulp(3.0))
    assert len(messages(given)) == violations
