"""``bisect`` and ``bisect-run`` as their users meet them, on clones of fake SGLangs.

A commit's file ``told`` says what its SGLang does; see ``tests.unit.fake_worker``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from contracts import cli
from contracts.commands import bisect as command
from contracts.commands import common
from contracts.commands.bisect import SKIPPED
from contracts.hunt import bisect as hunt
from contracts.hunt.case import load
from contracts.hunt.revisions import KEPT
from contracts.subject import resolve as resolving
from contracts.subject.overlay import (
    CACHE_VARIABLE,
    Cache,
    Overlay,
    OverlayError,
    Report,
)
from contracts.subject.resolve import Subject
from tests.planting import Planted, an_sglang, git, plant, state
from tests.unit import fake_worker, observations
from tests.unit.schemas import check
from tests.unit.test_cli import Ended

JSON = Any
ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
#: What the SGLang of a commit does.
HOLDS, VIOLATES = {"observe": "answer"}, {"observe": "ignore stages"}
REFUSES, FAILS = {"observe": "refuse"}, {"observe": "fail"}
DIES, DOES_NOT_LOAD = {"observe": "exit"}, {"hello": "exit"}


# -- fake SGLangs, also for processes of their own -------------------------------------------------


class Bare(Cache):
    """A cache with nothing to put under a checkout."""

    def checkout(self, root: Path, *, report: Report) -> Overlay:
        assert report is not None
        if (root / "no-network").is_file():
            raise OverlayError("fetching transformers==5.0: pip failed: a package index cannot …")
        return Overlay((root,))


def fake_subjects(folder: Path) -> Callable[..., Subject]:
    """A ``resolve`` whose checkouts do what their file ``told`` says. ``folder`` gets a folder of
    each worker that is started, named after the commit."""

    def resolve(text: str, *, report: Report) -> Subject:
        cache = Bare(Path("/there/is/no/cache"))
        found = resolving.resolve(text, report=report, cache=cache)
        if found.kind != "checkout":
            return found
        told = json.loads((found.paths[0] / "told").read_text(encoding="utf-8"))
        place = Path(tempfile.mkdtemp(prefix=f"{found.label}+", dir=folder))
        return dataclasses.replace(found, python=fake_worker.install(place, **told).python)

    return resolve


def main(folder: str) -> None:
    """The entry point of a process of its own, with fake subjects."""
    hunt.resolve = common.resolve = fake_subjects(Path(folder))  # type: ignore[attr-defined]
    cli.run()


#: Runs it.
CODE = "import sys; from tests.unit.test_bisect_command import main; main(sys.argv.pop(1))"


# -- clones ----------------------------------------------------------------------------------------


def told(*commits: Mapping[str, str], **more: str) -> list[Planted]:
    """Commits, one after the other; the n-th is tagged ``cN``."""
    return [
        Planted(
            title=f"commit {n} [of them]",
            files=an_sglang(f"{n}", **{"python/told": json.dumps(one)}, **more),
            tag=f"c{n}",
        )
        for n, one in enumerate(commits)
    ]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache, workers and cases of the test's own."""
    monkeypatch.chdir(tmp_path)
    for name in ("SGLANG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "workers").mkdir()
    resolve = fake_subjects(tmp_path / "workers")
    monkeypatch.setattr(hunt, "resolve", resolve)
    monkeypatch.setattr(common, "resolve", resolve)
    deployment = observations.deployment(0, 4, pp_size=2)
    Path("deployment.json").write_text(json.dumps(deployment.to_json()), encoding="utf-8")


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run the entry point in this process; whatever it raises but SystemExit fails the test."""

    def ended(*words: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["contracts", *map(str, words)])
        with pytest.raises(SystemExit) as raised:
            cli.run()
        out, err = capsys.readouterr()
        return Ended(int(raised.value.code or 0), out, err)

    return ended


def judged() -> list[str]:
    """The commits whose workers were started, in this order."""
    folders = sorted(Path("workers").iterdir(), key=lambda path: path.stat().st_ctime_ns)
    return [folder.name.partition("+")[0] for folder in folders]


def forget() -> None:
    """Count from here."""
    for folder in Path("workers").iterdir():
        shutil.rmtree(folder)


#: What most tests say: the deployment that decides, so that nothing is searched for.
DECIDED = ("--contract", "stage-slice", "--deployment", "deployment.json", "--repo", "clone")
BISECT = ("bisect", *DECIDED, "--good", "c0", "--bad", "main")


# -- what is found ---------------------------------------------------------------------------------


def test_the_planted_commit_among_sixty(run: Callable[..., Ended]) -> None:
    """Red when the first bad commit is missed, or more than 8 of 60 commits are judged."""
    shas = plant(Path("clone"), told(*[HOLDS] * 41, *[VIOLATES] * 19))
    ended = run(*BISECT, "--json", "found.json")
    assert ended.code == 0
    assert len(judged()) <= 8
    lines = ended.out.splitlines()
    assert lines[:3] == [
        f"first bad commit: {shas[41]}",
        "  commit 41 [of them]",
        "  c41, author date 2023-11-14T22:54:20+00:00",
    ]
    assert lines[3] == f"  {len(judged())} commits judged, 0 stepped past"
    assert lines[5].startswith("stage-slice: rank 0 of 2: ")
    assert re.search(r"\[layers=2 ratios=\(0, 4\) pp=2 .* sglang=c41\]", lines[6])
    assert lines[7].startswith("  replay: python -m contracts replay .contracts/stage-slice-")
    document = json.loads(Path("found.json").read_text(encoding="utf-8"))
    assert document["first"]["sha"] == shas[41]
    assert [one["label"] for one in document["judged"]] == judged()
    assert document["violation"]["replay"] == lines[7].removeprefix("  replay: ")
    check(document, "bisect")


def test_the_range_is_shown(run: Callable[..., Ended]) -> None:
    """Red when the verdicts, or what is still left, are not told while it runs; or what stands in
    brackets is lost as markup."""
    plant(Path("clone"), told(*[HOLDS] * 4, *[VIOLATES] * 5))
    ended = run(*BISECT)
    assert ended.err.strip().splitlines() == [
        "violated    c8  commit 8 [of them]",
        "held        c0  commit 0 [of them]",
        "8 commits, about 3 to judge",
        "violated    c4  commit 4 [of them]",
        "4 commits, about 2 to judge",
        "held        c2  commit 2 [of them]",
        "2 commits, about 1 to judge",
        "held        c3  commit 3 [of them]",
    ]


def test_the_bar(started: Callable[..., subprocess.Popen[str]]) -> None:
    """Red when in a terminal no bar shows the range and the commit that is judged, or its lines
    stand there twice."""
    plant(Path("clone"), told(HOLDS, HOLDS, VIOLATES, VIOLATES))
    master, slave = os.openpty()
    process = started(*BISECT, stderr=slave)
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # EIO: Linux's way of saying that the other side is closed
        while chunk := os.read(master, 1 << 16):
            seen += chunk
    os.close(master)
    assert finished(process).code == 0
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", seen.decode())
    assert re.search(r"3 commits, about 2 to judge: c1 ━+ \d:\d\d:\d\d", text)
    assert "3 commits, about 2 to judge\r" not in text
    assert "held        c1  commit 1 [of them]" in text


def test_the_replay_line_replays(run: Callable[..., Ended]) -> None:
    """Red when the case that is shown names a tree that is gone."""
    plant(Path("clone"), told(*[HOLDS] * 3, *[VIOLATES] * 9))
    ended = run(*BISECT)
    words = ended.out.splitlines()[-1].split()[4:]
    again = run(*words)
    assert (again.code, again.out.splitlines()[0]) == (1, "FAILED")
    assert Path(load(Path(words[1])).subject).name == "c3"


def test_a_second_run_judges_nothing(run: Callable[..., Ended]) -> None:
    """Red when a verdict is not kept, or --fresh keeps to it."""
    plant(Path("clone"), told(*[HOLDS] * 7, REFUSES, FAILS, HOLDS, *[VIOLATES] * 9))
    first = run(*BISECT)
    assert first.code == 0
    count = len(judged())
    forget()
    again = run(*BISECT)
    assert judged() == []
    assert again.err.count("  (known)") == count
    known = f"; {count} of them known from earlier runs"
    assert again.out.replace(known, "") == first.out
    assert run(*BISECT, "--fresh").out == first.out
    assert len(judged()) == count


def test_another_range_uses_what_is_known(run: Callable[..., Ended]) -> None:
    """Red when verdicts are kept for one pair of ends only."""
    plant(Path("clone"), told(*[HOLDS] * 12, *[VIOLATES] * 12))
    run(*BISECT)
    forget()
    ended = run("bisect", *DECIDED, "--good", "c1", "--bad", "c23")
    assert ended.out.startswith("first bad commit: ")
    assert "c23" not in judged()


def test_a_fix(run: Callable[..., Ended]) -> None:
    """Red when --find-fix names another commit than the first on which the contract holds, or does
    not show what was wrong before it."""
    shas = plant(Path("clone"), told(*[VIOLATES] * 5, *[HOLDS] * 6))
    ended = run("bisect", *DECIDED, "--bad", "c0", "--good", "main", "--find-fix")
    assert ended.code == 0
    assert ended.out.startswith(f"first commit on which stage-slice holds: {shas[5]}\n")
    assert "sglang=c4]" in ended.out


def test_neighbours(run: Callable[..., Ended]) -> None:
    """Red when two ends with nothing between them are not an answer."""
    shas = plant(Path("clone"), told(HOLDS, VIOLATES))
    assert run(*BISECT).out.startswith(f"first bad commit: {shas[1]}\n")
    assert judged() == ["c1", "c0"]


@pytest.mark.parametrize("kind", [REFUSES, FAILS, DIES, DOES_NOT_LOAD], ids=str)
def test_stepping_past(kind: Mapping[str, str], run: Callable[..., Ended]) -> None:
    """Red when a commit that cannot be judged counts for good or bad, or ends the search."""
    shas = plant(Path("clone"), told(*[HOLDS] * 3, kind, kind, HOLDS, *[VIOLATES] * 3))
    ended = run(*BISECT)
    assert ended.code == 0
    assert ended.out.startswith(f"first bad commit: {shas[6]}\n")
    assert ", 0 stepped past" not in ended.out
    assert re.search(r"not judged  c4  commit 4 \[of them\] — .+", ended.err)


def test_commits_without_an_sglang_or_its_pool(run: Callable[..., Ended]) -> None:
    """Red when a commit of which there is nothing to judge starts a worker, or what is said of it
    names a folder of the cache."""
    commits = told(*[HOLDS] * 5, *[VIOLATES] * 2)
    commits[2] = Planted(title="no SGLang", files={"README.md": ""}, tag="c2")
    without = {"python/sglang/srt/x.py": "", "python/pyproject.toml": ""}
    commits[3] = Planted(title="no pool", files=without, tag="c3")
    shas = plant(Path("clone"), commits)
    ended = run(*BISECT)
    assert ended.out.startswith(f"first bad commit: {shas[5]}\n")
    assert "not judged  c3  no pool — c3 has no DeepSeek-V4 pool (" in ended.err
    assert {"c2", "c3"}.isdisjoint(judged())


def test_only_commits_that_cannot_be_judged_are_left(run: Callable[..., Ended]) -> None:
    """Red when one of several is named as the first, or not all of them are."""
    shas = plant(Path("clone"), told(HOLDS, HOLDS, DIES, REFUSES, VIOLATES))
    ended = run(*BISECT, "--json", "-")
    assert ended.code == 3
    document = json.loads(ended.out)
    assert document["first"] is None
    assert [one["sha"] for one in document["candidates"]] == shas[2:]
    assert "the first is one of these 3 commits; all but the last one cannot be judged\n" in (
        ended.err
    )
    assert all(f"  {sha}  commit " in ended.err for sha in shas[2:])


def test_what_may_pass_is_asked_again(run: Callable[..., Ended]) -> None:
    """Red when a worker that died, or a network that was away, is a verdict for good."""
    commits = told(HOLDS, DIES, HOLDS, HOLDS, VIOLATES)
    files = {**commits[2].files, "python/no-network": ""}
    commits[2] = dataclasses.replace(commits[2], files=files)
    plant(Path("clone"), commits)
    first = run(*BISECT)
    assert "not judged  c2  commit 2 [of them] — fetching transformers==5.0: pip fail" in first.err
    forget()
    again = run(*BISECT)
    assert again.err.count("(known)") == 3
    assert "not judged  c2  commit 2 [of them] — fetching transformers==5.0: pip fail" in again.err


def test_a_merge(run: Callable[..., Ended]) -> None:
    """Red when what came in with a side branch is laid to its merge."""
    commits = told(HOLDS, HOLDS, HOLDS, VIOLATES, VIOLATES, VIOLATES)
    parents: list[tuple[int, ...]] = [(), (0,), (0,), (2,), (1, 3), (4,)]
    merged = [
        dataclasses.replace(commit, parents=given)
        for commit, given in zip(commits, parents, strict=True)
    ]
    shas = plant(Path("clone"), merged)
    assert run(*BISECT).out.startswith(f"first bad commit: {shas[3]}\n")


#: 0 - 1 - 2 with release branches: 3 - 4 from 1 and 5 - 6 from 1.
PARTED: list[tuple[int, ...]] = [(), (0,), (1,), (1,), (3,), (1,), (5,), (2, 4, 6)]


def parted(*commits: Mapping[str, str]) -> list[str]:
    made = [
        dataclasses.replace(commit, parents=given)
        for commit, given in zip(told(*commits, HOLDS), PARTED, strict=True)
    ]
    return plant(Path("clone"), made)


def test_ends_that_have_parted(run: Callable[..., Ended]) -> None:
    """Red when two release branches cannot be compared, or where they parted is not judged."""
    shas = parted(HOLDS, HOLDS, HOLDS, HOLDS, HOLDS, VIOLATES, VIOLATES)
    ended = run("bisect", *DECIDED, "--good", "c4", "--bad", "c6")
    assert ended.out.startswith(f"first bad commit: {shas[5]}\n")
    assert judged() == ["c6", "c4", "c1", "c5"]


def test_ends_that_parted_too_late(run: Callable[..., Ended]) -> None:
    """Red when a commit is named though what made the difference mended the good end."""
    parted(HOLDS, VIOLATES, VIOLATES, HOLDS, HOLDS, VIOLATES, VIOLATES)
    ended = run("bisect", *DECIDED, "--good", "c4", "--bad", "c6")
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == (
        "Error: c4 and c6 parted at c1, where the contract is violated already: what made the "
        "difference is on the side of c4; name c1 in its place, or search that side"
    )


# -- which deployment decides ----------------------------------------------------------------------

SEARCHED = ("bisect", "--profile", "dev", "--contract", "stage-slice", "--repo", "clone")


def test_the_bad_end_finds_the_deployment(run: Callable[..., Ended]) -> None:
    """Red when without a deployment no counterexample is found, it is not the shrunk one, or it is
    searched for again where it is known."""
    shas = plant(Path("clone"), told(*[HOLDS] * 5, *[VIOLATES] * 5))
    words = (*SEARCHED, "--good", "c0", "--bad", "main", "--jobs", "1")
    first = run(*words, "--json", "-")
    document = json.loads(first.out)
    assert document["first"]["sha"] == shas[5]
    assert document["violation"]["deployment"]["model"]["num_hidden_layers"] <= 2
    assert judged().count("c9") == 1
    forget()
    again = json.loads(run(*words, "--json", "-").out)
    assert again["violation"] == document["violation"]
    assert all(one["known"] for one in again["judged"])
    assert judged() == []


def test_a_bad_end_on_which_all_is_well(run: Callable[..., Ended]) -> None:
    """Red when a search begins without anything to look for."""
    plant(Path("clone"), told(HOLDS, HOLDS))
    ended = run(*SEARCHED, "--good", "c0", "--bad", "main")
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == (
        "Error: --bad c1: stage-slice holds there on all deployments of the dev profile"
    )


def test_a_bad_end_that_is_not_judged(run: Callable[..., Ended]) -> None:
    """Red when a bad end that does not load passes for one without violations."""
    plant(Path("clone"), told(HOLDS, DOES_NOT_LOAD))
    ended = run(*SEARCHED, "--good", "c0", "--bad", "main")
    assert ended.code == 3
    assert "Error: --bad c1 cannot be judged: the worker died " in ended.err


@pytest.mark.parametrize(
    ("commits", "code", "sentence"),
    [
        (
            (VIOLATES, VIOLATES),
            2,
            "--good c0: the contract is violated there on the given deployment: stage-slice: rank ",
        ),
        ((HOLDS, HOLDS), 2, "--bad c1: the contract holds there on the given deployment"),
        ((DIES, VIOLATES), 3, "--good c0 cannot be judged: the worker died with exit code 7: "),
        ((HOLDS, REFUSES), 3, "--bad c1 cannot be judged: SGLang refuses the deployment: "),
    ],
)
def test_ends_that_are_not_what_they_should_be(
    commits: Sequence[Mapping[str, str]], code: int, sentence: str, run: Callable[..., Ended]
) -> None:
    """Red when a search begins between two ends that do not differ, or cannot be judged."""
    plant(Path("clone"), told(*commits))
    ended = run(*BISECT)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.splitlines()[-1].startswith(f"Error: {sentence}")


def test_a_good_end_that_violates_too(run: Callable[..., Ended]) -> None:
    """Red when it is not said that the deployment was found on the bad end."""
    plant(Path("clone"), told(VIOLATES, VIOLATES))
    ended = run(*SEARCHED, "--good", "c0", "--bad", "main")
    assert ended.code == 2
    assert "--good c0: the contract is violated there on the counterexample of c1: " in ended.err


def test_a_saved_case_decides(run: Callable[..., Ended]) -> None:
    """Red when a saved case does not bring its contract and its deployment."""
    shas = plant(Path("clone"), told(HOLDS, HOLDS, VIOLATES, VIOLATES))
    run(*BISECT)
    (case,) = Path(".contracts").glob("*.json")
    words = ("--deployment", case, "--repo", "clone", "--good", "c0", "--bad", "main")
    assert run("bisect", *words).out.startswith(f"first bad commit: {shas[2]}\n")


def test_a_contract_that_compares(run: Callable[..., Ended], tmp_path: Path) -> None:
    """Red when a contract that needs a baseline cannot be bisected, or a verdict is kept though its
    baseline is one that may change."""
    (tmp_path / "baseline").mkdir()
    baseline = fake_worker.install(tmp_path / "baseline").python
    plant(Path("clone"), told(HOLDS, HOLDS))
    words = ("--deployment", "deployment.json", "--repo", "clone", "--good", "c0", "--bad", "main")
    ended = run("bisect", *words, "--contract", "pp1-unchanged", "--baseline", baseline)
    assert "--bad c1: the contract holds there on the given deployment" in ended.err
    assert not (tmp_path / "cache" / "verdicts").exists()


# -- bad input -------------------------------------------------------------------------------------

#: The words after ``bisect --contract stage-slice``, and what the sentence must say.
BAD: Mapping[str, tuple[str, str]] = {
    "no ends": ("--repo clone", "Missing option '--good'"),
    "no contract": (
        "--repo clone --good c0 --bad c1 --deployment deployment.json",
        "--contract is missing: only a saved case names its own",
    ),
    "unknown contract": ("--contract stage-slize --good c0 --bad c1", "did you mean 'stage-slice'"),
    "no baseline": (
        "--contract pp1-unchanged --good c0 --bad c1",
        "pp1-unchanged compares with another SGLang; name it with --baseline",
    ),
    "no folder": ("--repo nowhere --good c0 --bad c1", "nowhere is no folder"),
    "no repository": ("--repo workers --good c0 --bad c1", "workers is no git repository"),
    "the current folder": ("--good c0 --bad c1", ". is no git repository"),
    "unknown revision": (
        "--repo clone --good c0 --bad c11",
        "clone has no commit 'c11'; did you mean 'c1'?",
    ),
    "the same": (
        "--repo clone --good c1 --bad c1~0",
        "--good and --bad are the same commit, c1",
    ),
    "the wrong order": (
        "--repo clone --good c2 --bad c0",
        "--bad c0 comes before --good c2; add --find-fix to find the commit that mended the "
        "contract",
    ),
    "the wrong order for a fix": (
        "--repo clone --good c0 --bad c2 --find-fix",
        "--good c0 comes before --bad c2; leave --find-fix out to find the commit that broke the "
        "contract",
    ),
    "nothing in common": (
        "--repo clone --good alien --bad c2",
        " and c2 have no history in common",
    ),
    "no SGLang": (
        "--repo other --good main~1 --bad main",
        "other is no clone of SGLang, or this commit is none: it has neither python/sglang/srt nor",
    ),
    "no deployment file": (
        "--repo clone --good c0 --bad c2 --deployment nowhere",
        "nowhere: No such file",
    ),
    "a wrong deployment": (
        "--repo clone --good c0 --bad c2 --deployment wrong",
        "wrong: pp_sise: unknown field; did you mean 'pp_size'?",
    ),
    "no folder for the JSON": (
        "--repo clone --good c0 --bad c2 --json no/such/folder.json",
        "--json no/such/folder.json: there is no such folder",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input(bad: str, run: Callable[..., Ended]) -> None:
    """Red when bad input is not answered with exit code 2 and one sentence, or starts a worker."""
    plant(Path("clone"), told(HOLDS, HOLDS, VIOLATES))
    git(Path("clone"), "checkout", "--quiet", "--orphan", "alien")
    git(Path("clone"), "commit", "--quiet", "--message=alien")
    nothing = [Planted(title=f"{n}", files={"README.md": f"{n}"}) for n in range(2)]
    plant(Path("other"), nothing)
    Path("wrong").write_text('{"pp_sise": 2}', encoding="utf-8")
    words, sentence = BAD[bad]
    chosen = () if "--contract" in words or bad == "no contract" else ("--contract", "stage-slice")
    ended = run("bisect", *chosen, *words.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].startswith("Error: ")
    assert sentence in ended.err.splitlines()[-1]
    assert judged() == []


def test_a_shallow_clone(run: Callable[..., Ended]) -> None:
    """Red when a clone that lacks the good end's history is searched, or not told what to do."""
    plant(Path("whole"), told(*[HOLDS] * 3, *[VIOLATES] * 3))
    url = Path("whole").absolute().as_uri()
    git(Path(), "clone", "--quiet", "--depth=2", url, "clone")
    git(Path("clone"), "fetch", "--quiet", "--depth=1", "origin", "tag", "c0", "--no-tags")
    ended = run(*BISECT)
    assert ended.code == 2
    last = ended.err.splitlines()[-1]
    assert last.startswith("Error: c0 does not come before ")
    assert last.endswith("is a shallow clone; `git fetch --unshallow` brings what it lacks")
    git(Path("clone"), "fetch", "--quiet", "--unshallow")
    assert run("bisect", *DECIDED, "--good", "c0", "--bad", "HEAD").code == 0


def test_a_dirty_clone(run: Callable[..., Ended]) -> None:
    """Red when what is not committed is judged, is not said not to be, or anything in the clone is
    another than before."""
    plant(Path("clone"), told(*[HOLDS] * 3, *[VIOLATES] * 3))
    Path("clone/python/told").write_text(json.dumps(HOLDS), encoding="utf-8")
    git(Path("clone"), "add", "python/told")
    Path("clone/python/pyproject.toml").write_text("broken [", encoding="utf-8")
    before = state(Path("clone"))
    ended = run(*BISECT)
    assert ended.code == 0
    assert ended.err.startswith("clone has uncommitted changes; they are not judged\n")
    assert state(Path("clone")) == before


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["a tree", "a verdict"])
def test_a_full_disk(
    place: str, run: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when a full disk is a traceback or a verdict, or the next run does not go on."""
    shas = plant(Path("clone"), told(*[HOLDS] * 3, *[VIOLATES] * 3))
    with monkeypatch.context() as broken:
        if place == "a tree":
            broken.setattr(tarfile.TarFile, "makefile", full)
        else:
            broken.setattr(Path, "write_text", full_for_verdicts)
        ended = run(*BISECT)
    assert (ended.code, ended.out) == (3, "")
    last = ended.err.splitlines()[-1]
    assert last.startswith("Error: ")
    assert "cannot be written in the cache directory" in last
    assert last.endswith("No space left on device; SGLANG_POOL_CONTRACTS_CACHE names another")
    assert not list(Path("cache").rglob("*.partial-*")) + list(Path("cache").rglob("*.tmp"))
    assert run(*BISECT).out.startswith(f"first bad commit: {shas[3]}\n")


def test_a_case_that_cannot_be_saved(run: Callable[..., Ended]) -> None:
    """Red when what was found is kept back because its case cannot be written."""
    shas = plant(Path("clone"), told(HOLDS, VIOLATES))
    Path(".contracts").touch()
    ended = run(*BISECT, "--json", "found.json")
    assert ended.out.startswith(f"first bad commit: {shas[1]}\n")
    assert ended.out.endswith("  replay: not saved\n")
    assert "the case cannot be saved: " in ended.err
    found = json.loads(Path("found.json").read_text(encoding="utf-8"))
    assert found["violation"]["replay"] is None


def full(*_: object) -> None:
    raise OSError(28, os.strerror(28))


def full_for_verdicts(path: Path, text: str, encoding: str) -> int:
    if path.parent.parent.name == "verdicts":
        full()
    return path.write_bytes(text.encode(encoding))


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Processes with fake subjects, in sessions of their own, ended after the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*words: str | Path, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, "workers", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "TERM": "xterm-256color"},
            encoding="utf-8",
            start_new_session=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def finished(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=PATIENCE)
    return Ended(process.returncode, out, err)


def whole(folder: Path) -> None:
    """What is in the cache is whole: every tree, and every verdict."""
    for tree in folder.glob("commits/[!.]*"):
        (labelled,) = tree.iterdir()
        files = {path for path in an_sglang() if path.startswith("python/")} | {"python/told"}
        assert all((labelled / path).is_file() for path in files)
    for verdict in folder.glob("verdicts/*/*.json"):
        assert json.loads(verdict.read_text(encoding="utf-8"))["verdict"] in ("held", "violated")


def test_two_runs_at_once(started: Callable[..., subprocess.Popen[str]]) -> None:
    """Red when two runs on one cache get in each other's way."""
    shas = plant(Path("clone"), told(*[HOLDS] * 25, *[VIOLATES] * 8))
    ended = [finished(process) for process in [started(*BISECT), started(*BISECT)]]
    for one in ended:
        assert (one.code, one.out.splitlines()[0]) == (0, f"first bad commit: {shas[25]}"), one.err
    whole(Path("cache"))
    assert len(list(Path("cache").glob("commits/[!.]*"))) <= KEPT + 1


def test_a_kill_at_any_moment(started: Callable[..., subprocess.Popen[str]]) -> None:
    """Red when a killed run leaves something that is later taken for whole, changes the clone, or
    is begun anew by the next one."""
    shas = plant(Path("clone"), told(*[HOLDS] * 25, *[VIOLATES] * 8))
    before = state(Path("clone"))
    for lines, moments in ((0, 0.3), (1, 0.0), (3, 0.1), (4, 0.2), (6, 0.3), (7, 0.05)):
        process = started(*BISECT)
        assert process.stderr is not None
        heard = [process.stderr.readline() for _ in range(lines)]
        time.sleep(moments)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        assert all(heard)
        whole(Path("cache"))
    ended = finished(started(*BISECT))
    assert ended.out.startswith(f"first bad commit: {shas[25]}\n")
    assert ended.err.count("(known)") >= 4
    assert not list(Path("cache").rglob("*.partial-*"))
    assert state(Path("clone")) == before


def test_an_interrupt(started: Callable[..., subprocess.Popen[str]]) -> None:
    """Red when an interrupt looks like a verdict or is a traceback."""
    plant(Path("clone"), told(HOLDS, {"observe": "ring and hang"}, VIOLATES, VIOLATES))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = started(*BISECT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stderr is not None
    heard = [process.stderr.readline() for _ in range(3)]
    assert heard[-1] == "3 commits, about 2 to judge\n"
    wait_for(lambda: any("observe" in log.read_text() for log in Path().glob("workers/c1+*/log/*")))
    os.killpg(process.pid, signal.SIGINT)
    ended = finished(process)
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.splitlines()[-1:] == [
        "interrupted; what was judged is kept, the same command goes on"
    ]
    assert "Traceback" not in ended.err


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# -- bisect-run ------------------------------------------------------------------------------------


def run_on(told_: Mapping[str, str], run: Callable[..., Ended], *words: str) -> Ended:
    plant(Path("clone"), told(told_))
    return run("bisect-run", *DECIDED, *words)


@pytest.mark.parametrize(
    ("commit", "code", "said"),
    [
        (HOLDS, 0, "stage-slice held"),
        (VIOLATES, 1, "stage-slice violated: rank 0 of 2: "),
        (REFUSES, SKIPPED, "stage-slice not judged: SGLang refuses the deployment: "),
        (FAILS, SKIPPED, "stage-slice not judged: sizing failed: "),
        (DIES, SKIPPED, "stage-slice not judged: the worker died "),
    ],
    ids=str,
)
def test_what_git_is_told(
    commit: Mapping[str, str], code: int, said: str, run: Callable[..., Ended]
) -> None:
    """Red when what cannot be judged is good or bad to git, or a verdict is not what git takes."""
    ended = run_on(commit, run)
    assert (ended.code, ended.out.count("\n")) == (code, 1)
    assert ended.out.startswith(said)


def test_what_git_is_told_of_a_fix(run: Callable[..., Ended]) -> None:
    """Red when with --find-fix the two verdicts are not the other way round."""
    assert run_on(VIOLATES, run, "--find-fix").code == 0
    git(Path("clone"), "rm", "--quiet", "-r", ".")
    shutil.rmtree("clone")
    assert run_on(HOLDS, run, "--find-fix").code == 1


def test_a_checkout_that_does_not_load(run: Callable[..., Ended]) -> None:
    """Red when a commit that does not load is bad to git."""
    ended = run_on(DOES_NOT_LOAD, run)
    assert (ended.code, ended.out) == (SKIPPED, "")
    assert re.search(r"Error: .* cannot be read: the worker died", ended.err)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--repo", "workers"), "workers is no SGLang checkout"),
        (("--repo", "nowhere"), "nowhere does not exist"),
        (("--contract", "stage-slize"), "did you mean 'stage-slice'?"),
        (("--contract", "pp1-unchanged"), "name it with --baseline"),
        (("--deployment", "nowhere"), "nowhere: No such file"),
        (("--deploiment", "x"), "No such option '--deploiment'"),
        (("--device", "tpu"), "'tpu' is not one of 'meta'"),
        (("extra",), "unexpected extra argument"),
    ],
)
def test_bad_input_is_not_bad(
    words: Sequence[str], sentence: str, run: Callable[..., Ended]
) -> None:
    """Red when a mistake on the command line is bad to git, so that it names a commit."""
    plant(Path("clone"), told(HOLDS))
    ended = run("bisect-run", *DECIDED, *words)
    assert (ended.code, ended.out) == (SKIPPED, "")
    assert sentence in ended.err


def test_a_bug_of_ours_is_not_bad(
    run: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when a traceback's exit code 1 is bad to git."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(command, "judged", broken)
    ended = run_on(HOLDS, run)
    assert (ended.code, ended.out) == (SKIPPED, "")
    assert ended.err == "Error: ZeroDivisionError: division by zero\n"


def test_without_a_deployment(run: Callable[..., Ended]) -> None:
    """Red when a checkout is not judged on the generated deployments where none is given."""
    plant(Path("clone"), told(VIOLATES))
    words = ("--contract", "stage-slice", "--profile", "dev", "--jobs", "1", "--repo", "clone")
    assert run("bisect-run", *words).code == 1


def test_git_bisect_run() -> None:
    """Red when git does not find the commit with it."""
    shas = plant(Path("clone"), told(*[HOLDS] * 4, DIES, HOLDS, *[VIOLATES] * 4))
    workers, deployment = Path("workers").absolute(), Path("deployment.json").absolute()
    words = ("--contract", "stage-slice", "--deployment", deployment)
    git(Path("clone"), "bisect", "start", "main", "c0")
    said = git(
        Path("clone"),
        *("bisect", "run", sys.executable, "-c", CODE, str(workers), "bisect-run"),
        *map(str, words),
    )
    assert f"{shas[6]} is the first bad commit" in said
