"""What was reached of the code that counts, what was not, and whether the table says why."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.coverage.reached import Branch, Reached
from tests.coverage.source import Fork, Source, Span
from tests.coverage.table import Entry, File, Table

__all__ = ["Missed", "Result", "judge", "unknown_parts"]

#: So much of a statement is shown: enough to find it.
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Missed:
    """A branch that was not reached, as text, and the entry that says why, if one does."""

    file: str
    line: int
    text: str
    entry: Entry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One file of one release.

    ``lines`` and ``branches`` are what counts; what the table takes out of the count is not in
    them, but in ``outside``. ``errors`` are entries that do not apply or are not true.
    """

    release: str
    file: str
    lines: int
    lines_reached: int
    branches: int
    branches_reached: int
    outside: tuple[Missed, ...]
    missed: tuple[Missed, ...]
    errors: tuple[str, ...]

    @property
    def unexplained(self) -> list[Missed]:
        """The missed branches of which the table says nothing."""
        return [missed for missed in self.missed if missed.entry is None]


@dataclass(slots=True)
class _Counting:
    """The counting of one file; entries are applied to it one by one."""

    source: Source
    reached: Reached
    scope: Sequence[Span] | None
    excused: dict[Branch, Entry]
    outside: set[int]

    def counts(self, line: int) -> bool:
        """Whether a line is part of the scope."""
        return self.scope is None or any(line in span for span in self.scope)

    def apply(self, entry: Entry) -> str | None:
        """Take what an entry tells of as explained. Returns what is wrong with the entry."""
        if entry.head is None:
            return self._apply_function(entry)
        fork = self._fork(entry)
        if isinstance(fork, str):
            return fork
        branch = self._branch(fork, entry)
        if branch is None:
            return "has no such way on"
        if branch in self.reached.branches:
            return f"is reached (line {fork.line})"
        return self._excuse(entry, {branch}, fork.lines(entry.arm))

    def _apply_function(self, entry: Entry) -> str | None:
        body = self.source.bodies.get(entry.function)
        if body is None or not self.counts(body.first):
            return "is no function of the scope"
        run = sorted(line for line in self.reached.lines if line in body)
        if run:
            return f"is reached (line {run[0]})"
        return self._excuse(entry, set(), body)

    def _fork(self, entry: Entry) -> Fork | str:
        found = [
            fork
            for fork in self.source.forks.values()
            if fork.function == entry.function and self.counts(fork.line) and _is(fork, entry.head)
        ]
        if entry.number is None and len(found) == 1:
            return found[0]
        if entry.number is not None and 1 <= entry.number <= len(found) > 1:
            return found[entry.number - 1]
        return f"is found {len(found)} times"

    def _branch(self, fork: Fork, entry: Entry) -> Branch | None:
        branches = self.reached.branches | self.reached.missing_branches
        ways = [way for way in branches if way[0] == fork.line and fork.arm(way[1]) == entry.arm]
        return ways[0] if ways else None

    def _excuse(self, entry: Entry, branches: set[Branch], lines: Span | None) -> str | None:
        inside = branches | {
            branch
            for branch in self.reached.missing_branches
            if lines is not None and branch[0] in lines
        }
        missing = {line for line in self.reached.missing_lines if lines and line in lines}
        double = inside & self.excused.keys()
        if double:
            return f"is explained twice, by {self.excused[min(double)]} too"
        self.excused.update(dict.fromkeys(inside, entry))
        if not entry.reason.reachable:
            self.outside |= missing
        return None


def _is(fork: Fork, head: str | None) -> bool:
    """A head is written out in full, or to a ``…`` that stands for its rest."""
    assert head is not None
    start, dots, _rest = head.partition("…")
    return fork.head.startswith(start) if dots else fork.head == head


def judge(release: str, file: File, text: str, reached: Reached, table: Table) -> Result:
    """Count one file of one release, of which this was reached."""
    source = Source(text)
    parts = None if file.parts is None else [source.parts[name] for name in _here(file, source)]
    counting = _Counting(source, reached, parts, {}, set())
    errors = [f"{name} is run, but is not in the scope" for name in _strays(counting)]
    for entry in table.entries:
        if entry.file == file.name and release in entry.releases:
            wrong = counting.apply(entry)
            if wrong is not None:
                errors.append(f"{entry}: {wrong}")
    return _result(release, file, counting, errors)


def _here(file: File, source: Source) -> Iterator[str]:
    return (name for name in file.parts or () if name in source.parts)


def unknown_parts(file: File, texts: Iterable[str]) -> list[str]:
    """The parts of a file that none of its releases has."""
    known = {name for text in texts for name in _here(file, Source(text))}
    return [name for name in file.parts or () if name not in known]


def _strays(counting: _Counting) -> Iterator[str]:
    """Functions that were run though no part names them."""
    for name, body in counting.source.bodies.items():
        if not counting.counts(body.first) and any(line in body for line in counting.reached.lines):
            yield name


def _result(release: str, file: File, counting: _Counting, errors: Iterable[str]) -> Result:
    reached = counting.reached
    hit = [branch for branch in reached.branches if counting.counts(branch[0])]
    missed = [
        _missed(file, counting, branch)
        for branch in sorted(reached.missing_branches)
        if counting.counts(branch[0])
    ]
    outside = [one for one in missed if one.entry is not None and not one.entry.reason.reachable]
    against = [one for one in missed if one.entry is None or one.entry.reason.reachable]
    lines = {line for line in reached.missing_lines if counting.counts(line)} - counting.outside
    run = {line for line in reached.lines if counting.counts(line)}
    return Result(
        release=release,
        file=file.name,
        lines=len(lines | run),
        lines_reached=len(run),
        branches=len(hit) + len(against),
        branches_reached=len(hit),
        outside=tuple(outside),
        missed=tuple(against),
        errors=tuple(f"{release}: {file.name}: {error}" for error in errors),
    )


def _missed(file: File, counting: _Counting, branch: Branch) -> Missed:
    fork = counting.source.forks[branch[0]]
    head = textwrap.shorten(fork.head, _SHOWN, placeholder=" …")
    text = f"{fork.function}: {head} {_ways(fork)[fork.arm(branch[1])]}"
    return Missed(file.name, fork.line, text, counting.excused.get(branch))


def _ways(fork: Fork) -> dict[str, str]:
    if fork.head.startswith(("for ", "async for ")):
        return {"then": "never entered", "else": "never exhausted"}
    return {"then": "never true", "else": "never false"}
