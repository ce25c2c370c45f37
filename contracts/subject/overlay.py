"""Overlays: directories that make an SGLang importable on a CPU, without its CUDA dependencies.

A subject needs three of them, in this order on its path:

``release``
    SGLang itself, one per release. A checkout stands in its own place.
``pins``
    transformers and what must go with it, at the versions that the subject pins. Releases with
    the same pins share one.
``base``
    the other modules that SGLang imports on a CPU, at the versions of ``constraints.txt``.

torch is in none of them: it comes from the interpreter that runs the suite.

An overlay is fetched once, by pip, into the user's cache. It is written aside and renamed in, under
a lock, so that whatever stops a fetch leaves nothing that is later taken for whole. When an overlay
is there, nothing is locked, written or run: the cache may be read-only and the network away.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import platformdirs
from filelock import FileLock, Timeout
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from rich.console import Console
from rich.markup import escape
from rich.status import Status

__all__ = [
    "CACHE_VARIABLE",
    "Cache",
    "ConsoleReport",
    "Overlay",
    "OverlayError",
    "Recipe",
    "Report",
    "cache_root",
    "default_cache",
    "fetch_release",
    "for_checkout",
]

#: The environment variable that names another cache directory.
CACHE_VARIABLE = "SGLANG_POOL_CONTRACTS_CACHE"


class OverlayError(RuntimeError):
    """An overlay cannot be had; the text says which, why, and what would help."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Directories for the front of a worker's ``sys.path``, in order."""

    paths: tuple[Path, ...]


class Report(Protocol):
    """Who is told how a fetch goes. Nothing is told when there is nothing to fetch."""

    def begin(self, step: str) -> None:
        """A step starts, such as ``fetching SGLang 0.5.23``."""

    def detail(self, text: str) -> None:
        """What the running step does at the moment."""

    def end(self) -> None:
        """The running step is over, well or not."""


class ConsoleReport:
    """Progress on standard error: a live line in a terminal, else one plain line per step."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._step = ""
        self._status: Status | None = None

    def begin(self, step: str) -> None:
        """Show the step."""
        self._step = step
        if self._console.is_terminal:
            self._status = self._console.status(escape(step))
            self._status.start()
        else:
            self._console.print(step, markup=False, soft_wrap=True)

    def detail(self, text: str) -> None:
        """Show the detail behind the step, in a terminal only."""
        if self._status is not None:
            room = max(20, self._console.width - len(self._step) - 6)
            shown = textwrap.shorten(text, room, placeholder="…")
            self._status.update(f"{escape(self._step)} [dim]{escape(shown)}[/dim]")

    def end(self) -> None:
        """Take the live line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """What goes into the overlays besides SGLang itself.

    ``base`` is installed with its dependencies, ``bare`` beside it without (they ask for torch).
    ``followed`` are the distributions whose version the subject decides; the first one it must
    pin. ``constraints`` is a constraints file for all but those.
    """

    base: tuple[str, ...]
    bare: tuple[str, ...]
    followed: tuple[str, ...]
    constraints: Path
    package: str = "sglang"


#: Measured: what the sizing and pool code of all supported releases imports on a CPU.
RECIPE = Recipe(
    base=(
        "aiohttp",
        "apache-tvm-ffi",
        "dill",
        "einops",
        "fastapi",
        "gguf",
        "httpx",
        "ipython",
        "msgspec",
        "numpy",
        "openai",
        "orjson",
        "packaging",
        "partial-json-parser",
        "pillow",
        "psutil",
        "pybase64",
        "pydantic",
        "pyzmq",
        "requests",
        "sentencepiece",
        "starlette",
        "tqdm",
        "triton",
        "uvicorn",
        # What every pinned transformers asks for, so that the pins stay small:
        "filelock",
        "fsspec",
        "hf-xet",
        "httpx2",
        "pyyaml",
        "regex",
        "safetensors",
        "typer",
    ),
    bare=("compressed-tensors", "loguru", "xgrammar"),
    followed=("transformers", "tokenizers", "huggingface-hub"),
    constraints=Path(__file__).with_name("constraints.txt"),
)

#: Overlays hold compiled code: they are of one Python and one platform.
_TAG = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"

#: How pip is run: the pip of the interpreter that runs the suite.
_PIP_COMMAND = (sys.executable, "-m", "pip")

#: A file in every whole overlay that says what was asked for and what is in it.
_MARKER = "overlay.json"

#: Fills an empty directory: an overlay in the making.
Fill = Callable[["_Pip", Path], None]


class Cache:
    """The overlays below one directory, each fetched when it is first asked for."""

    def __init__(
        self, root: Path, *, recipe: Recipe = RECIPE, pip: Sequence[str] = _PIP_COMMAND
    ) -> None:
        self._root = root / _TAG
        self._recipe = recipe
        self._pip = tuple(pip)

    def release(self, version: str, *, report: Report) -> Overlay:
        """The overlay of a release.

        Raises:
            OverlayError: it is not in the cache and cannot be fetched.
        """
        package = self._recipe.package

        def fill(pip: _Pip, tree: Path) -> None:
            pip.install([f"{package}=={version}"], "--no-deps", into=tree)

        step = f"fetching SGLang {version}, without its dependencies"
        release = self._whole(Path("release", version), step, fill, report)
        requires = [
            line
            for found in importlib.metadata.distributions(name=package, path=[str(release)])
            for line in found.requires or ()
        ]
        below = self._below(requires, f"SGLang {version}", report)
        return Overlay((release, *below))

    def checkout(self, root: Path, *, report: Report) -> Overlay:
        """The overlay of a source checkout, whose ``python/`` directory is its first path.

        ``root`` is the checkout's root or that directory.

        Raises:
            OverlayError: its dependencies cannot be read, or not be fetched.
        """
        python = root if (root / "sglang").is_dir() else root / "python"
        below = self._below(_project_requires(python), f"the checkout {root}", report)
        return Overlay((python, *below))

    def _below(self, requires: Iterable[str], subject: str, report: Report) -> tuple[Path, Path]:
        """The pins and the base under a subject that requires this."""
        pins = self._followed(requires, subject)
        base = self._base(report)
        return self._pins(pins, base, report), base

    def _followed(self, requires: Iterable[str], subject: str) -> tuple[str, ...]:
        """The requirement lines of the distributions whose version the subject decides."""
        followed = self._recipe.followed
        lines: dict[str, str] = {}
        for line in requires:
            try:
                requirement = Requirement(line)
            except InvalidRequirement as error:
                raise OverlayError(
                    f"{subject} requires {line!r}, which is no requirement"
                ) from error
            name = canonicalize_name(requirement.name)
            if name not in followed:
                continue
            if _applies(requirement):
                requirement.marker = None
                lines[name] = str(requirement)
        if followed[0] not in lines:
            raise OverlayError(
                f"{subject} does not say which {followed[0]} it requires: "
                f"its metadata has no such dependency"
            )
        return tuple(lines[name] for name in followed if name in lines)

    def _base(self, report: Report) -> Path:
        recipe = self._recipe
        own = ("triton",) if _torch_brings_triton() else ()
        lines = [line for line in recipe.base if line not in own]

        def fill(pip: _Pip, tree: Path) -> None:
            pip.install(lines, into=tree, constraints=recipe.constraints)
            if recipe.bare:
                pip.install(recipe.bare, "--no-deps", into=tree, constraints=recipe.constraints)

        step = "fetching the modules that SGLang imports (once for all releases)"
        key = _key(lines, recipe.bare, [recipe.constraints.read_text(encoding="utf-8")])
        return self._whole(Path("base", key), step, fill, report)

    def _pins(self, lines: Sequence[str], base: Path, report: Report) -> Path:
        recipe = self._recipe

        def fill(pip: _Pip, tree: Path) -> None:
            there = _installed(base)
            missing = [
                wanted.line
                for wanted in pip.resolve(lines, constraints=recipe.constraints)
                if there.get(wanted.name) != wanted.version
            ]
            pip.install(missing, "--no-deps", into=tree)

        step = f"fetching {', '.join(lines)}"
        return self._whole(Path("pins", _key(lines, [base.name])), step, fill, report)

    def _whole(self, name: Path, step: str, fill: Fill, report: Report) -> Path:
        """The overlay of this name; filled aside and renamed in, if it is not there."""
        home = self._root / name
        if _is_whole(home):
            return home
        try:
            home.parent.mkdir(parents=True, exist_ok=True)
            with _locked(home.with_name(f".{home.name}.lock"), step, report):
                if not _is_whole(home):
                    _clear_leftovers(home)
                    self._make(home, step, fill, report)
        except OSError as error:
            raise OverlayError(
                f"{step}: cannot write in the cache directory {self._root.parent}: {error}; "
                f"{CACHE_VARIABLE} names another"
            ) from error
        return home

    def _make(self, home: Path, step: str, fill: Fill, report: Report) -> None:
        partial = Path(tempfile.mkdtemp(prefix=f".{home.name}.partial-", dir=home.parent))
        report.begin(step)
        try:
            scratch, tree = partial / "scratch", partial / "tree"
            scratch.mkdir()
            tree.mkdir()
            fill(_Pip(self._pip, step, scratch, report), tree)
            _refuse_torch(tree, step)
            installed = [f"{name}=={version}" for name, version in sorted(_installed(tree).items())]
            document = {"step": step, "python": _TAG, "installed": installed}
            (tree / _MARKER).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            tree.replace(home)
        finally:
            report.end()
            shutil.rmtree(partial, ignore_errors=True)


def _is_whole(home: Path) -> bool:
    return (home / _MARKER).is_file()


@contextmanager
def _locked(path: Path, step: str, report: Report) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        report.begin(f"waiting for another process that is {step}")
        try:
            lock.acquire()
        finally:
            report.end()
    try:
        yield
    finally:
        lock.release()


def _clear_leftovers(home: Path) -> None:
    """Remove what fetches of this overlay left that died. Only for the holder of its lock."""
    for leftover in home.parent.glob(f".{home.name}.partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if home.is_dir():
        shutil.rmtree(home)


def _refuse_torch(tree: Path, step: str) -> None:
    """An overlay with a torch in it would hide the interpreter's own."""
    for entry in tree.iterdir():
        name = entry.name.partition("-")[0]
        if name in ("torch", "nvidia"):
            raise OverlayError(
                f"{step}: pip brought {entry.name} along, which would hide the torch of "
                f"{sys.executable}; one of its requirements must go in without dependencies"
            )


def _installed(tree: Path) -> dict[str, str]:
    """The distributions in a directory, by canonical name."""
    found = importlib.metadata.distributions(path=[str(tree)])
    return {canonicalize_name(one.metadata["Name"]): one.version for one in found}


def _torch_brings_triton() -> bool:
    """Whether the interpreter's torch requires a triton: CUDA builds come with the one they fit."""
    try:
        requirements = [Requirement(line) for line in importlib.metadata.requires("torch") or ()]
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(one.name == "triton" and _applies(one) for one in requirements)


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def _key(*parts: Iterable[str]) -> str:
    text = "\n\n".join("\n".join(part) for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _project_requires(python: Path) -> list[str]:
    """The dependencies that a checkout's pyproject.toml states."""
    for directory in (python, python.parent):
        path = directory / "pyproject.toml"
        if path.is_file():
            break
    else:
        raise OverlayError(f"{python} has no pyproject.toml: its pins cannot be read")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return [str(line) for line in document["project"]["dependencies"]]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise OverlayError(f"{path}: its [project] dependencies cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One distribution of a resolution, and the line that installs it."""

    name: str
    version: str
    line: str


class _PipError(Exception):
    """pip failed; the text is what it says why, out of everything that it said."""

    def __init__(self, output: Sequence[str]) -> None:
        errors = [line.removeprefix("ERROR: ") for line in output if line.startswith("ERROR: ")]
        shown = [_LISTING.sub("", line) for line in errors[-2:] or output[-1:]]
        super().__init__("; ".join(textwrap.shorten(line, 300, placeholder=" …") for line in shown))
        self._output = "\n".join(output)

    @property
    def conflict(self) -> bool:
        """Whether no versions fit all requirements and constraints."""
        return "ResolutionImpossible" in self._output

    @property
    def advice(self) -> str:
        """What the user can do about it."""
        for sign, advice in _ADVICE.items():
            if sign in self._output:
                return advice
        return "check pip's settings (pip config list) and the space on the disk, then try again"


#: The listing of every version there is, in which pip wraps what was wrong.
_LISTING = re.compile(r" \(from versions: [^)]*\)")

_ADVICE = {
    "No module named pip": f"give {sys.executable} a pip: {sys.executable} -m ensurepip",
    "connection broken": "a package index cannot be reached: check the network and pip's index "
    "settings (pip config list), then try again; what is fetched once needs no network",
    "ResolutionImpossible": "look for a constraint of your own that excludes it (pip config list)",
    "No matching distribution": "there is no such release, or no wheel of it for Python "
    f"{sys.version_info[0]}.{sys.version_info[1]} on {sysconfig.get_platform()}, "
    "or the index in pip's settings (pip config list) lacks it",
}


class _Pip:
    """pip with the user's own settings, working in a scratch directory."""

    def __init__(self, command: Sequence[str], step: str, scratch: Path, report: Report) -> None:
        self._command = command
        self._step = step
        self._scratch = scratch
        self._report = report

    def install(
        self, lines: Sequence[str], *options: str, into: Path, constraints: Path | None = None
    ) -> None:
        """Install these requirements into a directory."""
        if lines:
            self._constrained([f"--target={into}", *options, *lines], constraints)

    def resolve(self, lines: Sequence[str], *, constraints: Path) -> list[_Wanted]:
        """What these requirements and all their dependencies come to."""
        answer = self._scratch / "resolution.json"
        options = ["--dry-run", "--ignore-installed", f"--report={answer}"]
        self._constrained([*options, *lines], constraints)
        asked = {canonicalize_name(Requirement(line).name): line for line in lines}
        resolution = []
        for item in json.loads(answer.read_text(encoding="utf-8"))["install"]:
            name = canonicalize_name(item["metadata"]["name"])
            version = item["metadata"]["version"]
            line = asked[name] if item["is_direct"] else f"{name}=={version}"
            resolution.append(_Wanted(name, version, line))
        return resolution

    def _constrained(self, arguments: Sequence[str], constraints: Path | None) -> None:
        """Run under the user's constraints, and under ours too where both can be kept."""
        try:
            if constraints is None:
                self._run(arguments)
                return
            try:
                self._run([f"--constraint={constraints}", *arguments])
            except _PipError as failure:
                if not failure.conflict:
                    raise
                self._run(arguments)
        except _PipError as failure:
            raise OverlayError(f"{self._step}: pip failed: {failure} — {failure.advice}") from None

    def _run(self, arguments: Sequence[str]) -> None:
        try:
            process = subprocess.Popen(
                [*self._command, "install", *_PIP_OPTIONS, *arguments],
                env={**os.environ, **_PIP_ENVIRONMENT, "TMPDIR": str(self._scratch)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise _PipError([str(error)]) from error
        with process:
            try:
                output = self._read(process)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise _PipError(output or [f"it ended with code {process.returncode}"])

    def _read(self, process: subprocess.Popen[str]) -> list[str]:
        """Everything that pip says, passed on as it comes."""
        assert process.stdout is not None
        output = []
        for line in map(str.strip, process.stdout):
            if line:
                output.append(line)
            if line.startswith(_PIP_WORK):
                self._report.detail(line)
        return output


#: Only wheels: to build SGLang or triton from source takes toolchains and an hour.
_PIP_OPTIONS = (
    "--only-binary=:all:",
    "--compile",  # the cache may be read-only later, and without .pyc files an import takes 1.5×
    "--no-input",
    "--no-warn-conflicts",
    "--disable-pip-version-check",
    "--progress-bar=off",
)

#: Settings that may stand in a user's configuration and do not go together with a target directory.
_PIP_ENVIRONMENT = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}

#: How the lines start in which pip says what it does.
_PIP_WORK = ("Collecting ", "Downloading ", "Using cached ", "Installing ")


def cache_root() -> Path:
    """The user's cache, or the folder that the environment names."""
    named = os.environ.get(CACHE_VARIABLE)
    root = Path(named) if named else platformdirs.user_cache_path("sglang-pool-contracts")
    return root.expanduser().absolute()


def default_cache() -> Cache:
    """The overlays in the user's cache."""
    return Cache(cache_root())


def fetch_release(version: str, *, report: Report) -> Overlay:
    """The overlay of a release, from the default cache (see :meth:`Cache.release`)."""
    return default_cache().release(version, report=report)


def for_checkout(root: Path, *, report: Report) -> Overlay:
    """The overlay of a source checkout, from the default cache (see :meth:`Cache.checkout`)."""
    return default_cache().checkout(root, report=report)
