"""A checkout and an interpreter are judged as a release is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.contract import Verdict
from contracts.profiles import PROFILES
from contracts.subject.client import Client
from contracts.subject.overlay import ConsoleReport
from contracts.subject.resolve import Subject, resolve
from tests.trying import tried

#: The releases at the two ends of what the adapters know.
ENDS = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in ("0.5.12", "0.5.23")]


def judged(subject: Subject) -> Verdict:
    with Client(subject) as client:
        trials = tried(client, "stage-slice", profile=PROFILES["dev"], one_process=True)
        return trials["stage-slice"].verdict


def expected(release: str) -> Verdict:
    return Verdict.VIOLATED if release == "0.5.12" else Verdict.HELD


@pytest.mark.parametrize("release", ENDS)
def test_a_checkout(release: str, clients: Callable[[str], Client], tmp_path: Path) -> None:
    """Red when a source tree, named by its root, is not judged by its own code and pins."""
    home = clients(release).subject.paths[0]
    metadata = next(home.glob("sglang-*.dist-info")) / "METADATA"
    pins = [
        line.removeprefix("Requires-Dist: ")
        for line in metadata.read_text(encoding="utf-8").splitlines()
        if line.startswith(("Requires-Dist: transformers==", "Requires-Dist: tokenizers=="))
    ]
    python = tmp_path / "sglang" / "python"
    python.mkdir(parents=True)
    (python / "sglang").symlink_to(home / "sglang")
    project = f'[project]\nname = "sglang"\nversion = "0"\ndependencies = {pins!r}\n'
    (python / "pyproject.toml").write_text(project, encoding="utf-8")
    subject = resolve(str(tmp_path / "sglang"), report=ConsoleReport())
    assert (subject.kind, judged(subject)) == ("checkout", expected(release))


@pytest.mark.parametrize("release", ENDS)
def test_an_interpreter(release: str, clients: Callable[[str], Client], tmp_path: Path) -> None:
    """Red when an interpreter's own SGLang is not what is judged."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    (packages,) = tmp_path.glob("lib/python*/site-packages")
    torch = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.__path__[0])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    folders = [*clients(release).subject.paths, Path(torch).parent]
    (packages / "subject.pth").write_text("\n".join(map(str, folders)), encoding="utf-8")
    subject = resolve(str(tmp_path / "bin" / "python"), report=ConsoleReport())
    assert (subject.kind, judged(subject)) == ("interpreter", expected(release))
