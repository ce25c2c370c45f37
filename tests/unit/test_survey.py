"""What several contracts ask is observed once, and a survey loses nothing of what it is told."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable

import pytest

from contracts import law
from contracts.contract import Evidence, Request
from contracts.deployment import Deployment
from contracts.examination import Gathered, examine
from contracts.ledger import EMPTY, Ledger
from contracts.observation import Failed, Observation, Outcome, Refused, Unreadable
from contracts.survey import Named, Pair, Tally, survey
from contracts.trial import Workforce
from tests.unit import observations

SLICE, RANKS, FINAL = (law.get(name) for name in ("stage-slice", "rank-sum", "layer-counts"))
PLAIN = observations.deployment(0, 4, 128)
SPLIT = observations.deployment(0, 4, 4, 128, pp_size=2)
REFUSED = Refused(where="sizing", kind="ValueError", sentence="not with two ranks")
FAILED = Failed(where="sizing", kind="KeyError", sentence="3", traceback="")
UNREADABLE = Unreadable(reason="the worker died by SIGKILL")


@dataclasses.dataclass
class Told:
    """An observer that notes what it is asked, and answers as it is told."""

    answer: Callable[[Request], Outcome] = observations.observe
    asked: list[Request] = dataclasses.field(default_factory=list)

    def observe(self, request: Request) -> Outcome:
        self.asked.append(request)
        return self.answer(request)


def over_counting(request: Request) -> Observation:
    given = Evidence(observations=(observations.observe(request),))
    return observations.ignoring_stages(given).observation


def surveyed(
    answer: Callable[[Request], Outcome], *deployments: Deployment, ledger: Ledger = EMPTY
) -> dict[str, Tally]:
    """A survey by two workers."""
    return survey(
        [SLICE, RANKS],
        [Named(deployment) for deployment in deployments],
        [Pair(Told(answer)), Pair(Told(answer))],
        info=observations.observe(Request(deployment=PLAIN)).subject,
        ledger=ledger,
    )


# -- one observation for all -----------------------------------------------------------------------


def test_one_observation_serves_all_contracts() -> None:
    """Red when contracts that ask about one deployment have it observed more than once."""
    told = Told()
    gathered = Gathered(told, [SLICE, RANKS, FINAL], SPLIT)
    for contract in (SLICE, RANKS, FINAL):
        assert examine(contract, SPLIT, gathered) == []
    assert [request.deployment.pp_size for request in told.asked] == [2, 1]
    assert told.asked[0].views == {"final"}
    assert told.asked[0].tokens == told.asked[1].tokens != ()


@pytest.mark.parametrize("failure", [REFUSED, FAILED, UNREADABLE])
def test_a_refused_whole_says_nothing_of_its_parts(failure: Outcome) -> None:
    """Red when a request is taken for refused because another one, asked with it, was."""

    def answer(request: Request) -> Outcome:
        return failure if request.tokens else observations.observe(request)

    gathered = Gathered(Told(answer), [SLICE, RANKS], SPLIT)
    alone = Request(deployment=SPLIT, views=frozenset({"final"}))
    assert isinstance(gathered.observe(alone), Observation)
    assert gathered.observe(RANKS.plan(SPLIT)[0]) == failure


def test_a_request_that_is_alone_is_asked_once() -> None:
    """Red when a refusal of just what was asked is asked for again."""
    told = Told(lambda _request: REFUSED)
    gathered = Gathered(told, [SLICE], SPLIT)
    assert gathered.observe(SLICE.plan(SPLIT)[0]) == REFUSED
    assert gathered.observe(SLICE.plan(SPLIT)[0]) == REFUSED
    assert len(told.asked) == 1


# -- surveys ---------------------------------------------------------------------------------------


def test_held() -> None:
    """Red when a deployment is not judged, or is counted twice."""
    tallies = surveyed(observations.observe, PLAIN, SPLIT, PLAIN)
    for tally in tallies.values():
        assert list(tally.judged) == [PLAIN.key(), SPLIT.key()]
        assert (tally.findings, tally.worst, tally.reason) == ([], None, None)


def test_it_does_not_stop_at_a_violation() -> None:
    """Red when a survey ends with the first violation, or the worst is not the worst."""
    wider = observations.deployment(0, 4, 4, 128, pp_size=4)
    tally = surveyed(over_counting, SPLIT, PLAIN, wider)["rank-sum"]
    assert len(tally.judged) == 3
    assert [found.deployment.pp_size for found in tally.findings] == [2, 4]
    assert tally.worst is not None
    assert tally.worst.violation.factor == 4.0


def test_refusals_are_counted() -> None:
    """Red when a refused deployment is counted as judged."""
    tally = surveyed(lambda _request: REFUSED, PLAIN, SPLIT)["stage-slice"]
    assert (list(tally.judged), list(tally.rejected)) == ([], [PLAIN.key(), SPLIT.key()])


@pytest.mark.parametrize(
    ("outcome", "said"), [(UNREADABLE, "SIGKILL"), (FAILED, "sizing failed: KeyError: 3")]
)
def test_what_broke_is_told(outcome: Outcome, said: str) -> None:
    """Red when a deployment that could not be judged is lost among those that were."""

    def answer(request: Request) -> Outcome:
        return outcome if request.deployment == SPLIT else observations.observe(request)

    tally = surveyed(answer, PLAIN, SPLIT)["stage-slice"]
    assert said in f"{tally.reason} {tally.stumbled}"
    assert list(tally.judged) == [PLAIN.key()]


def test_a_contract_that_broke_is_not_judged_on() -> None:
    """Red when what comes after a deployment that could not be judged still takes time."""
    alone = Told(lambda _request: UNREADABLE)
    info = observations.observe(Request(deployment=PLAIN)).subject
    survey([SLICE], [Named(PLAIN), Named(SPLIT)], [Pair(alone)], info=info)
    assert len(alone.asked) == 1


def test_workers_go_side_by_side() -> None:
    """Red when the second worker waits for the first."""
    both = threading.Barrier(2, timeout=60)

    def answer(request: Request) -> Outcome:
        both.wait()
        return observations.observe(request)

    one, other = Told(answer), Told(answer)
    info = observations.observe(Request(deployment=PLAIN)).subject
    survey([SLICE], [Named(PLAIN), Named(SPLIT)], [Pair(one), Pair(other)], info=info)
    assert (len(one.asked), len(other.asked)) == (1, 1)


def test_an_interrupt_ends_it() -> None:
    """Red when an interrupted survey goes on with the deployments that are left."""
    told = Told()

    def interrupted() -> None:
        raise KeyboardInterrupt

    deployments = [Named(observations.deployment(*[4] * count)) for count in range(1, 60)]
    info = observations.observe(Request(deployment=PLAIN)).subject
    with pytest.raises(KeyboardInterrupt):
        survey([SLICE], deployments, [Pair(told)], info=info, progress=interrupted)
    assert len(told.asked) < len(deployments)


# -- trials ----------------------------------------------------------------------------------------


def test_a_single_rank_contract_judges_the_deployment_at_pp_size_1() -> None:
    """Red when a contract about pp_size 1 says nothing of a deployment with a pipeline."""
    told = Told()
    assert examine(law.get("pp1-identity"), SPLIT, told) == []
    assert {request.deployment.pp_size for request in told.asked} == {1}


def test_a_workforce_pairs_subjects_with_baselines() -> None:
    """Red when a worker compares with no baseline, or with somebody else's."""
    subjects, baselines = (object(), object()), (object(), object())
    pairs = Workforce(subjects, baselines).pairs  # type: ignore[arg-type]  # only paired
    assert [(pair.subject, pair.baseline) for pair in pairs] == list(
        zip(subjects, baselines, strict=True)
    )
