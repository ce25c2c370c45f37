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
)
from contracts.ledger import EMPTY, Ledger
from contracts.observation import SubjectInfo

__all__ = ["Named", "Pair", "Tally", "different", "distance", "farthest", "survey"]


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

    Deployments by their keys, in the order of the survey: ``judged`` and ``rejected``; of each one
    that violates, ``violated`` has the violation whose factor is farthest from 1, and ``unknown``
    the first that the ledger does not know. ``all`` are all violations of all deployments, where a
    survey keeps them. ``reason`` says why a deployment could not be judged; what came after it was
    not tried.
    """

    contract: str
    judged: dict[str, None] = field(default_factory=dict)
    rejected: dict[str, None] = field(default_factory=dict)
    violated: dict[str, Finding] = field(default_factory=dict)
    unknown: dict[str, Finding] = field(default_factory=dict)
    all: list[Finding] = field(default_factory=list)
    reason: str | None = None
    stumbled: str | None = None

    @property
    def known(self) -> int:
        """Deployments that violate in no other way than the ledger knows."""
        return len(self.violated) - len(self.unknown)

    @property
    def findings(self) -> list[Finding]:
        """The first violation of each deployment that the ledger does not know."""
        return list(self.unknown.values())

    @property
    def worst(self) -> Finding | None:
        """The violation whose factor is farthest from 1 of all deployments."""
        return farthest(self.violated.values())


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
    keep_all: bool = False,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Tally]:
    """Judge every contract on every deployment, with as many workers as there are ``pairs``.

    ``progress`` is called after each deployment, from the calling thread. ``keep_all`` keeps every
    violation, not just the worst of each deployment.
    """
    tallies = {contract.id: Tally(contract.id) for contract in contracts}
    # Closed also on an interrupt, so that no worker begins another deployment.
    with contextlib.closing(_in_parallel(contracts, different(deployments), pairs)) as stream:
        for outcomes in stream:
            for outcome in outcomes:
                _count(tallies[outcome.contract], outcome, ledger, info)
                if keep_all:
                    tallies[outcome.contract].all += outcome.findings
            progress()
    return tallies


def different(deployments: Iterable[Named]) -> list[Named]:
    """Each deployment once, by the name that it has first."""
    first: dict[str, Named] = {}
    for named in deployments:
        first.setdefault(named.deployment.key(), named)
    return list(first.values())


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
    deployment = contract.judged(named.deployment)
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
        tally.rejected[key] = None
    if not outcome.judged or key in tally.judged:
        return
    tally.judged[key] = None
    worst = farthest(outcome.findings)
    if worst is not None:
        tally.violated[key] = worst
    for finding in reversed(outcome.findings):
        if not ledger.covers(finding.violation, finding.deployment, info):
            tally.unknown[key] = finding


def farthest(findings: Iterable[Finding]) -> Finding | None:
    """The finding whose factor is farthest from 1, up or down; the first of those alike."""
    return max(findings, key=lambda finding: distance(finding.violation.factor), default=None)


def distance(factor: float | None) -> float:
    """How far a factor is from 1, up or down alike: 2 and 1/2 are as far. None is nearest of all,
    0 is infinitely far."""
    if factor is None:
        return -1.0
    return abs(math.log(factor)) if factor > 0 else math.inf
