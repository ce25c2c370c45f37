"""stage-partition: the stages tile the decoder."""

import dataclasses

import pytest

from contracts.contract import Evidence, NotJudged
from contracts.deployment import Deployment
from contracts.law.stage_partition import judge, plan
from contracts.observation import Rank

from .observations import bend, bend_rank, deployment, evidence


def moved(given: Evidence, rank: int, start: int, end: int) -> Evidence:
    def change(it: Rank) -> Rank:
        return dataclasses.replace(it, start_layer=start, end_layer=end)

    return bend_rank(given, rank, change)


def messages(given: Evidence) -> list[str]:
    return [found.message for found in judge(given)]


@pytest.mark.parametrize(
    "asked",
    [
        deployment(4),
        deployment(0, 4, 128, 4, pp_size=2),
        deployment(0, 4, 128, 4, pp_size=4),
        deployment(0, 4, 128, 4, pp_size=2, partition=(3, 1)),
    ],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    assert not messages(evidence(plan(asked)))


def test_nothing_need_be_allocated() -> None:
    """Red when the plan asks for a view, which costs an allocation on every rank."""
    (request,) = plan(deployment(4))
    assert not request.views
    assert not request.tokens


def test_overlap() -> None:
    """Red when a stage may begin before the previous one ends."""
    given = moved(evidence(plan(deployment(4, 4, pp_size=2))), 1, 0, 2)
    assert messages(given) == [
        "stage-partition: rank 1 of 2: stage = [0,2), expected [1,2) "
        "(from where rank 0 ends to the last layer)"
    ]


def test_gap() -> None:
    """Red when a layer between two stages is not missed."""
    given = moved(evidence(plan(deployment(4, 4, 4, 4, 4, 4, pp_size=3))), 1, 3, 4)
    assert messages(given) == [
        "stage-partition: rank 1 of 3: stage = [3,4), expected [2,3) or longer "
        "(from where rank 0 ends)"
    ]


def test_first_layer_missing() -> None:
    given = moved(evidence(plan(deployment(4, 4, 4, pp_size=1))), 0, 1, 3)
    assert [found.expected for found in judge(given)] == ["[0,3)"]


def test_last_layer_missing() -> None:
    """Red when only gaps between stages are looked for."""
    given = moved(evidence(plan(deployment(4, 4, 4, pp_size=2))), 1, 1, 2)
    assert [(found.rank, found.expected) for found in judge(given)] == [(1, "[1,3)")]


def test_empty_stage() -> None:
    """Red when a stage without layers counts as a tile."""
    given = moved(evidence(plan(deployment(4, 4, 4, pp_size=3))), 1, 1, 1)
    assert next(iter(judge(given))).rank == 1


def test_empty_stage_by_partition() -> None:
    """Red when a partition's own empty stage counts as honoured."""
    asked = deployment(4, 4, pp_size=2, partition=(0, 2))
    whole = evidence(plan(deployment(4, 4, pp_size=2)))
    stated = bend(whole, 0, lambda it: dataclasses.replace(it, deployment=asked))
    assert messages(moved(moved(stated, 0, 0, 0), 1, 0, 2)) == [
        "stage-partition: rank 0 of 2: stage = [0,0), expected a layer or more (partition 0,2)"
    ]


def test_partition_not_honoured() -> None:
    """Red when any tiling is taken for the stated one."""
    asked = deployment(4, 4, 4, 4, pp_size=2, partition=(1, 3))
    given = moved(moved(evidence(plan(asked)), 0, 0, 2), 1, 2, 4)
    assert messages(given) == [
        "stage-partition: rank 0 of 2: stage = [0,2), expected [0,1) (partition 1,3)",
        "stage-partition: rank 1 of 2: stage = [2,4), expected [1,4) (partition 1,3)",
    ]


def test_missing_rank() -> None:
    """Red when the stages of fewer ranks than pp_size can tile the decoder."""
    given = evidence(plan(deployment(4, 4, pp_size=2)))
    one = bend(given, 0, lambda it: dataclasses.replace(it, ranks=it.ranks[:1]))
    assert "stage-partition: all 2 ranks: stages = 1, expected 2 (pp_size) — ×0.50" in messages(one)


def test_not_judged_without_an_observation() -> None:
    with pytest.raises(NotJudged, match="1 observations were planned, 0 came back"):
        list(judge(Evidence(observations=())))
