"""Real git repositories, made commit by commit, in which commits have an SGLang or hardly one."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["POOL", "PROJECT", "Planted", "an_sglang", "git", "plant", "state"]

POOL = "python/sglang/srt/mem_cache/deepseek_v4_memory_pool.py"
PROJECT = "python/pyproject.toml"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A commit to be made: its files are all that it has, its parents earlier ones by number."""

    title: str
    files: Mapping[str, str | bytes]
    parents: tuple[int, ...] | None = None
    tag: str | None = None


def git(folder: Path, *arguments: str) -> str:
    """What git says; the user's configuration stays out."""
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    told = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *told, *arguments]
    return subprocess.run(
        command, check=True, capture_output=True, encoding="utf-8", env={**os.environ, **quiet}
    ).stdout.strip()


def plant(folder: Path, commits: Iterable[Planted]) -> list[str]:
    """Make a repository whose branch ``main`` ends with the last commit; returns their shas."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    marks = (folder / ".git" / "marks").absolute()
    command = ["git", "-c", "core.compression=1", "fast-import", "--quiet"]
    with subprocess.Popen(
        [*command, f"--export-marks={marks}"], cwd=folder, stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        for number, commit in enumerate(commits):
            for part in _stream(number, commit):
                process.stdin.write(part)
    assert process.returncode == 0
    marked = dict(line.split() for line in marks.read_text(encoding="ascii").splitlines())
    marks.unlink()
    git(folder, "reset", "--quiet", "--hard")
    return [marked[f":{mark}"] for mark in range(1, len(marked) + 1)]


def _stream(number: int, commit: Planted) -> Iterable[bytes]:
    when = f"Someone <someone@example.org> {1_700_000_000 + 60 * number} +0000"
    yield f"commit refs/heads/main\nmark :{number + 1}\n".encode()
    yield f"author {when}\ncommitter {when}\n".encode() + _data(commit.title)
    parents = (number - 1,) if commit.parents is None and number else commit.parents or ()
    for verb, parent in zip(("from", *["merge"] * len(parents)), parents, strict=False):
        yield f"{verb} :{parent + 1}\n".encode()
    yield b"deleteall\n"
    for path, content in commit.files.items():
        yield f"M 100644 inline {path}\n".encode() + _data(content)
    if commit.tag is not None:
        yield f"reset refs/tags/{commit.tag}\nfrom :{number + 1}\n\n".encode()


def _data(content: str | bytes) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return b"data %d\n%b\n" % (len(raw), raw)


def an_sglang(text: str = "", **more: str) -> dict[str, str]:
    """The least that passes for an SGLang."""
    return {POOL: f"# {text}\n", PROJECT: "[project]\n", "README.md": "…\n", **more}


def state(folder: Path) -> dict[str, str]:
    """Everything in a folder: contents, times and links."""
    return {
        str(path.relative_to(folder)): f"{path.lstat().st_mtime_ns} "
        + (hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        for path in sorted(folder.rglob("*"))
    }
