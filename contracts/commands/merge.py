"""``python -m contracts merge``: one result from what several machines found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from contracts.commands.common import (
    CannotJudge,
    bad_input,
    console_for,
    database_of,
    database_option,
    json_option,
    run_option,
)
from contracts.commands.matrix import conclude
from contracts.hunt.matrix import is_record
from contracts.hunt.merge import MergeError, merged
from contracts.hunt.shared import SharedError

__all__ = ["merge"]

JSON = Any


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]…", type=click.Path(path_type=Path))
@database_option
@run_option
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a page, as `matrix` does.",
)
@json_option
def merge(
    *,
    files: tuple[Path, ...],
    place: str | None,
    run_name: str,
    html_file: Path | None,
    json_file: str | None,
) -> None:
    """Put together what `matrix --shard` found on several machines.

    FILE is a record, or the JSON of `matrix` or of another merge. In which order they come, and
    what was merged before, makes no difference. While a shard is missing, nothing is held.

    \b
    Examples:
      python -m contracts merge .contracts/matrix/*.json
      python -m contracts merge monday.json tuesday.json --json week.json --html week.html
      python -m contracts merge --database redis://10.0.0.1/0 --run 2026-11-30

    Exit codes: 0 all held, 1 one is violated, 2 usage or bad input, 3 one is not judged, or a
    shard is missing.
    """
    console = console_for(json_file)
    records = [record for file in files for record in _records(file)]
    database = database_of(place, run_name)
    try:
        records += database.records() if database is not None else []
    except SharedError as error:
        raise CannotJudge(str(error)) from None
    if not records:
        bad_input("nothing to merge: name the FILEs, or the --database and --run that has records")
    try:
        conclude(merged(records), console, json_file, html_file)
    except MergeError as error:
        bad_input(error)


def _records(file: Path) -> list[JSON]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        bad_input(f"{file}: {error.strerror}")
    except ValueError as error:
        # Cut off, by a full disk or a kill: what was in it is not known.
        raise CannotJudge(f"{file}: no JSON: {error}") from None
    records = document.get("records") if isinstance(document, dict) else None
    records = [document] if records is None else records
    if not isinstance(records, list) or not all(map(is_record, records)):
        bad_input(f"{file}: no record of this suite, and no JSON of matrix")
    return records
