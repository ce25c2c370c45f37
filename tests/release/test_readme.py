"""The failure that the README shows is a real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.hunt.case import save
from contracts.profiles import PROFILES
from contracts.report.violation import replay_line, text
from contracts.subject.client import Client
from tests.trying import tried

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.xdist_group("0.5.12")
def test_the_sample_failure(
    clients: Callable[[str], Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when the gate shows rank-sum's failure on 0.5.12 otherwise than the README does."""
    monkeypatch.chdir(tmp_path)
    trial = tried(clients("0.5.12"), "rank-sum", profile=PROFILES["gate"])["rank-sum"]
    assert trial.finding is not None
    path = save(trial.finding, subject="0.5.12", baseline=None)
    shown = text(trial.finding, subject="0.5.12", replay=replay_line(path))
    assert f"```text\n{shown}\n```" in README.read_text(encoding="utf-8")
