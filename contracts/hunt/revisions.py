"""Commits of an SGLang clone, as trees that can be judged.

A clone is only read: whatever is done here leaves its work tree, its index and its refs as they
are. A commit that is to be judged is written into the cache, as a folder that
:func:`contracts.subject.resolve.resolve` takes for a checkout and whose name is the commit's label.

The trees are large, so that only a few stay. Who uses one holds a shared lock on it, who fills or
removes one an exclusive lock; the system lets go of a dead process's locks. A tree is written aside
and renamed in, so that a tree that is there is whole.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from contracts.subject.overlay import CACHE_VARIABLE, OverlayError, cache_root
from contracts.subject.resolve import SubjectError

__all__ = [
    "KEPT",
    "Clone",
    "Commit",
    "ExportError",
    "History",
    "RevisionError",
    "Trees",
    "exported",
]

#: Commits with their parents, each after all of its parents that are among them.
History = Mapping[str, tuple[str, ...]]

#: Trees that stay in the cache, besides those in use: 80 to 250 MB each.
KEPT = 4

#: Seconds that git may take to answer a question.
_PATIENCE = 120


class RevisionError(SubjectError):
    """What was named is no clone, or no commit of it; the text says what would help."""


class ExportError(OverlayError):
    """A commit cannot be written into the cache; the text says why and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit. ``label`` is its nearest tag with the distance, or its short sha; ``date`` is the
    author's."""

    sha: str
    label: str
    title: str
    date: str


class Clone:
    """A git repository with SGLang's history, bare or with a work tree.

    Raises:
        RevisionError: the folder is in no git repository, or git cannot be run.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise RevisionError(f"{path} is no folder; a clone of SGLang is expected")
        self.path = path
        try:
            found = _git(path, "rev-parse", "--absolute-git-dir")
        except _GitError as error:
            why = "" if "not a git repository" in error.said else f" that git opens: {error.said}"
            raise RevisionError(f"{path} is no git repository{why}") from None
        self._home = Path(found.strip())

    def _git(self, *arguments: str) -> str:
        # From inside of the git directory and with it named, paths are those of the commit.
        return _git(self._home, f"--git-dir={self._home}", *arguments)

    def commit(self, revision: str) -> Commit:
        """The commit that a revision names.

        Raises:
            RevisionError: it names none.
        """
        try:
            if not revision or revision.startswith("-"):
                raise _GitError("this is no revision", 128)
            sha = self._git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
        except _GitError:
            raise RevisionError(
                f"{self.path} has no commit {revision!r}{self._hint(revision)}"
            ) from None
        shown = ("--no-show-signature", "--encoding=UTF-8", "--format=%s%x00%aI")
        title, _, date = self._git("log", "-1", *shown, sha, "--").strip("\n").partition("\0")
        described = self._git("describe", "--tags", "--always", "--abbrev=10", sha).strip()
        return Commit(sha=sha, label=described.replace("/", "-"), title=title, date=date)

    def _hint(self, revision: str) -> str:
        places = ("refs/tags", "refs/heads", "refs/remotes")
        names = self._git("for-each-ref", "--format=%(refname:short)", *places).split()
        close = difflib.get_close_matches(revision, names, n=1)
        if close:
            return f"; did you mean {close[0]!r}?"
        return f"; it is a shallow clone, and {_DEEPEN}" if self.shallow else ""

    @property
    def shallow(self) -> bool:
        """Whether the clone's history is cut off somewhere."""
        return bool(self._boundary())

    def _boundary(self) -> frozenset[str]:
        """The commits whose parents a shallow clone does not have."""
        path = self._home / self._git("rev-parse", "--git-path", "shallow").strip()
        try:
            return frozenset(path.read_text(encoding="ascii").split())
        except FileNotFoundError:
            return frozenset()

    @property
    def dirty(self) -> bool:
        """Whether the work tree, if there is one, has changes that are in no commit."""
        asked = ("-c", "core.fsmonitor=false", "status", "--porcelain", "--untracked-files=no")
        try:
            return bool(_git(self.path, *asked).strip())
        except _GitError:
            return False

    def has_sglang(self, commit: Commit) -> bool:
        """Whether a commit has an SGLang in it, of whatever age."""
        return bool(self._listed(commit, "python/sglang/srt", "sglang/srt"))

    def _listed(self, commit: Commit, *paths: str) -> list[str]:
        """Those of the paths that a commit has."""
        listing = self._git("ls-tree", "--name-only", "-z", commit.sha, "--", *paths)
        return [path for path in listing.split("\0") if path]

    def is_ancestor(self, one: Commit, other: Commit) -> bool:
        """Whether one commit is the other, or comes before it."""
        try:
            self._git("merge-base", "--is-ancestor", one.sha, other.sha)
        except _GitError as error:
            if error.code != 1:
                raise
            return False
        return True

    def bases(self, one: Commit, other: Commit) -> list[Commit]:
        """The commits at which the histories of two commits part."""
        try:
            found = self._git("merge-base", "--all", one.sha, other.sha).split()
        except _GitError as error:
            if error.code != 1:
                raise
            return []
        return [self.commit(sha) for sha in found]

    def history(self, newer: Commit, older: Commit) -> History:
        """What comes before ``newer`` or is it, and not so of ``older``.

        Raises:
            RevisionError: a shallow clone has not all of it.
        """
        asked = ("rev-list", "--topo-order", "--reverse", "--parents")
        lines = self._git(*asked, newer.sha, f"^{older.sha}", "--").splitlines()
        history = {sha: tuple(parents) for sha, *parents in map(str.split, lines)}
        if self._boundary() & history.keys():
            raise RevisionError(
                f"{self.path} is a shallow clone and lacks commits between {older.label} and "
                f"{newer.label}; {_DEEPEN}"
            )
        return history

    def export(self, commit: Commit, into: Path) -> None:
        """Write a commit's ``python`` folder, or all of it where there is none, into a folder.

        Raises:
            RevisionError: git cannot read the commit.
            OSError: it cannot be written.
        """
        paths = self._listed(commit, "python", "pyproject.toml")
        chosen = paths if "python" in paths else []
        command = _command(f"--git-dir={self._home}", "archive", "--format=tar", commit.sha)
        with (
            tempfile.TemporaryFile() as said,
            subprocess.Popen(
                [*command, "--", *chosen],
                cwd=self._home,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
            ) as process,
        ):
            assert process.stdout is not None
            complaint = ""
            try:
                with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                    # What git has is written as it is, links that lead elsewhere included. Python
                    # 3.11.0 to 3.11.3 know no filters, and need none for that.
                    archive.extraction_filter = getattr(tarfile, "tar_filter", None)
                    archive.extractall(into)  # noqa: S202 - a commit that is about to be run
                process.stdout.read()
            except tarfile.TarError as error:
                complaint = str(error)
            if process.wait() != 0 or complaint:
                said.seek(0)
                words = _last_line(said.read().decode(errors="replace")) or complaint
                raise RevisionError(f"git cannot read {commit.label} of {self.path}: {words}")


_DEEPEN = "`git fetch --unshallow` brings the rest"


class _GitError(RevisionError):
    """git ended with an error; ``said`` is its last line."""

    def __init__(self, said: str, code: int) -> None:
        super().__init__(f"git failed: {said}")
        self.said = said
        self.code = code


def _command(*arguments: str) -> list[str]:
    return ["git", *arguments]


def _environment() -> dict[str, str]:
    # Run from a git hook, the hook's variables would name another repository.
    inherited = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    # The clone's index is not even refreshed; nobody is asked for a password; git says what we
    # pass on in one language.
    ours = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    return inherited | ours


def _git(folder: Path, *arguments: str) -> str:
    try:
        ended = subprocess.run(
            _command(*arguments),
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except FileNotFoundError:
        raise RevisionError("git is not installed, or not on the PATH") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RevisionError(f"git does not work in {folder}: {error}") from None
    if ended.returncode != 0:
        raise _GitError(_last_line(ended.stderr), ended.returncode)
    return ended.stdout


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].removeprefix("fatal: ")


class Trees:
    """The commits that are written out in a cache directory."""

    def __init__(self, root: Path | None = None) -> None:
        self._folder = (root or cache_root()) / "commits"

    @contextlib.contextmanager
    def tree(self, clone: Clone, commit: Commit) -> Iterator[Path]:
        """A commit's tree, which stays as it is for as long as the context does.

        Raises:
            RevisionError: the commit has no SGLang, or git cannot read it.
            ExportError: it cannot be written.
        """
        tree, lock = self.hold(clone, commit)
        try:
            yield tree
        finally:
            os.close(lock)

    def hold(self, clone: Clone, commit: Commit) -> tuple[Path, int]:
        """A commit's tree and the descriptor that holds it, for whoever closes that.

        Raises:
            RevisionError, ExportError: as :meth:`tree` does.
        """
        if not clone.has_sglang(commit):
            raise RevisionError(
                f"{commit.label} of {clone.path} is no SGLang: it has neither python/sglang/srt "
                "nor sglang/srt"
            )
        try:
            return self._hold(clone, commit)
        except OSError as error:
            raise ExportError(
                f"{commit.label} cannot be written in the cache directory {self._folder.parent}: "
                f"{error.strerror or error}; {CACHE_VARIABLE} names another"
            ) from error

    def _hold(self, clone: Clone, commit: Commit) -> tuple[Path, int]:
        home = self._folder / commit.sha
        self._folder.mkdir(parents=True, exist_ok=True)
        while True:
            lock = _locked(self._lock(commit.sha), fcntl.LOCK_SH)
            assert lock is not None
            if home.is_dir():
                os.utime(home)  # used last
                with contextlib.suppress(OSError):  # there will be a next time
                    self._tidy()
                return next(home.iterdir()), lock
            os.close(lock)
            self._make(clone, commit, home)

    def _lock(self, sha: str) -> Path:
        return self._folder / f".{sha}.lock"

    def _make(self, clone: Clone, commit: Commit, home: Path) -> None:
        """Write a tree aside and rename it in, unless another process has done so meanwhile."""
        lock = _locked(self._lock(commit.sha), fcntl.LOCK_EX)
        assert lock is not None
        partial: Path | None = None
        try:
            if home.is_dir():
                return
            self._clear(commit.sha)
            partial = Path(tempfile.mkdtemp(prefix=f".{commit.sha}.partial-", dir=self._folder))
            tree = partial / commit.label
            tree.mkdir()
            clone.export(commit, tree)
            os.utime(partial)  # the one used last is not removed
            partial.replace(home)
        finally:
            if partial is not None:
                shutil.rmtree(partial, ignore_errors=True)
            os.close(lock)

    def _clear(self, sha: str) -> None:
        """Remove what the making or removing of a tree left that was ended. Needs its lock."""
        for leftover in self._folder.glob(f".{sha}.partial-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _tidy(self) -> None:
        """Remove all trees but those used last, unless somebody holds them, and what dead
        processes left."""
        used = {home.name: _used(home) for home in self._folder.glob("[!.]*")}
        kept = sorted(used, key=lambda sha: used[sha])[-KEPT:]
        there = {path.name.strip(".").partition(".")[0] for path in self._folder.iterdir()}
        for sha in sorted(there.difference(kept)):
            self._remove(sha)

    def _remove(self, sha: str) -> None:
        path = self._lock(sha)
        lock = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            return
        try:
            home = self._folder / sha
            self._clear(sha)
            if home.is_dir():
                # Renamed first: half a tree must not be taken for one.
                home.replace(self._folder / f".{sha}.partial-removed")
            self._clear(sha)
            path.unlink(missing_ok=True)
        finally:
            os.close(lock)


def _used(home: Path) -> float:
    try:
        return home.stat().st_mtime
    except FileNotFoundError:  # removed at this moment
        return 0.0


def _locked(path: Path, kind: int) -> int | None:
    """A descriptor with a lock on a file; closing it lets go. None where that would be to wait."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, kind)
            # Whoever removed the file meanwhile had the lock; the next one would not meet ours.
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


#: Descriptors that hold trees until this process ends.
_held: list[int] = []


def exported(repo: Path, revision: str, *, root: Path | None = None) -> Path:
    """A folder with the SGLang of a commit, for ``resolve``; it stays until this process ends.

    ``root`` is another cache directory than the user's.

    Raises:
        RevisionError: ``repo`` is no clone of SGLang, or has no such commit.
        ExportError: the commit cannot be written into the cache.
    """
    clone = Clone(repo)
    tree, lock = Trees(root).hold(clone, clone.commit(revision))
    _held.append(lock)
    return tree
