"""What one release gets wrong, in numbers: the ground of the ledger's bounds and of the findings.

The gate's deployments are surveyed to the end. For each entry of the ledger that speaks of the
release the worst violation is kept, for each contract the worst of all, and what a violation costs
on cards of two sizes is read off published deployments.

    python -m contracts.hunt.measure [RELEASE…]     measure, and write docs/measurements.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from contracts import law
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
from contracts.hunt.merge import WHOLE, verdict
from contracts.ledger import Entry, Ledger, load, shipped
from contracts.observation import Observation
from contracts.profiles import PROFILES
from contracts.subject.client import Client, default_jobs
from contracts.subject.overlay import ConsoleReport
from contracts.subject.releases import RELEASES
from contracts.subject.resolve import resolve
from contracts.survey import Tally, farthest, survey
from contracts.trial import Workforce, drawn, examples
from contracts.units import GiB, MiB
from strategies.published import DSPARK, EAGLE, MODELS

__all__ = [
    "CARDS",
    "FILE",
    "SERVED",
    "Card",
    "costs",
    "factors_of",
    "marginal",
    "measure",
    "releases_of",
]

JSON = Any

#: The measurements of all releases.
FILE = Path(__file__).parents[2] / "docs" / "measurements.json"


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU, and what a real server on it had left for its pools."""

    name: str
    budget: int
    source: str


#: Budgets of real servers: a log, and tokens of a profiled stage worked back (docs/findings.md).
CARDS = (
    Card("80 GiB", 46_883 * MiB, "Flash-Base at TP8, logged: 45.78 GiB"),
    Card("140 GiB", 92 * GiB, "Flash FP8 at TP2 x PP4 on H200, from the tokens of its stages"),
)

#: Bytes per token that the sum of a coefficient's parts may be off by rounding.
_ROUNDING = 1e-6


def _served(model: str, **stated: Any) -> Deployment:
    arguments = {} if "4.1" in model else {"swa_full_tokens_ratio": 0.1}
    return Deployment(model=MODELS[model], budget=GiB, **{"server_args": arguments, **stated})


#: What is served on the cards.
SERVED = {
    "Flash": _served("deepseek-v4-flash"),
    "Flash PP4": _served("deepseek-v4-flash", pp_size=4),
    "Flash EAGLE": _served("deepseek-v4-flash", speculation=EAGLE),
    "Flash EAGLE PP4": _served(
        "deepseek-v4-flash", pp_size=4, speculation=EAGLE, env={"SGLANG_ENABLE_PP_SPEC": "1"}
    ),
    "Flash-0731 DSPARK": _served("deepseek-v4-flash-0731", speculation=DSPARK),
    "Pro PP4": _served("deepseek-v4-pro", pp_size=4),
    "V4.1-Flash": _served("deepseek-v4.1-flash"),
    "V4.1-Flash replay": _served(
        "deepseek-v4.1-flash",
        server_args={
            "enable_encoder_swa_bounded_replay": True,
            # Until 0.5.22 replay is refused with them.
            "cuda_graph_backend_prefill": "disabled",
        },
    ),
}


def measure(workforce: Workforce, ledger: Ledger) -> JSON:
    """The measurements of one release, as docs/measurements.json keeps them."""
    contracts = [contract for contract in law.ALL.values() if not contract.needs_baseline]
    judged = [*examples(), *drawn(workforce.info, PROFILES["gate"])]
    tallies = survey(
        contracts, judged, workforce.pairs, info=workforce.info, ledger=ledger, keep_all=True
    )
    return {
        "contracts": {
            tally.contract: _contract(tally, ledger, workforce) for tally in tallies.values()
        },
        "cards": list(costs(contracts, workforce.subjects[0])),
        "marginal": marginal(workforce.subjects[0]),
    }


def _contract(tally: Tally, ledger: Ledger, workforce: Workforce) -> JSON:
    counts = {
        "deployments": len(tally.judged),
        "violated": len(tally.violated),
        "reason": tally.reason or tally.stumbled,
    }
    entries = ledger.of(tally.contract, workforce.info)
    return {
        "verdict": str(verdict(counts, WHOLE.to_json())),
        **counts,
        "worst": _told(tally.worst),
        "unknown": len(tally.unknown),
        "entries": [_entry(entry, tally, workforce) for entry in entries],
    }


def _entry(entry: Entry, tally: Tally, workforce: Workforce) -> JSON:
    """The worst that an entry speaks of, whether its bound bears it or not."""
    spoken = [
        finding
        for finding in tally.all
        if entry.speaks_of(tally.contract, finding.deployment, workforce.info)
        and (not finding.violation.factor) == (entry.bound is None)
    ]
    worst = farthest(spoken)
    factor = None if worst is None else worst.violation.factor
    return {"entry": entry.name, "findings": len(spoken), "factor": factor}


def releases_of(entry: Entry) -> list[str]:
    """The known releases that an entry speaks of."""
    return [release for release in RELEASES if release in entry.subjects]


def factors_of(entry: Entry, measurements: Mapping[str, JSON]) -> list[float | None]:
    """The worst factor of an entry on each of its releases, as it was measured."""
    told = [measurements[name]["contracts"][entry.contract] for name in releases_of(entry)]
    return [one["factor"] for part in told for one in part["entries"] if one["entry"] == entry.name]


def _told(finding: Finding | None) -> JSON:
    if finding is None:
        return None
    return {
        "factor": finding.violation.factor,
        "message": finding.violation.message,
        "deployment": finding.deployment.to_json(),
    }


def costs(
    contracts: Sequence[Contract], client: Client, names: Sequence[str] = tuple(SERVED)
) -> Iterator[JSON]:
    """What each contract's violation is about on the cards, in bytes of the rank with the most.
    ``names`` are those of the served models."""
    for served in names:
        for card in CARDS:
            asked = SERVED[served].with_budget(card.budget)
            gathered = Gathered(client, contracts, asked)
            for contract in contracts:
                found = _found(contract, asked, gathered)
                if found:
                    yield {
                        "contract": contract.id,
                        "served": served,
                        "card": card.name,
                        "factor": farthest(found).violation.factor,  # type: ignore[union-attr]
                        "bytes": _bytes(found),
                    }


def marginal(client: Client) -> JSON:
    """Bytes per full token of Flash at pp_size 1, charged and allocated, and where they part."""
    deployment = SERVED["Flash"].with_budget(60 * GiB)
    (request,) = law.get("marginal-bytes").plan(deployment)
    observed = client.observe(request)
    assert isinstance(observed, Observation), observed
    (rank,) = observed.ranks
    below, above = rank.at[0], rank.at[1]
    step = above.tokens - below.tokens
    grown = {
        name: Fraction(part.bytes - below.pool.components[name].bytes, step)
        for name, part in above.pool.components.items()
    }
    charges = rank.configurator.charges or {}
    return {
        "charged": rank.configurator.target_bytes_per_full_token,
        "allocated": float(sum(grown.values())),
        "parts": {
            name: [charges.get(name, 0.0), float(rate)]
            for name, rate in sorted(grown.items())
            if abs(charges.get(name, 0.0) - rate) > _ROUNDING
        },
    }


def _found(contract: Contract, deployment: Deployment, subject: Observer) -> list[Finding]:
    if contract.single_rank and deployment.pp_size > 1:
        return []
    try:
        return examine(contract, deployment, subject)
    except (Rejected, Stumbled, NotApplicable, NotJudged):
        return []


def _bytes(found: Sequence[Finding]) -> int | None:
    """Bytes in question on the rank that has the most."""
    ranks: dict[int | None, int] = {}
    for finding in found:
        if finding.violation.bytes is not None:
            rank = finding.violation.rank
            ranks[rank] = ranks.get(rank, 0) + finding.violation.bytes
    return max(ranks.values(), default=None)


def main(releases: Sequence[str]) -> None:
    """Measure releases one after the other; each one's measurements are written at once."""
    ledger = load(shipped())
    for release in releases:
        first = Client(resolve(release, report=ConsoleReport()))
        clients = first.alike(default_jobs())
        try:
            measured = measure(Workforce(clients), ledger)
        finally:
            for client in clients:
                client.close()
        kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
        whole = {**kept, release: measured}
        ordered = {name: whole[name] for name in RELEASES if name in whole}
        FILE.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
        sys.stderr.write(f"measured {release}\n")


if __name__ == "__main__":
    main(sys.argv[1:] or RELEASES)
