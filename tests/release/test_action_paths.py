"""The files that the reusable workflow watches are SGLang's."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.subject.overlay import ConsoleReport, fetch_release
from contracts.subject.releases import NEWEST, OLDEST
from tests.unit.test_action import PATHS, listed, matched

#: Where sizing and pools are, or once were: what no change may slip by.
MUST = (
    "srt/model_executor/pool_configurator.py",
    "srt/model_executor/model_runner_kv_cache_mixin.py",
    "srt/mem_cache/kv_cache_configurator.py",
    "srt/mem_cache/deepseek_v4_memory_pool.py",
    "srt/mem_cache/deepseek_v4_compress_state.py",
    "srt/mem_cache/draft_kv_budget.py",
    "srt/configs/deepseek_v4.py",
    "srt/configs/model_config.py",
    "srt/distributed/utils.py",
    "srt/environ.py",
    "srt/server_args.py",
    "srt/speculative/spec_info.py",
)


def files_of(version: str) -> list[str]:
    """The files of a release, as they lie in the repository."""
    release = fetch_release(version, report=ConsoleReport()).paths[0]
    found = ["python/pyproject.toml"]  # which a wheel does not have
    for path in (release / "sglang").rglob("*.py"):
        found.append(f"python/{path.relative_to(release).as_posix()}")
    return found


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A repository with the files of each of two releases, and with those of both."""
    files = {version: files_of(version) for version in (OLDEST, NEWEST)}
    files["both"] = sorted({name for names in files.values() for name in names})
    return {
        name: listed(tmp_path_factory.mktemp("release"), names) for name, names in files.items()
    }


def test_every_pattern_matches_something(releases: dict[str, Path]) -> None:
    """Red when a pattern is misspelt, or SGLang has moved on from what it names."""
    assert [pattern for pattern in PATHS if not matched(releases["both"], [pattern])] == []


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_what_sizes_and_allocates_is_watched(releases: dict[str, Path], version: str) -> None:
    """Red when a file of sizing or of a pool can be changed without being judged."""
    must = {f"python/sglang/{name}" for name in MUST} & matched(releases[version], ["**"])
    assert len(must) >= 8
    assert must <= matched(releases[version], PATHS)


def test_most_of_sglang_is_not_watched(releases: dict[str, Path]) -> None:
    """Red when a pattern is so wide that nearly every pull request is judged."""
    everything = matched(releases[NEWEST], ["**"])
    assert len(matched(releases[NEWEST], PATHS)) < len(everything) / 4
