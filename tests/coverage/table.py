"""What counts (``scope.toml``), and what is not reached and why (``unreachable.toml``)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from tests.coverage.source import Arm

__all__ = ["RELEASES", "Entry", "File", "Reason", "Table", "TableError"]

#: The releases that must pass: one of each era, the newest with all that came since.
RELEASES = ("0.5.23", "0.5.20", "0.5.13")

_FOLDER = Path(__file__).parent


class TableError(ValueError):
    """A table of ours is wrong; the text says where."""


@dataclass(frozen=True, slots=True)
class File:
    """A source file below the package ``sglang``; ``parts`` None: all of it counts."""

    path: str
    parts: tuple[str, ...] | None

    @property
    def name(self) -> str:
        """How messages and the table name it."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the gate does not reach something.

    What is not ``reachable`` is none of the gate's: it is taken out of the count. The rest stays in
    it, and tells against the gate.
    """

    name: str
    text: str
    reachable: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A function, or one arm of a branching statement in it, that is not reached."""

    reason: Reason
    file: str
    releases: tuple[str, ...]
    function: str
    head: str | None = None
    arm: Arm = "then"
    number: int | None = None
    """Which one it is, from 1 on, where a function has several statements of this head."""

    def __str__(self) -> str:
        where = f"{self.file}, {self.function}"
        if self.head is None:
            return where
        number = f" number {self.number}" if self.number else ""
        return f"{where}, {self.head!r}{number}, {self.arm}"


@dataclass(frozen=True, slots=True)
class Table:
    """Both tables, read."""

    files: tuple[File, ...]
    reasons: Mapping[str, Reason]
    entries: tuple[Entry, ...]

    @classmethod
    def load(
        cls,
        scope: Path = _FOLDER / "scope.toml",
        unreachable: Path = _FOLDER / "unreachable.toml",
    ) -> Table:
        """Read the tables.

        Raises:
            TableError: something is missing in one of them, or is of no known kind.
        """
        try:
            files = tuple(map(_file, _read(scope)["file"]))
            document = _read(unreachable)
            reasons = {name: Reason(name, **said) for name, said in document["reasons"].items()}
            names = {file.name for file in files}
            entries = tuple(
                entry
                for group in (*document.get("functions", ()), *document.get("branches", ()))
                for entry in _entries(group, reasons, names)
            )
        except (KeyError, TypeError) as error:
            raise TableError(f"{scope.name} or {unreachable.name} lacks {error}") from error
        unused = reasons.keys() - {entry.reason.name for entry in entries}
        if unused:
            raise TableError(f"no entry has the reason {', '.join(sorted(unused))}")
        return cls(files, reasons, entries)

    def sources(self, root: Path) -> dict[File, Path]:
        """The files that the package ``sglang`` below a folder has."""
        places = {file: root.resolve() / "sglang" / file.path for file in self.files}
        return {file: path for file, path in places.items() if path.is_file()}


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _file(document: Mapping[str, Any]) -> File:
    parts = document.get("parts")
    return File(document["path"], None if parts is None else tuple(parts))


def _entries(
    group: Mapping[str, Any], reasons: Mapping[str, Reason], files: set[str]
) -> Iterator[Entry]:
    reason, file, releases = reasons[group["reason"]], group["file"], tuple(group["releases"])
    if file not in files:
        raise TableError(f"{file} is not in the scope")
    for name in group.get("names", ()):
        yield Entry(reason, file, releases, name)
    for function, head, arm, *number in group.get("at", ()):
        if arm not in get_args(Arm):
            raise TableError(f"{file}, {function}, {head!r}: {arm!r} is no arm")
        yield Entry(reason, file, releases, function, head, arm, *number)
