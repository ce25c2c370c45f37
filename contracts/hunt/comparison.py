"""A candidate against a baseline, contract by contract, on the same deployments.

A maintainer asks what a change does: what it breaks or worsens, what it repairs, what was there
before. Each deployment has a standing, and a contract has the gravest of its deployments.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from contracts.contract import Contract
from contracts.deployment import Deployment
from contracts.examination import Finding
from contracts.survey import Named, Tally, distance, farthest

__all__ = ["FAILING", "Comparison", "Standing", "compare", "standing"]


class Standing(enum.StrEnum):
    """How a candidate stands to its baseline, the gravest first."""

    NOT_JUDGED = "not judged"
    NEW = "new"
    WORSE = "worse"
    UNEXPLAINED = "unexplained"
    EXPECTED = "expected"
    SAME = "same"
    FIXED = "fixed"
    HELD = "held"
    NOT_COMPARABLE = "not comparable"


#: The standings with which a candidate must not be merged.
FAILING = frozenset({Standing.NOT_JUDGED, Standing.NEW, Standing.WORSE, Standing.UNEXPLAINED})

#: Factors nearer than this are the same: the order of additions may differ.
_ALIKE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One contract on candidate and baseline.

    ``counts`` are deployments by standing, ``examples`` published ones by name. ``shown`` is what
    the candidate violates on one deployment of the contract's standing (all of it), ``before`` the
    baseline's violation there. ``reason`` says why something was not judged.
    """

    contract: str
    standing: Standing
    counts: Mapping[Standing, int]
    examples: Mapping[str, Standing]
    shown: tuple[Finding, ...] = ()
    before: Finding | None = None
    reason: str | None = None

    @property
    def fails(self) -> bool:
        """Whether the candidate must not be merged because of it."""
        return self.standing in FAILING


def compare(
    contract: Contract,
    judged: Iterable[Named],
    ours: Tally,
    theirs: Tally | None,
    *,
    expected: Collection[str] = (),
) -> Comparison:
    """Compare two surveys of the same deployments. ``theirs`` is None for a contract that itself
    compares with the baseline; a change that such a contract finds is unexplained, unless its id is
    among ``expected``."""
    standings: dict[str, Standing] = {}
    examples: dict[str, Standing] = {}
    for named in judged:
        deployment = contract.judged(named.deployment)
        found = standing(deployment, ours, theirs, expected=ours.contract in expected)
        standings[deployment.key()] = found
        if named.name is not None:
            examples[named.name] = found
    whole = _whole(ours, standings.values())
    worst = farthest(
        finding for key, finding in ours.violated.items() if standings.get(key) is whole
    )
    return Comparison(
        contract=ours.contract,
        standing=whole,
        counts={one: count for one in Standing if (count := _count(standings, one))},
        examples=examples,
        shown=() if worst is None else (worst,),
        before=_before(worst, theirs),
        reason=_reasons(ours, theirs),
    )


def standing(
    deployment: Deployment, ours: Tally, theirs: Tally | None, *, expected: bool = False
) -> Standing:
    """The standing of one deployment that both surveys were asked about."""
    key = deployment.key()
    if key not in ours.violated:
        if key not in ours.judged:
            return Standing.NOT_COMPARABLE
        return Standing.FIXED if theirs and key in theirs.violated else Standing.HELD
    if key not in ours.unknown:
        return Standing.SAME  # as the ledger knows
    if theirs is None and expected:
        return Standing.EXPECTED
    return _of_violation(key, ours, theirs)


def _of_violation(key: str, ours: Tally, theirs: Tally | None) -> Standing:
    """The standing of a violation that nobody knows or expects."""
    if theirs is None or key not in theirs.judged:
        return Standing.UNEXPLAINED
    if key not in theirs.violated:
        return Standing.NEW
    worse = _is_worse(ours.violated[key], theirs.violated[key])
    return Standing.WORSE if worse else Standing.SAME


def _is_worse(now: Finding, before: Finding) -> bool:
    farther = distance(now.violation.factor) - distance(before.violation.factor)
    return farther > _ALIKE


def _whole(ours: Tally, standings: Iterable[Standing]) -> Standing:
    """The gravest standing; nothing judged, or judging that broke off, is never better."""
    whole = min(standings, key=list(Standing).index, default=Standing.NOT_JUDGED)
    if whole in FAILING or not (ours.reason or ours.stumbled or not ours.judged):
        return whole
    return Standing.NOT_JUDGED


def _count(standings: Mapping[str, Standing], one: Standing) -> int:
    return sum(found is one for found in standings.values())


def _reasons(ours: Tally, theirs: Tally | None) -> str | None:
    mine = ours.reason or ours.stumbled
    others = None if theirs is None else theirs.reason or theirs.stumbled
    return mine or (None if others is None else f"baseline: {others}")


def _before(finding: Finding | None, theirs: Tally | None) -> Finding | None:
    if finding is None or theirs is None:
        return None
    return theirs.violated.get(finding.deployment.key())
