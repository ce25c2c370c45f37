"""Watching workers: what they run is seen, and what is lost is said."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.subject import client as clients
from contracts.subject.resolve import Subject
from tests.coverage.judge import Missed, Result
from tests.coverage.table import Entry, Reason

pytest.importorskip("coverage")

from tests.coverage import __main__ as command
from tests.coverage.measure import Lost, watched

#: Serves requests as a worker does, and runs the module that is watched.
_PYTHON = """#!{python}
import sys
sys.path.insert(0, {folder!r})
import watched_module
for line in sys.stdin:
    watched_module.answer(3)
    print('{{"status": "ok"}}', flush=True)
sys.exit({code})
"""

_MODULE = """\
def answer(number):
    if number > 5:
        return 1
    return 2
"""


def subject(folder: Path, code: int = 0) -> Subject:
    """A subject whose worker ends with a code once its standard input ends."""
    (folder / "watched_module.py").write_text(_MODULE, encoding="utf-8")
    script = folder / "python"
    text = _PYTHON.format(python=sys.executable, folder=str(folder), code=code)
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    return Subject(label="fake", python=script, paths=(), kind="interpreter")


def test_what_a_worker_runs_is_seen(tmp_path: Path) -> None:
    module = (tmp_path / "watched_module.py").resolve()
    fake = subject(tmp_path)
    with watched([module]) as reached:
        for _ in range(2):
            worker = clients.WorkerProcess(fake, {})
            worker.ask({}, 60)
            worker.close()
            worker.close()  # once more is harmless
        assert not reached
    seen = reached[module]
    assert seen.lines == {1, 2, 4}
    assert seen.missing_lines == {3}
    assert seen.branches == {(2, 4)}
    assert seen.missing_branches == {(2, 3)}


def test_a_file_that_is_not_run_is_told(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    with pytest.raises(Lost, match=r"other\.py|No data"), watched([other]):
        clients.WorkerProcess(subject(tmp_path), {}).close()


@pytest.mark.parametrize("code", [3, -signal.SIGKILL])
def test_a_worker_that_does_not_end_well_is_told(tmp_path: Path, code: int) -> None:
    def ask_and_end() -> None:
        worker = clients.WorkerProcess(subject(tmp_path, max(code, 0)), {})
        worker.ask({}, 60)
        if code < 0:
            os.kill(worker.pid, signal.SIGKILL)
        worker.close()

    module = (tmp_path / "watched_module.py").resolve()
    with pytest.raises(Lost, match=f"ended with code {code}"), watched([module]):
        ask_and_end()


def test_workers_are_as_before_afterwards(tmp_path: Path) -> None:
    before = clients.WorkerProcess
    module = (tmp_path / "watched_module.py").resolve()
    with watched([module]):
        assert clients.WorkerProcess is not before
        worker = clients.WorkerProcess(subject(tmp_path), {})
        worker.ask({}, 60)
        worker.close()
    assert clients.WorkerProcess is before
    assert "COVERAGE_PROCESS_START" not in os.environ


def result(release: str, missed: int = 0, explained: int = 0) -> Result:
    """Of 20 branches so many are missed, and so many of these for a known reason."""
    entry = Entry(Reason("steps", "Taken one by one.", reachable=True), "a.py", (release,), "f")
    missing = tuple(
        Missed("a.py", line, "f: if a: never true", entry if line < explained else None)
        for line in range(missed)
    )
    return Result(
        release=release, file="a.py", lines=20, lines_reached=20, branches=20,
        branches_reached=20 - missed, outside=(), missed=missing, errors=(),
    )  # fmt: skip


Run = Callable[[Callable[[str], Result], list[str]], int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line with these results, and a document that it finds in a folder."""
    monkeypatch.setattr(command, "_DOCUMENT", tmp_path / "coverage.md")
    monkeypatch.setattr(command, "_unknown", lambda _table: [])

    def run(results: Callable[[str], Result], arguments: list[str]) -> int:
        monkeypatch.setattr(command, "_measured", lambda release, *_rest: [results(release)])
        return command.main(arguments)

    return run


def test_a_current_document_and_no_gap_is_well(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(result, []) == 1
    assert "docs/coverage.md is not current" in capsys.readouterr().out
    assert run(result, ["--write"]) == 0
    assert run(result, []) == 0
    assert run(lambda release: result(release, 1, 1), []) == 1


@pytest.mark.parametrize(
    ("missed", "explained", "said"),
    [
        (1, 0, "0.5.20: 1 branches are not reached, and nobody says why"),
        (2, 2, "0.5.20: 90.0% of the branches are reached, not 95%"),
    ],
)
def test_a_gap_fails(
    run: Run, capsys: pytest.CaptureFixture[str], missed: int, explained: int, said: str
) -> None:
    assert run(lambda release: result(release, missed, explained), ["0.5.20"]) == 1
    assert said in capsys.readouterr().out


def test_one_release_leaves_the_document_alone(run: Run) -> None:
    assert run(result, ["0.5.20"]) == 0
    with pytest.raises(SystemExit, match="2"):
        run(result, ["0.5.20", "--write"])


def test_what_cannot_be_measured_is_no_pass(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    def lose(_release: str) -> Result:
        raise Lost("a worker ended with code 9")

    assert run(lose, []) == 3
    assert "not measured: a worker ended with code 9" in capsys.readouterr().err
