"""Commits of real git repositories, written out as trees in a cache."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from contracts.hunt import revisions
from contracts.hunt.revisions import (
    KEPT,
    Clone,
    Commit,
    ExportError,
    RevisionError,
    Trees,
    exported,
)
from contracts.subject.overlay import OverlayError
from contracts.subject.resolve import SubjectError
from tests.planting import POOL, PROJECT, Planted, an_sglang, git, plant, state

PATIENCE = 60.0


@dataclass(frozen=True)
class Planned:
    """A clone with an SGLang in each of five commits, and a cache."""

    path: Path
    shas: list[str]
    cache: Path
    trees: Trees = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trees", Trees(self.cache))

    @property
    def clone(self) -> Clone:
        return Clone(self.path)

    def commit(self, number: int) -> Commit:
        return self.clone.commit(self.shas[number])

    def there(self) -> set[str]:
        """The commits whose trees are in the cache."""
        return {path.name for path in (self.cache / "commits").glob("[!.]*")}

    def hidden(self) -> list[str]:
        """Everything else in the cache but locks."""
        names = [path.name for path in (self.cache / "commits").glob(".*")]
        return [name for name in names if not name.endswith(".lock")]


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    commits = [
        Planted(title=f"commit {n}", files=an_sglang(f"{n}"), tag="v1" if n == 1 else None)
        for n in range(2 * KEPT)
    ]
    return Planned(tmp_path / "clone", plant(tmp_path / "clone", commits), tmp_path / "cache")


# -- what is named ---------------------------------------------------------------------------------


def test_a_commit(planned: Planned) -> None:
    """Red when what is said of a commit is not what git has."""
    commit = planned.clone.commit("v1~1")
    assert (commit.sha, commit.title) == (planned.shas[0], "commit 0")
    assert (commit.label, commit.date) == (planned.shas[0][:10], "2023-11-14T22:13:20+00:00")
    assert planned.clone.commit("v1").label == "v1"
    assert planned.clone.commit("main").label == f"v1-{2 * KEPT - 2}-g{planned.shas[-1][:10]}"


@pytest.mark.parametrize(
    ("revision", "hint"),
    [
        ("v1.0", "; did you mean 'v1'?"),
        ("mian", "; did you mean 'main'?"),
        ("f" * 40, ""),
        ("", ""),
        ("--all", ""),
        ("v1..main", "; did you mean 'main'?"),
        (f"v1:{PROJECT}", ""),
    ],
)
def test_an_unknown_revision(revision: str, hint: str, planned: Planned) -> None:
    """Red when a text that names no commit is taken for an option or is not named in a sentence."""
    with pytest.raises(RevisionError) as said:
        planned.clone.commit(revision)
    assert str(said.value) == f"{planned.path} has no commit {revision!r}{hint}"


def test_no_repository(tmp_path: Path) -> None:
    """Red when a folder without git, or none, is a traceback or git's own words."""
    with pytest.raises(RevisionError, match=r"/nowhere is no folder; a clone of SGLang is"):
        Clone(tmp_path / "nowhere")
    with pytest.raises(RevisionError, match=rf"^{tmp_path} is no git repository$"):
        Clone(tmp_path)


def test_a_repository_that_git_refuses(planned: Planned) -> None:
    """Red when a repository is said to be none that only cannot be opened."""
    (planned.path / ".git" / "config").write_text("[core\n", encoding="utf-8")
    with pytest.raises(RevisionError, match="is no git repository that git opens: bad config"):
        _ = planned.clone


def test_no_git(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red when a machine without git gets a traceback."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RevisionError, match="git is not installed, or not on the PATH"):
        _ = planned.clone


def test_errors_are_those_of_subjects() -> None:
    """Red when whoever handles what resolve raises would not handle these."""
    assert issubclass(RevisionError, SubjectError)
    assert issubclass(ExportError, OverlayError)


def test_the_history(planned: Planned) -> None:
    """Red when a range has the older end, lacks the newer one, or is in another order."""
    history = planned.clone.history(planned.commit(5), planned.commit(2))
    assert list(history.items()) == [(planned.shas[n], (planned.shas[n - 1],)) for n in range(3, 6)]


def test_a_history_with_a_merge(tmp_path: Path) -> None:
    """Red when a commit comes before its parents, or a side branch is left out."""
    parents = [(), (0,), (0,), (2,), (1, 3), (4,)]
    commits = [
        Planted(title="…", files=an_sglang(f"{n}"), parents=given)
        for n, given in enumerate(parents)
    ]
    shas = plant(tmp_path / "clone", commits)
    clone = Clone(tmp_path / "clone")
    history = clone.history(clone.commit("main"), clone.commit(shas[0]))
    assert {shas.index(sha) for sha in history} == {1, 2, 3, 4, 5}
    assert list(history)[-1] == shas[5]
    seen = {shas[0]}
    for sha, above in history.items():
        assert set(above) <= seen
        seen.add(sha)


def test_which_comes_first(planned: Planned) -> None:
    """Red when the order of two commits is told wrongly."""
    one, other = planned.commit(1), planned.commit(3)
    assert planned.clone.is_ancestor(one, other)
    assert planned.clone.is_ancestor(one, one)
    assert not planned.clone.is_ancestor(other, one)
    assert planned.clone.bases(one, other) == [one]


def shallow(planned: Planned, folder: Path, depth: int) -> Clone:
    git(folder.parent, "clone", "--quiet", f"--depth={depth}", planned.path.as_uri(), str(folder))
    return Clone(folder)


def test_a_shallow_clone(planned: Planned, tmp_path: Path) -> None:
    """Red when what a shallow clone lacks is not said, or what it has is refused."""
    clone = shallow(planned, tmp_path / "shallow", 4)
    assert clone.shallow
    assert not planned.clone.shallow
    newest = clone.commit("main")
    assert len(clone.history(newest, clone.commit("main~3"))) == 3
    with pytest.raises(RevisionError, match=r"has no commit 'v1'.*; it is a shallow clone, and "):
        clone.commit("v1")


def test_a_range_beyond_a_shallow_clone(tmp_path: Path) -> None:
    """Red when a side branch whose beginning is cut off passes for a whole range."""
    parents = [(), (0,), (1,), (2,), (3,), (0,), (5,), (6,), (4, 7)]
    commits = [
        Planted(title="…", files=an_sglang(f"{n}"), parents=given)
        for n, given in enumerate(parents)
    ]
    shas = plant(tmp_path / "clone", commits)
    clone = shallow(Planned(tmp_path / "clone", shas, tmp_path), tmp_path / "shallow", 3)
    with pytest.raises(RevisionError) as said:
        clone.history(clone.commit("main"), clone.commit(shas[4]))
    assert str(said.value).endswith("`git fetch --unshallow` brings the rest")


@pytest.mark.parametrize("name", ["staged", "unstaged", "untracked"])
def test_a_dirty_clone(name: str, planned: Planned) -> None:
    """Red when changes that are in no commit are not seen, or a file that git does not know is."""
    assert not planned.clone.dirty
    if name == "untracked":
        (planned.path / "new").touch()
    else:
        (planned.path / POOL).write_text("changed\n", encoding="utf-8")
    if name == "staged":
        git(planned.path, "add", POOL)
    assert planned.clone.dirty == (name != "untracked")


# -- what is written -------------------------------------------------------------------------------


def test_a_tree(planned: Planned) -> None:
    """Red when a tree is not what was committed, has more than is run, or its folder is not the
    label that will stand in messages."""
    with planned.trees.tree(planned.clone, planned.commit(2)) as tree:
        assert tree.name == planned.commit(2).label == f"v1-1-g{planned.shas[2][:10]}"
        files = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
        assert files == {POOL, PROJECT}
        assert (tree / POOL).read_text(encoding="utf-8") == "# 2\n"


def test_a_tree_without_a_python_folder(tmp_path: Path) -> None:
    """Red when an SGLang that lies at the root of its repository cannot be judged."""
    files = {path.removeprefix("python/"): text for path, text in an_sglang().items()}
    plant(tmp_path / "clone", [Planted(title="…", files=files)])
    tree = exported(tmp_path / "clone", "main", root=tmp_path / "cache")
    assert {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()} == set(files)


def test_a_project_file_at_the_root(tmp_path: Path) -> None:
    """Red when the pins of a tree are left out that states them at its root."""
    files = {POOL: "", "pyproject.toml": "[project]\n", "docs/x.md": ""}
    plant(tmp_path / "clone", [Planted(title="…", files=files)])
    tree = exported(tmp_path / "clone", "main", root=tmp_path / "cache")
    assert sorted(path.name for path in tree.iterdir()) == ["pyproject.toml", "python"]


def test_links_and_modes(tmp_path: Path) -> None:
    """Red when a link that leads out of the tree ends the export, or a mode is lost."""
    clone = tmp_path / "clone"
    plant(clone, [Planted(title="…", files=an_sglang())])
    (clone / "python" / "LICENSE").symlink_to("/nowhere/LICENSE")
    (clone / "python" / "up").symlink_to("../../../up")
    (clone / "python" / "run.sh").touch(mode=0o755)
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--message=links")
    tree = exported(clone, "main", root=tmp_path / "cache")
    assert (tree / "python" / "LICENSE").readlink() == Path("/nowhere/LICENSE")
    assert (tree / "python" / "up").readlink() == Path("../../../up")
    assert os.access(tree / "python" / "run.sh", os.X_OK)


def test_no_sglang(tmp_path: Path) -> None:
    """Red when a repository of something else is written into the cache."""
    plant(tmp_path / "clone", [Planted(title="…", files={"python/other/x.py": ""})])
    with pytest.raises(RevisionError, match="is no SGLang: it has neither python/sglang/srt nor"):
        exported(tmp_path / "clone", "main", root=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_the_clone_is_left_alone(planned: Planned) -> None:
    """Red when anything in a dirty clone changes, be it the time of its index."""
    (planned.path / POOL).write_text("changed\n", encoding="utf-8")
    git(planned.path, "add", POOL)
    (planned.path / PROJECT).write_text("changed\n", encoding="utf-8")
    before = state(planned.path)
    clone = planned.clone
    for revision in ("main", "v1"):
        with planned.trees.tree(clone, clone.commit(revision)) as tree:
            assert "changed" not in (tree / POOL).read_text(encoding="utf-8")
    assert clone.dirty
    clone.history(clone.commit("main"), clone.commit("v1"))
    assert state(planned.path) == before


@pytest.mark.parametrize("kind", ["bare", "worktree", "folder"])
def test_other_clones(kind: str, planned: Planned, tmp_path: Path) -> None:
    """Red when a bare clone, a linked work tree or a folder below the root is not judged alike."""
    place = tmp_path / kind
    if kind == "bare":
        git(tmp_path, "clone", "--quiet", "--bare", str(planned.path), str(place))
    elif kind == "worktree":
        git(planned.path, "worktree", "add", "--quiet", "--detach", str(place), "main")
    else:
        place = planned.path / "python" / "sglang"
    with planned.trees.tree(Clone(place), Clone(place).commit("HEAD")) as tree:
        assert (tree / POOL).read_text(encoding="utf-8") == f"# {2 * KEPT - 1}\n"
    assert not Clone(place).dirty


def test_a_hook_s_variables(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when a run from a git hook reads that hook's repository."""
    plant(tmp_path / "other", [Planted(title="…", files={"x": ""})])
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / ".git" / "index"))
    assert planned.commit(0).title == "commit 0"


def test_a_tag_with_a_slash(planned: Planned) -> None:
    """Red when a tag's name is taken for folders."""
    git(planned.path, "tag", "release/2", planned.shas[3])
    assert exported(planned.path, "release/2", root=planned.cache).name == "release-2"


# -- what stays ------------------------------------------------------------------------------------


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commits that were written, in this order."""
    written: list[str] = []
    real = Clone.export

    def export(clone: Clone, commit: Commit, into: Path) -> None:
        written.append(commit.sha)
        real(clone, commit, into)

    monkeypatch.setattr(Clone, "export", export)
    return written


def test_a_tree_is_written_once(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red when a tree that is there is written again."""
    first = exported(planned.path, "main", root=planned.cache)
    monkeypatch.setattr(Clone, "export", None)
    assert exported(planned.path, "main", root=planned.cache) == first


def test_only_the_last_trees_stay(planned: Planned, exports: list[str]) -> None:
    """Red when the cache grows with every commit, or a tree is removed that was just used."""
    for number in range(2 * KEPT):
        with planned.trees.tree(planned.clone, planned.commit(number)):
            pass
        with planned.trees.tree(planned.clone, planned.commit(0)):  # in use, now and then
            pass
    assert planned.there() == {planned.shas[0], *planned.shas[-KEPT + 1 :]}
    assert exports == planned.shas
    assert planned.hidden() == []
    locks = list((planned.cache / "commits").glob(".*.lock"))
    assert len(locks) == KEPT


def test_a_tree_in_use_stays(planned: Planned) -> None:
    """Red when a tree is removed under the worker that runs in it."""
    with planned.trees.tree(planned.clone, planned.commit(0)) as tree:
        for number in range(1, 2 * KEPT):
            with Trees(planned.cache).tree(planned.clone, planned.commit(number)):
                pass
        assert (tree / POOL).is_file()
    with planned.trees.tree(planned.clone, planned.commit(1)):
        pass
    assert planned.shas[0] not in planned.there()


def test_an_exported_tree_stays_until_the_end(planned: Planned) -> None:
    """Red when the tree of a baseline is removed while the gate runs."""
    tree = exported(planned.path, planned.shas[0], root=planned.cache)
    for number in range(1, 2 * KEPT):
        with planned.trees.tree(planned.clone, planned.commit(number)):
            pass
    assert (tree / POOL).is_file()


def test_two_that_want_one_tree(planned: Planned, exports: list[str]) -> None:
    """Red when two runs write one tree both, or one sees the other's half."""
    seen: list[str] = []

    def use() -> None:
        with Trees(planned.cache).tree(planned.clone, planned.commit(3)) as tree:
            seen.append((tree / POOL).read_text(encoding="utf-8"))

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert (seen, exports) == (["# 3\n"] * 6, [planned.shas[3]])


def test_many_at_once(planned: Planned) -> None:
    """Red when makers, users and removers of trees get in each other's way."""
    failed: list[BaseException] = []

    def use(offset: int) -> None:
        try:
            for step in range(2 * KEPT):
                number = (offset * 3 + step * 5) % (2 * KEPT)
                with Trees(planned.cache).tree(planned.clone, planned.commit(number)) as tree:
                    assert (tree / POOL).read_text(encoding="utf-8") == f"# {number}\n"
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=use, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failed == []
    assert planned.hidden() == []


# -- faults ----------------------------------------------------------------------------------------


def broken_after(calls: int, error: BaseException) -> Callable[..., None]:
    """A way to write files that works so many times."""
    real = tarfile.TarFile.makefile
    left = [calls]

    def makefile(archive: tarfile.TarFile, member: tarfile.TarInfo, place: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise error
        real(archive, member, place)

    return makefile


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(28, os.strerror(28)), ExportError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (tarfile.ReadError("unexpected end of data"), RevisionError),
    ],
    ids=["full", "interrupted", "truncated"],
)
def test_half_a_tree(
    error: BaseException,
    raised: type[BaseException],
    planned: Planned,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Red when half of a tree stays in the cache, or is not written anew the next time."""
    with monkeypatch.context() as broken:
        broken.setattr(tarfile.TarFile, "makefile", broken_after(1, error))
        with pytest.raises(raised) as said:
            exported(planned.path, "main", root=planned.cache)
    if raised is ExportError:
        assert "cannot be written in the cache directory" in str(said.value)
        assert "No space left on device; SGLANG_POOL_CONTRACTS_CACHE names" in str(said.value)
    assert (planned.there(), planned.hidden()) == (set(), [])
    assert (exported(planned.path, "main", root=planned.cache) / POOL).is_file()


def test_what_dead_processes_left(planned: Planned) -> None:
    """Red when what a killed process has left stays for ever, or what a living one is making is
    taken from under it."""
    commits = planned.cache / "commits"
    for sha in (planned.shas[0], planned.shas[-1], "a" * 40, "b" * 40):
        (commits / f".{sha}.partial-xyz" / "half").mkdir(parents=True)
    (commits / f".{'c' * 40}.lock").touch()
    with (commits / f".{'b' * 40}.lock").open("w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        exported(planned.path, "main", root=planned.cache)
    assert planned.hidden() == [f".{'b' * 40}.partial-xyz"]
    assert planned.there() == {planned.shas[-1]}
    assert not (commits / f".{'c' * 40}.lock").exists()


def test_a_lock_that_is_removed_while_one_waits(tmp_path: Path) -> None:
    """Red when two hold what they take for the same lock, because one file took another's place."""
    path = tmp_path / "lock"
    first = revisions._locked(path, fcntl.LOCK_EX)
    assert first is not None
    taken: list[int | None] = []
    waiting = threading.Thread(target=lambda: taken.append(revisions._locked(path, fcntl.LOCK_EX)))
    waiting.start()
    time.sleep(0.05)  # it has most likely opened the file by now
    path.unlink()
    path.touch()
    os.close(first)
    waiting.join(PATIENCE)
    (second,) = taken
    assert second is not None
    assert revisions._locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB) is None
    os.close(second)


def test_a_commit_that_git_cannot_read(planned: Planned) -> None:
    """Red when a clone that lacks an object passes for one whose commit has fewer files."""
    blob = git(planned.path, "rev-parse", f"main:{POOL}")
    pack = next((planned.path / ".git" / "objects" / "pack").glob("*.pack"), None)
    if pack is not None:  # loose objects can be removed one by one
        pack.with_suffix(".idx").unlink()
        moved = planned.path / "moved.pack"
        pack.rename(moved)
        with moved.open("rb") as stream:
            subprocess.run(
                ["git", "unpack-objects", "-q"], cwd=planned.path, stdin=stream, check=True
            )
    (planned.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(RevisionError, match=r"git cannot read v1-\d+-g\w+ of .*: "):
        exported(planned.path, "main", root=planned.cache)
    assert (planned.there(), planned.hidden()) == (set(), [])


def test_a_cache_that_cannot_be_written(planned: Planned) -> None:
    """Red when a file in the place of the cache is a traceback."""
    planned.cache.write_text("", encoding="utf-8")
    with pytest.raises(ExportError, match="SGLANG_POOL_CONTRACTS_CACHE names another"):
        exported(planned.path, "main", root=planned.cache)


def test_the_user_s_cache(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when the cache that the environment names is not the one that is used."""
    monkeypatch.setenv("SGLANG_POOL_CONTRACTS_CACHE", str(tmp_path / "named"))
    assert exported(planned.path, "main").is_relative_to(tmp_path / "named" / "commits")


@pytest.fixture(autouse=True)
def let_go() -> Iterable[None]:
    """The trees that a test has exported are no longer held after it."""
    before = len(revisions._held)
    yield
    while len(revisions._held) > before:
        with contextlib.suppress(OSError):
            os.close(revisions._held.pop())
