"""``python -m contracts judge``: verdicts on one SGLang."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from contracts import profiles
from contracts.commands.common import (
    Exit,
    baseline_option,
    chosen_contracts,
    console_for,
    deployments_bar,
    device_option,
    jobs_option,
    json_option,
    read_ledger,
    sglang_option,
    workforce_of,
    write_json,
)
from contracts.contract import Contract, Verdict
from contracts.hunt.case import save
from contracts.ledger import Ledger
from contracts.report import document, terminal
from contracts.report import violation as violation_report
from contracts.trial import Trial, Workforce
from contracts.trial import run as run_trials

__all__ = ["judge"]


@click.command()
@sglang_option
@baseline_option
@click.option(
    "--contract",
    "names",
    multiple=True,
    metavar="ID",
    help="Judge this contract only; may be repeated. See `python -m contracts list`.",
)
@click.option(
    "--profile",
    type=click.Choice(list(profiles.PROFILES)),
    default=profiles.DEFAULT,
    show_default=True,
    help="How much to generate: gate is deterministic, thorough searches longer and elsewhere.",
)
@click.option(
    "--ledger",
    "ledger_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Count the violations that this ledger knows as known. Without it, verdicts are raw.",
)
@device_option
@jobs_option
@json_option
def judge(
    *,
    subject: str,
    baseline: str | None,
    names: tuple[str, ...],
    profile: str,
    ledger_file: Path | None,
    device: str,
    jobs: int,
    json_file: str | None,
) -> None:
    """Judge an SGLang by the contracts.

    \b
    Examples:
      python -m contracts judge --sglang 0.5.12
      python -m contracts judge --sglang ../sglang --contract rank-sum --json -
      python -m contracts judge --sglang 0.5.13 --baseline 0.5.12 --contract pp1-unchanged

    Exit codes: 0 all held, 1 one is violated, 2 usage or bad input, 3 one is not judged.
    """
    contracts = chosen_contracts(names, baseline)
    ledger = read_ledger(ledger_file)
    console = console_for(json_file)
    with workforce_of(subject, baseline, device, jobs) as workforce:
        trials = _tried(contracts, workforce, profile, ledger)
        lines: list[str | None] = []
        for trial in trials:
            line = _show(trial, console, ledger, workforce, subject=subject, baseline=baseline)
            lines.append(line)
        console.print(terminal.trials_table(trials))
        pairs = list(zip(trials, lines, strict=True))
        write_json(json_file, document.judge_document(workforce.info, profile, pairs))
    sys.exit(_exit_code(trials))


def _tried(
    contracts: Sequence[Contract], workforce: Workforce, profile: str, ledger: Ledger
) -> list[Trial]:
    with deployments_bar(workforce.info.label) as bar:
        return run_trials(
            contracts,
            workforce,
            ledger=ledger,
            profile=profiles.PROFILES[profile],
            started=bar.started,
            progress=bar.advance,
        )


def _show(
    trial: Trial,
    console: Console,
    ledger: Ledger,
    workforce: Workforce,
    *,
    subject: str,
    baseline: str | None,
) -> str | None:
    """Show a trial's finding and save it; returns its replay line."""
    if trial.finding is None:
        return None
    path = save(trial.finding, subject=subject, baseline=baseline)
    line = violation_report.replay_line(path)
    said = violation_report.ledger_line(ledger, trial.finding, workforce.info)
    text = violation_report.text(
        trial.finding, subject=subject, replay=line, ledger=said if ledger.entries else None
    )
    console.print(text + "\n", markup=False, highlight=False, soft_wrap=True)
    return line


def _exit_code(trials: Sequence[Trial]) -> Exit:
    verdicts = {trial.verdict for trial in trials}
    if Verdict.VIOLATED in verdicts:
        return Exit.VIOLATED
    return Exit.NOT_JUDGED if Verdict.NOT_JUDGED in verdicts else Exit.HELD
