"""What a bisection has found, for a reader and for a program."""

from __future__ import annotations

import dataclasses
from typing import Any

from contracts.contract import Verdict
from contracts.hunt.bisection import Result
from contracts.hunt.revisions import Commit
from contracts.report import violation as violation_report

__all__ = ["document", "text"]

JSON = Any


def text(result: Result) -> str:
    """What was found, for a reader."""
    lines = _candidates(result) if result.first is None else _first(result, result.first)
    shown = violation_report.text(
        result.finding, subject=result.subject.name, replay=_replay(result) or "not saved"
    )
    return "\n".join([*lines, f"  {_counted(result)}", "", shown])


def _first(result: Result, first: Commit) -> list[str]:
    what = "bad commit"
    if result.span.find_fix:
        what = f"commit on which {result.question.contract.id} holds"
    return [
        f"first {what}: {first.sha}",
        f"  {first.title}",
        f"  {first.label}, author date {first.date}",
    ]


def _candidates(result: Result) -> list[str]:
    return [
        f"the first is one of these {len(result.candidates)} commits; all but the last one "
        "cannot be judged",
        *(f"  {commit.sha}  {commit.title}" for commit in result.candidates),
    ]


def _counted(result: Result) -> str:
    known = sum(entry.known for entry in result.log)
    past = sum(entry.judged.verdict is Verdict.NOT_JUDGED for entry in result.log)
    text = f"{len(result.log) - past} commits judged, {past} stepped past"
    return text + (f"; {known} of them known from earlier runs" if known else "")


def _violation(result: Result) -> JSON:
    fields = dataclasses.asdict(result.finding.violation)
    del fields["contract"]  # said above
    deployment = result.finding.deployment.to_json()
    return {**fields, "deployment": deployment, "replay": _replay(result)}


def document(result: Result) -> JSON:
    """What was found, for a program (docs/bisect.md)."""
    return {
        "schema": 1,
        "contract": result.question.contract.id,
        "find_fix": result.span.find_fix,
        "good": dataclasses.asdict(result.span.good),
        "bad": dataclasses.asdict(result.span.bad),
        "first": None if result.first is None else dataclasses.asdict(result.first),
        "candidates": [dataclasses.asdict(commit) for commit in result.candidates],
        "judged": [
            {
                **dataclasses.asdict(entry.commit),
                "verdict": str(entry.judged.verdict),
                "reason": entry.judged.reason,
                "known": entry.known,
            }
            for entry in result.log
        ],
        "violation": _violation(result),
    }


def _replay(result: Result) -> str | None:
    return None if result.case is None else violation_report.replay_line(result.case)
