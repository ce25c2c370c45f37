"""A comparison of candidate and baseline: as a table, as Markdown, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from contracts.hunt.comparison import FAILING, Comparison, Standing
from contracts.observation import SubjectInfo
from contracts.report.violation import deployment_line

__all__ = ["comparisons_table", "document", "markdown", "sentence"]

JSON = Any

_STYLES = {
    **dict.fromkeys(FAILING, "red"),
    Standing.EXPECTED: "yellow",
    Standing.SAME: "yellow",
    Standing.FIXED: "bold green",
    Standing.HELD: "green",
}

#: More differences of one deployment than these are counted, not shown.
_SHOWN = 12

#: More published deployments than these are counted, not named.
_NAMED = 8


def comparisons_table(comparisons: Sequence[Comparison]) -> Table:
    """One row per contract."""
    table = Table(box=None, pad_edge=False)
    for heading in ("contract", "standing"):
        table.add_column(heading, no_wrap=True)
    for heading in ("factor", "before"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("deployments", overflow="fold")
    table.add_column("reason", overflow="fold")
    for comparison in comparisons:
        table.add_row(
            comparison.contract,
            Text(comparison.standing, style=_STYLES.get(comparison.standing, "")),
            _factor(_now(comparison)),
            _factor(_before(comparison)),
            _counted(comparison),
            Text(comparison.reason or ""),
        )
    return table


def sentence(comparisons: Sequence[Comparison], candidate: str, baseline: str) -> str:
    """The outcome in one sentence."""
    against = f"{candidate} against {baseline}"
    failing = [comparison for comparison in comparisons if comparison.fails]
    fixed = [one.contract for one in comparisons if one.standing is Standing.FIXED]
    parts = [f"fixes {', '.join(fixed)}"] if fixed else []
    if not failing:
        return "; ".join([f"{against}: nothing new, worse or unexplained", *parts])
    named = ", ".join(f"{one.contract} ({one.standing})" for one in failing)
    return "; ".join([f"{against}: {named}", *parts])


def markdown(
    comparisons: Sequence[Comparison], candidate: SubjectInfo, baseline: SubjectInfo
) -> str:
    """A summary for a pull request: the sentence, a table, and a section for what fails."""
    lines = [
        "## SGLang pool contracts",
        "",
        _escaped(sentence(comparisons, candidate.label, baseline.label)) + ".",
        "",
        "| contract | standing | factor | before | deployments |",
        "|---|---|---:|---:|---|",
        *(_markdown_row(comparison) for comparison in comparisons),
        "",
    ]
    for comparison in comparisons:
        if comparison.fails or comparison.standing is Standing.EXPECTED:
            lines += [*_markdown_section(comparison, candidate.label), ""]
    return "\n".join(lines)


def _markdown_row(comparison: Comparison) -> str:
    standing = f"**{comparison.standing}**" if comparison.fails else str(comparison.standing)
    cells = (
        f"`{comparison.contract}`",
        standing,
        _factor(_now(comparison)),
        _factor(_before(comparison)),
        _escaped(_counted(comparison)),
    )
    return f"| {' | '.join(cells)} |"


def _markdown_section(comparison: Comparison, candidate: str) -> Iterator[str]:
    yield f"### `{comparison.contract}`: {comparison.standing}"
    yield ""
    if comparison.reason is not None:
        yield _escaped(comparison.reason)
        yield ""
    if comparison.shown:
        yield "```text"
        yield from _shown(comparison, candidate)
        yield "```"
    for line in _examples(comparison):
        yield ""
        yield line


def _shown(comparison: Comparison, candidate: str) -> Iterator[str]:
    for finding in comparison.shown[:_SHOWN]:
        yield finding.violation.message
    if len(comparison.shown) > _SHOWN:
        yield f"… and {len(comparison.shown) - _SHOWN} more differences"
    yield deployment_line(comparison.shown[0], candidate)
    if comparison.before is not None:
        yield f"before: {comparison.before.violation.message}"


def _examples(comparison: Comparison) -> Iterator[str]:
    """The published deployments of the contract's standing, by name."""
    named = [
        name for name, standing in comparison.examples.items() if standing is comparison.standing
    ]
    if named:
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        yield f"Published deployments with this standing: {', '.join(named[:_NAMED])}{more}."


def document(
    comparisons: Sequence[Comparison],
    candidate: SubjectInfo,
    baseline: SubjectInfo,
    *,
    profile: str,
) -> JSON:
    """The JSON of ``gate`` (docs/gate.schema.json)."""
    return {
        "schema": 1,
        "candidate": candidate.to_json(),
        "baseline": baseline.to_json(),
        "profile": profile,
        "fails": any(comparison.fails for comparison in comparisons),
        "contracts": [_comparison(comparison) for comparison in comparisons],
    }


def _comparison(comparison: Comparison) -> JSON:
    return {
        "id": comparison.contract,
        "standing": str(comparison.standing),
        "fails": comparison.fails,
        "factor": _now(comparison),
        "before": _before(comparison),
        "deployments": {str(one): count for one, count in comparison.counts.items()},
        "examples": {name: str(one) for name, one in comparison.examples.items()},
        "messages": [finding.violation.message for finding in comparison.shown],
        "deployment": comparison.shown[0].deployment.to_json() if comparison.shown else None,
        "reason": comparison.reason,
    }


def _now(comparison: Comparison) -> float | None:
    return comparison.shown[0].violation.factor if comparison.shown else None


def _before(comparison: Comparison) -> float | None:
    return None if comparison.before is None else comparison.before.violation.factor


def _factor(value: float | None) -> str:
    return "" if value is None else f"×{value:.4g}"


def _counted(comparison: Comparison) -> str:
    return ", ".join(f"{count} {standing}" for standing, count in comparison.counts.items())


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, in a table too."""
    return text.replace("|", "\\|").replace("<", "&lt;")
