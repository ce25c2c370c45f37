"""The matrix: many subjects, all contracts, the same deployments.

What is found out about a subject is a record, a JSON file of its own (docs/record.schema.json), so
that a run that was ended goes on with the subjects that are missing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from hypothesis import settings

from contracts import __version__
from contracts.contract import Contract, Request
from contracts.deployment import Deployment
from contracts.examination import Finding
from contracts.hunt.merge import WHOLE, Shard, verdict
from contracts.hunt.shared import Shared
from contracts.observation import Failed, Observation, Refused, SubjectInfo, Unreadable
from contracts.profiles import PROFILES
from contracts.report.components import rows
from contracts.subject.client import Client, SubjectUnreadable
from contracts.subject.resolve import Subject
from contracts.survey import Named, Tally, different, survey
from contracts.trial import Workforce, drawn, examples
from contracts.units import GiB
from strategies.published import MODELS

__all__ = ["BUDGETS", "MATRIX", "PP_SIZES", "Plan", "Watch", "is_record", "record", "records"]

JSON = Any

#: Where records go, below the folder that the suite is run from.
MATRIX = Path(".contracts", "matrix")

_SCHEMA = 1

#: What the capacity of published models is asked for: the budgets are the whole memory of a card.
BUDGETS = (80 * GiB, 140 * GiB)
PP_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every subject is asked alike."""

    contracts: tuple[Contract, ...]
    profile: str
    device: str = "meta"
    jobs: int = 1
    shard: Shard = WHOLE
    database: Shared | None = None
    """Where cases and records are kept, and cases come from, if anywhere."""

    def decided(self, baseline: str | None) -> list[Contract]:
        """The contracts that can be judged with this baseline, or without one."""
        return [one for one in self.contracts if baseline is not None or not one.needs_baseline]

    def is_answered_by(self, document: JSON, baseline: str | None) -> bool:
        """Whether a record was made for this plan, by this suite: others' numbers are not ours."""
        contracts = [contract.id for contract in self.decided(baseline)]
        stated = {**self._stated(baseline), "schema": _SCHEMA, "suite": __version__}
        return {name: document.get(name) for name in stated} == stated and [
            contract["id"] for contract in document["contracts"]
        ] == contracts

    def _stated(self, baseline: str | None) -> dict[str, JSON]:
        return {
            "profile": self.profile,
            "device": self.device,
            "baseline": baseline,
            "shards": self.shard.to_json(),
        }

    def deployments(self, info: SubjectInfo) -> list[Named]:
        """This shard's share of the examples and the drawn deployments, then what is kept."""
        profile = PROFILES[self.profile]
        if not profile.derandomize:
            # Each shard draws its own; together they draw as many as one alone.
            count = -(-profile.max_examples // self.shard.of)
            own = drawn(info, settings(profile, max_examples=count))
            share = [*self.shard.share(examples()), *own]
        else:
            share = self.shard.share(different([*examples(), *drawn(info, profile)]))
        kept = self.database.cases([one.id for one in self.contracts]) if self.database else []
        return [*share, *kept]


class Watch(Protocol):
    """Whoever shows how far a survey is."""

    def started(self, total: int, label: str) -> None:
        """A subject is judged on so many deployments."""

    def advance(self) -> None:
        """One of them is done."""


def records(
    subjects: Sequence[Subject],
    plan: Plan,
    folder: Path,
    *,
    skip_existing: bool = False,
    watch: Watch,
) -> Iterator[JSON]:
    """A record of each subject, saved in ``folder`` as soon as it is complete.

    The baseline of each subject is the one before it. A subject that cannot be read has a record
    that says so, which is not saved. ``skip_existing`` keeps the records that answer the plan.
    """
    with _Workforces(plan) as workforces:
        for before, subject in zip([None, *subjects], subjects, strict=False):
            path = folder / _file_name(subject.label, plan.shard)
            baseline = None if before is None else before.label
            kept = read(path) if skip_existing else None
            if kept is not None and plan.is_answered_by(kept, baseline):
                yield kept
                continue
            try:
                workforce = workforces.of(subject, before)
                document = record(plan, workforce, watch)
            except SubjectUnreadable as error:
                yield _unreadable(plan, subject, baseline, str(error))
                continue
            write(document, path)
            if plan.database is not None:
                plan.database.add_record(document)
            yield document


class _Workforces:
    """Clients that stay: a subject is the next one's baseline."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._clients: dict[str, tuple[Client, ...]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._keep()

    def of(self, subject: Subject, baseline: Subject | None) -> Workforce:
        """Clients of a subject and of its baseline; all others are closed.

        Raises:
            SubjectUnreadable: the subject does not load.
        """
        self._keep(subject, *filter(None, [baseline]))
        subjects = self._of(subject)
        _ = subjects[0].info
        if baseline is None:
            return Workforce(subjects)
        return Workforce(subjects, self._of(baseline))

    def _of(self, subject: Subject) -> tuple[Client, ...]:
        if subject.label not in self._clients:
            first = Client(subject, device=self._plan.device)
            self._clients[subject.label] = first.alike(self._plan.jobs)
        return self._clients[subject.label]

    def _keep(self, *subjects: Subject) -> None:
        kept = {subject.label for subject in subjects}
        for label in [label for label in self._clients if label not in kept]:
            for client in self._clients.pop(label):
                client.close()


def record(plan: Plan, workforce: Workforce, watch: Watch) -> JSON:
    """Judge a subject to the end and write down what was found.

    Raises:
        SubjectUnreadable: the subject does not load.
    """
    baseline = workforce.baselines[0].subject.label if workforce.baselines else None
    contracts = plan.decided(baseline)
    judged = plan.deployments(workforce.info)
    watch.started(len(judged), workforce.info.label)
    tallies = survey(
        contracts, judged, workforce.pairs, info=workforce.info, progress=watch.advance
    )
    if plan.database is not None:
        for tally in tallies.values():
            if tally.worst is not None:
                plan.database.add_case(tally.contract, tally.worst.deployment)
    client = workforce.subjects[0]
    return {
        **_head(plan, workforce.info.to_json(), baseline),
        "contracts": [_contract(tallies[one.id], plan.shard, client) for one in contracts],
        "capacities": list(capacities(client)),
    }


def _head(plan: Plan, subject: JSON, baseline: str | None) -> dict[str, JSON]:
    return {
        "schema": _SCHEMA,
        "suite": __version__,
        "profile": plan.profile,
        "device": plan.device,
        "subject": subject,
        "baseline": baseline,
        "shards": plan.shard.to_json(),
    }


def _unreadable(plan: Plan, subject: Subject, baseline: str | None, reason: str) -> JSON:
    info = SubjectInfo(label=subject.label, version="unknown", era="unknown")
    tallies = [Tally(one.id, reason=reason) for one in plan.decided(baseline)]
    return {
        **_head(plan, info.to_json(), baseline),
        "contracts": [_counts(tally, plan.shard) for tally in tallies],
        "capacities": [],
    }


def _contract(tally: Tally, shard: Shard, client: Client) -> JSON:
    worst = None if tally.worst is None else _worst(tally.worst, client)
    return {**_counts(tally, shard), "worst": worst}


def _counts(tally: Tally, shard: Shard) -> JSON:
    counts = {
        "deployments": len(tally.judged),
        "rejected": len(tally.rejected),
        "violated": len(tally.violated),
        "reason": tally.reason or tally.stumbled,
    }
    said = verdict(counts, shard.to_json())
    return {"id": tally.contract, "verdict": str(said), **counts, "worst": None}


def _worst(finding: Finding, client: Client) -> JSON:
    """The worst finding, with the table of the rank that shows it."""
    violation = finding.violation
    return {
        **{
            field: getattr(violation, field)
            for field in (
                "rank",
                "component",
                "observed",
                "expected",
                "factor",
                "bytes",
                "message",
            )
        },
        "example": finding.example,
        "stages": finding.stages,
        "deployment": finding.deployment.to_json(),
        "rows": _rows(finding.deployment, violation.rank or 0, client),
    }


def _rows(deployment: Deployment, rank: int, client: Client) -> JSON:
    """Charged and allocated by component; null where the deployment is not served as it is."""
    request = Request(deployment=deployment, views=frozenset({"final"}))
    outcome = client.observe(request)
    if not isinstance(outcome, Observation):
        return None
    shown = outcome.ranks[rank]
    return (
        None
        if shown.final is None
        else [dataclasses.asdict(row) for row in rows(shown, shown.final)]
    )


def capacities(client: Client) -> Iterator[JSON]:
    """Full tokens of each published model, by budget and pipeline; where SGLang gives none, its
    sentence says why."""
    for name, model in MODELS.items():
        for budget in BUDGETS:
            for pp_size in PP_SIZES:
                deployment = Deployment(model=model, budget=budget, pp_size=pp_size)
                tokens, reason = _tokens(deployment, client)
                yield {
                    "model": name,
                    "budget": budget,
                    "pp_size": pp_size,
                    "tokens": tokens,
                    "reason": reason,
                }


def _tokens(deployment: Deployment, client: Client) -> tuple[int | None, str | None]:
    match client.observe(Request(deployment=deployment, views=frozenset({"final"}))):
        case Observation() as observed:
            return observed.final_tokens, None
        case Refused() | Failed() as refusal:
            return None, f"{refusal.kind}: {refusal.sentence}"
        case Unreadable() as unread:
            return None, unread.reason


def write(document: JSON, path: Path) -> None:
    """Write a record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    aside.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    aside.replace(path)


def read(path: Path) -> JSON | None:
    """What a record's file has, or None where there is no such file or no record in it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if is_record(document) else None


def is_record(document: JSON) -> bool:
    """Whether a document is a record of the format that is written here."""
    return (
        isinstance(document, dict)
        and document.get("schema") == _SCHEMA
        and {"suite", "subject", "contracts", "shards", "capacities"} <= document.keys()
    )


def _file_name(label: str, shard: Shard) -> str:
    named = re.sub(r"[^\w.@+-]+", "_", label)
    part = "" if shard.of == 1 else f".shard-{shard.index}-of-{shard.of}"
    return f"{named}{part}.json"
