"""The ledger with a real SGLang: 0.5.12's over-count, known, worse than known, and gone."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from contracts.contract import Verdict
from contracts.ledger import Ledger, load
from contracts.profiles import PROFILES
from contracts.report.violation import ledger_line
from contracts.subject.client import Client
from contracts.trial import Trial, stale
from tests.trying import tried

pytestmark = pytest.mark.xdist_group("0.5.12")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
#: The ledger that docs/ledger.md shows. Its expiry is not what is tested here.
EXAMPLE = re.sub(
    r"expires = .*",
    "expires = 9999-12-31",
    re.findall(r"<!-- example: begin -->\n```toml\n(.*?)```", PAGE, re.DOTALL)[0],
)
TOO_LOW = EXAMPLE.replace("bound = 99", "bound = 2")
#: One rank and a list of exactly as many entries as layers: there is nothing to over-count.
GONE = EXAMPLE.replace(
    "pp_size > 1 or extra_entries > 0", "pp_size == 1 and extra_entries == 0"
).replace('"pp_size": 2', '"pp_size": 1')
GATE = settings(PROFILES["gate"], max_examples=100)
PATIENCE = 300.0


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "known.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def decided(client: Client, ledger: Ledger) -> Trial:
    (trial,) = tried(client, "stage-slice", ledger=ledger, profile=GATE).values()
    assert trial.reason is None
    return trial


def test_known(clients: Callable[[str], Client], written: Callable[[str], Path]) -> None:
    """Red when the over-count is not covered by the entry that docs/ledger.md shows, or that entry
    is stale, or speaks of the release in which it is fixed."""
    client = clients("0.5.12")
    ledger = load(written(EXAMPLE))
    trial = decided(client, ledger)
    assert (trial.verdict, trial.finding, trial.examples) == (Verdict.HELD, None, ())
    assert 50 < trial.known < trial.deployments
    assert trial.factor is not None
    assert 8 < trial.factor <= 99
    (entry,) = ledger.of("stage-slice", client.info)
    assert stale(entry, client) is None
    fixed = dataclasses.replace(client.info, version="0.5.13")
    assert ledger.of("stage-slice", fixed) == ()


def test_worse_than_known(clients: Callable[[str], Client], written: Callable[[str], Path]) -> None:
    """Red when an over-count beyond the bound is known, or one within it is not."""
    client = clients("0.5.12")
    ledger = load(written(TOO_LOW))
    trial = decided(client, ledger)
    assert trial.verdict is Verdict.VIOLATED
    assert trial.known > 0
    names = {found.example for found in trial.examples}
    assert {"flash-pp4", "flash-pp8"} <= names
    assert trial.finding is not None
    assert ledger_line(ledger, trial.finding, client.info) == (
        "worse than known: entry 1 (stage-slice) bears up to ×2 "
        "(sgl-project/sglang#25750, fixed in 0.5.13)"
    )


def test_stale(clients: Callable[[str], Client], written: Callable[[str], Path]) -> None:
    """Red when an entry whose deployment does not violate may stay."""
    (entry,) = load(written(GONE)).entries
    assert stale(entry, clients("0.5.12")) == (
        "entry 1 (stage-slice): its deployment no longer violates on 0.5.12: remove the entry"
    )


def gate(ledger: Path, folder: Path) -> tuple[int, str]:
    """The gate as its users run it: its exit code and what it says. Failing cases go elsewhere."""
    command = [sys.executable, "-m", "pytest", str(ROOT / "tests" / "gate")]
    config = ["-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"]
    options = ["--sglang", "0.5.12", "--contract", "stage-slice", "--ledger", str(ledger)]
    ended = subprocess.run(
        [*command, *config, *options, "--hypothesis-profile", "dev"],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def test_the_gate(written: Callable[[str], Path], tmp_path: Path) -> None:
    """Red when the gate is not green on what is known, or not red, with the remedy, on what is
    worse than known and on an entry that is no longer true."""
    code, said = gate(written(EXAMPLE), tmp_path)
    assert code == 0, said
    assert re.search(r"stage-slice +held +\d+ deployments .* [1-9]\d* known", said)
    both = TOO_LOW + GONE.removeprefix("schema = 1\n")
    code, said = gate(written(both), tmp_path)
    assert code == 1, said
    assert "  ledger: worse than known: entry 1 (stage-slice) bears up to ×2 (sgl-project" in said
    assert (
        "entry 2 (stage-slice): its deployment no longer violates on 0.5.12: remove the entry"
    ) in said
