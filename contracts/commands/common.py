"""What the commands share: exit codes, options, the console, and subjects to work with."""

from __future__ import annotations

import contextlib
import enum
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from contracts import law
from contracts.contract import Contract
from contracts.hunt.shared import Shared, SharedError, opened
from contracts.ledger import EMPTY, Ledger, LedgerError
from contracts.ledger import load as load_ledger
from contracts.subject.client import Client, SubjectUnreadable, default_jobs
from contracts.subject.overlay import ConsoleReport, OverlayError
from contracts.subject.releases import NEWEST
from contracts.subject.resolve import Subject, SubjectError, resolve
from contracts.trial import Workforce

__all__ = [
    "Bar",
    "CannotJudge",
    "Exit",
    "PipedConsole",
    "bad_input",
    "baseline_of",
    "baseline_option",
    "chosen_contracts",
    "client_of",
    "console_for",
    "database_of",
    "database_option",
    "deployments_bar",
    "device_option",
    "jobs_option",
    "json_option",
    "progress_on_stderr",
    "read_ledger",
    "resolved",
    "run_option",
    "sglang_option",
    "workforce_of",
    "write_json",
]

JSON = Any


class Exit(enum.IntEnum):
    """What the process says with its exit code."""

    HELD = 0
    VIOLATED = 1
    USAGE = 2
    NOT_JUDGED = 3
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


class CannotJudge(click.ClickException):
    """Nothing could be judged; the text says why."""

    exit_code = Exit.NOT_JUDGED


def bad_input(message: object) -> NoReturn:
    """End with 2 and a sentence."""
    raise click.UsageError(str(message))


sglang_option = click.option(
    "--sglang",
    "subject",
    metavar="SUBJECT",
    envvar="SGLANG",
    default=NEWEST,
    show_default=True,
    show_envvar=True,
    help="The SGLang to judge: a release (0.5.13), a source checkout, or a Python interpreter.",
)
device_option = click.option(
    "--device",
    type=click.Choice(["meta", "cpu", "cuda"]),
    default="meta",
    show_default=True,
    help="Where the pools are built. meta needs no memory; cpu and cuda really allocate.",
)
baseline_option = click.option(
    "--baseline",
    metavar="SUBJECT",
    help="The other side of pp1-unchanged, named like --sglang.",
)
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=default_jobs(),
    show_default="one a core, at most 4",
    help="Workers side by side. Each holds an imported SGLang, about 1 GB.",
)
database_option = click.option(
    "--database",
    "place",
    metavar="FOLDER|redis://…",
    help="Share cases and records with other machines, through a Hypothesis database.",
)
run_option = click.option(
    "--run",
    "run_name",
    default="unnamed",
    show_default=True,
    metavar="NAME",
    help="The run whose records are shared through --database, the same on all its machines.",
)
json_option = click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Also write the result as JSON; - is standard output.",
)


class PipedConsole(Console):
    """A console that tells a reader such as ``head``, who has closed our output, from a verdict."""

    def on_broken_pipe(self) -> None:
        """End quietly. rich would end with 1, which says violated."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()
        sys.exit(Exit.OUTPUT_CLOSED)


def console_for(json_file: str | None) -> Console:
    """Where tables go. rich honours NO_COLOR and writes plain text into a pipe, which has no
    width to cut a table to."""
    if json_file not in (None, "-") and not Path(str(json_file)).absolute().parent.is_dir():
        bad_input(f"--json {json_file}: there is no such folder")
    console = PipedConsole(stderr=json_file == "-")
    return console if console.is_terminal else PipedConsole(stderr=json_file == "-", width=200)


def chosen_contracts(names: Sequence[str], baseline: str | None) -> list[Contract]:
    """The contracts to judge; without names all that the given subjects can decide."""
    if not names:
        return [
            contract
            for contract in law.ALL.values()
            if baseline is not None or not contract.needs_baseline
        ]
    try:
        contracts = [law.get(name) for name in names]
    except law.UnknownContractError as error:
        bad_input(error)
    for contract in contracts:
        if contract.needs_baseline and baseline is None:
            bad_input(f"{contract.id} compares with another SGLang; name it with --baseline")
    return contracts


def read_ledger(file: Path | None) -> Ledger:
    """The ledger in a file, or an empty one."""
    try:
        return EMPTY if file is None else load_ledger(file)
    except LedgerError as error:
        bad_input(error)


def database_of(place: str | None, run: str) -> Shared | None:
    """The shared database, if one is named."""
    try:
        return None if place is None else opened(place, run)
    except SharedError as error:
        raise CannotJudge(str(error)) from None


def resolved(subject: str) -> Subject:
    """The subject that was named; whatever it needs is fetched."""
    try:
        return resolve(subject, report=ConsoleReport())
    except SubjectError as error:
        bad_input(error)
    except OverlayError as error:
        raise CannotJudge(str(error)) from None


@contextlib.contextmanager
def client_of(subject: str, device: str) -> Iterator[Client]:
    """A client of the subject that was named, started."""
    with Client(resolved(subject), device=device) as client:
        try:
            _ = client.info
        except SubjectUnreadable as error:
            raise CannotJudge(f"{subject} cannot be read: {error}") from None
        yield client


@contextlib.contextmanager
def baseline_of(subject: str | None, device: str) -> Iterator[Client | None]:
    """A client of the baseline, if one was named."""
    if subject is None:
        yield None
        return
    with client_of(subject, device) as client:
        yield client


class Bar:
    """The bar of the deployments that are judged."""

    def __init__(self, progress: Progress, label: str) -> None:
        self._progress = progress
        self._task = progress.add_task(label, total=None)

    def started(self, total: int, label: str | None = None) -> None:
        """So many deployments are to come; begin again, for another subject if it is named."""
        self._progress.reset(self._task, total=total)
        if label is not None:
            self._progress.update(self._task, description=label)

    def advance(self) -> None:
        """One of them is done."""
        self._progress.advance(self._task)


def progress_on_stderr() -> Progress:
    """A display of how far something is; nothing of it stays."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


@contextlib.contextmanager
def deployments_bar(label: str) -> Iterator[Bar]:
    """A bar while deployments are judged."""
    with progress_on_stderr() as progress:
        yield Bar(progress, label)


@contextlib.contextmanager
def workforce_of(subject: str, baseline: str | None, device: str, jobs: int) -> Iterator[Workforce]:
    """As many clients of the subject and of the baseline as there are jobs."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(client_of(subject, device))
        other = stack.enter_context(baseline_of(baseline, device))
        yield Workforce(
            tuple(stack.enter_context(client) for client in first.alike(jobs)),
            tuple(stack.enter_context(client) for client in other.alike(jobs)) if other else (),
        )


def write_json(file: str | None, content: JSON) -> None:
    """Write a document where --json says."""
    if file is None:
        return
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    if file == "-":
        PipedConsole().out(text, end="", highlight=False)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        bad_input(f"--json {file}: {error.strerror}")
