"""marginal-bytes: the price of a token is what a token takes."""

import dataclasses
import math

import pytest

from contracts.contract import Evidence, NotJudged
from contracts.deployment import Deployment, Speculation
from contracts.law._aligned import token_counts
from contracts.law.marginal_bytes import judge, plan
from contracts.observation import View

from .observations import (
    bend_configurator,
    bend_rank,
    bend_views,
    deployment,
    evidence,
    ignoring_stages,
    with_component,
)

SPECULATION = Speculation(algorithm="EAGLE")


@pytest.mark.parametrize(
    "asked",
    [
        deployment(4),
        deployment(0, 4, 128, 4, pp_size=2),
        deployment(0, 4, 128, swa_full_tokens_ratio=0.29, page_size=128),
        deployment(0, 4, 128, pp_size=2, speculation=SPECULATION),
    ],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    """Red when constants of the pool, or the draft's reserve, get into the slope."""
    assert not list(judge(evidence(plan(asked))))


def test_the_plan_is_three_aligned_sizes() -> None:
    asked = deployment(4)
    (request,) = plan(asked)
    assert request.tokens == token_counts(asked)
    assert not request.views


def test_the_seed_bug() -> None:
    """Red when a rank may be charged for the layers of others (sgl-project/sglang#25750)."""
    found = list(judge(ignoring_stages(evidence(plan(deployment(4, 4, pp_size=2))))))
    assert [one.factor for one in found] == [2.0, 2.0]
    assert found[1].message == (
        "marginal-bytes: rank 1 of 2: bytes charged per full token = 13.5, "
        "expected 6.75 (allocated); c4_kv charged 10, allocated 5; "
        "swa_kv charged 3, allocated 1.5; "
        "c4_state charged 0.5, allocated 0.25; float_rounding ±2.8e-14 — ×2.00"
    )
    assert found[1].component == "c4_kv"


def padded(given: Evidence) -> Evidence:
    """Every c4_kv page of 64 tokens takes 8 bytes that nobody charges."""

    def change(view: View) -> View:
        more = view.pool.components["c4_kv"].bytes + view.tokens // 64 * 8
        return with_component(view, "c4_kv", bytes=more)

    return bend_views(given, 0, change)


def test_page_padding_that_is_not_charged() -> None:
    """Red when a disagreement below some percentage is let through."""
    (found,) = judge(padded(evidence(plan(deployment(*[4] * 20)))))
    assert found.message == (
        "marginal-bytes: rank 0 of 1: bytes charged per full token = 135, "
        "expected 135.125 (allocated); c4_kv charged 100, allocated 100.125; "
        "float_rounding ±4.5e-13 — ×0.99907"
    )
    assert (found.observed, found.expected) == (135, 135.125)


def test_without_the_charges_by_component_all_growth_is_shown() -> None:
    given = bend_configurator(padded(evidence(plan(deployment(4)))), 0, charges=None)
    (found,) = judge(given)
    assert found.component is None
    assert (
        "(allocated); c4_kv allocated 5.125; c4_state allocated 0.25; swa_kv allocated 1.5; "
        in (found.message)
    )


def test_a_component_that_is_charged_and_does_not_grow() -> None:
    """Red when charges for what the pool does not have are left out of the message."""
    given = evidence(plan(deployment(4)))
    charge = given.observation.ranks[0].configurator
    given = bend_configurator(
        given,
        0,
        target_bytes_per_full_token=charge.target_bytes_per_full_token + 1,
        charges={**(charge.charges or {}), "c2_kv": 1.0},
    )
    (found,) = judge(given)
    assert found.component == "c2_kv"
    assert "; c2_kv charged 1, allocated 0; " in found.message


@pytest.mark.parametrize(("ulps", "violations"), [(16, 0), (17, 1)])
def test_the_slack_is_float_rounding_and_no_more(ulps: int, violations: int) -> None:
    """Red when the slack is widened, or rounding is taken for a violation."""
    charge = 6.75 + ulps * math.ulp(6.75)
    given = bend_configurator(evidence(plan(deployment(4))), 0, target_bytes_per_full_token=charge)
    assert len(list(judge(given))) == violations


def test_the_draft_is_not_judged_here() -> None:
    """Red when the coefficient is compared with the draft's reserve in it."""
    given = evidence(plan(deployment(4, speculation=SPECULATION)))
    assert given.observation.ranks[0].configurator.bytes_per_full_token == 13.5
    assert not list(judge(bend_configurator(given, 0, bytes_per_full_token=99.0)))


def test_other_views_do_not_disturb() -> None:
    """Red when views are taken by their place, not by their tokens."""
    given = evidence(plan(deployment(4)))
    extra = dataclasses.replace(given.observation.ranks[0].at[0], tokens=1)
    given = bend_rank(given, 0, lambda it: dataclasses.replace(it, at=(extra, *it.at)))
    assert not list(judge(given))


def test_not_judged_when_the_growth_is_uneven() -> None:
    """Red when a quotient that depends on where it is taken is judged all the same."""
    asked = deployment(4)
    last = token_counts(asked)[2]

    def change(view: View) -> View:
        more = view.pool.components["c4_kv"].bytes + (view.tokens == last)
        return with_component(view, "c4_kv", bytes=more)

    with pytest.raises(NotJudged, match="c4_kv is not affine between aligned sizes: it grows by"):
        list(judge(bend_views(evidence(plan(asked)), 0, change)))


def test_not_judged_when_the_requests_differ() -> None:
    """Red when per-request state gets into the slope."""
    asked = deployment(4)

    def change(view: View) -> View:
        return dataclasses.replace(view, max_running_requests=view.tokens // 512)

    with pytest.raises(NotJudged, match="serve different max_running_requests: "):
        list(judge(bend_views(evidence(plan(asked)), 0, change)))


def test_not_judged_without_a_view() -> None:
    given = bend_rank(
        evidence(plan(deployment(4))), 0, lambda it: dataclasses.replace(it, at=it.at[:2])
    )
    last = token_counts(deployment(4))[2]
    with pytest.raises(NotJudged, match=f"rank 0 has no view at {last} tokens"):
        list(judge(given))


def test_not_judged_when_a_component_exists_at_one_size_only() -> None:
    """Red when a component that comes and goes is left out of the growth."""
    last = token_counts(deployment(4))[2]

    def change(view: View) -> View:
        if view.tokens != last:
            return view
        return with_component(view, "extra", buffers=1, rows=1, bytes=1)

    with pytest.raises(NotJudged, match=r"extra is not affine .* by 0 bytes .* by 1 to"):
        list(judge(bend_views(evidence(plan(deployment(4))), 0, change)))
