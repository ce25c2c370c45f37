"""A clone whose history is known: one commit a release, and commits that do not load."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts import cli
from contracts.deployment import Deployment, Model
from contracts.hunt import bisect, revisions
from contracts.hunt.revisions import exported
from contracts.subject.overlay import ConsoleReport, Overlay, default_cache
from contracts.subject.resolve import resolve
from contracts.units import GiB
from strategies.published import MODELS
from tests.planting import POOL, Planted, plant

JSON = Any

#: What sizing and pools do not import, and is large.
UNUSED = {"multimodal_gen", "test", "benchmark", "eval", "cli"}
#: The commits; a dash is one that does not load.
HISTORY = ("0.5.12", "-", "0.5.12.post1", "0.5.13", "-", "0.5.20", "0.5.21")


def source(release: Overlay) -> dict[str, str | bytes]:
    """The source tree that a release was built from, as far as a worker needs it."""
    home = release.paths[0]
    metadata = next(home.glob("sglang-*.dist-info")) / "METADATA"
    pins = [
        line.removeprefix("Requires-Dist: ")
        for line in metadata.read_text(encoding="utf-8").splitlines()
        if line.startswith(("Requires-Dist: transformers==", "Requires-Dist: tokenizers=="))
    ]
    project = f'[project]\nname = "sglang"\nversion = "0"\ndependencies = {pins!r}\n'
    files = [
        path
        for part in (home / "sglang").iterdir()
        if part.name not in UNUSED
        for path in ([part] if part.is_file() else part.rglob("*"))
        if path.suffix in (".py", ".cuh")
    ]
    return {
        "python/pyproject.toml": project,
        **{f"python/{path.relative_to(home).as_posix()}": path.read_bytes() for path in files},
    }


def commits() -> Iterator[Planted]:
    files: dict[str, str | bytes] = {}
    for name in HISTORY:
        if name == "-":
            broken = {**files, POOL: "def broken(:\n"}
            yield Planted(title="this does not load", files=broken)
        else:
            files = source(default_cache().release(name, report=ConsoleReport()))
            yield Planted(title=f"SGLang {name}", files=files, tag=f"v{name}")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bisect") / "sglang"
    plant(folder, commits())
    return folder


@pytest.fixture
def found(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., JSON]:
    """What ``bisect`` finds; commits and verdicts are kept in a cache of the test's own."""
    monkeypatch.chdir(tmp_path)
    for module in (bisect, revisions):
        monkeypatch.setattr(module, "cache_root", lambda: clone.parent / "cache")

    def run(deployment: Deployment, *words: str) -> JSON:
        Path("deployment.json").write_text(json.dumps(deployment.to_json()), encoding="utf-8")
        decided = ("--repo", str(clone), "--deployment", "deployment.json", "--json", "-")
        monkeypatch.setattr(sys, "argv", ["contracts", "bisect", *decided, *words])
        with pytest.raises(SystemExit) as ended:
            cli.run()
        out, err = capsys.readouterr()
        assert not ended.value.code, err
        return json.loads(out)

    return run


@pytest.mark.xdist_group("bisect")
def test_the_fix_of_the_over_count(found: Callable[..., JSON]) -> None:
    """Red when 0.5.13 is not found to be the first release that does not charge every rank for the
    whole model, or a commit that does not load decides anything."""
    model = Model(num_hidden_layers=2, compress_ratios=(0, 0))
    deployment = Deployment(model=model, budget=GiB, pp_size=2)
    words = ("--contract", "rank-sum", "--bad", "v0.5.12", "--good", "main", "--find-fix")
    document = found(deployment, *words)
    assert document["first"]["label"] == "v0.5.13"
    assert document["violation"]["factor"] == 2.0
    verdicts = {one["title"]: one["verdict"] for one in document["judged"]}
    assert verdicts["SGLang 0.5.12.post1"] == "violated"
    assert verdicts["SGLang 0.5.13"] == "held"
    assert verdicts.get("this does not load", "not judged") == "not judged"


@pytest.mark.xdist_group("bisect")
def test_what_0_5_21_broke(found: Callable[..., JSON]) -> None:
    """Red when 0.5.21 is not found to be the first release whose compressed pools reserve more than
    a page."""
    model = MODELS["deepseek-v4-flash"]
    deployment = Deployment(
        model=model, budget=60 * GiB, server_args={"swa_full_tokens_ratio": 0.1}
    )
    document = found(deployment, "--contract", "paging", "--good", "v0.5.13", "--bad", "main")
    assert document["first"]["label"] == "v0.5.21"
    reasons = [one["reason"] for one in document["judged"] if one["verdict"] == "not judged"]
    assert all(reason.startswith("import: SyntaxError: ") for reason in reasons)


@pytest.mark.xdist_group("bisect")
def test_an_exported_commit_is_a_subject(clone: Path, tmp_path: Path) -> None:
    """Red when a commit of a clone cannot be named as a subject, or is called after a folder."""
    tree = exported(clone, "v0.5.13", root=tmp_path)
    subject = resolve(str(tree), report=ConsoleReport())
    assert (subject.kind, subject.label) == ("checkout", "v0.5.13")
    assert subject.paths[1:] == default_cache().release("0.5.13", report=ConsoleReport()).paths[1:]
