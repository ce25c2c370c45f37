"""``python -m contracts matrix``: many subjects, all contracts, the same deployments."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console

from contracts import profiles
from contracts.commands.common import (
    Bar,
    CannotJudge,
    Exit,
    bad_input,
    chosen_contracts,
    console_for,
    database_of,
    database_option,
    device_option,
    jobs_option,
    json_option,
    progress_on_stderr,
    resolved,
    run_option,
    write_json,
)
from contracts.contract import Verdict
from contracts.hunt.matrix import MATRIX, Plan, records
from contracts.hunt.merge import Shard
from contracts.hunt.shared import SharedError
from contracts.report.grid import grid
from contracts.report.page import page
from contracts.subject.releases import RELEASES
from contracts.subject.resolve import Subject

__all__ = ["conclude", "matrix"]

JSON = Any


@click.command()
@click.argument("subjects", nargs=-1, metavar="[SUBJECT]…")
@click.option(
    "--sglang",
    "named",
    multiple=True,
    metavar="SUBJECT",
    help="A subject, named as for judge; may be repeated. Without any, all known releases.",
)
@click.option(
    "--contract",
    "names",
    multiple=True,
    metavar="ID",
    help="Judge this contract only; may be repeated. See `python -m contracts list`.",
)
@click.option(
    "--profile",
    "profile",
    type=click.Choice(list(profiles.PROFILES)),
    default=profiles.DEFAULT,
    show_default=True,
    help="How much to generate.",
)
@click.option(
    "--records",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    default=MATRIX,
    show_default=True,
    help="Where a record of each subject is kept.",
)
@click.option(
    "--skip-existing",
    is_flag=True,
    help="Go on: keep the records that are there, made by this suite and with the same options.",
)
@click.option(
    "--shard",
    metavar="I/N",
    default="1/1",
    help="Judge one of N shares of the deployments; `merge` puts the records together.",
)
@database_option
@run_option
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a page, self-contained: heat map, capacities, counterexamples.",
)
@device_option
@jobs_option
@json_option
def matrix(
    *,
    subjects: tuple[str, ...],
    named: tuple[str, ...],
    names: tuple[str, ...],
    profile: str,
    folder: Path,
    skip_existing: bool,
    shard: str,
    place: str | None,
    run_name: str,
    html_file: Path | None,
    device: str,
    jobs: int,
    json_file: str | None,
) -> None:
    """Judge many SGLangs on the same deployments, to the end.

    Each subject's baseline is the one before it. A subject's record is saved as soon as it is
    complete; after an interrupt, the same command with --skip-existing goes on.

    \b
    Examples:
      python -m contracts matrix --html matrix.html
      python -m contracts matrix 0.5.20 0.5.21 ../sglang --skip-existing
      python -m contracts matrix --sglang 0.5.12 0.5.13 --contract rank-sum --json -

    Exit codes: 0 all held, 1 one is violated, 2 usage or bad input, 3 one is not judged.
    """
    chosen = [*named, *subjects] or list(RELEASES)
    contracts = tuple(chosen_contracts(names, baseline="the one before"))
    console = console_for(json_file)
    if html_file is not None and not html_file.absolute().parent.is_dir():
        bad_input(f"--html {html_file}: there is no such folder")
    plan = Plan(
        contracts=contracts,
        profile=profile,
        device=device,
        jobs=jobs,
        shard=_shard(shard),
        database=database_of(place, run_name),
    )
    try:
        made = list(_made([resolved(name) for name in chosen], plan, folder, skip_existing))
    except SharedError as error:
        raise CannotJudge(str(error)) from None
    conclude(made, console, json_file, html_file)


def _shard(text: str) -> Shard:
    try:
        return Shard.parse(text)
    except ValueError as error:
        bad_input(f"--shard: {error}")


def conclude(
    made: Sequence[JSON], console: Console, json_file: str | None, html_file: Path | None
) -> NoReturn:
    """Show the records, write them where it is wanted, and end with what they say."""
    console.print(grid(made))
    document = {"schema": 1, "records": list(made)}
    write_json(json_file, document)
    if html_file is not None:
        html_file.write_text(page(document), encoding="utf-8")
    sys.exit(_exit_code(made))


def _made(
    subjects: Sequence[Subject], plan: Plan, folder: Path, skip_existing: bool
) -> Iterator[JSON]:
    """The records, with a bar for all subjects and one for the one that is being judged."""
    with progress_on_stderr() as progress:
        overall = progress.add_task("subjects", total=len(subjects))
        watch = Bar(progress, "")
        for made in records(subjects, plan, folder, skip_existing=skip_existing, watch=watch):
            progress.advance(overall)
            progress.console.print(_said(made), markup=False, highlight=False)
            yield made


def _said(document: JSON) -> str:
    verdicts = [contract["verdict"] for contract in document["contracts"]]
    counts = [f"{verdicts.count(kind)} {kind}" for kind in Verdict if kind in verdicts]
    return f"{document['subject']['label']}: {', '.join(counts)}"


def _exit_code(made: Sequence[JSON]) -> Exit:
    verdicts = {contract["verdict"] for document in made for contract in document["contracts"]}
    if Verdict.VIOLATED in verdicts:
        return Exit.VIOLATED
    return Exit.NOT_JUDGED if Verdict.NOT_JUDGED in verdicts else Exit.HELD
