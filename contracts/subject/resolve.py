"""From what the user names to a subject that a worker can run.

A subject is a release number, a source checkout, or a Python interpreter that has SGLang.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from contracts.subject.overlay import Cache, OverlayError, Report, default_cache
from contracts.subject.releases import NEWEST, OLDEST, RELEASES, nearest

__all__ = ["Subject", "SubjectError", "is_release", "resolve"]

Kind = Literal["release", "checkout", "interpreter"]


class SubjectError(ValueError):
    """What was named is no subject; the text says why and what would be one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An SGLang that a worker can run.

    The worker is started with ``python`` and gets ``paths`` in front of its ``sys.path``, in
    order. ``label`` names the subject in messages and reports.
    """

    label: str
    python: Path
    paths: tuple[Path, ...]
    kind: Kind


def resolve(text: str, *, report: Report, cache: Cache | None = None) -> Subject:
    """The subject that a text names; what it needs is fetched if it is not in the cache.

    Raises:
        SubjectError: the text names no subject.
        OverlayError: a release or the modules under it cannot be had.
    """
    cache = cache or default_cache()
    text = text.strip()
    path = Path(text).expanduser()
    if not text:
        raise SubjectError(f"the subject is empty; {_SUBJECTS}")
    known = _known_release(text)
    if known is None and path.is_dir():
        return _checkout(path.resolve(), cache, report)
    if known is None and path.exists():
        return _interpreter(path.absolute(), text)
    if known is None and (os.sep in text or text.startswith(("~", "."))):
        raise SubjectError(f"{text} does not exist; {_SUBJECTS}")
    return _release(known or _new_release(text), cache, report)


_SUBJECTS = (
    f"a subject is a release ({OLDEST} … {NEWEST}), the directory of a source checkout, "
    "or the path of a Python interpreter that has SGLang"
)

#: The module that makes a subject one that can be judged.
_POOL = Path("srt", "mem_cache", "deepseek_v4_memory_pool.py")


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def is_release(text: str) -> bool:
    """Whether a text is the number of a known release."""
    return _known_release(text.strip()) is not None


def _known_release(text: str) -> str | None:
    version = _version(text)
    return next((known for known in RELEASES if Version(known) == version), None)


def _new_release(text: str) -> str:
    """A release that is newer than all known ones: whether there is one, pip will say."""
    version = _version(text)
    alike = nearest(text)
    near = f"; the nearest that are known: {', '.join(alike)}" if alike else ""
    if version is None:
        what = "is no release number" if text[0].isdigit() else "is no release and no path"
        raise SubjectError(f"{text!r} {what}{near}; {_SUBJECTS}")
    if Version(version.base_version) < Version(OLDEST):
        raise SubjectError(
            f"SGLang {text} has no DeepSeek-V4 pool; the first release that has it is {OLDEST}"
        )
    if version.local or version < Version(NEWEST):
        raise SubjectError(f"SGLang {text} is not a known release{near}")
    return str(version)


def _release(version: str, cache: Cache, report: Report) -> Subject:
    try:
        paths = cache.release(version, report=report).paths
    except OverlayError as error:
        if version in RELEASES:
            raise
        raise OverlayError(f"{error}; the newest release known here is {NEWEST}") from error
    return Subject(label=version, python=Path(sys.executable), paths=paths, kind="release")


def _checkout(directory: Path, cache: Cache, report: Report) -> Subject:
    python = next(
        (place for place in (directory, directory / "python") if (place / "sglang/srt").is_dir()),
        None,
    )
    if python is None:
        raise SubjectError(
            f"{directory} is no SGLang checkout: it has neither sglang/srt nor python/sglang/srt"
            f"{_environment_hint(directory)}"
        )
    root = python.parent if python.name == "python" else python
    if not any((place / "pyproject.toml").is_file() for place in (python, root)):
        raise SubjectError(
            f"{directory} has an SGLang but no pyproject.toml, so it is no source checkout; "
            "for an installed SGLang, name the interpreter that it is installed for"
        )
    if not (python / "sglang" / _POOL).is_file():
        raise SubjectError(
            f"{directory} has no DeepSeek-V4 pool (sglang/{_POOL.as_posix()} is missing); "
            f"the first release that has it is {OLDEST}"
        )
    described = _describe(python)
    label = f"{root.name}@{described}" if described else root.name
    paths = cache.checkout(python, report=report).paths
    return Subject(label=label, python=Path(sys.executable), paths=paths, kind="checkout")


def _environment_hint(directory: Path) -> str:
    interpreter = directory / "bin" / "python"
    return f"; for the environment, name its interpreter: {interpreter}" * interpreter.exists()


def _describe(python: Path) -> str | None:
    """What git says of the commit, if git is there and keeps these files."""
    # Run from a git hook, these would name that hook's repository.
    environment = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(python), *arguments],  # noqa: S607 - the user's own git
            env=environment | {"GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=_PATIENCE,
            check=True,
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", f"sglang/{_POOL.as_posix()}")
        return git("describe", "--tags", "--always", "--dirty") or None
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None


#: Seconds that a foreign program may take to answer a small question.
_PATIENCE = 60

#: Asks an interpreter what it has, without importing it. Any Python 3 must be able to read this.
_PROBE = """
import importlib.util, json, sys
sys.path = [entry for entry in sys.path if entry]
found = importlib.util.find_spec("sglang")
print(json.dumps({
    "version": list(sys.version_info[:2]),
    "sglang": list(found.submodule_search_locations or []) if found else None,
    "torch": importlib.util.find_spec("torch") is not None,
}))
"""


def _interpreter(path: Path, text: str) -> Subject:
    if not os.access(path, os.X_OK):
        raise SubjectError(f"{text} is a file that cannot be run; {_SUBJECTS}")
    answer = _probe(path, text)
    if answer["version"] < [3, 10]:
        version = ".".join(map(str, answer["version"]))
        raise SubjectError(f"{text} is Python {version}; SGLang needs Python 3.10 or newer")
    if answer["sglang"] is None:
        raise SubjectError(f"{text} has no SGLang: its Python cannot find a module sglang")
    if not any((Path(place) / _POOL).is_file() for place in answer["sglang"]):
        raise SubjectError(
            f"the SGLang of {text} has no DeepSeek-V4 pool; "
            f"the first release that has it is {OLDEST}"
        )
    if not answer["torch"]:
        raise SubjectError(f"{text} has SGLang but no torch, without which nothing is allocated")
    return Subject(label=text, python=path, paths=(), kind="interpreter")


def _probe(path: Path, text: str) -> Any:
    try:
        asked = subprocess.run(
            [str(path), "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE,
            check=True,
        )
        return json.loads(asked.stdout.strip().rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        raise SubjectError(f"{text} did not answer within {_PATIENCE} seconds") from None
    except (OSError, subprocess.CalledProcessError, json.JSONDecodeError) as error:
        said = getattr(error, "stderr", None) or str(error)
        last = textwrap.shorten(said.strip().rpartition("\n")[2], 200, placeholder=" …")
        raise SubjectError(f"{text} does not work as a Python interpreter: {last}") from None
