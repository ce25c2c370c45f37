"""Replay a failing case: is it fixed on a subject?"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from contracts import law
from contracts.contract import NotApplicable, NotJudged
from contracts.examination import Finding, Rejected, Stumbled, examine
from contracts.hunt.case import Case
from contracts.subject.client import Client

__all__ = ["Answer", "Replay", "replay"]


class Answer(enum.StrEnum):
    """What a replay says. An error is neither of the other two."""

    FIXED = "FIXED"
    FAILED = "FAILED"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The answer, with the finding of a failure or the reason of an error."""

    answer: Answer
    finding: Finding | None = None
    reason: str | None = None


def replay(case: Case, client: Client, baseline: Client | None) -> Replay:
    """Judge the case's deployment once more."""
    try:
        findings = examine(law.get(case.contract), case.deployment, client, baseline)
    except Rejected as refusal:
        return Replay(answer=Answer.ERROR, reason=f"SGLang refuses the deployment: {refusal}")
    except (NotApplicable, NotJudged, Stumbled, law.UnknownContractError) as error:
        return Replay(answer=Answer.ERROR, reason=str(error))
    if findings:
        return Replay(answer=Answer.FAILED, finding=findings[0])
    return Replay(answer=Answer.FIXED)
