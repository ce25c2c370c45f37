"""A hunt for the worst case goes further than the gate, and is told as it goes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import settings

from contracts import law
from contracts.contract import Evidence, Request
from contracts.deployment import Deployment, DeploymentError
from contracts.hunt.worst import _STEPS, _Best, _targeted, worst
from contracts.observation import Observation, Outcome, Unreadable
from contracts.profiles import PROFILES
from contracts.subject.client import Client
from contracts.subject.resolve import Subject
from contracts.survey import Named, Pair, survey
from contracts.trial import Workforce
from tests.unit import observations
from tests.unit.test_ledger import subject

FEW = settings(PROFILES["gate"], max_examples=10)
SLICE = law.get("stage-slice")


class OverCounting(Client):
    """Every rank counts the layers of the whole model; no process is needed for that."""

    def __init__(self) -> None:
        super().__init__(Subject(label="it", python=Path("none"), paths=(), kind="release"))
        self._info = subject("0.5.12")

    def observe(self, request: Request) -> Outcome:
        given = Evidence(observations=(observations.observe(request),))
        return observations.ignoring_stages(given).observation


class Sound(OverCounting):
    def observe(self, request: Request) -> Observation:
        return observations.observe(request)


class Broken(OverCounting):
    def observe(self, _request: Request) -> Outcome:
        return Unreadable(reason="the worker died")


def test_a_climb_goes_further() -> None:
    """Red when the neighbours of the best deployment are no worse than it, or are tried twice."""
    client, best = OverCounting(), _Best()
    near = [Named(observations.deployment(0, 4, 4, 128, pp_size=2))]
    factors: list[float] = []
    seen: set[str] = set()
    for _ in range(4):
        (tally,) = survey([SLICE], near, [Pair(client)], info=client.info).values()
        best.add(tally)
        assert best.finding is not None
        assert best.finding.violation.factor is not None
        factors.append(best.finding.violation.factor)
        near = list(best.neighbours(SLICE))
        keys = {named.deployment.key() for named in near}
        assert not keys & seen
        seen |= keys
    assert factors == sorted(set(factors))


def test_hypothesis_goes_further() -> None:
    """Red when what Hypothesis finds while it aims at larger factors is lost."""
    tally = _targeted(SLICE, Workforce((OverCounting(),)), 1, math.inf)
    assert len(tally.judged) > 50
    assert len(tally.violated) > 20


def test_no_time_still_looks_once() -> None:
    """Red when a hunt without time says nothing, or goes on."""
    (hunt,) = worst(SLICE, Workforce((OverCounting(),)), seconds=0, profile=FEW)
    assert hunt.best is not None


def test_nothing_is_found_where_nothing_is() -> None:
    """Red when a hunt finds a violation on a consistent subject."""
    hunts = list(worst(SLICE, Workforce((Sound(),)), seconds=0, profile=FEW))
    assert [(hunt.best, hunt.reason) for hunt in hunts] == [(None, None)]
    assert hunts[0].judged > 10


def test_what_broke_ends_it() -> None:
    """Red when a hunt goes on with a subject that cannot be read, or passes it."""
    (hunt,) = worst(SLICE, Workforce((Broken(),)), seconds=60, profile=FEW)
    assert hunt.reason is not None
    assert "the worker died" in hunt.reason


@pytest.mark.parametrize("step", _STEPS)
def test_a_step_changes_one_thing(step: object) -> None:
    """Red when a step changes nothing anywhere, or ends the hunt."""
    assert callable(step)
    full = observations.deployment(
        0,
        4,
        128,
        4,
        pp_size=2,
        swa_full_tokens_ratio=0.7,
        max_running_requests=8,
        max_total_tokens=8192,
    )
    stepped = step(full)
    assert isinstance(stepped, Deployment)
    assert stepped != full
    bare = observations.deployment(0)
    try:
        step(bare)
    except DeploymentError:
        return
