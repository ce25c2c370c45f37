"""layer-counts: layers charged are layers allocated."""

import dataclasses

import pytest

from contracts.contract import NotJudged
from contracts.deployment import Deployment
from contracts.law.layer_counts import judge, plan

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


@pytest.mark.parametrize(
    "asked",
    [deployment(4), deployment(0, 0), deployment(0, 4, 128, 4, pp_size=2), deployment(128)],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    """Red when a component of no buffers counts as missing or as charged."""
    assert not list(judge(evidence(plan(asked))))


def test_the_seed_bug() -> None:
    """Red when every rank may be charged for all layers (sgl-project/sglang#25750)."""
    found = list(judge(ignoring_stages(evidence(plan(deployment(4, 4, pp_size=2))))))
    assert {(one.rank, one.component) for one in found} == {
        (rank, name) for rank in (0, 1) for name in ("swa_kv", "c4_kv", "c4_state")
    }
    (message,) = [one.message for one in found if (one.rank, one.component) == (1, "c4_kv")]
    assert message == (
        "layer-counts: rank 1 of 2: c4_kv layers charged = 2, expected 1 (allocated) — ×2.00"
    )


def test_the_worst_component_comes_first() -> None:
    """Red when violations are left in the order of the components."""
    given = ignoring_stages(evidence(plan(deployment(0, 4, 128, 128, pp_size=2))))
    factors = [found.factor for found in judge(given)]
    # c4 is charged on rank 1, which has none; c128 on rank 0, likewise: nothing to divide by.
    assert factors[:4] == [None] * 4
    assert factors[4:] == [2.0, 2.0]


def test_charged_without_a_component() -> None:
    """Red when a kind is not looked at because the pool does not mention it."""
    given = evidence(plan(deployment(4)))
    for name in ("c4_kv", "c4_state"):
        given = bend_views(given, 0, lambda view, name=name: without_component(view, name))  # type: ignore[misc]
    (found,) = judge(given)
    assert (found.observed, found.expected, found.factor, found.component) == (1, 0, None, None)
    assert found.message == (
        "layer-counts: rank 0 of 1: c4 layers charged = 1, expected 0 (allocated)"
    )


def test_allocated_and_not_charged() -> None:
    """Red when a kind that the configurator does not know is skipped."""
    given = bend_views(
        evidence(plan(deployment(4))),
        0,
        lambda view: with_component(view, "c2_kv", buffers=3, rows=3, bytes=3, kind="c2"),
    )
    (found,) = judge(given)
    assert (found.observed, found.expected, found.factor, found.component) == (0, 3, 0.0, "c2_kv")


def test_one_component_of_a_kind_lacks_a_buffer() -> None:
    """Red when it is enough that one component of a kind has the charged layers."""
    given = bend_views(
        evidence(plan(deployment(4, 4))),
        0,
        lambda view: with_component(view, "c4_state", buffers=1),
    )
    assert [found.component for found in judge(given)] == ["c4_state"]


def test_a_component_that_is_not_layer_wise_is_not_counted() -> None:
    given = bend_views(
        evidence(plan(deployment(4))),
        0,
        lambda view: with_component(view, "table", buffers=7, rows=7, bytes=7),
    )
    assert not list(judge(given))


def test_a_kind_charged_as_zero_needs_no_component() -> None:
    given = bend_configurator(
        evidence(plan(deployment(4))), 0, layers={"total": 1, "c4": 1, "c128": 0, "c1": 0}
    )
    assert not list(judge(given))


def test_not_judged_without_the_final_view() -> None:
    given = bend_rank(
        evidence(plan(deployment(4))), 0, lambda it: dataclasses.replace(it, final=None)
    )
    with pytest.raises(NotJudged, match="rank 0 has no view"):
        list(judge(given))
