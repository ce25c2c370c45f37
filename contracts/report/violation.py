"""A finding as text: what disagrees, on which deployment, how to see it again."""

from __future__ import annotations

import shlex
from pathlib import Path

from contracts.examination import Finding
from contracts.ledger import Ledger
from contracts.observation import SubjectInfo
from contracts.units import format_bytes

__all__ = ["deployment_line", "ledger_line", "replay_line", "text"]

#: More ratios than this are abbreviated in the deployment's line.
_SHOWN_RATIOS = 12


def text(finding: Finding, *, subject: str, replay: str, ledger: str | None = None) -> str:
    """The three lines that every violation is shown as, and what the ledger says of it."""
    lines = [
        finding.violation.message,
        deployment_line(finding, subject),
        f"  replay: {replay}",
    ]
    return "\n".join(lines if ledger is None else [*lines, f"  ledger: {ledger}"])


def deployment_line(finding: Finding, subject: str) -> str:
    """The deployment that shows a violation, on one line."""
    return f"  [{_deployment(finding)} sglang={subject}]"


def ledger_line(ledger: Ledger, finding: Finding, subject: SubjectInfo) -> str:
    """What the ledger says of a violation that it does not cover, and what to do."""
    entry = ledger.nearest(finding.violation, finding.deployment, subject)
    if entry is None:
        return "not known; fix it, or record it with a bound and a reference (docs/ledger.md)"
    bound = "without a factor" if entry.bound is None else f"up to ×{entry.bound:.12g}"
    return f"worse than known: {entry.name} bears {bound} ({entry.reference})"


def replay_line(path: Path, *, baseline: str | None = None) -> str:
    """The command that replays a case file."""
    words = ["python", "-m", "contracts", "replay", str(path)]
    if baseline is not None:
        words += ["--baseline", baseline]
    return shlex.join(words)


def _deployment(finding: Finding) -> str:
    deployment = finding.deployment
    model = deployment.model
    parts = [f"layers={model.num_hidden_layers}", f"ratios={_ratios(model.compress_ratios)}"]
    if model.name != "generated":
        parts.insert(0, model.name)
    if model.sliding_window != 128:
        parts.append(f"window={model.sliding_window}")
    parts += [f"pp={deployment.pp_size}", f"stages={_stages(finding.stages)}"]
    if deployment.speculation is not None:
        stated = deployment.speculation.server_args()
        parts += [f"{name}={value}" for name, value in stated.items()]
    parts += [f"{name}={value}" for name, value in deployment.server_args.items()]
    parts += [f"{name}={value}" for name, value in deployment.env.items()]
    parts.append(f"budget={format_bytes(deployment.budget)}")
    return " ".join(parts)


def _ratios(ratios: tuple[int, ...]) -> str:
    if len(ratios) <= _SHOWN_RATIOS:
        return str(ratios)
    head = ", ".join(map(str, ratios[:8]))
    tail = ", ".join(map(str, ratios[-3:]))
    return f"({head}, … {tail}: {len(ratios)} in all)"


def _stages(stages: str) -> str:
    count = stages.count("[")
    if count <= 8:
        return stages
    first = stages.split(")", maxsplit=1)[0] + ")"
    last = stages[stages.rindex("[") :]
    return f"{first}…{last} ({count} in all)"
