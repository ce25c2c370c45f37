"""The tables of tests/coverage fit the releases that they speak of.

Whether what they say is true takes a gate of each release: ``tox -e coverage-of-sglang``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.subject.overlay import ConsoleReport
from contracts.subject.resolve import resolve
from tests.coverage.judge import judge, unknown_parts
from tests.coverage.reached import Reached
from tests.coverage.source import Source
from tests.coverage.table import RELEASES, Table
from tests.releases import case

TABLE = Table.load()


def nothing(text: str) -> Reached:
    """As if no line of a source were run."""
    forks = Source(text).forks.values()
    return Reached(
        lines=frozenset(),
        missing_lines=frozenset(range(1, text.count("\n") + 2)),
        branches=frozenset(),
        missing_branches=frozenset(
            (fork.line, target) for fork in forks for target in (fork.then.first, -1)
        ),
    )


def package(release: str) -> Path:
    return resolve(release, report=ConsoleReport()).paths[0]


@pytest.mark.parametrize("release", [case(release) for release in RELEASES])
def test_every_entry_applies_once(release: str) -> None:
    """Red when an entry names what a release does not have, or what another one explains."""
    errors: list[str] = []
    for file, path in TABLE.sources(package(release)).items():
        text = path.read_text(encoding="utf-8")
        errors += judge(release, file, text, nothing(text), TABLE).errors
    assert not errors


def test_every_part_of_the_scope_is_in_some_release() -> None:
    """Red when a name in the scope is mistyped, or none of the releases has it any more."""
    found = [TABLE.sources(package(release)) for release in RELEASES]
    for file in TABLE.files:
        texts = [paths[file].read_text(encoding="utf-8") for paths in found if file in paths]
        assert texts
        assert not unknown_parts(file, texts)
