"""A survey: contracts on many deployments, each of them judged to the end.

It looks for no smallest counterexample and stops at no violation: it tells for each contract how
many deployments were judged, which violate, and by how much at most. Several workers go through
the deployments side by side; what comes out does not depend on which was faster.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from contracts.contract import Contract, NotApplicable, NotJudged
from contracts.deployment import Deployment
from contracts.examination import (
    Finding,
    Gathered,
    Observer,
    Rejected,
    Stumbled,
    examine,
    subject_of,
)
from contracts.ledger import EMPTY, Ledger
from contracts.observation import SubjectInfo

__all__ = ["Named", "Pair", "Tally", "farther", "survey"]


@dataclass(frozen=True, slots=True)
class Named:
    """A deployment, with its name where it is a published example."""

    deployment: Deployment
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A subject to observe and, for contracts that compare, the baseline."""

    subject: Observer
    baseline: Observer | None = None


@dataclass(slots=True)
class Tally:
    """What a survey found about one contract.

    ``judged`` and ``rejected`` count different deployments. ``known`` of the judged ones violate
    as the ledger knows; ``findings`` are the first violation of each other one, in the order of
    the survey. ``worst`` is the violation whose factor is farthest from 1, known or not.
    ``reason`` says why a deployment could not be judged; what came after it was not tried.
    """

    contract: str
    judged: set[str] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    known: int = 0
    findings: list[Finding] = field(default_factory=list)
    worst: Finding | None = None
    reason: str | None = None
    stumbled: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What became of one contract on one deployment."""

    contract: str
    deployment: Deployment
    findings: tuple[Finding, ...] = ()
    judged: bool = False
    rejected: bool = False
    reason: str | None = None
    stumbled: str | None = None


def survey(
    contracts: Sequence[Contract],
    deployments: Sequence[Named],
    pairs: Sequence[Pair],
    *,
    info: SubjectInfo,
    ledger: Ledger = EMPTY,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Tally]:
    """Judge every contract on every deployment, with as many workers as there are ``pairs``.

    ``progress`` is called after each deployment, from the calling thread.
    """
    tallies = {contract.id: Tally(contract.id) for contract in contracts}
    # Closed also on an interrupt, so that no worker begins another deployment.
    with contextlib.closing(_in_parallel(contracts, _different(deployments), pairs)) as stream:
        for outcomes in stream:
            for outcome in outcomes:
                _count(tallies[outcome.contract], outcome, ledger, info)
            progress()
    return tallies


def _different(deployments: Iterable[Named]) -> list[Named]:
    """Each deployment once, by the name that it has first."""
    return list({named.deployment.key(): named for named in reversed(list(deployments))}.values())[
        ::-1
    ]


def _in_parallel(
    contracts: Sequence[Contract], deployments: Sequence[Named], pairs: Sequence[Pair]
) -> Generator[list[_Outcome]]:
    """The outcomes of each deployment, in the order of the deployments."""
    idle: queue.SimpleQueue[Pair] = queue.SimpleQueue()
    for pair in pairs:
        idle.put(pair)
    stopped = threading.Event()
    broken: set[str] = set()

    def examined(named: Named) -> list[_Outcome]:
        pair = idle.get()
        try:
            return list(_examined(contracts, named, pair, stopped, broken))
        finally:
            idle.put(pair)

    with ThreadPoolExecutor(len(pairs)) as pool:
        try:
            yield from pool.map(examined, deployments)
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _examined(
    contracts: Sequence[Contract],
    named: Named,
    pair: Pair,
    stopped: threading.Event,
    broken: set[str],
) -> Iterator[_Outcome]:
    gathered = Pair(
        Gathered(pair.subject, contracts, named.deployment),
        pair.baseline and Gathered(pair.baseline, contracts, named.deployment),
    )
    for contract in contracts:
        # One that could not be judged stays so, whatever others would say.
        if stopped.is_set() or contract.id in broken:
            continue
        outcome = _examine(contract, named, gathered)
        if outcome.reason is not None:
            broken.add(contract.id)
        yield outcome


def _examine(contract: Contract, named: Named, pair: Pair) -> _Outcome:
    deployment = subject_of(contract, named.deployment)
    outcome = _Outcome(contract=contract.id, deployment=deployment)
    try:
        found = examine(contract, deployment, pair.subject, pair.baseline)
        findings = tuple(dataclasses.replace(finding, example=named.name) for finding in found)
        outcome = dataclasses.replace(outcome, findings=findings, judged=True)
    except Rejected:
        outcome = dataclasses.replace(outcome, rejected=True)
    except NotApplicable:
        pass
    except Stumbled as error:
        outcome = dataclasses.replace(outcome, stumbled=f"{error} [{deployment}]")
    except NotJudged as error:
        outcome = dataclasses.replace(outcome, reason=f"{error} [{deployment}]")
    return outcome


def _count(tally: Tally, outcome: _Outcome, ledger: Ledger, info: SubjectInfo) -> None:
    tally.reason = tally.reason or outcome.reason
    tally.stumbled = tally.stumbled or outcome.stumbled
    key = outcome.deployment.key()
    if outcome.rejected:
        tally.rejected.add(key)
    if not outcome.judged or key in tally.judged:
        return
    tally.judged.add(key)
    for finding in outcome.findings:
        tally.worst = farther(tally.worst, finding)
    unknown = [
        finding
        for finding in outcome.findings
        if not ledger.covers(finding.violation, finding.deployment, info)
    ]
    tally.known += bool(outcome.findings) and not unknown
    tally.findings += unknown[:1]


def farther(one: Finding | None, other: Finding | None) -> Finding | None:
    """Whichever finding's factor is farther from 1, up or down; the first where they are alike."""
    return max(filter(None, (one, other)), key=_distance, default=None)


def _distance(finding: Finding) -> float:
    factor = finding.violation.factor
    if factor is None:
        return -1.0
    return abs(math.log(factor)) if factor > 0 else math.inf
