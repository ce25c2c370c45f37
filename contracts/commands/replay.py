"""``python -m contracts replay``: is a failing case fixed?"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from contracts.commands.common import (
    Exit,
    bad_input,
    baseline_of,
    baseline_option,
    client_of,
    console_for,
    device_option,
)
from contracts.hunt.case import CaseError, load
from contracts.hunt.replay import Answer, replay
from contracts.report import violation as violation_report

__all__ = ["replay_case"]


@click.command("replay")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--sglang",
    "subject",
    metavar="SUBJECT",
    help="Another SGLang than the one that failed.",
)
@baseline_option
@device_option
def replay_case(file: Path, subject: str | None, baseline: str | None, device: str) -> None:
    """Judge a saved failing deployment again: FIXED, FAILED or ERROR.

    \b
    Examples:
      python -m contracts replay .contracts/rank-sum-b798e5cdcb.json
      python -m contracts replay .contracts/rank-sum-b798e5cdcb.json --sglang 0.5.13

    Exit codes: 0 FIXED, 1 FAILED, 2 usage or bad input, 3 ERROR: it could not be judged.
    """
    try:
        case = load(file)
    except CaseError as error:
        bad_input(error)
    named, other = subject or case.subject, baseline or case.baseline
    console = console_for(None)
    with client_of(named, device) as client, baseline_of(other, device) as second:
        outcome = replay(case, client, second)
        label = client.subject.label
    console.print(outcome.answer, style="bold")
    if outcome.finding is not None:
        line = violation_report.replay_line(file, baseline=other)
        text = violation_report.text(outcome.finding, subject=label, replay=line)
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    elif outcome.reason is not None:
        console.print(outcome.reason, markup=False, highlight=False, soft_wrap=True)
    codes = {
        Answer.FIXED: Exit.HELD,
        Answer.FAILED: Exit.VIOLATED,
        Answer.ERROR: Exit.NOT_JUDGED,
    }
    sys.exit(codes[outcome.answer])
