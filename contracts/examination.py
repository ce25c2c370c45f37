"""An examination: contracts, one deployment, one subject; it ends in findings.

What several contracts ask about one deployment is observed once: the requests are merged, and a
merged observation serves each of them. A merged request that the subject refuses proves nothing
about its parts, so that they are then asked one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from contracts.contract import (
    Contract,
    Evidence,
    NotApplicable,
    NotJudged,
    Request,
    Violation,
)
from contracts.deployment import Deployment
from contracts.observation import Failed, Observation, Outcome, Refused, Unreadable

__all__ = ["Finding", "Gathered", "Observer", "Rejected", "Stumbled", "examine"]


class Observer(Protocol):
    """Whoever answers requests: a client, or answers that were gathered from one."""

    def observe(self, request: Request) -> Outcome:
        """Observe one deployment; whatever breaks is an outcome, not an exception."""


class Stumbled(Exception):
    """SGLang raised what is no refusal on a legal deployment: it was not judged, others may be."""


class Rejected(Exception):
    """SGLang refused the deployment, or the baseline did; the text is its own sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A violation with the deployment that shows it; ``stages`` as the subject computed them."""

    violation: Violation
    deployment: Deployment
    stages: str
    example: str | None = None
    """The name of the published example, or None for a generated deployment."""


class Gathered:
    """The answers to what some contracts plan for one deployment, each observed once."""

    def __init__(
        self, observer: Observer, contracts: Iterable[Contract], deployment: Deployment
    ) -> None:
        self._observer = observer
        self._merged: dict[tuple[str, bool], Request] = {}
        self._answers: dict[tuple[str, bool], Outcome] = {}
        for contract in contracts:
            for request in contract.plan(contract.judged(deployment)):
                key = _about(request)
                self._merged[key] = _merge(self._merged.get(key, request), request)

    def observe(self, request: Request) -> Outcome:
        """The answer to one of the planned requests, with more in it than was asked."""
        key = _about(request)
        merged = self._merged.get(key, request)
        if key not in self._answers:
            self._answers[key] = self._observer.observe(merged)
        answer = self._answers[key]
        if isinstance(answer, Observation) or merged == request:
            return answer
        return self._observer.observe(request)


def _about(request: Request) -> tuple[str, bool]:
    return request.deployment.key(), request.pipeline


def _merge(one: Request, other: Request) -> Request:
    return dataclasses.replace(
        one,
        views=one.views | other.views,
        tokens=tuple(sorted({*one.tokens, *other.tokens})),
    )


def examine(
    contract: Contract, deployment: Deployment, subject: Observer, baseline: Observer | None = None
) -> list[Finding]:
    """Judge one deployment. An empty list means that the contract held on it.

    Raises:
        Rejected: SGLang refused the deployment.
        Stumbled: SGLang raised something unexpected on it.
        NotApplicable: the contract says nothing about the deployment.
        NotJudged: the subject could not be observed, or the evidence does not decide.
    """
    deployment = contract.judged(deployment)
    requests = contract.plan(deployment)
    if contract.judges_refusals:
        return _examine_outcomes(contract, deployment, requests, subject)
    observed = tuple(_observation(subject.observe(request)) for request in requests)
    other: tuple[Observation, ...] = ()
    if contract.needs_baseline:
        if baseline is None:
            raise NotJudged("there is no baseline subject; name one with --baseline")
        other = tuple(_observation(baseline.observe(request)) for request in requests)
    return _findings(contract, deployment, Evidence(observations=observed, baseline=other))


def _examine_outcomes(
    contract: Contract, deployment: Deployment, requests: Sequence[Request], subject: Observer
) -> list[Finding]:
    outcomes = tuple(subject.observe(request) for request in requests)
    for outcome in outcomes:
        if isinstance(outcome, Unreadable):
            raise NotJudged(outcome.reason)
    observed = tuple(outcome for outcome in outcomes if isinstance(outcome, Observation))
    return _findings(contract, deployment, Evidence(observations=observed, outcomes=outcomes))


def _findings(contract: Contract, deployment: Deployment, evidence: Evidence) -> list[Finding]:
    # Where all was refused or failed, no stages were computed.
    stages = evidence.observation.stages() if evidence.observations else ""
    return [
        Finding(violation=violation, deployment=deployment, stages=stages)
        for violation in _judged(contract, evidence)
    ]


def _judged(contract: Contract, evidence: Evidence) -> list[Violation]:
    """What the judge says; a judge that breaks has said nothing."""
    try:
        return list(contract.judge(evidence))
    except (NotJudged, NotApplicable):
        raise
    except Exception as error:  # a bug of ours, or a number that no judge expects
        raise NotJudged(f"the judge failed: {type(error).__name__}: {error}") from error


def _observation(outcome: Outcome) -> Observation:
    match outcome:
        case Observation():
            return outcome
        case Refused():
            raise Rejected(f"{outcome.kind}: {outcome.sentence}")
        case Failed():
            raise Stumbled(f"{outcome.where} failed: {outcome.kind}: {outcome.sentence}")
        case Unreadable():
            raise NotJudged(outcome.reason)
