"""fixed-bytes: what is there at any size is what is charged at any size, and a guard."""

import dataclasses

import pytest

from contracts.contract import Evidence, NotApplicable, NotJudged
from contracts.deployment import Deployment, Speculation
from contracts.law import marginal_bytes
from contracts.law._aligned import token_counts
from contracts.law.fixed_bytes import judge, plan
from contracts.observation import View

from .observations import bend_configurator, bend_rank, bend_views, deployment
from .pools import evidence, more_rows, paged, with_part, without_geometry


def messages(given: Evidence) -> list[str]:
    return [found.message for found in judge(given)]


def changed_charge(given: Evidence, more: int) -> Evidence:
    def change(view: View) -> View:
        assert view.charge is not None
        return dataclasses.replace(view, charge=view.charge + more)

    return bend_views(given, 0, change, at=1)


@pytest.mark.parametrize(
    "asked",
    [
        deployment(4),
        deployment(0, swa_full_tokens_ratio=1),
        deployment(0, 4, 128, 4, pp_size=2, swa_full_tokens_ratio=0.25),
        deployment(0, 4, 128, swa_full_tokens_ratio=0.29),
        deployment(128, max_total_tokens=4096),
    ],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    """Red when the SWA tokens that whole pages cut off count as charged and missing."""
    assert not messages(evidence(plan(asked)))


def test_the_plan_shares_its_first_request_with_marginal_bytes() -> None:
    asked = deployment(4)
    grown, charged = plan(asked)
    assert [grown] == list(marginal_bytes.plan(asked))
    assert charged.tokens == token_counts(asked)[:1]
    assert charged.views == {"charge"}


def test_more_pages_are_reserved_than_one() -> None:
    """Red when a buffer may reserve what it likes (sgl-project/sglang since 0.5.21)."""
    given = evidence(plan(deployment(4, 4, swa_full_tokens_ratio=0.25)))
    (found,) = judge(bend_views(given, 0, lambda view: more_rows(view, "c4_kv", 3)))
    # Two layers: pages of 512 and 256 bytes, 12 rows of state of 32; 3 pages of 256 too many.
    assert found.message == (
        "fixed-bytes: rank 0 of 1: bytes allocated at any size = 3840, expected 2304 "
        "(0 charged, with guard terms); c4_kv has 4 rows a buffer beyond its size where 1 would "
        "do (1536 bytes too many); reserved page ±1536; ring, sentinel and alignment ±768; "
        "alignment ±384; whole bytes ±1; float_rounding ±1.2e-10 — ×1.67"
    )
    assert (found.component, found.observed, found.expected) == ("c4_kv", 3840, 2304)
    assert found.bytes == 1536


def test_state_that_nobody_charges() -> None:
    """Red when only the growth is charged, as for c128 states if 0.5.15 had not reserved them."""
    given = evidence(plan(deployment(128, swa_full_tokens_ratio=1)))
    size = given.observation.ranks[0].at[0].pool.components["c128_state"].bytes
    (found,) = judge(changed_charge(given, -size))
    assert found.component is None
    assert (found.observed, found.expected) == (512 + size, 512 + 256 * 16)


def test_more_is_charged_than_there_is() -> None:
    """Red when only what is charged too little is looked for."""
    given = evidence(plan(deployment(0, swa_full_tokens_ratio=1)))
    (found,) = judge(changed_charge(given, 1000))
    assert found.message == (
        "fixed-bytes: rank 0 of 1: bytes allocated at any size = 512, expected 1000 (charged); "
        "whole bytes ±1; float_rounding ±1.2e-10 — ×0.51"
    )


@pytest.mark.parametrize(("more", "violations"), [(0, 0), (512, 0), (513, 0), (514, 1)])
def test_the_slack_is_a_byte_and_float_rounding(more: int, violations: int) -> None:
    """Red when the slack is a percentage, or a least budget's fraction of a byte a violation."""
    given = evidence(plan(deployment(0, swa_full_tokens_ratio=1)))
    assert len(messages(changed_charge(given, more))) == violations


def test_what_is_charged_for_growth_is_not_judged_here() -> None:
    """Red when a coefficient that is too large makes what is fixed too small."""
    given = evidence(plan(deployment(0, swa_full_tokens_ratio=1)))
    tokens = token_counts(deployment(0, swa_full_tokens_ratio=1))[0]
    bent = bend_configurator(given, 0, bytes_per_full_token=4.0)
    assert not messages(changed_charge(bent, 2 * tokens))


def test_not_applicable_with_a_draft() -> None:
    given = evidence(plan(deployment(4, speculation=Speculation(algorithm="EAGLE"))))
    with pytest.raises(NotApplicable, match="a draft's reserve is judged by draft-reserve"):
        list(judge(given))


def test_not_judged_without_the_charge() -> None:
    given = bend_views(
        evidence(plan(deployment(4))), 0, lambda it: dataclasses.replace(it, charge=None), at=1
    )
    with pytest.raises(NotJudged, match="rank 0 has no charge at 25856 tokens"):
        list(judge(given))


def test_not_judged_without_a_view() -> None:
    given = bend_rank(
        evidence(plan(deployment(4))), 0, lambda it: dataclasses.replace(it, at=()), at=1
    )
    with pytest.raises(NotJudged, match="rank 0 has no view at 25856 tokens"):
        list(judge(given))


def test_not_judged_when_the_growth_is_uneven() -> None:
    """Red when what is fixed depends on where it is measured."""
    asked = deployment(4)
    last = token_counts(asked)[2]

    def change(view: View) -> View:
        return more_rows(view, "c4_kv", 1) if view.tokens == last else view

    with pytest.raises(NotJudged, match="the pool is not affine between aligned sizes"):
        list(judge(bend_views(evidence(plan(asked)), 0, change)))


def test_not_judged_when_an_untold_geometry_might_explain_it() -> None:
    """Red when a guard that cannot be told is taken for none."""
    asked = deployment(0, swa_full_tokens_ratio=1)
    given = bend_views(evidence(plan(asked)), 0, lambda view: without_geometry(view, "swa_kv"))
    with pytest.raises(NotJudged, match="does not tell what size swa_kv was configured with"):
        list(judge(given))


def test_an_untold_geometry_excuses_no_more_than_its_bytes() -> None:
    """Red when one small component without geometry hides any excess."""
    table = dataclasses.replace(paged(None, 1, 1, 1, 1), size=None, page=None)

    def change(view: View) -> View:
        return with_part(more_rows(view, "swa_kv", 1), "table", table)

    given = evidence(plan(deployment(0, swa_full_tokens_ratio=1)))
    assert [found.component for found in judge(bend_views(given, 0, change))] == ["swa_kv"]


def test_a_page_less_than_the_tokens_need_is_no_alignment() -> None:
    """Red when any number of missing SWA tokens is excused as cut off."""

    def change(view: View) -> View:
        swa = (view.sizes["swa"] or 0) - 256
        fewer = paged("total", 1, swa, 256, 512)
        sized = dataclasses.replace(view, sizes={**view.sizes, "swa": swa})
        return with_part(sized, "swa_kv", fewer)

    given = evidence(plan(deployment(0, swa_full_tokens_ratio=1)))
    (found,) = judge(changed_charge(bend_views(given, 0, change), 512))
    assert (found.observed, found.expected) == (0, 512)
