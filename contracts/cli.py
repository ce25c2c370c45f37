"""The command line: ``python -m contracts list | judge | observe | replay | fetch``.

Exit codes: 0 held, 1 violated, 2 usage or bad input, 3 not judged. With ``--json -`` the document
goes to standard output and everything else to standard error.
"""

from __future__ import annotations

import contextlib
import enum
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from contracts import __version__, law, profiles
from contracts.contract import Contract, Request, Verdict
from contracts.deployment import DeploymentError
from contracts.hunt.case import CaseError, load, save
from contracts.hunt.replay import Answer, replay
from contracts.inputs import deployment_from_options, read_deployment
from contracts.ledger import EMPTY, Ledger, LedgerError
from contracts.ledger import load as load_ledger
from contracts.observation import Failed, Observation, Refused, Unreadable
from contracts.report import document, terminal
from contracts.report import violation as violation_report
from contracts.subject.client import Client, SubjectUnreadable
from contracts.subject.overlay import ConsoleReport, OverlayError
from contracts.subject.releases import NEWEST
from contracts.subject.resolve import SubjectError, resolve
from contracts.trial import Trial
from contracts.trial import run as run_trial

__all__ = ["Exit", "main", "run"]

JSON = Any


class Exit(enum.IntEnum):
    """What the process says with its exit code."""

    HELD = 0
    VIOLATED = 1
    USAGE = 2
    NOT_JUDGED = 3
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


class _NotJudged(click.ClickException):
    """Nothing could be judged; the text says why."""

    exit_code = Exit.NOT_JUDGED


def _bad_input(message: object) -> NoReturn:
    raise click.UsageError(str(message))


_sglang = click.option(
    "--sglang",
    "subject",
    metavar="SUBJECT",
    envvar="SGLANG",
    default=NEWEST,
    show_default=True,
    show_envvar=True,
    help="The SGLang to judge: a release (0.5.13), a source checkout, or a Python interpreter.",
)
_device = click.option(
    "--device",
    type=click.Choice(["meta", "cpu", "cuda"]),
    default="meta",
    show_default=True,
    help="Where the pools are built. meta needs no memory; cpu and cuda really allocate.",
)
_baseline = click.option(
    "--baseline",
    metavar="SUBJECT",
    help="The other side of pp1-unchanged, named like --sglang.",
)
_json = click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Also write the result as JSON; - is standard output.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="sglang-pool-contracts")
def main() -> None:
    """Judge whether SGLang's KV pool sizing and its KV pool allocation agree.

    A real SGLang sizes and allocates generated deployments on this machine, with or without a
    GPU. Exit codes: 0 held, 1 violated, 2 usage or bad input, 3 not judged.

    \b
    Examples:
      python -m contracts list
      python -m contracts judge --sglang 0.5.12
    """


@main.command("list")
def list_contracts() -> None:
    """List the contracts, one line each.

    \b
    Example:
      python -m contracts list

    Exit code: 0.
    """
    console = _console(None)
    width = max(map(len, law.ALL))
    for contract in law.ALL.values():
        line = f"{contract.id:<{width}}  {contract.statement}"
        console.print(line, markup=False, soft_wrap=True)


@main.command()
@_sglang
@_baseline
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
@_device
@_json
def judge(
    *,
    subject: str,
    baseline: str | None,
    names: tuple[str, ...],
    profile: str,
    ledger_file: Path | None,
    device: str,
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
    contracts = _contracts(names, baseline)
    ledger = _ledger(ledger_file)
    console = _console(json_file)
    with _client(subject, device) as client, _baseline_client(baseline, device) as other:
        trials = _tried(contracts, client, other, profile, ledger)
        lines: list[str | None] = []
        for trial in trials:
            lines.append(_show(trial, console, subject=subject, baseline=baseline))
        console.print(terminal.trials_table(trials))
        pairs = list(zip(trials, lines, strict=True))
        _write_json(json_file, document.judge_document(client.info, profile, pairs))
    sys.exit(_exit_code(trials))


@main.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    epilog="Any other option is a server argument by its SGLang name, such as "
    "--swa-full-tokens-ratio 0.15 or --speculative-algorithm EAGLE.",
)
@_sglang
@_device
@_json
@click.option("--deployment", "file", metavar="FILE", help="A deployment as JSON; - reads it.")
@click.option("--model", metavar="NAME|FILE", help="A published model, or a config.json.")
@click.option("--pp-size", type=click.IntRange(min=1), help="Pipeline ranks.")
@click.option("--partition", metavar="N,N,…", help="Layers of each stage; sets --pp-size.")
@click.option("--budget", metavar="SIZE", help="Bytes a rank may spend, such as 60GiB.")
@click.option("--env", "env", multiple=True, metavar="K=V", help="An environment variable.")
@click.pass_context
def observe(
    context: click.Context,
    /,
    subject: str,
    device: str,
    json_file: str | None,
    file: str | None,
    **options: Any,
) -> None:
    """Show what one deployment is charged and what is allocated, rank by rank.

    \b
    Examples:
      python -m contracts observe --model deepseek-v4-flash --pp-size 4 --budget 60GiB
      python -m contracts observe --deployment case.json --sglang 0.5.12 --json -

    Exit codes: 0 observed, 2 usage or bad input, or SGLang refuses the deployment, 3 the subject
    cannot be loaded or read.
    """
    try:
        if file is not None:
            _no_other_options(options, context.args)
            deployment = read_deployment(file)
        else:
            deployment = deployment_from_options(**options, arguments=context.args)
    except DeploymentError as error:
        _bad_input(error)
    console = _console(json_file)
    with _client(subject, device) as client:
        request = Request(deployment=deployment, views=frozenset({"final", "own"}))
        observation = _observed(client, request)
    for table in terminal.observation_tables(observation):
        console.print(table)
        console.print()
    _write_json(json_file, observation.to_json())


def _no_other_options(options: dict[str, Any], arguments: Sequence[str]) -> None:
    stated = [name for name, value in options.items() if value not in (None, ())]
    if stated or arguments:
        names = ", ".join([f"--{name.replace('_', '-')}" for name in stated] + list(arguments))
        raise DeploymentError(f"--deployment states everything; leave out {names}")


@main.command("replay")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--sglang",
    "subject",
    metavar="SUBJECT",
    help="Another SGLang than the one that failed.",
)
@_baseline
@_device
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
        _bad_input(error)
    named, other = subject or case.subject, baseline or case.baseline
    console = _console(None)
    with _client(named, device) as client, _baseline_client(other, device) as second:
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


@main.command()
@click.argument("subjects", nargs=-1, required=True, metavar="SUBJECT…")
def fetch(subjects: tuple[str, ...]) -> None:
    """Fetch SGLang releases into the cache, for later use without a network.

    \b
    Example:
      python -m contracts fetch 0.5.12 0.5.23

    Exit codes: 0 all are there, 2 no such release, 3 one cannot be fetched.
    """
    for subject in subjects:
        _resolved(subject)


# -- parts of the commands ---------------------------------------------------------------------


class _Console(Console):
    """A console that tells a reader such as ``head``, who has closed our output, from a verdict."""

    def on_broken_pipe(self) -> None:
        """End quietly. rich would end with 1, which says violated."""
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()
        sys.exit(Exit.OUTPUT_CLOSED)


def _console(json_file: str | None) -> Console:
    """Where tables go. rich honours NO_COLOR and writes plain text into a pipe, which has no
    width to cut a table to."""
    if json_file not in (None, "-") and not Path(str(json_file)).absolute().parent.is_dir():
        _bad_input(f"--json {json_file}: there is no such folder")
    console = _Console(stderr=json_file == "-")
    return console if console.is_terminal else _Console(stderr=json_file == "-", width=200)


def _contracts(names: Sequence[str], baseline: str | None) -> list[Contract]:
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
        _bad_input(error)
    for contract in contracts:
        if contract.needs_baseline and baseline is None:
            _bad_input(f"{contract.id} compares with another SGLang; name it with --baseline")
    return contracts


def _ledger(file: Path | None) -> Ledger:
    try:
        return EMPTY if file is None else load_ledger(file)
    except LedgerError as error:
        _bad_input(error)


def _resolved(subject: str) -> Any:
    try:
        return resolve(subject, report=ConsoleReport())
    except SubjectError as error:
        _bad_input(error)
    except OverlayError as error:
        raise _NotJudged(str(error)) from None


@contextlib.contextmanager
def _client(subject: str, device: str) -> Iterator[Client]:
    with Client(_resolved(subject), device=device) as client:
        try:
            _ = client.info
        except SubjectUnreadable as error:
            raise _NotJudged(f"{subject} cannot be read: {error}") from None
        yield client


@contextlib.contextmanager
def _baseline_client(subject: str | None, device: str) -> Iterator[Client | None]:
    if subject is None:
        yield None
        return
    with _client(subject, device) as client:
        yield client


def _tried(
    contracts: Sequence[Contract],
    client: Client,
    baseline: Client | None,
    profile: str,
    ledger: Ledger,
) -> list[Trial]:
    chosen = profiles.PROFILES[profile]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    trials = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        for contract in contracts:
            task = progress.add_task(contract.id, total=chosen.max_examples)
            trials.append(
                run_trial(
                    contract,
                    client,
                    baseline=baseline,
                    ledger=ledger,
                    profile=chosen,
                    progress=_advance(progress, task),
                )
            )
            progress.update(task, completed=chosen.max_examples)
    return trials


def _advance(progress: Progress, task: Any) -> Callable[[], None]:
    return lambda: progress.advance(task)


def _show(trial: Trial, console: Console, *, subject: str, baseline: str | None) -> str | None:
    """Show a trial's finding and save it; returns its replay line."""
    if trial.finding is None:
        return None
    path = save(trial.finding, subject=subject, baseline=baseline)
    line = violation_report.replay_line(path)
    text = violation_report.text(trial.finding, subject=subject, replay=line)
    console.print(text + "\n", markup=False, highlight=False, soft_wrap=True)
    return line


def _observed(client: Client, request: Request) -> Observation:
    match outcome := client.observe(request):
        case Observation():
            return outcome
        case Refused():
            _bad_input(f"SGLang refuses this deployment ({outcome.kind}): {outcome.sentence}")
        case Failed():
            raise _NotJudged(
                f"SGLang failed in {outcome.where}: {outcome.kind}: {outcome.sentence}"
            )
        case Unreadable():
            raise _NotJudged(f"the subject could not be observed: {outcome.reason}")


def _write_json(file: str | None, content: JSON) -> None:
    if file is None:
        return
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    if file == "-":
        _Console().out(text, end="", highlight=False)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        _bad_input(f"--json {file}: {error.strerror}")


def _exit_code(trials: Sequence[Trial]) -> Exit:
    verdicts = {trial.verdict for trial in trials}
    if Verdict.VIOLATED in verdicts:
        return Exit.VIOLATED
    return Exit.NOT_JUDGED if Verdict.NOT_JUDGED in verdicts else Exit.HELD


def run() -> NoReturn:
    """The entry point: an interrupt must not look like a verdict."""
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; nothing was judged", err=True)
        sys.exit(Exit.INTERRUPTED)
    sys.exit(Exit.HELD)
