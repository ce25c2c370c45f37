"""What the gate reaches of a release: its survey, asked of workers that coverage.py watches.

The workers are the gate's own, in the gate's interpreter. coverage.py starts itself in them, before
anything of SGLang is imported, because ``COVERAGE_PROCESS_START`` names a configuration
(https://coverage.readthedocs.io/en/latest/subprocess.html).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import coverage

from contracts import law, profiles, trial
from contracts.subject import client as clients
from contracts.subject.client import Client
from contracts.subject.resolve import Subject
from contracts.survey import survey
from tests.coverage.reached import Branch, Reached

__all__ = ["Gate", "Lost", "gate", "watched"]

JSON = Any

#: Seconds that a worker may take to end and to save what was seen in it.
_PATIENCE = 60

_CONFIGURATION = """\
[run]
branch = true
parallel = true
data_file = {folder}/seen
include =
    {include}
"""


class Lost(Exception):
    """What was seen in a worker is lost, so that nothing can be said of the release."""


def _worker_class(lost: list[str]) -> type[clients.WorkerProcess]:
    """Workers that end by themselves: one that is killed takes along what was seen in it.

    ``lost`` collects what happened to those that did not end well.
    """

    class Worker(clients.WorkerProcess):
        def close(self) -> None:
            """Close its standard input, upon which it ends; then do as with any worker."""
            assert self._process.stdin is not None
            if not self._process.stdin.closed:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_PATIENCE)
                code = self._end()
                if code != 0:
                    lost.append(f"a worker ended with code {code}: {self._last_words()}")
            super().close()

    return Worker


@contextlib.contextmanager
def watched(files: Sequence[Path]) -> Iterator[dict[Path, Reached]]:
    """Watch the workers that are started and closed meanwhile.

    At the end the dictionary is filled with what was reached of each file.

    Raises:
        Lost: a worker was killed or broke down, or coverage.py has not seen a file in any.
    """
    reached: dict[Path, Reached] = {}
    lost: list[str] = []
    with tempfile.TemporaryDirectory(prefix="coverage-of-sglang-") as name:
        folder = Path(name)
        configuration = folder / "coverage.ini"
        include = "\n    ".join(map(str, files))
        configuration.write_text(
            _CONFIGURATION.format(folder=folder, include=include), encoding="utf-8"
        )
        with (
            mock.patch.dict(os.environ, COVERAGE_PROCESS_START=str(configuration)),
            mock.patch.object(clients, "WorkerProcess", _worker_class(lost)),
        ):
            yield reached
        if lost:
            raise Lost("; ".join(lost))
        reached.update(_read(configuration, folder))
    for file in files:
        if file not in reached:
            raise Lost(f"coverage.py has not seen {file} run")


def _read(configuration: Path, folder: Path) -> dict[Path, Reached]:
    measured = coverage.Coverage(config_file=str(configuration))
    # Nothing goes uncounted unseen: what does not count, our own tables say.
    measured.set_option("report:exclude_lines", [])
    document = folder / "seen.json"
    try:
        measured.combine([str(folder)])
        measured.json_report(outfile=str(document))
    except coverage.exceptions.CoverageException as error:
        raise Lost(f"coverage.py: {error}") from None
    files = json.loads(document.read_text(encoding="utf-8"))["files"]
    return {Path(name).resolve(): _reached(found) for name, found in files.items()}


def _reached(document: JSON) -> Reached:
    def branches(name: str) -> frozenset[Branch]:
        return frozenset((start, end) for start, end in document[name])

    return Reached(
        lines=frozenset(document["executed_lines"]),
        missing_lines=frozenset(document["missing_lines"]),
        branches=branches("executed_branches"),
        missing_branches=branches("missing_branches"),
    )


@dataclass(frozen=True, slots=True)
class Gate:
    """What the gate's survey reached, and which contracts it could not judge to the end.

    What these would have asked on was not asked.
    """

    reached: Mapping[Path, Reached]
    broken: tuple[str, ...]


def gate(subject: Subject, files: Sequence[Path], *, jobs: int) -> Gate:
    """Make the gate's survey of a release, and watch these files of it.

    Raises:
        Lost, contracts.subject.client.SubjectUnreadable: nothing can be said of the release.
    """
    contracts = [contract for contract in law.ALL.values() if not contract.needs_baseline]
    with watched(files) as reached:
        staff = trial.Workforce(Client(subject).alike(jobs))
        try:
            profile = profiles.PROFILES["gate"]
            asked = [*trial.examples(), *trial.drawn(staff.info, profile)]
            tallies = survey(contracts, asked, staff.pairs, info=staff.info)
        finally:
            for client in staff.subjects:
                client.close()
    broken = (f"{name}: {tally.reason}" for name, tally in tallies.items() if tally.reason)
    return Gate(reached, tuple(broken))
