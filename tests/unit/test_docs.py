"""The documents say what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from hypothesis import settings

from contracts import law, profiles
from contracts.report import settings as settings_page
from contracts.report.reference import reference
from contracts.subject.releases import NEWEST, RELEASES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_reference_is_up_to_date() -> None:
    """Red when a contract's docstring changes and docs/contracts.md does not."""
    written = (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8")
    assert written == reference(), "run: python -m contracts.report.reference > docs/contracts.md"


def test_the_table_of_settings_is_up_to_date() -> None:
    """Red when a setting's row changes and docs/settings.md does not."""
    written = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert written == settings_page.page(), (
        "run: python -m contracts.report.settings > docs/settings.md"
    )


def test_the_readme_names_the_default_subject() -> None:
    """Red when the newest supported release moves on and the README does not."""
    assert f"# judge SGLang {NEWEST}" in README


def test_the_readme_names_real_contracts() -> None:
    """Red when the README shows a contract that does not exist."""
    named = set(re.findall(r"--contract ([a-z0-9-]+)", README))
    assert named
    assert named <= set(law.ALL)


def test_the_readme_names_real_releases() -> None:
    """Red when the README shows a release that is not supported."""
    named = set(re.findall(r"--(?:sglang|baseline) (0\.\d+\.\d+\w*)", README))
    assert named
    assert named <= set(RELEASES)


def test_the_gate_is_deterministic() -> None:
    """Red when the gate's profile could give other verdicts on another run."""
    gate = profiles.PROFILES["gate"]
    assert gate.derandomize
    assert gate.database is None
    assert gate.deadline is None
    assert gate.max_examples >= 240


def test_profiles_state_every_field() -> None:
    """Red when a profile takes a field from whatever profile is current when it is built."""
    fields = set(inspect.signature(settings).parameters) - {"parent"}
    assert {name: set(stated) for name, stated in profiles.STATED.items()} == dict.fromkeys(
        profiles.STATED, fields
    )
