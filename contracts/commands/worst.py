"""``python -m contracts worst``: by how much at most, and where."""

from __future__ import annotations

import math
import sys

import click
from rich.console import Console

from contracts import law
from contracts.commands.common import (
    Exit,
    baseline_option,
    chosen_contracts,
    console_for,
    device_option,
    jobs_option,
    json_option,
    sglang_option,
    workforce_of,
    write_json,
)
from contracts.hunt.case import save
from contracts.hunt.worst import Hunt
from contracts.hunt.worst import worst as hunt_worst
from contracts.report.document import finding_document
from contracts.report.violation import replay_line, text
from contracts.trial import Workforce

__all__ = ["worst"]

_DEFAULT_MINUTES = 2.0


@click.command()
@sglang_option
@baseline_option
@click.option(
    "--contract",
    "name",
    required=True,
    metavar="ID",
    help=f"The contract: {', '.join(law.ALL)}.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=_DEFAULT_MINUTES,
    show_default=True,
    help="How long to look.",
)
@device_option
@jobs_option
@json_option
def worst(
    *,
    subject: str,
    baseline: str | None,
    name: str,
    minutes: float,
    device: str,
    jobs: int,
    json_file: str | None,
) -> None:
    """Look for the deployment on which a contract is off by the largest factor.

    Each better one is shown and saved as it is found, so that an interrupt loses nothing.

    \b
    Examples:
      python -m contracts worst --contract budget-use --sglang 0.5.23
      python -m contracts worst --contract budget-fit --minutes 30 --json worst.json

    Exit codes: 0 no violation was found, 1 the worst one is shown, 2 usage or bad input, 3 not
    judged.
    """
    (contract,) = chosen_contracts([name], baseline)
    console = console_for(json_file)
    with workforce_of(subject, baseline, device, jobs) as workforce:
        hunt = Hunt()
        shown = None
        for hunt in hunt_worst(contract, workforce, seconds=60 * minutes):
            if hunt.best is not None and hunt.best is not shown:
                shown = hunt.best
                _show(hunt, console, subject, baseline)
        _conclude(hunt, console, workforce, json_file)
    if hunt.best is None:
        sys.exit(Exit.HELD if hunt.reason is None else Exit.NOT_JUDGED)
    sys.exit(Exit.VIOLATED)


def _show(hunt: Hunt, console: Console, subject: str, baseline: str | None) -> None:
    """Show and save the best so far."""
    assert hunt.best is not None
    path = save(hunt.best, subject=subject, baseline=baseline)
    said = text(hunt.best, subject=subject, replay=replay_line(path))
    console.print(f"after {hunt.judged} deployments:", style="dim")
    console.print(said + "\n", markup=False, highlight=False, soft_wrap=True)


def _conclude(hunt: Hunt, console: Console, workforce: Workforce, json_file: str | None) -> None:
    factor = None if hunt.best is None else hunt.best.violation.factor
    if hunt.reason is not None:
        console.print(f"broke off: {hunt.reason}", markup=False, soft_wrap=True)
    if hunt.best is None:
        console.print(f"no violation among {hunt.judged} deployments")
    elif factor is not None and math.isfinite(factor):
        console.print(f"worst of {hunt.judged} deployments: ×{factor:.6g}", style="bold")
    write_json(
        json_file,
        {
            "schema": 1,
            "subject": workforce.info.to_json(),
            "deployments": hunt.judged,
            "reason": hunt.reason,
            "violation": None if hunt.best is None else finding_document(hunt.best, None),
        },
    )
