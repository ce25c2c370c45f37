"""What a user may name as a subject, and what is said when it is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.version import Version

from contracts.subject.overlay import Cache, Overlay, OverlayError, Report
from contracts.subject.releases import NEWEST, OLDEST, RELEASES, nearest
from contracts.subject.resolve import Subject, SubjectError
from contracts.subject.resolve import resolve as resolve_with

POOL = Path("sglang", "srt", "mem_cache", "deepseek_v4_memory_pool.py")
BELOW = (Path("/pins"), Path("/base"))


class Silent:
    """A report to nobody."""

    def begin(self, step: str) -> None: ...
    def detail(self, text: str) -> None: ...
    def end(self) -> None: ...


class Shelf(Cache):
    """A cache that has every release up to 0.6, and fetches nothing."""

    def __init__(self) -> None:
        super().__init__(Path("/there/is/no/cache"))

    def release(self, version: str, *, report: Report) -> Overlay:
        assert isinstance(report, Silent)
        if Version(version) > Version("0.6"):
            raise OverlayError("no such release")
        return Overlay((Path("/release", version), *BELOW))

    def checkout(self, root: Path, *, report: Report) -> Overlay:
        assert isinstance(report, Silent)
        return Overlay((root, *BELOW))


def resolve(text: str) -> Subject:
    return resolve_with(text, report=Silent(), cache=Shelf())


def refusal(text: str) -> str:
    with pytest.raises(SubjectError) as error:
        resolve(text)
    said = str(error.value)
    assert "\n" not in said
    return said


# --- releases -----------------------------------------------------------------------------------


def test_the_releases_are_in_order_and_newest_is_the_last() -> None:
    """Red if a release is entered twice or in the wrong place: neighbours would be wrong."""
    assert all(Version(one) < Version(next_one) for one, next_one in pairwise(RELEASES))
    assert (RELEASES[0], RELEASES[-1]) == (OLDEST, NEWEST)


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_is_run_by_this_interpreter_with_its_overlay(version: str) -> None:
    """Red if a known release is refused, renamed, or gets another interpreter or order."""
    assert resolve(version) == Subject(
        label=version,
        python=Path(sys.executable),
        paths=(Path("/release", version), *BELOW),
        kind="release",
    )


@pytest.mark.parametrize("text", ["v0.5.13", " 0.5.13\n", "0.5.13.0"])
def test_another_spelling_is_the_same_release(text: str) -> None:
    """Red if the release is fetched a second time under another name."""
    assert resolve(text).label == "0.5.13"


@pytest.mark.parametrize("text", ["0.5.24", "0.5.24rc1", "0.5.23.post1", "0.6.0"])
def test_a_newer_release_is_tried(text: str) -> None:
    """Red if the suite must be changed before it can try a new SGLang."""
    assert resolve(text).paths[0] == Path("/release", text)


def test_a_newer_release_that_is_not_there_names_the_newest_known() -> None:
    """Red if the user is left to guess which release would do."""
    with pytest.raises(OverlayError, match=r"no such release; the newest .* is 0\.5\.23"):
        resolve("0.7.0")


@pytest.mark.parametrize("text", ["0.5.11", "0.5.11.post3", "0.4"])
def test_a_release_without_the_pool_names_the_first_with_it(text: str) -> None:
    """Red if an SGLang is fetched that has nothing to judge."""
    said = refusal(text)
    assert said.endswith("has no DeepSeek-V4 pool; the first release that has it is 0.5.12")


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("0.5.13.post7", "0.5.13.post1, 0.5.14"),
        ("0.5.23.dev1", "0.5.22, 0.5.23"),
        ("0.5.23+cu128", "0.5.23"),
        ("0.5.99x", "0.5.23"),
        ("0.5.1 3", "0.5.13"),
        ("O.5.13", "0.5.13, 0.5.23"),
        ("0.5.12rc1", "0.5.12"),
    ],
)
def test_a_release_that_is_not_known_names_the_nearest(text: str, near: str) -> None:
    """Red if such a text is passed on to pip, or the hint is missing or far."""
    assert f"the nearest that are known: {near}" in refusal(text)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("0.5.16", ("0.5.16",)),
        ("0.1", ("0.5.12",)),
        ("9", ("0.5.23",)),
        ("0.5.12.post2", ("0.5.12.post1", "0.5.13")),
        ("main", ()),
    ],
)
def test_nearest(text: str, near: tuple[str, ...]) -> None:
    """Red if a neighbour is left out, or anything is near to everything."""
    assert nearest(text) == near


# --- texts and paths ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  ", "main", "sglang==0.5.13"])
def test_a_text_that_is_nothing_says_what_a_subject_is(text: str) -> None:
    """Red if the three kinds of subject are not named."""
    said = refusal(text)
    assert "a release (0.5.12 … 0.5.23)" in said
    assert "checkout" in said
    assert "interpreter" in said


@pytest.mark.parametrize("text", ["./gone", "/gone/python", "~/gone-for-ever", "gone/python"])
def test_a_path_that_is_not_there_is_called_a_path(text: str) -> None:
    """Red if a mistyped path is told to be no release."""
    assert refusal(text).startswith(f"{text} does not exist")


def test_a_release_is_a_release_even_beside_a_directory_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red if what lies in the current directory changes what a release number means."""
    (tmp_path / "0.5.13").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve("0.5.13").kind == "release"
    assert "is no SGLang checkout" in refusal("./0.5.13")


# --- checkouts ----------------------------------------------------------------------------------


def write_checkout(root: Path) -> Path:
    pool = root / "python" / POOL
    pool.parent.mkdir(parents=True)
    pool.touch()
    (root / "python" / "pyproject.toml").touch()
    return root


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return write_checkout(tmp_path / "fork")


@pytest.mark.parametrize("below", [".", "python", "python/.."])
def test_a_checkout_may_be_named_by_its_root_or_its_python_directory(
    checkout: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red if one of the two is refused, or the names of one checkout differ."""
    monkeypatch.chdir(checkout)
    assert resolve(f"./{below}") == Subject(
        label="fork",
        python=Path(sys.executable),
        paths=(checkout.resolve() / "python", *BELOW),
        kind="checkout",
    )


def test_a_pyproject_at_the_root_will_do(checkout: Path) -> None:
    """Red if only python/pyproject.toml makes a checkout."""
    (checkout / "python" / "pyproject.toml").rename(checkout / "pyproject.toml")
    assert resolve(str(checkout)).kind == "checkout"


def test_a_directory_without_sglang_is_refused(tmp_path: Path) -> None:
    """Red if any directory is taken for a checkout."""
    assert "has neither sglang/srt nor python/sglang/srt" in refusal(str(tmp_path))


def test_a_virtual_environment_is_told_its_interpreter(tmp_path: Path) -> None:
    """Red if who names the environment instead of its interpreter gets no hint."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    assert refusal(str(tmp_path)).endswith(f"name its interpreter: {python}")


def test_installed_modules_are_no_checkout(checkout: Path) -> None:
    """Red if a site-packages directory is run under pins that nobody stated."""
    (checkout / "python" / "pyproject.toml").unlink()
    assert "no pyproject.toml" in refusal(str(checkout))


def test_a_checkout_from_before_the_pool_is_refused(checkout: Path) -> None:
    """Red if an old commit fails later, with an import error."""
    (checkout / "python" / POOL).unlink()
    assert "the first release that has it is 0.5.12" in refusal(str(checkout))


Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """A git without the user's settings, that runs in the checkout."""
    program = shutil.which("git")
    if program is None:
        pytest.skip("there is no git")
    (tmp_path / ".gitconfig").write_text("[user]\nname = a\nemail = a@b.invalid\n")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(*arguments: str) -> str:
        command = [program, "-C", str(tmp_path / "fork"), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    return run


def test_a_checkout_is_labelled_with_what_git_says_of_it(
    checkout: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red if two commits of one checkout have the same label, or the repository that a git hook
    runs for is asked instead."""
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=first")
    assert resolve(str(checkout)).label == f"fork@{git('rev-parse', '--short', 'HEAD')}"
    git("tag", "--annotate", "--message=first", "v1")
    assert resolve(str(checkout)).label == "fork@v1"
    (checkout / "python" / POOL).write_text("changed")
    monkeypatch.setenv("GIT_DIR", "/there/is/no/repository")
    assert resolve(str(checkout)).label == "fork@v1-dirty"


def test_a_repository_that_does_not_keep_the_checkout_is_not_asked(
    tmp_path: Path, checkout: Path, git: Git
) -> None:
    """Red if an unpacked SGLang is labelled with the commit of the repository that it lies in."""
    git("-C", str(tmp_path), "init", "--quiet")
    git("-C", str(tmp_path), "commit", "--quiet", "--allow-empty", "--message=first")
    assert resolve(str(checkout)).label == "fork"


def test_without_git_the_directory_is_the_label(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red if a machine without git cannot judge a checkout."""
    monkeypatch.setenv("PATH", "")
    assert resolve(str(checkout)).label == "fork"


# --- interpreters -------------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with an SGLang and a torch that must not be imported."""
    root = tmp_path / "venv"
    command = [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(root)]
    subprocess.run(command, check=True)
    site = root / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    pool = site / POOL
    pool.parent.mkdir(parents=True)
    pool.touch()
    (site / "torch").mkdir()
    for package in ("sglang", "torch"):
        (site / package / "__init__.py").write_text("raise SystemExit('imported')\n")
    return site


def interpreter(site: Path) -> Path:
    return site.parents[2] / "bin" / "python"


def test_an_interpreter_is_taken_as_it_is(environment: Path) -> None:
    """Red if SGLang is imported by the probe, paths are put in front of the interpreter's own, or
    its symbolic link is followed (to the Python that the environment was made from)."""
    python = interpreter(environment)
    assert resolve(str(python)) == Subject(
        label=str(python), python=python, paths=(), kind="interpreter"
    )


def test_an_interpreter_is_not_fooled_by_the_current_directory(
    environment: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red if an SGLang in the current directory passes for an installed one."""
    shutil.rmtree(environment / "sglang")
    monkeypatch.chdir(checkout / "python")
    assert "cannot find a module sglang" in refusal(str(interpreter(environment)))


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("torch", "has SGLang but no torch"),
        ("sglang", "cannot find a module sglang"),
        ("sglang/srt/mem_cache", "has no DeepSeek-V4 pool; the first release that has it is 0.5"),
    ],
)
def test_an_interpreter_that_lacks_something_is_refused(
    environment: Path, missing: str, said: str
) -> None:
    """Red if what is missing shows only when the worker starts, or something else is named."""
    shutil.rmtree(environment / missing)
    assert said in refusal(str(interpreter(environment)))


def write_program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'first line' >&2; echo 'bad option -c' >&2; exit 2", "interpreter: bad option -c"),
        ("echo hello", "does not work as a Python interpreter"),
        ("""echo '{"version": [3, 9], "sglang": [], "torch": true}'""", "is Python 3.9; SGLang ne"),
    ],
)
def test_a_program_that_is_no_fitting_python_is_refused(
    tmp_path: Path, script: str, said: str
) -> None:
    """Red if another program, or an old Python, ends in a traceback."""
    assert said in refusal(write_program(tmp_path / "program", script))


def test_what_an_interpreter_prints_first_is_no_answer(environment: Path) -> None:
    """Red if a site customization that prints something makes an interpreter unusable."""
    (environment / "noise.pth").write_text("import sys; print('customized')\n")
    assert resolve(str(interpreter(environment))).kind == "interpreter"


def test_a_file_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    """Red if a wheel, say, is run as an interpreter."""
    wheel = tmp_path / "sglang-0.5.23-py3-none-any.whl"
    wheel.touch()
    assert "is a file that cannot be run" in refusal(str(wheel))
