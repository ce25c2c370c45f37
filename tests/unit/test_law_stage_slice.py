"""stage-slice: the configurator, the pool and the stage have the same ratios."""

import dataclasses

import pytest

from contracts.contract import Evidence, NotJudged
from contracts.deployment import Deployment
from contracts.law.stage_slice import judge, plan
from contracts.observation import View

from .observations import (
    bend_configurator,
    bend_rank,
    bend_views,
    deployment,
    evidence,
    ignoring_stages,
)


@pytest.mark.parametrize(
    "asked",
    [
        deployment(4),
        deployment(0, 4, 128, 4, pp_size=2),
        deployment(0, 4, 128, 4, pp_size=2, partition=(1, 3), beyond=(0,)),
    ],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    assert not list(judge(evidence(plan(asked))))


def test_the_seed_bug() -> None:
    """Red when a configurator may count the whole model's ratios (sgl-project/sglang#25750)."""
    found = list(judge(ignoring_stages(evidence(plan(deployment(4, 4, pp_size=2))))))
    assert [one.message for one in found] == [
        "stage-slice: rank 0 of 2: ratios counted by the configurator = (4, 4), "
        "expected (4,) (compress_ratios[0:1]) — ×2.00",
        "stage-slice: rank 1 of 2: ratios counted by the configurator = (4, 4), "
        "expected (4,) (compress_ratios[1:2]) — ×2.00",
    ]
    assert found[0].factor == 2.0
    assert found[0].observed == "(4, 4)"


def test_the_ratios_beyond_the_decoder_are_no_layers() -> None:
    """Red when the MTP entry is taken for part of the last stage, as 0.5.12 does."""
    given = ignoring_stages(evidence(plan(deployment(0, 4, beyond=(0,)))))
    assert [found.factor for found in judge(given)] == [1.5]


def test_the_worst_rank_comes_first() -> None:
    given = ignoring_stages(evidence(plan(deployment(4, 4, 4, 4, pp_size=2, partition=(3, 1)))))
    assert [found.rank for found in judge(given)] == [1, 0]


def test_other_ratios_of_the_same_number() -> None:
    """Red when only the number of ratios is compared."""
    given = bend_configurator(evidence(plan(deployment(4, 128))), 0, ratios=(128, 4))
    (found,) = judge(given)
    assert found.factor is None
    assert found.message == (
        "stage-slice: rank 0 of 1: ratios counted by the configurator = (128, 4), "
        "expected (4, 128) (compress_ratios[0:2])"
    )


def test_the_pool_has_another_slice() -> None:
    """Red when only the configurator is compared with the stage."""

    def change(view: View) -> View:
        return dataclasses.replace(view, pool=dataclasses.replace(view.pool, stage_ratios=(4, 4)))

    (found,) = judge(bend_views(evidence(plan(deployment(4, 4, pp_size=2))), 1, change))
    assert "ratios that the pool is built for = (4, 4), expected (4,)" in found.message


def test_both_sides_wrong_alike() -> None:
    """Red when configurator and pool are compared with each other only."""
    given = bend_rank(
        evidence(plan(deployment(4, 128, pp_size=2))),
        0,
        lambda it: dataclasses.replace(it, start_layer=1, end_layer=2),
    )
    assert len(list(judge(given))) == 2


def without_final(given: Evidence, rank: int) -> Evidence:
    return bend_rank(given, rank, lambda it: dataclasses.replace(it, final=None))


def test_not_judged_without_the_final_view() -> None:
    """Red when a rank that was not seen counts as held."""
    given = without_final(evidence(plan(deployment(4, 4, pp_size=2))), 1)
    with pytest.raises(NotJudged, match="rank 1 has no view of what a server finally allocates"):
        list(judge(given))


def test_a_violation_is_reported_although_another_rank_was_not_seen() -> None:
    """Red when an unseen rank hides the violation of a seen one."""
    given = without_final(ignoring_stages(evidence(plan(deployment(4, 4, pp_size=2)))), 1)
    assert [found.rank for found in judge(given)] == [0]
