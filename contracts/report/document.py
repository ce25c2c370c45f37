"""The JSON of ``judge`` (docs/judge.schema.json)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contracts.examination import Finding
from contracts.observation import SubjectInfo
from contracts.trial import Trial

__all__ = ["finding_document", "judge_document"]

JSON = Any


def judge_document(
    subject: SubjectInfo, profile: str, trials: Sequence[tuple[Trial, str | None]]
) -> dict[str, JSON]:
    """The document for trials, each with the replay line of its finding."""
    return {
        "schema": 1,
        "subject": subject.to_json(),
        "profile": profile,
        "contracts": [_trial(trial, replay) for trial, replay in trials],
    }


def _trial(trial: Trial, replay: str | None) -> dict[str, JSON]:
    return {
        "id": trial.contract,
        "verdict": str(trial.verdict),
        "deployments": trial.deployments,
        "rejected": trial.rejected,
        "reason": trial.reason,
        "worst": trial.factor,
        "known": trial.known,
        "violation": None if trial.finding is None else finding_document(trial.finding, replay),
        "examples": [
            {"name": found.example, "factor": found.violation.factor} for found in trial.examples
        ],
    }


def finding_document(finding: Finding, replay: str | None) -> dict[str, JSON]:
    """A violation, the deployment that shows it, and how to see it again."""
    violation = finding.violation
    return {
        "rank": violation.rank,
        "component": violation.component,
        "observed": violation.observed,
        "expected": violation.expected,
        "factor": violation.factor,
        "bytes": violation.bytes,
        "message": violation.message,
        "deployment": finding.deployment.to_json(),
        "replay": replay,
    }
