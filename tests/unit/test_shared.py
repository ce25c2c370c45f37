"""A database that machines share: a folder, or a real Redis server on the loopback."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.hunt.shared import SharedError, opened
from tests.unit import observations

REDIS = shutil.which("redis-server")
ONE, OTHER = observations.deployment(0, 4), observations.deployment(4, 128)
PATIENCE = 30


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of our own, on a socket in a folder of our own."""
    if REDIS is None:
        pytest.skip("there is no redis-server on this machine")
    pytest.importorskip("redis")
    folder = tmp_path_factory.mktemp("redis")
    command = [REDIS, "--port", "0", "--unixsocket", "s", "--save", "", "--daemonize", "no"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "eady to accept connections" in line:
            break
    yield f"unix://{folder / 's'}"
    process.terminate()
    process.communicate(timeout=PATIENCE)


@pytest.fixture(params=["folder", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "new" / "database")
    address = request.getfixturevalue("redis_server")
    assert isinstance(address, str)
    return address


def test_what_one_finds_the_others_judge(place: str) -> None:
    """Red when a case that one machine kept is not there for another, or for another contract."""
    mine, theirs = opened(place, "monday"), opened(place, "tuesday")
    mine.add_case("rank-sum", OTHER)
    mine.add_case("rank-sum", ONE)
    mine.add_case("rank-sum", ONE)
    found = [named.deployment for named in theirs.cases(["stage-slice", "rank-sum"])]
    assert found == sorted([ONE, OTHER], key=lambda deployment: deployment.key())
    assert theirs.cases(["stage-slice"]) == []


def test_records_are_a_runs_own(place: str) -> None:
    """Red when records of another night are merged into this one."""
    first, second = {"subject": "a", "n": [1, None]}, {"subject": "b"}
    opened(place, "one").add_record(second)
    opened(place, "one").add_record(first)
    opened(place, "another").add_record(first)
    found = opened(place, "one").records()
    assert sorted(found, key=str) == sorted([first, second], key=str)
    assert found == opened(place, "one").records()
    assert opened(place, "another").records() == [first]
    assert opened(place, "none").records() == []


@pytest.mark.parametrize("where", ["http://example.org", "redi://x"])
def test_no_place(where: str) -> None:
    """Red when an address of something else is taken for a folder."""
    with pytest.raises(SharedError, match="a folder or a redis:// address is expected"):
        opened(where, "run")


def test_a_server_that_is_gone(tmp_path: Path) -> None:
    """Red when a server that does not answer is a traceback."""
    pytest.importorskip("redis")
    with pytest.raises(SharedError, match="the shared database does not answer"):
        opened(f"unix://{tmp_path / 'nobody'}", "run")


def test_without_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red when it is not said what to install."""
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(SharedError, match=r"install sglang-pool-contracts\[redis\]"):
        opened("redis://127.0.0.1/0", "run")
