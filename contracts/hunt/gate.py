"""The gate on a change: a candidate is judged, and compared with what was there before."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

from hypothesis import settings

from contracts.contract import Contract
from contracts.deployment import Deployment
from contracts.examination import Finding, examine
from contracts.hunt.comparison import FAILING, Comparison, compare, standing
from contracts.ledger import EMPTY, Ledger
from contracts.observation import SubjectInfo
from contracts.survey import Named, Pair, Tally, survey
from contracts.trial import Workforce, drawn, examples, simplest

__all__ = ["run"]


def run(
    contracts: Sequence[Contract],
    workforce: Workforce,
    *,
    profile: settings,
    ledger: Ledger = EMPTY,
    expected: Collection[str] = (),
    started: Callable[[int], None] = lambda total: None,  # noqa: ARG005
    progress: Callable[[], None] = lambda: None,
) -> list[Comparison]:
    """Compare the workforce's subject, the candidate, with its baseline.

    Both are judged on the same deployments. What the candidate can honour and the baseline does
    not know is judged too, and compared with nothing. A contract that fails is shown on the
    simplest deployment on which it does.
    """
    baseline = workforce.baselines[0].info
    judged = [*examples(), *drawn(workforce.info, profile)]
    shared = [named for named in judged if _is_shared(named, baseline)]
    started(len(judged) + len(shared))
    ours = survey(
        contracts,
        judged,
        workforce.pairs,
        info=workforce.info,
        ledger=ledger,
        progress=progress,
    )
    alone = [contract for contract in contracts if not contract.needs_baseline]
    pairs = [Pair(client) for client in workforce.baselines]
    theirs = survey(alone, shared, pairs, info=baseline, progress=progress)
    found = [
        compare(contract, judged, ours[contract.id], theirs.get(contract.id), expected=expected)
        for contract in contracts
    ]
    return [
        _with_all_shown(contract, comparison, workforce, profile, ledger)
        for contract, comparison in zip(contracts, found, strict=True)
    ]


def _is_shared(named: Named, baseline: SubjectInfo) -> bool:
    """Whether the baseline has a name for all that a deployment states: an environment variable
    that it does not read would have no effect, and the two would be judged on different things."""
    deployment, known = named.deployment, baseline.capabilities
    speculation = deployment.speculation
    return (
        set(deployment.server_args) <= known.arguments
        and set(deployment.all_env()) <= known.variables
        and (speculation is None or speculation.algorithm in known.algorithms)
        and deployment.model.model_type in known.model_types
    )


def _with_all_shown(
    contract: Contract,
    comparison: Comparison,
    workforce: Workforce,
    profile: settings,
    ledger: Ledger,
) -> Comparison:
    """A comparison that shows all that is violated on its deployment: what else differs at pp_size
    1, for one, is why the capacity does. What fails is shown on the simplest deployment."""
    if not comparison.shown:
        return comparison
    pair = workforce.pairs[0]

    def failing(deployment: Deployment) -> list[Finding]:
        judged = Named(contract.judged(deployment))
        sides = _sides(contract, judged, workforce, ledger)
        return (
            _all(contract, judged, pair) if standing(judged.deployment, *sides) in FAILING else []
        )

    shown = simplest(workforce.info, profile, failing) if comparison.fails else []
    first = comparison.shown[0]
    shown = shown or _all(contract, Named(first.deployment, first.example), pair)
    (_ours, theirs) = _sides(contract, Named(shown[0].deployment), workforce, ledger)
    before = None if theirs is None else theirs.worst
    return dataclasses.replace(comparison, shown=tuple(shown), before=before)


def _sides(
    contract: Contract, judged: Named, workforce: Workforce, ledger: Ledger
) -> tuple[Tally, Tally | None]:
    """Candidate and baseline on one deployment; no baseline where the contract itself compares."""
    pair, info = workforce.pairs[0], workforce.info
    (ours,) = survey([contract], [judged], [pair], info=info, ledger=ledger).values()
    client = workforce.baselines[0]
    if contract.needs_baseline or not _is_shared(judged, client.info):
        return ours, None if contract.needs_baseline else Tally(contract.id)
    (theirs,) = survey([contract], [judged], [Pair(client)], info=client.info).values()
    return ours, theirs


def _all(contract: Contract, judged: Named, pair: Pair) -> list[Finding]:
    found = examine(contract, judged.deployment, pair.subject, pair.baseline)
    return [dataclasses.replace(finding, example=judged.name) for finding in found]
