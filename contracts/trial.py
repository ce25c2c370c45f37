"""Trials: contracts, one subject, many deployments; each ends in a verdict.

The pytest gate and the command line both judge through here. The deployments are the published
examples and what Hypothesis draws, the same for every contract and subject. All contracts are
judged on all of them first (:mod:`contracts.survey`); a contract that turns out to be violated is
then searched alone, so that Hypothesis shrinks the counterexample.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis.errors import HypothesisException

from contracts import law
from contracts.contract import Contract, NotApplicable, NotJudged, Verdict
from contracts.deployment import Deployment
from contracts.examination import Finding, Rejected, Stumbled, examine
from contracts.ledger import EMPTY, Entry, Ledger
from contracts.observation import SubjectInfo
from contracts.subject.client import Client
from contracts.survey import Named, Pair, Tally, survey
from strategies.corners import CORNERS
from strategies.deployment import deployments
from strategies.published import DEPLOYMENTS

__all__ = ["Trial", "Workforce", "drawn", "examples", "run", "simplest", "stale", "verdict_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of a trial.

    ``deployments`` were judged, ``rejected`` of the drawn ones were refused by SGLang; both count
    different deployments, however often Hypothesis drew one.
    ``finding`` is the violation to show: the shrunk one where a generated deployment violates.
    ``worst`` is the violation whose factor is farthest from 1, on any deployment; ``known`` counts
    the deployments whose violations the ledger covers; those do not make the verdict. ``examples``
    are the published examples that violate. ``reason`` says why nothing was judged, or why judging
    broke off.
    """

    contract: str
    verdict: Verdict
    deployments: int
    rejected: int
    finding: Finding | None = None
    worst: Finding | None = None
    known: int = 0
    examples: tuple[Finding, ...] = ()
    reason: str | None = None

    @property
    def factor(self) -> float | None:
        """The factor of the worst violation, None where there is none or it has no factor."""
        return None if self.worst is None else self.worst.violation.factor


@dataclass(frozen=True, slots=True)
class Workforce:
    """Clients of one subject, and of the baseline if there is one, that work side by side."""

    subjects: tuple[Client, ...]
    baselines: tuple[Client, ...] = ()

    @property
    def info(self) -> SubjectInfo:
        """What the subject says of itself."""
        return self.subjects[0].info

    @property
    def pairs(self) -> list[Pair]:
        """A subject and its baseline for each worker."""
        if not self.baselines:
            return [Pair(subject) for subject in self.subjects]
        return [Pair(*pair) for pair in zip(self.subjects, self.baselines, strict=True)]


def examples(names: Sequence[str] | None = None) -> list[Named]:
    """The published examples and the corners: those with these names, or all."""
    named = {example.name: example.deployment for example in DEPLOYMENTS} | {**CORNERS}
    return [
        Named(deployment, name)
        for name, deployment in named.items()
        if names is None or name in names
    ]


def drawn(info: SubjectInfo, profile: settings) -> list[Named]:
    """The deployments that Hypothesis draws under a profile."""
    collected: list[Named] = []
    _over_drawn(info, profile, lambda deployment: collected.append(Named(deployment)))
    return collected


def _over_drawn(info: SubjectInfo, profile: settings, visit: Callable[[Deployment], None]) -> None:
    # One inner function for whatever is done with the draws: Hypothesis seeds a derandomized
    # search by it, so that they are the same deployments every time.
    @profile
    @given(deployments(capabilities=info.capabilities))
    def judge(deployment: Deployment) -> None:
        visit(deployment)

    judge()


def run(
    contracts: Sequence[Contract],
    workforce: Workforce,
    *,
    ledger: Ledger = EMPTY,
    profile: settings | None = None,
    names: Sequence[str] | None = None,
    started: Callable[[int], None] = lambda total: None,  # noqa: ARG005
    progress: Callable[[], None] = lambda: None,
) -> list[Trial]:
    """Try contracts on a subject. ``profile`` defaults to the loaded Hypothesis profile;
    ``names`` limits the published examples to these; violations that ``ledger`` covers are counted
    and do not make the verdict. ``started`` is told how many deployments there are, ``progress``
    is called after each."""
    chosen = profile or settings()
    judged = [*examples(names), *drawn(workforce.info, chosen)]
    started(len(judged))
    tallies = survey(
        contracts,
        judged,
        workforce.pairs,
        info=workforce.info,
        ledger=ledger,
        progress=progress,
    )
    return [
        _trial(contract, tallies[contract.id], workforce, ledger, chosen) for contract in contracts
    ]


def _trial(
    contract: Contract, tally: Tally, workforce: Workforce, ledger: Ledger, profile: settings
) -> Trial:
    finding = _shown(contract, tally, workforce, ledger, profile)
    reason = tally.reason or tally.stumbled
    return Trial(
        contract=contract.id,
        verdict=verdict_of(tally, known=False),
        deployments=len(tally.judged),
        rejected=len(tally.rejected),
        finding=finding,
        worst=tally.worst,
        known=tally.known,
        examples=tuple(finding for finding in tally.findings if finding.example is not None),
        reason=reason if tally.judged or reason else "no deployment could be judged",
    )


def verdict_of(tally: Tally, *, known: bool = True) -> Verdict:
    """The verdict of a survey. A violation that was seen stands, whatever broke after it; nothing
    seen is never held. ``known`` says whether violations that the ledger covers count too."""
    if tally.violated if known else tally.findings:
        return Verdict.VIOLATED
    if tally.reason or tally.stumbled or not tally.judged:
        return Verdict.NOT_JUDGED
    return Verdict.HELD


def _shown(
    contract: Contract, tally: Tally, workforce: Workforce, ledger: Ledger, profile: settings
) -> Finding | None:
    """The finding to show: of the drawn deployments a shrunk one, else the first example."""
    if all(finding.example is not None for finding in tally.findings):
        return tally.findings[0] if tally.findings else None
    pair, info = workforce.pairs[0], workforce.info

    def unknown(deployment: Deployment) -> list[Finding]:
        return [
            finding
            for finding in examine(contract, deployment, pair.subject, pair.baseline)
            if not ledger.covers(finding.violation, finding.deployment, info)
        ]

    first = next(finding for finding in tally.findings if finding.example is None)
    return next(iter(simplest(info, profile, unknown)), first)


def simplest(
    info: SubjectInfo, profile: settings, look: Callable[[Deployment], list[Finding]]
) -> list[Finding]:
    """What ``look`` finds on the simplest deployment on which it finds something, as Hypothesis
    shrinks; nothing where it finds nothing on any drawn one."""
    found: list[Finding] = []

    def visit(deployment: Deployment) -> None:
        try:
            findings = look(deployment)
        except (Rejected, NotApplicable, NotJudged, Stumbled):
            # The survey has counted it; here it only is no counterexample.
            return
        if findings:
            found[:] = findings
            raise _Found

    with contextlib.suppress(HypothesisException, _Found):
        _over_drawn(info, profile, visit)
    return found


class _Found(Exception):
    """Something was found on the drawn deployment."""


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
