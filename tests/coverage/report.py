"""The results as a table for the terminal and as docs/coverage.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tests.coverage.judge import Missed, Result
from tests.coverage.table import Table

__all__ = ["BAR", "markdown", "share", "terminal"]

#: Of the branches that count, the gate must reach so much in each release.
BAR = 0.95

_HEADINGS = ("release", "file", "lines", "branches", "reached", "listed", "unexplained")


def share(results: Iterable[Result]) -> float:
    """The part of the branches that count which was reached."""
    counted = list(results)
    branches = sum(result.branches for result in counted)
    return sum(result.branches_reached for result in counted) / branches if branches else 0.0


def terminal(results: Sequence[Result]) -> str:
    """A table, then everything that is wrong."""
    rows = [_HEADINGS, *_rows(results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [_aligned(row, widths) for row in rows]
    for result in results:
        lines += [f"error: {error}" for error in result.errors]
        lines += [f"unexplained: {result.release}: {_where(one)}" for one in result.unexplained]
    return "\n".join(lines)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = zip(row, widths, strict=True)
    texts = [
        cell.ljust(width) if place < 2 else cell.rjust(width)
        for place, (cell, width) in enumerate(cells)
    ]
    return "  ".join(texts).rstrip()


def _rows(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    for release, group in groupby(results, key=lambda result: result.release):
        of_release = list(group)
        yield from (_row(release, result.file, [result]) for result in of_release)
        yield _row(release, "all", of_release)


def _row(release: str, name: str, results: Sequence[Result]) -> tuple[str, ...]:
    lines, run = (
        sum(getattr(one, field) for one in results) for field in ("lines", "lines_reached")
    )
    branches = sum(one.branches for one in results)
    reached = sum(one.branches_reached for one in results)
    unexplained = sum(len(one.unexplained) for one in results)
    listed = sum(len(one.missed) for one in results) - unexplained
    return (
        release,
        name,
        f"{run}/{lines}",
        f"{reached}/{branches}",
        f"{100 * share(results):.1f} %",
        str(listed),
        str(unexplained),
    )


def _where(missed: Missed) -> str:
    return f"{missed.file}:{missed.line} {missed.text}"


_INTRODUCTION = """\
# What the gate reaches of SGLang

Line and branch coverage of the code that sizes and allocates a DeepSeek-V4 model's pools, as far as
`tox -e contracts` runs it under its `gate` profile. The file is made by
`tox -e coverage-of-sglang -- --write`; without `--write` the same run checks that it is current.

Which code counts, says `tests/coverage/scope.toml`. A branch is one way on from an `if` or a loop.
What no deployment can reach here (another platform, another model family, a server at work) is
taken out of the count by `tests/coverage/unreachable.toml`, entry by entry and with a reason. What
a deployment could reach and the gate does not, stays in the count, listed with a reason. An entry
that does not apply, or whose branch is reached, fails the run; so does a branch without an entry,
and a release of which less than {bar} % is reached.
"""


def markdown(results: Sequence[Result], table: Table) -> str:
    """The document."""
    parts = [_INTRODUCTION.format(bar=round(100 * BAR)), _markdown_table(results)]
    missed = [(result.release, one) for result in results for one in result.missed]
    listed = [(release, one) for release, one in missed if one.entry is not None]
    parts += ["## Reachable, not reached\n", _by_reason(listed, table) or "Nothing.\n"]
    unexplained = [(release, one) for release, one in missed if one.entry is None]
    if unexplained:
        parts += ["## Not reached, and nobody says why\n", _items(unexplained)]
    outside = [(result.release, one) for result in results for one in result.outside]
    parts += ["## Not counted\n", _counts(outside, table)]
    return "\n".join(parts)


def _markdown_table(results: Sequence[Result]) -> str:
    rows = [_HEADINGS, ("---",) * 2 + ("---:",) * 5, *_rows(results)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _by_reason(missed: Sequence[tuple[str, Missed]], table: Table) -> str:
    parts = []
    for reason in table.reasons.values():
        mine = [one for one in missed if one[1].entry and one[1].entry.reason is reason]
        if mine:
            parts.append(f"{textwrap.fill(reason.text, 100)}\n\n{_items(mine)}")
    return "\n".join(parts)


def _items(missed: Sequence[tuple[str, Missed]]) -> str:
    return "".join(f"* {release}: `{_where(one)}`\n" for release, one in missed)


def _counts(outside: Sequence[tuple[str, Missed]], table: Table) -> str:
    """How many branches each reason takes out of the count, by release."""
    releases = sorted({release for release, _one in outside})
    rows = [("reason", *releases), ("---", *["---:"] * len(releases))]
    for reason in table.reasons.values():
        mine = [release for release, one in outside if one.entry and one.entry.reason is reason]
        if mine:
            rows.append((reason.text, *(str(mine.count(release)) for release in releases)))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
