"""A failing case: the deployment on which a contract did not hold, as a versioned JSON file."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.deployment import Deployment, DeploymentError
from contracts.examination import Finding

__all__ = ["FOLDER", "Case", "CaseError", "file_name", "load", "save", "written"]

JSON = Any

#: Where failing cases go, below the folder that the suite is run from.
FOLDER = Path(".contracts")

_SCHEMA = 1


class CaseError(ValueError):
    """A file is no failing case; the text names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What ``replay`` needs: contract, deployment, and the subjects as they were named."""

    contract: str
    subject: str
    baseline: str | None
    deployment: Deployment
    message: str


def file_name(contract: str, deployment: Deployment) -> str:
    """The name of a case's file: the same case is one file."""
    key = hashlib.sha256(deployment.key().encode()).hexdigest()[:10]
    return f"{contract}-{key}.json"


def written(case: Case) -> str:
    """A case as its file has it."""
    document = {
        "schema": _SCHEMA,
        "contract": case.contract,
        "subject": case.subject,
        "baseline": case.baseline,
        "deployment": case.deployment.to_json(),
        "message": case.message,
    }
    return json.dumps(document, indent=1) + "\n"


def save(finding: Finding, *, subject: str, baseline: str | None, folder: Path = FOLDER) -> Path:
    """Write a finding as a case file and return its path."""
    case = Case(
        contract=finding.violation.contract,
        subject=subject,
        baseline=baseline,
        deployment=finding.deployment,
        message=finding.violation.message,
    )
    path = folder / file_name(case.contract, case.deployment)
    folder.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    aside.write_text(written(case), encoding="utf-8")
    aside.replace(path)
    return path


def load(path: Path) -> Case:
    """Read a case file.

    Raises:
        CaseError: it cannot be read, is no JSON, or is no case of a known schema.
    """
    try:
        document: JSON = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CaseError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise CaseError(f"{path}: no JSON: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
        raise CaseError(f"{path}: no failing case of schema {_SCHEMA}")
    try:
        for name in ("contract", "subject", "message"):
            if not isinstance(document[name], str):
                raise CaseError(f"{path}: {name}: a text is expected, got {document[name]!r}")
        if not isinstance(document["baseline"], str | None):
            raise CaseError(f"{path}: baseline: a text or null is expected")
        return Case(
            contract=document["contract"],
            subject=document["subject"],
            baseline=document["baseline"],
            deployment=Deployment.from_json(document["deployment"]),
            message=document["message"],
        )
    except KeyError as error:
        raise CaseError(f"{path}: field {error} is missing") from None
    except DeploymentError as error:
        raise CaseError(f"{path}: deployment: {error}") from None
