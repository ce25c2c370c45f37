"""``python -m contracts gate``: a candidate against what was there before."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from contracts import law, profiles
from contracts.commands.common import (
    CannotJudge,
    Exit,
    bad_input,
    console_for,
    deployments_bar,
    device_option,
    jobs_option,
    json_option,
    read_ledger,
    workforce_of,
    write_json,
)
from contracts.hunt.comparison import Comparison, Standing
from contracts.hunt.gate import run
from contracts.hunt.revisions import RevisionError, exported
from contracts.report import comparison as comparison_report
from contracts.report import junit
from contracts.report.annotations import workflow_commands
from contracts.report.violation import deployment_line
from contracts.subject.resolve import is_release
from contracts.trial import Workforce

__all__ = ["gate"]

JSON = Any


@click.command()
@click.option(
    "--candidate",
    required=True,
    metavar="SUBJECT",
    help="The SGLang that is to be merged: a checkout, a release, or a Python interpreter.",
)
@click.option(
    "--baseline",
    required=True,
    metavar="SUBJECT|REV",
    help="What was there before: a subject, or a revision of the candidate's repository.",
)
@click.option(
    "--expect-change",
    "expected",
    multiple=True,
    metavar="ID",
    help="A change that is meant: pp1-unchanged shows it and does not fail. May be repeated.",
)
@click.option(
    "--ledger",
    "ledger_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Violations of the candidate that are known; without it only the baseline explains any.",
)
@click.option(
    "--profile",
    type=click.Choice(list(profiles.PROFILES)),
    default=profiles.DEFAULT,
    show_default=True,
    help="How much to generate.",
)
@click.option(
    "--junit",
    "junit_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write JUnit XML, a test case a contract.",
)
@click.option(
    "--markdown",
    "markdown_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a summary; under GitHub Actions it goes to the job's summary as well.",
)
@device_option
@jobs_option
@json_option
def gate(
    *,
    candidate: str,
    baseline: str,
    expected: tuple[str, ...],
    ledger_file: Path | None,
    profile: str,
    junit_file: Path | None,
    markdown_file: Path | None,
    device: str,
    jobs: int,
    json_file: str | None,
) -> None:
    """Judge a change: what it breaks, worsens, repairs or changes at pp_size 1.

    Candidate and baseline are judged on the same deployments. Fails on what is new, worse,
    unexplained or not judged; what the baseline violates as badly, or the ledger knows, passes.

    \b
    Examples:
      python -m contracts gate --candidate . --baseline origin/main
      python -m contracts gate --candidate 0.5.13 --baseline 0.5.12 --expect-change pp1-unchanged
      python -m contracts gate --candidate ../sglang --baseline 0.5.23 --junit gate.xml --json -

    Exit codes: 0 nothing fails, 1 something is new, worse or unexplained, 2 usage or bad input,
    3 something is not judged.
    """
    _check_expected(expected)
    ledger = read_ledger(ledger_file)
    console = console_for(json_file)
    before = _baseline(candidate, baseline)
    with workforce_of(candidate, before, device, jobs) as workforce:
        with deployments_bar(workforce.info.label) as bar:
            comparisons = run(
                list(law.ALL.values()),
                workforce,
                profile=profiles.PROFILES[profile],
                ledger=ledger,
                expected=expected,
                started=bar.started,
                progress=bar.advance,
            )
        _report(comparisons, workforce, console)
        _write(comparisons, workforce, junit_file, markdown_file)
        sides = (workforce.info, workforce.baselines[0].info)
        write_json(json_file, comparison_report.document(comparisons, *sides, profile=profile))
    sys.exit(_exit_code(comparisons))


def _check_expected(expected: Sequence[str]) -> None:
    for name in expected:
        try:
            contract = law.get(name)
        except law.UnknownContractError as error:
            bad_input(f"--expect-change: {error}")
        if not contract.needs_baseline:
            bad_input(
                f"--expect-change {name}: it compares nothing; record what it violates in a "
                "ledger (docs/ledger.md)"
            )


def _baseline(candidate: str, baseline: str) -> str:
    """A subject's name: the baseline's own, or that of an exported revision of the candidate's
    repository. A release, a path and an interpreter are what they are, whatever git knows."""
    named = is_release(baseline) or Path(baseline).expanduser().exists()
    if named or not Path(candidate).is_dir():
        return baseline
    try:
        return str(exported(Path(candidate), baseline))
    except RevisionError as error:
        bad_input(f"--baseline {baseline}: {error}")
    except OSError as error:
        raise CannotJudge(f"--baseline {baseline} cannot be exported: {error}") from None


def _report(comparisons: Sequence[Comparison], workforce: Workforce, console: Console) -> None:
    label = workforce.info.label
    for comparison in comparisons:
        if not comparison.shown or not (
            comparison.fails or comparison.standing is Standing.EXPECTED
        ):
            continue
        lines = [finding.violation.message for finding in comparison.shown]
        lines.append(deployment_line(comparison.shown[0], label))
        text = "\n".join([f"{comparison.standing}:", *lines])
        console.print(text + "\n", markup=False, highlight=False, soft_wrap=True)
    console.print(comparison_report.comparisons_table(comparisons))
    baseline = workforce.baselines[0].info.label
    console.print(
        comparison_report.sentence(comparisons, label, baseline), style="bold", markup=False
    )


def _write(
    comparisons: Sequence[Comparison],
    workforce: Workforce,
    junit_file: Path | None,
    markdown_file: Path | None,
) -> None:
    candidate, baseline = workforce.info, workforce.baselines[0].info
    try:
        if junit_file is not None:
            labels = {"candidate": candidate.label, "baseline": baseline.label}
            junit.write(comparisons, junit_file, **labels)
        summary = comparison_report.markdown(comparisons, candidate, baseline)
        if markdown_file is not None:
            markdown_file.write_text(summary, encoding="utf-8")
        if os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as job:
                job.write(summary)
    except OSError as error:
        bad_input(f"{error.filename}: {error.strerror}")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        lines = {
            name: (f"python/{path}", line) for name, (path, line) in candidate.definitions.items()
        }
        for command in workflow_commands(comparisons, lines):
            click.echo(command)


def _exit_code(comparisons: Sequence[Comparison]) -> Exit:
    failing = {comparison.standing for comparison in comparisons if comparison.fails}
    if failing - {Standing.NOT_JUDGED}:
        return Exit.VIOLATED
    return Exit.NOT_JUDGED if failing else Exit.HELD
