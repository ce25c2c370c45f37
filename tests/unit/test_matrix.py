"""The matrix, its shards and merging, as users run them, on fake subjects."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts import cli
from contracts.hunt import matrix as matrix_module
from contracts.subject.resolve import Subject
from tests.unit import fake_worker
from tests.unit.fake_worker import LAST_WORDS, lives
from tests.unit.schemas import check

JSON = Any
CHOSEN = ("--profile", "dev", "--contract", "stage-slice", "--contract", "pp1-unchanged")
RECORDS = Path(".contracts", "matrix")


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Run a command in a folder of its own: exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def ended(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["contracts", *map(str, words)])
        with pytest.raises(SystemExit) as raised:
            cli.run()
        assert isinstance(raised.value.code, int)
        return (int(raised.value.code), *capsys.readouterr())

    return ended


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., Subject]:
    def installed(name: str, **told: str) -> Subject:
        folder = tmp_path / name
        folder.mkdir()
        return fake_worker.install(folder, **told)

    return installed


def records(*folders: Path) -> list[JSON]:
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for folder in folders or (RECORDS,)
        for path in sorted(folder.glob("*.json"))
    ]


def test_two_subjects(
    run: Callable[..., tuple[int, str, str]], fake: Callable[..., Subject]
) -> None:
    """Red when a subject has no column, no record, or not the one before it as its baseline."""
    sound, broken = fake("sound").python, fake("broken", observe="ignore stages").python
    code, out, _ = run("matrix", "--sglang", sound, broken, *CHOSEN, "--json", "m.json")
    assert code == 1
    assert "stage-slice" in out
    document = json.loads(Path("m.json").read_text(encoding="utf-8"))
    check(document, "matrix")
    first, second = document["records"]
    assert records() == sorted([first, second], key=lambda one: str(one["subject"]["label"]))
    assert [first["baseline"], second["baseline"]] == [None, str(sound)]
    assert [one["id"] for one in first["contracts"]] == ["stage-slice"]
    told = {one["id"]: one["verdict"] for one in second["contracts"]}
    assert told == {"stage-slice": "violated", "pp1-unchanged": "violated"}


def test_all_are_judged_on_the_same_deployments(
    run: Callable[..., tuple[int, str, str]], fake: Callable[..., Subject]
) -> None:
    """Red when two subjects are judged on different deployments."""
    run("matrix", fake("one").python, fake("two").python, *CHOSEN[:4])
    counts = {record["contracts"][0]["deployments"] for record in records()}
    assert len(counts) == 1


def test_going_on(run: Callable[..., tuple[int, str, str]], fake: Callable[..., Subject]) -> None:
    """Red when a record that is there is made again, or one of other options is taken for it."""
    one, two = fake("one"), fake("two")
    assert run("matrix", one.python, *CHOSEN[:4])[0] == 0
    before = len(lives(one))
    code, out, _ = run("matrix", one.python, two.python, *CHOSEN[:4], "--skip-existing")
    assert (code, len(lives(one))) == (0, before)
    assert out.count("held") == 2
    run("matrix", one.python, *CHOSEN[:4], "--skip-existing", "--contract", "rank-sum")
    assert len(lives(one)) > before


def test_a_kill_loses_one_subject(
    run: Callable[..., tuple[int, str, str]],
    fake: Callable[..., Subject],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Red when what was complete before an interrupt is lost, or what was not is taken for it."""
    one, two = fake("one"), fake("two")
    whole = matrix_module.record

    def interrupted(plan: Any, workforce: Any, watch: Any) -> JSON:
        if "two" in workforce.info.label:
            raise KeyboardInterrupt
        return whole(plan, workforce, watch)

    with monkeypatch.context() as patch:
        patch.setattr(matrix_module, "record", interrupted)
        assert run("matrix", one.python, two.python, *CHOSEN[:4])[0] == 130
    assert [record["subject"]["label"] for record in records()] == [str(one.python)]
    assert run("matrix", one.python, two.python, *CHOSEN[:4], "--skip-existing")[0] == 0
    assert len(records()) == 2


def test_half_a_record_is_none(
    run: Callable[..., tuple[int, str, str]], fake: Callable[..., Subject]
) -> None:
    """Red when a file that was cut off is taken for a record, or ends the run."""
    one = fake("one")
    run("matrix", one.python, *CHOSEN[:4])
    (path,) = RECORDS.glob("*.json")
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[: len(whole) // 2], encoding="utf-8")
    assert run("matrix", one.python, *CHOSEN[:4], "--skip-existing")[0] == 0
    assert path.read_text(encoding="utf-8") == whole


def test_a_subject_that_cannot_be_read(
    run: Callable[..., tuple[int, str, str]], fake: Callable[..., Subject]
) -> None:
    """Red when a subject that does not load ends the run, passes, or is not tried again."""
    code, out, _ = run("matrix", fake("dead", hello="exit").python, fake("one").python, *CHOSEN[:4])
    assert code == 3
    assert "not judged" in out
    assert len(records()) == 1
    code, out, _ = run("matrix", fake("dead too", hello="exit").python, *CHOSEN[:4], "--json", "-")
    (record,) = json.loads(out)["records"]
    assert LAST_WORDS in record["contracts"][0]["reason"]


# -- shards ----------------------------------------------------------------------------------------


def test_shards(run: Callable[..., tuple[int, str, str]], fake: Callable[..., Subject]) -> None:
    """Red when shards together judge other deployments than one machine alone, or a missing one
    passes."""
    subject = fake("one").python
    run("matrix", subject, *CHOSEN[:4], "--records", "whole")
    for index in ("1/3", "2/3", "3/3"):
        run("matrix", subject, *CHOSEN[:4], "--records", "shards", "--shard", index)
    (whole,) = records(Path("whole"))
    shards = sorted(Path("shards").glob("*.json"))
    assert len(shards) == 3
    code, out, _ = run("merge", *shards, "--json", "-")
    (merged,) = json.loads(out)["records"]
    assert code == 0
    assert merged["contracts"] == whole["contracts"]
    code, out, _ = run("merge", *shards[1:])
    assert (code, "not judged" in out) == (3, True)


def test_shards_through_a_database(
    run: Callable[..., tuple[int, str, str]], fake: Callable[..., Subject]
) -> None:
    """Red when shards do not find each other's records or cases in the database."""
    subject = fake("one", observe="ignore stages").python
    shared = ("--database", "db", "--run", "tonight")
    for index in ("1/2", "2/2"):
        run("matrix", subject, *CHOSEN[:4], *shared, "--shard", index)
    code, out, _ = run("merge", *shared, "--json", "-")
    (merged,) = json.loads(out)["records"]
    assert (code, merged["shards"]) == (1, {"of": 2, "have": [1, 2]})
    # The second shard judged the first one's case, too.
    (whole,) = _alone(run, subject)
    assert merged["contracts"][0]["deployments"] == whole["contracts"][0]["deployments"] + 1
    assert run("merge", "--database", "db", "--run", "another night")[0] == 2


def _alone(run: Callable[..., tuple[int, str, str]], subject: Path) -> list[JSON]:
    run("matrix", subject, *CHOSEN[:4], "--records", "alone")
    return records(Path("alone"))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("matrix", "0.5.23", "--shard", "4/3"), 2, "--shard: '4/3' is no shard"),
        (("matrix", "0.5.23", "--database", "ftp://x"), 3, "a folder or a redis:// address"),
        (("matrix", "0.5.23", "--html", "no/such.html"), 2, "there is no such folder"),
        (("merge",), 2, "nothing to merge"),
        (("merge", "nothing.json"), 2, "nothing.json: No such file"),
        (("merge", "cut.json"), 3, "cut.json: no JSON"),
        (("merge", "other.json"), 2, "other.json: no record of this suite"),
    ],
)
def test_bad_input(
    words: tuple[str, ...], code: int, said: str, run: Callable[..., tuple[int, str, str]]
) -> None:
    """Red when bad input is a traceback, or ends otherwise than it should."""
    Path("cut.json").write_text('{"schema": 1, "rec', encoding="utf-8")
    Path("other.json").write_text('{"schema": 1}', encoding="utf-8")
    ended, _out, err = run(*words)
    assert (ended, said in err) == (code, True), err
