"""A trial: one contract, one subject, many deployments; it ends in a verdict.

The pytest gate and the command line both judge through here. The deployments come from the
published examples, which always run, and from the strategies; a counterexample is shrunk. The
same deployments are drawn for every contract and subject.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import given, reject, settings
from hypothesis.errors import HypothesisException

from contracts import law
from contracts.contract import (
    Contract,
    Evidence,
    NotApplicable,
    NotJudged,
    Request,
    Verdict,
    Violation,
)
from contracts.deployment import Deployment
from contracts.ledger import EMPTY, Entry, Ledger
from contracts.observation import Failed, Observation, Outcome, Refused, Unreadable
from contracts.subject.client import Client, SubjectUnreadable
from strategies.deployment import deployments
from strategies.published import DEPLOYMENTS

__all__ = ["Finding", "Rejected", "Stumbled", "Trial", "examine", "run", "stale"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of a trial.

    ``deployments`` were judged, ``rejected`` of the drawn ones were refused by SGLang; both count
    different deployments, however often Hypothesis drew one.
    ``finding`` is the violation to show: the shrunk one where a generated deployment violates.
    ``worst`` is the largest factor that was seen, on any deployment, ``known`` the deployments
    whose violations the ledger covers; those do not make the verdict. ``examples`` are the
    published examples that violate. ``reason`` says why nothing was judged, or why the search
    broke off.
    """

    contract: str
    verdict: Verdict
    deployments: int
    rejected: int
    seconds: float
    finding: Finding | None = None
    worst: float | None = None
    known: int = 0
    examples: tuple[Finding, ...] = ()
    reason: str | None = None


def examine(
    contract: Contract, deployment: Deployment, client: Client, baseline: Client | None = None
) -> list[Finding]:
    """Judge one deployment. An empty list means that the contract held on it.

    Raises:
        Rejected: SGLang refused the deployment.
        Stumbled: SGLang raised something unexpected on it.
        NotApplicable: the contract says nothing about the deployment.
        NotJudged: the subject could not be observed, or the evidence does not decide.
    """
    requests = contract.plan(deployment)
    if contract.judges_refusals:
        return _examine_outcomes(contract, deployment, requests, client)
    observed = tuple(_observation(client.observe(request)) for request in requests)
    other: tuple[Observation, ...] = ()
    if contract.needs_baseline:
        if baseline is None:
            raise NotJudged("there is no baseline subject; name one with --baseline")
        other = tuple(_observation(baseline.observe(request)) for request in requests)
    return _findings(contract, deployment, Evidence(observations=observed, baseline=other))


def _examine_outcomes(
    contract: Contract, deployment: Deployment, requests: Sequence[Request], client: Client
) -> list[Finding]:
    outcomes = tuple(client.observe(request) for request in requests)
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


class _Violated(Exception):
    """The contract does not hold on the drawn deployment."""


class _Halt(BaseException):
    """Ends a search at once. No ``Exception``: Hypothesis would try to shrink it."""


@dataclass(slots=True)
class _Search:
    contract: Contract
    client: Client
    baseline: Client | None
    ledger: Ledger
    progress: Callable[[], None]
    known: set[str] = field(default_factory=set)
    judged: set[str] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    stumbled: str | None = None
    finding: Finding | None = None
    worst: float | None = None
    examples: list[Finding] = field(default_factory=list)

    def examine(self, deployment: Deployment) -> list[Finding]:
        findings = examine(self.contract, deployment, self.client, self.baseline)
        self.judged.add(deployment.key())
        self.progress()
        for finding in findings:
            self.worst = _farther(self.worst, finding.violation.factor)
        unknown = [finding for finding in findings if not self.is_known(finding)]
        if findings and not unknown:
            self.known.add(deployment.key())
        return unknown

    def is_known(self, finding: Finding) -> bool:
        return self.ledger.covers(finding.violation, finding.deployment, self.client.info)

    def run_examples(self, names: Sequence[str] | None) -> None:
        for example in DEPLOYMENTS:
            if names is not None and example.name not in names:
                continue
            try:
                findings = self.examine(example.deployment)
            except (Rejected, NotApplicable):
                continue
            except Stumbled as error:
                self.stumble(error, example.deployment)
                continue
            if findings:
                self.examples.append(dataclasses.replace(findings[0], example=example.name))

    def stumble(self, error: Stumbled, deployment: Deployment) -> None:
        """Remember the first deployment that SGLang could not size."""
        self.stumbled = self.stumbled or f"{error} [{deployment}]"

    def run_drawn(self, profile: settings) -> None:
        strategy = deployments(
            algorithms=self.client.info.algorithms, pp=not self.contract.single_rank
        )

        # One inner function for all trials: Hypothesis seeds a derandomized search by it, so
        # that every contract and subject is judged on the same deployments.
        @profile
        @given(strategy)
        def judge(deployment: Deployment) -> None:
            try:
                findings = self.examine(deployment)
            except Rejected:
                self.rejected.add(deployment.key())
                reject()
            except NotApplicable:
                return
            except Stumbled as error:
                self.stumble(error, deployment)
                return
            except (NotJudged, SubjectUnreadable) as error:
                raise _Halt(f"{error} [{deployment}]") from error
            if findings:
                self.finding = findings[0]
                raise _Violated

        with contextlib.suppress(_Violated):
            judge()


def _farther(one: float | None, other: float | None) -> float | None:
    """Whichever factor is farther from 1, up or down."""
    factors = [factor for factor in (one, other) if factor is not None]
    return max(
        factors, key=lambda factor: abs(math.log(factor)) if factor > 0 else math.inf, default=None
    )


def run(
    contract: Contract,
    client: Client,
    *,
    baseline: Client | None = None,
    ledger: Ledger = EMPTY,
    profile: settings | None = None,
    progress: Callable[[], None] = lambda: None,
    examples: Sequence[str] | None = None,
) -> Trial:
    """Try one contract on a subject. ``profile`` defaults to the loaded Hypothesis profile;
    ``examples`` limits the published examples to these names; violations that ``ledger`` covers
    are counted and do not make the verdict."""
    started = time.monotonic()
    search = _Search(contract, client, baseline, ledger, progress)
    reason = None
    try:
        search.run_examples(examples)
        search.run_drawn(profile or settings())
        reason = search.stumbled
    except (_Halt, NotJudged, SubjectUnreadable, HypothesisException) as error:
        reason = str(error)
    finding = search.finding or (search.examples[0] if search.examples else None)
    return Trial(
        contract=contract.id,
        verdict=_verdict(finding, reason, len(search.judged)),
        deployments=len(search.judged),
        rejected=len(search.rejected),
        seconds=time.monotonic() - started,
        finding=finding,
        worst=search.worst,
        known=len(search.known),
        examples=tuple(search.examples),
        reason=reason if search.judged or reason else "no deployment could be judged",
    )


def stale(entry: Entry, client: Client, baseline: Client | None = None) -> str | None:
    """Why a ledger entry is stale, or None: its deployment must go on violating as it says.

    Raises:
        NotApplicable, NotJudged, Rejected, Stumbled: its deployment cannot be judged here.
    """
    findings = examine(law.get(entry.contract), entry.reproduce, client, baseline)
    if any(entry.bears(finding.violation) for finding in findings):
        return None
    label = client.subject.label
    if not findings:
        return f"{entry.name}: its deployment no longer violates on {label}: remove the entry"
    factor = findings[0].violation.factor
    return f"{entry.name}: its deployment now violates by {factor} on {label}: correct its bound"


def _verdict(finding: Finding | None, reason: str | None, judged: int) -> Verdict:
    """A violation that was seen stands, whatever broke after it; nothing seen is never held."""
    if finding is not None:
        return Verdict.VIOLATED
    if reason is not None or judged == 0:
        return Verdict.NOT_JUDGED
    return Verdict.HELD
