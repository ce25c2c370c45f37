"""monotone: capacity goes up with the budget and down with layers and window."""

import dataclasses

import pytest

from contracts.contract import Evidence, NotApplicable, NotJudged, Violation
from contracts.deployment import Deployment, Speculation
from contracts.law.monotone import JUDGES_REFUSALS, judge, plan
from contracts.observation import Failed, Outcome, Refused
from contracts.units import MiB

from .locations import of_outcomes
from .observations import FINAL_TOKENS, deployment, observe

REFUSED = Refused(where="sizing", kind="RuntimeError", sentence="Not enough memory.")
FAILED = Failed(where="sizing", kind="KeyError", sentence="3", traceback="")
MORE, TWICE, LAYER, WINDOW = 1, 2, 3, 4


def found(given: Evidence) -> list[Violation]:
    return list(judge(given))


def outcomes(asked: Deployment, **tokens: int) -> list[Outcome]:
    """Observations of the deployment and its likes, some with other tokens than the rest."""
    answers: list[Outcome] = [observe(request) for request in plan(asked)]
    for place, count in tokens.items():
        answers[int(place[1:])] = dataclasses.replace(
            observe(plan(asked)[int(place[1:])]), final_tokens=count
        )
    return answers


def likes(asked: Deployment) -> list[Deployment]:
    return [request.deployment for request in plan(asked)[1:]]


def test_refusals_are_evidence() -> None:
    """Red when a like that SGLang refuses ends the judging."""
    assert JUDGES_REFUSALS


def test_the_likes() -> None:
    asked = deployment(0, 128, 4, beyond=(0, 0), speculation=Speculation(algorithm="EAGLE"))
    more, twice, layer, window = likes(asked)
    assert (more.budget, twice.budget) == (asked.budget + MiB, 2 * asked.budget)
    assert layer.model.num_hidden_layers == 4
    assert layer.model.compress_ratios == (0, 128, 4, 4, 0, 0)
    assert window.model.sliding_window == 256
    assert {one.speculation for one in likes(asked)} == {asked.speculation}


@pytest.mark.parametrize(
    ("asked", "partition"),
    [
        (deployment(0, 4), None),
        (deployment(0, 4, partition=(2,)), (3,)),
        (deployment(0, 4, 4, pp_size=2, partition=(2, 1)), (2, 2)),
    ],
    ids=str,
)
def test_the_layer_goes_to_the_last_stage(
    asked: Deployment, partition: tuple[int, ...] | None
) -> None:
    assert likes(asked)[2].partition == partition


def test_no_layer_where_it_would_move_every_cut() -> None:
    """Red when an even split of one layer more is taken for the same stages and a layer."""
    asked = deployment(0, 4, 4, pp_size=2)
    assert {one.model.num_hidden_layers for one in likes(asked)} == {3}
    assert not found(of_outcomes(*outcomes(asked)))


def test_held_where_nothing_changes() -> None:
    """Red when a limit on tokens, which makes all counts equal, is a violation."""
    assert not found(of_outcomes(*outcomes(deployment(0, 4))))


def test_held() -> None:
    answers = outcomes(deployment(0, 4), _1=4352, _2=8192, _3=3840, _4=2048)
    assert not found(of_outcomes(*answers))


def test_violations() -> None:
    """Red when a direction is taken for the other, or one of the likes is not compared."""
    answers = outcomes(deployment(0, 4), _1=3840, _2=2048, _3=4352, _4=6144)
    assert [one.message for one in found(of_outcomes(*answers))] == [
        "monotone: the only rank: tokens with twice the budget = 2048, "
        "expected 4096 (at least, as without) — ×0.50",
        "monotone: the only rank: tokens with a window of 256 = 6144, "
        "expected 4096 (at most, as without) — ×1.50",
        "monotone: the only rank: tokens with 1 MiB more = 3840, "
        "expected 4096 (at least, as without) — ×0.938",
        "monotone: the only rank: tokens with a layer more of ratio 4 = 4352, "
        "expected 4096 (at most, as without) — ×1.062",
    ]


@pytest.mark.parametrize("unserved", [REFUSED, FAILED], ids=["refused", "failed"])
def test_a_like_that_is_not_served_is_left_out(unserved: Outcome) -> None:
    """Red when a refused like shifts the others, or is taken for no tokens."""
    answers = outcomes(deployment(0, 4), _4=FINAL_TOKENS + 256)
    answers[MORE] = answers[LAYER] = unserved
    (one,) = found(of_outcomes(*answers))
    assert "a window of 256" in one.message


@pytest.mark.parametrize("unserved", [REFUSED, FAILED], ids=["refused", "failed"])
def test_not_applicable_where_the_deployment_is_not_served(unserved: Outcome) -> None:
    answers = outcomes(deployment(0))
    with pytest.raises(NotApplicable, match="does not serve the deployment itself"):
        found(of_outcomes(unserved, *answers[1:]))


def test_not_applicable_without_any_like() -> None:
    """Red when a deployment that was compared with nothing counts as judged."""
    base, *others = outcomes(deployment(0))
    with pytest.raises(NotApplicable, match="nothing to compare the deployment with"):
        found(of_outcomes(base, *[REFUSED for _ in others]))


def test_not_judged_without_token_counts() -> None:
    answers = outcomes(deployment(0))
    silent = dataclasses.replace(observe(plan(deployment(0))[0]), final_tokens=None)
    with pytest.raises(NotJudged, match="does not tell how many tokens"):
        found(of_outcomes(silent, *answers[1:]))


def test_not_judged_when_outcomes_are_missing() -> None:
    with pytest.raises(NotJudged, match="5 outcomes were planned, 4 came back"):
        found(of_outcomes(*outcomes(deployment(0))[:-1]))
