"""pp1-identity and pp1-unchanged: what pipeline stages must not change for those without."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from contracts.contract import Evidence, NotJudged, Violation
from contracts.deployment import Speculation
from contracts.law import pp1_identity, pp1_unchanged
from contracts.observation import Observation, Pool, View

from .observations import (
    bend,
    bend_configurator,
    bend_rank,
    bend_views,
    deployment,
    evidence,
    with_component,
    without_component,
)

ASKED = deployment(0, 4, 128, pp_size=3, beyond=(0,), speculation=Speculation(algorithm="EAGLE"))

Change = Callable[[Evidence], Evidence]


def identity(change: Change = lambda given: given) -> list[Violation]:
    return list(pp1_identity.judge(change(evidence(pp1_identity.plan(ASKED)))))


def unchanged(change: Change = lambda given: given) -> list[Violation]:
    return list(pp1_unchanged.judge(change(evidence(pp1_unchanged.plan(ASKED), baseline=True))))


BOTH = pytest.mark.parametrize("judged", [identity, unchanged])


@BOTH
def test_held(judged: Callable[[], list[Violation]]) -> None:
    assert not judged()


def test_the_plans_are_of_one_rank() -> None:
    staged, plain = pp1_identity.plan(ASKED)
    (alone,) = pp1_unchanged.plan(ASKED)
    assert staged.deployment == plain.deployment == alone.deployment == ASKED.single_rank()
    assert (staged.pipeline, plain.pipeline, alone.pipeline) == (True, False, True)
    assert staged.views == plain.views == alone.views == {"final"}


def sized(**sizes: int | None) -> Change:
    def change(view: View) -> View:
        return dataclasses.replace(view, sizes={**view.sizes, **sizes})

    return lambda given: bend_views(given, 0, change)


def requests(count: int | None) -> Change:
    def change(view: View) -> View:
        return dataclasses.replace(view, max_running_requests=count)

    return lambda given: bend_views(given, 0, change)


def charging(**fields: Any) -> Change:
    return lambda given: bend_configurator(given, 0, **fields)


def component(name: str, **fields: int) -> Change:
    return lambda given: bend_views(given, 0, lambda view: with_component(view, name, **fields))


def drafting(draft: Pool | None) -> Change:
    def change(view: View) -> View:
        return dataclasses.replace(view, draft=draft)

    return lambda given: bend_views(given, 0, change)


def final_tokens(tokens: int | None) -> Change:
    def change(it: Observation) -> Observation:
        return dataclasses.replace(it, final_tokens=tokens)

    return lambda given: bend(given, 0, change)


@BOTH
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (final_tokens(2048), "final tokens = 2048, expected 4096 ("),
        (sized(swa=256), "swa size = 256, expected 512 ("),
        (requests(32), "max_running_requests = 32, expected 64 ("),
        (charging(bytes_per_full_token=20.0), "per full token = 20, expected 13.16666667 ("),
        (charging(target_bytes_per_full_token=9.0), "without the draft = 9, expected 9.875 ("),
        (
            charging(layers={"total": 3, "c4": 2, "c128": 1}),
            "c4 layers charged = 2, expected 1 (",
        ),
        (charging(ratios=(0, 4, 128, 0)), "configurator's ratios = (0, 4, 128, 0), expected (0, "),
        (component("c4_kv", bytes=1), "c4_kv bytes = 1, expected "),
        (component("c4_kv", rows=1), "c4_kv rows = 1, expected "),
        (component("c4_kv", buffers=2), "c4_kv buffers = 2, expected 1 ("),
        (
            component("c2_kv", buffers=1, bytes=9),
            "c2_kv = 9 bytes in 1 buffers, expected absent (",
        ),
        (drafting(None), "draft pool = absent, expected "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_thing_differs(
    judged: Callable[[Change], list[Violation]], change: Change, says: str
) -> None:
    """Red when any one observable is left out of the comparison."""
    (found,) = judged(change)
    assert says in found.message
    assert found.rank == 0


@BOTH
def test_a_component_disappears(judged: Callable[[Change], list[Violation]]) -> None:
    """Red when only the components that the subject has are compared."""
    (found,) = judged(
        lambda given: bend_views(given, 0, lambda view: without_component(view, "c4_kv"))
    )
    assert (found.component, found.observed) == ("c4_kv", "absent")


@BOTH
def test_a_component_of_no_buffers_may_go_unmentioned(
    judged: Callable[[Change], list[Violation]],
) -> None:
    assert not judged(component("c2_kv", buffers=0))


@BOTH
def test_the_pool_s_ratios_are_compared(judged: Callable[[Change], list[Violation]]) -> None:
    def change(view: View) -> View:
        return dataclasses.replace(view, pool=dataclasses.replace(view.pool, stage_ratios=(0, 4)))

    (found,) = judged(lambda given: bend_views(given, 0, change))
    assert "pool's ratios = (0, 4), expected (0, 4, 128)" in found.message


@BOTH
def test_the_draft_s_components_are_compared(judged: Callable[[Change], list[Violation]]) -> None:
    """Red when only the draft's existence is compared."""

    def change(view: View) -> View:
        assert view.draft is not None
        parts = dict(view.draft.components)
        parts["swa_kv"] = dataclasses.replace(parts["swa_kv"], bytes=1)
        return dataclasses.replace(view, draft=dataclasses.replace(view.draft, components=parts))

    (found,) = judged(lambda given: bend_views(given, 0, change))
    assert found.component == "draft.swa_kv"


@BOTH
def test_rounding_is_no_difference(judged: Callable[[Change], list[Violation]]) -> None:
    """Red when another order of the same additions is reported as another charge."""
    assert not judged(charging(target_bytes_per_full_token=9.875 + 1e-14))


@BOTH
def test_the_order_is_capacity_then_causes_then_buffers(
    judged: Callable[[Change], list[Violation]],
) -> None:
    """Red when a reader must look past buffers to find that tokens were lost."""
    changes = [
        component("c4_kv", bytes=1),
        charging(layers={"total": 9, "c4": 1, "c128": 1}),
        charging(bytes_per_full_token=99.0),
        sized(full=1),
        final_tokens(1),
    ]

    def all_of_them(given: Evidence) -> Evidence:
        for change in changes:
            given = change(given)
        return given

    starts = ["final tokens", "full size", "bytes charged", "total layers", "c4_kv bytes"]
    texts = [found.message.split(": ")[2] for found in judged(all_of_them)]
    assert [text.startswith(start) for text, start in zip(texts, starts, strict=True)] == [True] * 5


@BOTH
@pytest.mark.parametrize(
    ("change", "says"),
    [(sized(c4=None), "c4 size"), (requests(None), "max_run"), (final_tokens(None), "final")],
)
def test_not_judged_when_one_side_has_no_number(
    judged: Callable[[Change], list[Violation]], change: Change, says: str
) -> None:
    """Red when a number that is missing counts as equal, or as 0."""
    with pytest.raises(NotJudged, match=f"only one side has a number for: {says}"):
        judged(change)


@BOTH
def test_a_difference_is_reported_although_a_number_is_missing(
    judged: Callable[[Change], list[Violation]],
) -> None:
    assert judged(sized(c4=None, swa=1))


@BOTH
def test_not_judged_without_the_final_view(judged: Callable[[Change], list[Violation]]) -> None:
    with pytest.raises(NotJudged, match="rank 0 has no view"):
        judged(lambda given: bend_rank(given, 0, lambda it: dataclasses.replace(it, final=None)))


# -- pp1-identity ----------------------------------------------------------------------------------


def test_identity_says_what_it_compares_with() -> None:
    (found,) = identity(sized(swa=256))
    assert found.message == (
        "pp1-identity: rank 0 of 1: swa size = 256, expected 512 "
        "(without pipeline parallelism) — ×0.50"
    )


def test_identity_wants_the_whole_decoder() -> None:
    """Red when a stage that leaves a layer out passes because both paths do it."""

    def shortened(given: Evidence) -> Evidence:
        return bend_rank(given, 0, lambda it: dataclasses.replace(it, end_layer=2))

    assert [found.message for found in identity(shortened)] == [
        "pp1-identity: rank 0 of 1: stage = [0,2), expected [0,3) (the whole decoder)"
    ]


def test_identity_wants_one_rank() -> None:
    def doubled(given: Evidence) -> Evidence:
        return bend(given, 0, lambda it: dataclasses.replace(it, ranks=it.ranks * 2))

    assert [found.message for found in identity(doubled)] == [
        "pp1-identity: the only rank: ranks = 2, expected 1 (pp_size 1) — ×2.00"
    ]


def test_identity_is_not_judged_without_the_other_path() -> None:
    given = evidence(pp1_identity.plan(ASKED))
    with pytest.raises(NotJudged, match="2 observations were planned, 1 came back"):
        list(pp1_identity.judge(Evidence(observations=given.observations[:1])))


# -- pp1-unchanged ---------------------------------------------------------------------------------


def test_unchanged_names_the_baseline() -> None:
    (found,) = unchanged(sized(swa=256))
    assert found.message == (
        "pp1-unchanged: rank 0 of 1: swa size = 256, expected 512 (baseline older) — ×0.50"
    )


def test_unchanged_is_not_judged_without_a_baseline() -> None:
    """Red when a missing baseline counts as an equal one."""
    with pytest.raises(NotJudged, match="no baseline"):
        list(pp1_unchanged.judge(evidence(pp1_unchanged.plan(ASKED))))


def test_unchanged_is_not_judged_between_other_than_single_ranks() -> None:
    def doubled(given: Evidence) -> Evidence:
        return bend(given, 0, lambda it: dataclasses.replace(it, ranks=it.ranks * 2))

    with pytest.raises(NotJudged, match="an observation at pp_size 1 has 2 ranks"):
        unchanged(doubled)


def test_a_kind_that_only_one_side_counts() -> None:
    """Red when a kind of layer that the baseline does not know is skipped."""
    (found,) = unchanged(charging(layers={"total": 3, "c4": 1, "c128": 1, "c2": 2}))
    assert "c2 layers charged = 2, expected 0 (baseline older)" in found.message
    (found,) = unchanged(charging(layers={"total": 3, "c4": 1}))
    assert "c128 layers charged = 0, expected 1 (baseline older)" in found.message


def test_the_draft_s_ratios_are_compared() -> None:
    def change(view: View) -> View:
        assert view.draft is not None
        return dataclasses.replace(view, draft=dataclasses.replace(view.draft, stage_ratios=(4,)))

    (found,) = unchanged(lambda given: bend_views(given, 0, change))
    assert "draft pool's ratios = (4,), expected (0,) (baseline older)" in found.message
