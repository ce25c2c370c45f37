"""Measure what the gate reaches of SGLang: python -m tests.coverage [--write] [RELEASE …]."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from contracts.subject.client import SubjectUnreadable, default_jobs
from contracts.subject.overlay import ConsoleReport, OverlayError
from contracts.subject.resolve import SubjectError, resolve
from tests.coverage.judge import Result, judge, unknown_parts
from tests.coverage.measure import Lost, gate
from tests.coverage.report import BAR, markdown, share, terminal
from tests.coverage.table import RELEASES, Table, TableError

_DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "coverage.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line. Returns the exit code."""
    options = _options(arguments)
    try:
        table = Table.load()
        results = [
            result
            for release in options.releases
            for result in _measured(release, table, options.jobs)
        ]
    except (Lost, TableError, SubjectError, SubjectUnreadable, OverlayError) as error:
        print(f"not measured: {error}", file=sys.stderr)  # noqa: T201
        return 3
    wrong = list(_wrong(results))
    if options.releases == RELEASES:
        wrong += [*_unknown(table), *_outdated(markdown(results, table), write=options.write)]
    print("\n".join([terminal(results), *wrong]))  # noqa: T201
    return 1 if wrong else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="coverage-of-sglang", description=__doc__)
    parser.add_argument(
        "releases",
        metavar="RELEASE",
        nargs="*",
        default=RELEASES,
        help=f"only these releases, without {_DOCUMENT.name} (default: {' '.join(RELEASES)})",
    )
    parser.add_argument("--write", action="store_true", help=f"write {_DOCUMENT.name}")
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        default=default_jobs(),
        help="workers side by side (default: one a core, at most 4)",
    )
    options = parser.parse_args(arguments)
    if options.write and options.releases != RELEASES:
        parser.error(f"--write: {_DOCUMENT.name} is about all of {' '.join(RELEASES)}")
    return options


def _measured(release: str, table: Table, jobs: int) -> list[Result]:
    print(f"measuring {release} …", file=sys.stderr)  # noqa: T201
    subject = resolve(release, report=ConsoleReport())
    files = table.sources(subject.paths[0])
    seen = gate(subject, list(files.values()), jobs=jobs)
    for broken in seen.broken:
        print(f"{release}: not judged to the end: {broken}", file=sys.stderr)  # noqa: T201
    return [
        judge(release, file, path.read_text(encoding="utf-8"), seen.reached[path], table)
        for file, path in files.items()
    ]


def _unknown(table: Table) -> Iterator[str]:
    """Files and parts of the scope that no release has."""
    subjects = [resolve(release, report=ConsoleReport()) for release in RELEASES]
    found = [table.sources(subject.paths[0]) for subject in subjects]
    for file in table.files:
        texts = [paths[file].read_text(encoding="utf-8") for paths in found if file in paths]
        if not texts:
            yield f"no release has {file.path}"
        yield from (f"no release has {name} in {file.path}" for name in unknown_parts(file, texts))


def _wrong(results: Sequence[Result]) -> Iterator[str]:
    """What fails the run."""
    for release, group in groupby(results, key=lambda result: result.release):
        of_release = list(group)
        errors = sum(len(result.errors) for result in of_release)
        unexplained = sum(len(result.unexplained) for result in of_release)
        if errors:
            yield f"{release}: {errors} errors in the table"
        if unexplained:
            yield f"{release}: {unexplained} branches are not reached, and nobody says why"
        if share(of_release) < BAR:
            yield f"{release}: {share(of_release):.1%} of the branches are reached, not {BAR:.0%}"


def _outdated(text: str, *, write: bool) -> Iterator[str]:
    if write:
        _DOCUMENT.write_text(text, encoding="utf-8")
    elif not _DOCUMENT.is_file() or _DOCUMENT.read_text(encoding="utf-8") != text:
        yield f"docs/{_DOCUMENT.name} is not current: run with --write"


if __name__ == "__main__":
    sys.exit(main())
