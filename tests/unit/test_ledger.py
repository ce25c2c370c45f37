"""The ledger: what it refuses and how it says so, what it knows, what a trial makes of it."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from contracts import cli
from contracts.contract import Evidence, Request, Verdict, Violation
from contracts.deployment import Deployment, Model, Speculation
from contracts.examination import Finding
from contracts.ledger import EMPTY, FIELDS, Entry, Ledger, LedgerError, load, shipped
from contracts.observation import Observation, SubjectInfo
from contracts.profiles import PROFILES
from contracts.report.terminal import trial_line
from contracts.report.violation import ledger_line, text
from contracts.subject.client import Client
from contracts.subject.resolve import Subject
from contracts.trial import Trial, stale
from tests.trying import tried
from tests.unit import fake_worker, observations

JSON = Any
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"<!-- example: begin -->\n```toml\n(.*?)```", PAGE, re.DOTALL)
TODAY = datetime.date(2026, 10, 1)
PATIENCE = 60.0

REPRODUCE = {
    "model": {"num_hidden_layers": 2, "compress_ratios": [0, 0]},
    "pp_size": 2,
    "budget": "1GiB",
}
GOOD: dict[str, JSON] = {
    "contract": "stage-slice",
    "subjects": ">=0.5.12,<0.5.14",
    "condition": "pp_size > 1",
    "bound": 2,
    "reproduce": json.dumps(REPRODUCE),
    "reference": "sgl-project/sglang#25750",
    "expires": datetime.date(2027, 6, 30),
}


def toml(*entries: dict[str, JSON]) -> str:
    """A ledger's text."""
    lines = ["schema = 1"]
    for entry in entries:
        lines += ["[[known]]", *(f"{key} = {toml_value(value)}" for key, value in entry.items())]
    return "\n".join(lines) + "\n"


def toml_value(value: JSON) -> str:
    """TOML is like JSON, but for dates, and numbers that JSON does not have."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return repr(value) if isinstance(value, float) else json.dumps(value)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Write a ledger of entries that differ from a good one."""

    def write(*changes: dict[str, JSON], raw: str | None = None) -> Path:
        path = tmp_path / "known.toml"
        entries = [{**GOOD, **changed} for changed in changes]
        path.write_text(toml(*entries) if raw is None else raw, encoding="utf-8")
        return path

    return write


@pytest.fixture
def ledger(written: Callable[..., Path]) -> Callable[..., Ledger]:
    return lambda *changes: load(written(*changes), today=TODAY)


@pytest.fixture
def entry(ledger: Callable[..., Ledger]) -> Callable[..., Entry]:
    return lambda **changed: ledger(changed).entries[0]


def sentence(path: Path) -> str:
    with pytest.raises(LedgerError) as raised:
        load(path, today=TODAY)
    assert "\n" not in str(raised.value)
    return str(raised.value)


# -- bad input: one sentence that names the file, the entry, and what to do ------------------------

NO_SPECIFIER = "is no version specifier; write it as '>=0.5.13,<0.5.21'"
NO_BOUND = "bound: a factor of 1 or more, or 'no factor', is expected, got"
NO_DATE = "expires: a date such as 2027-06-30 is expected, got"
SEE = "fields and types: docs/ledger.md"

BAD: dict[str, tuple[dict[str, JSON], str]] = {
    "unknown contract": (
        {"contract": "stage-slize"},
        "no contract 'stage-slize'; did you mean 'stage-slice'?",
    ),
    "contract of another type": ({"contract": 5}, "contract: a text is expected, got 5"),
    "unknown field": (
        {"condition": "pp_sise > 1"},
        "condition: no field 'pp_sise'; did you mean 'pp_size'?",
    ),
    "syntax": ({"condition": "pp_size >"}, f"condition 'pp_size >': syntax error at: EOF; {SEE}"),
    "one equals sign": (
        {"condition": "pp_size = 2"},
        "condition 'pp_size = 2': syntax error (illegal character '=') at: line 1:8; " + SEE,
    ),
    "type mismatch": (
        {"condition": "model_type > 1"},
        f"condition 'model_type > 1': data type mismatch; {SEE}",
    ),
    "regular expression": (
        {"condition": "model_type =~ '('"},
        f"condition \"model_type =~ '('\": invalid regular expression; {SEE}",
    ),
    "unknown attribute": (
        {"condition": "ratios.lenth > 1"},
        f"condition 'ratios.lenth > 1': unknown attribute: 'lenth'; {SEE}",
    ),
    "unknown function": (
        {"condition": "$anny(ratios)"},
        "condition '$anny(ratios)': it must hold on the entry's own deployment (reproduce), and "
        "does not; correct one of them",
    ),
    "a condition that its own deployment does not meet": (
        {"condition": "ratios == 4"},
        "condition 'ratios == 4': it must hold on the entry's own deployment (reproduce), and "
        "does not; correct one of them",
    ),
    "condition of another type": ({"condition": True}, "condition: a text is expected, got True"),
    "bound below 1": ({"bound": 0.5}, f"{NO_BOUND} 0.5"),
    "bound of no size": ({"bound": float("nan")}, f"{NO_BOUND} nan"),
    "bound without end": ({"bound": float("inf")}, f"{NO_BOUND} inf"),
    "bound of truth": ({"bound": True}, f"{NO_BOUND} True"),
    "bound in words": ({"bound": "2"}, f"{NO_BOUND} '2'"),
    "bound as a list": ({"bound": [2]}, f"{NO_BOUND} [2]"),
    "expired": (
        {"expires": datetime.date(2026, 9, 30)},
        "it expired on 2026-09-30: look whether it is still true, then renew or remove it",
    ),
    "expiry in words": ({"expires": "2027-06-30"}, f"{NO_DATE} 2027-06-30"),
    "expiry with a time": (
        {"expires": datetime.datetime(2027, 6, 30, 12)},
        f"{NO_DATE} 2027-06-30 12:00:00",
    ),
    "expiry without a date": ({"expires": datetime.time(12)}, f"{NO_DATE} 12:00:00"),
    "unknown key": ({"expiry": 1}, "unknown key 'expiry'; did you mean 'expires'?"),
    "unknown key like none": (
        {"zebra": 1},
        "unknown key 'zebra'; known: contract, subjects, condition, bound, reproduce, reference, "
        "expires",
    ),
    "no specifier": ({"subjects": "0.5.12"}, f"subjects: '0.5.12' {NO_SPECIFIER}"),
    "a specifier turned round": ({"subjects": "=>0.5"}, f"subjects: '=>0.5' {NO_SPECIFIER}"),
    "a list of specifiers": (
        {"subjects": ["==0.5.12"]},
        "subjects: a text is expected, got ['==0.5.12']",
    ),
    "broken JSON": (
        {"reproduce": "{"},
        "reproduce: no JSON: Expecting property name enclosed in double quotes: line 1 column 2 "
        "(char 1)",
    ),
    "reproduce of another type": ({"reproduce": 5}, "reproduce: a text is expected, got 5"),
    "wrong field of the deployment": (
        {"reproduce": json.dumps({**REPRODUCE, "pp_sise": 2})},
        "reproduce: pp_sise: unknown field; did you mean 'pp_size'?",
    ),
    "wrong type in the deployment": (
        {"reproduce": json.dumps({**REPRODUCE, "pp_size": "2"})},
        "reproduce: pp_size: a whole number is expected, got '2'",
    ),
    "deployment that contradicts itself": (
        {"reproduce": json.dumps({**REPRODUCE, "partition": [1, 2]})},
        "reproduce: partition 1,2 sums to 3 but the model has 2 layers",
    ),
    "reference of another type": ({"reference": 5}, "reference: a text is expected, got 5"),
}
#: What a schema cannot see: it is in a text, or in the calendar.
UNSEEN = {
    "unknown contract", "unknown field", "syntax", "one equals sign", "type mismatch",
    "regular expression", "unknown attribute", "unknown function",
    "a condition that its own deployment does not meet", "bound of no size", "bound without end",
    "expired", "expiry in words", "no specifier", "a specifier turned round", "broken JSON",
    "wrong field of the deployment", "wrong type in the deployment",
    "deployment that contradicts itself",
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_bad_entry(bad: str, written: Callable[..., Path]) -> None:
    """Red when a bad entry is accepted, or its sentence does not name file, entry and remedy."""
    changed, said = BAD[bad]
    path = written({}, changed)
    name = changed.get("contract", "stage-slice")
    assert sentence(path) == f"{path}: entry 2 ({name}): {said}"


@pytest.mark.parametrize("key", GOOD)
def test_missing_key(key: str, written: Callable[..., Path]) -> None:
    """Red when an entry may leave out a key, or its sentence does not name all of them."""
    path = written(raw=toml({name: value for name, value in GOOD.items() if name != key}))
    name = "no contract" if key == "contract" else "stage-slice"
    assert sentence(path) == (
        f"{path}: entry 1 ({name}): {key!r} is missing; an entry has contract, subjects, "
        "condition, bound, reproduce, reference, expires"
    )


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("schema = = 1", "no TOML: Invalid value (at line 1, column 10)"),
        ("", "schema = 1 is expected, got None"),
        ("schema = 2", "schema = 1 is expected, got 2"),
        ("schema = 1\nknow = 1", "unknown key 'know'; entries are [[known]]"),
        ("schema = 1\nknown = 5", "known: write each entry as a table that begins with [[known]]"),
        ("schema = 1\n[known]", "known: write each entry as a table that begins with [[known]]"),
        ("schema = 1\nknown = [5]", "known: write each entry as a table that begins with"),
    ],
)
def test_bad_file(raw: str, said: str, written: Callable[..., Path]) -> None:
    """Red when a file that is no ledger is taken for an empty one."""
    path = written(raw=raw)
    assert sentence(path).startswith(f"{path}: {said}")


def test_unreadable_file(tmp_path: Path) -> None:
    """Red when a file that cannot be read ends in a traceback, or passes for an empty ledger."""
    assert sentence(tmp_path / "no.toml") == f"{tmp_path}/no.toml: No such file or directory"
    assert sentence(tmp_path) == f"{tmp_path}: Is a directory"
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert sentence(binary).startswith(f"{binary}: no TOML: 'utf-8' codec can't decode")


def test_good_ledger(ledger: Callable[..., Ledger]) -> None:
    """Red when a good entry is refused, on its last day too, or read as something else."""
    one, other = ledger({"expires": TODAY}, {"bound": "no factor", "condition": "true"}).entries
    assert (one.name, other.name) == ("entry 1 (stage-slice)", "entry 2 (stage-slice)")
    assert (one.bound, other.bound) == (2.0, None)
    assert one.reproduce == Deployment.from_json(REPRODUCE)
    assert ledger() == EMPTY


def test_the_shipped_ledger_is_good() -> None:
    """Red when the ledger that comes with the suite is bad input, or has expired."""
    load(shipped())


# -- what an entry knows ---------------------------------------------------------------------------


def violation(factor: float | None, contract: str = "stage-slice") -> Violation:
    return Violation(
        contract=contract,
        rank=0,
        component=None,
        observed=2,
        expected=1,
        factor=factor,
        message=f"{contract}: …",
    )


def subject(version: str = "0.5.12") -> SubjectInfo:
    return SubjectInfo(label="it", version=version, era="test")


PP2 = observations.deployment(0, 0, pp_size=2)
PP1 = PP2.single_rank()


@pytest.mark.parametrize(
    ("bound", "factor", "borne"),
    [
        (1.02, 1.02, True),
        (1.02, 1.021, False),
        (1.02, 0.985, True),
        (1.02, 0.97, False),
        (2, 0.5, True),
        (2, 0.0, False),
        (2, -1.0, False),
        (2, None, False),
        ("no factor", None, True),
        ("no factor", 1.0, False),
    ],
)
def test_bears(bound: JSON, factor: float | None, borne: bool, entry: Callable[..., Entry]) -> None:
    """Red when a bound bears what is farther from 1 than it, up or down, or what has no factor."""
    assert entry(bound=bound).bears(violation(factor)) is borne


@pytest.mark.parametrize(
    ("version", "subjects", "covered"),
    [
        ("0.5.12", ">=0.5.12,<0.5.14", True),
        ("0.5.12.post1", ">=0.5.12,<0.5.14", True),
        ("0.5.13rc1", ">=0.5.12,<0.5.14", True),
        ("0.5.13+cu130", ">=0.5.12,<0.5.14", True),
        ("0.5.14", ">=0.5.12,<0.5.14", False),
        ("0.0.0.dev0", "<0.5.14", False),
        ("0.5.13.dev7+g1a2b3c", ">=0.5.12,<0.5.14", False),
        ("0.5.13.dev7", "==0.5.*", False),
        ("0.0.0.dev0", "", False),
        ("0.0.0.dev0", "==0.0.0.dev0", True),
        ("unknown", "", False),
    ],
)
def test_subjects(
    version: str, subjects: str, covered: bool, ledger: Callable[..., Ledger]
) -> None:
    """Red when an entry speaks of another release, or of a checkout that it does not name."""
    known = ledger({"subjects": subjects})
    assert known.covers(violation(2.0), PP2, subject(version)) is covered
    assert bool(known.of("stage-slice", subject(version))) is covered


def test_covers(ledger: Callable[..., Ledger]) -> None:
    """Red when a violation is known by an entry of another contract, condition or bound, or only
    the first entry counts."""
    known = ledger({"bound": 2}, {"bound": 4, "condition": "pp_size > 1 and layers < 3"})
    assert known.covers(violation(4.0), PP2, subject())
    assert not known.covers(violation(4.1), PP2, subject())
    assert not known.covers(violation(2.0), PP1, subject())
    assert not known.covers(violation(4.0), observations.deployment(0, 0, 0, pp_size=2), subject())
    assert not known.covers(violation(2.0, "layer-counts"), PP2, subject())
    assert not EMPTY.covers(violation(2.0), PP2, subject())


def test_nearest(ledger: Callable[..., Ledger]) -> None:
    """Red when the entry that is shown is not the widest of those that speak of a violation."""
    known = ledger({"bound": "no factor"}, {"bound": 3}, {"bound": 2}, {"contract": "rank-sum"})
    assert known.nearest(violation(9.0), PP2, subject()) is known.entries[1]
    assert known.nearest(violation(9.0), PP1, subject()) is None
    assert known.nearest(violation(9.0), PP2, subject("0.5.14")) is None
    assert known.nearest(violation(9.0, "layer-counts"), PP2, subject()) is None


def test_of(ledger: Callable[..., Ledger]) -> None:
    """Red when the entries to look after are not those of the contract and the subject."""
    known = ledger({}, {"contract": "rank-sum"}, {"subjects": "==0.5.13"})
    assert known.of("stage-slice", subject()) == known.entries[:1]
    assert known.of("stage-slice", subject("0.5.13")) == (known.entries[0], known.entries[2])
    assert known.of("pp1-identity", subject()) == ()


EAGLE = Speculation(algorithm="EAGLE")
SHAPE = Model(num_hidden_layers=2, compress_ratios=(0, 4, 0), sliding_window=256, model_type="x")
#: By field: a condition, a deployment on which it holds, and one on which it does not.
CONDITIONS: dict[str, list[tuple[str, Deployment, Deployment]]] = {
    "pp_size": [("pp_size == 2", PP2, PP1)],
    "partitioned": [
        ("partitioned", observations.deployment(0, 0, pp_size=2, partition=(1, 1)), PP2),
        ("not partitioned", PP2, observations.deployment(0, 0, pp_size=2, partition=(1, 1))),
    ],
    "layers": [("layers < 3", PP1, observations.deployment(0, 0, 0))],
    "ratios": [
        (
            "128 in ratios",
            observations.deployment(0, 128),
            observations.deployment(0, beyond=(128,)),
        ),
        ("ratios.length == 2", PP1, observations.deployment(0)),
        ("[r for r in ratios if r == 4].length > 1", observations.deployment(4, 4), PP1),
        ("ratios[1] == 4", observations.deployment(0, 4), observations.deployment(4)),
    ],
    "extra_entries": [("extra_entries > 0", observations.deployment(0, beyond=(0,)), PP1)],
    "model_type": [("model_type =~ 'deepseek.*'", PP1, Deployment(model=SHAPE, budget=1))],
    "window": [("window > 128", Deployment(model=SHAPE, budget=1), PP1)],
    "speculation": [
        ("speculation == 'EAGLE'", observations.deployment(0, speculation=EAGLE), PP1),
        ("speculation == null", PP1, observations.deployment(0, speculation=EAGLE)),
        ("'EA' in speculation", observations.deployment(0, speculation=EAGLE), PP1),
    ],
    "swa_ratio": [
        ("swa_ratio == 0.1", observations.deployment(0, swa_full_tokens_ratio=0.1), PP1),
        ("swa_ratio > 0.1", observations.deployment(0, swa_full_tokens_ratio=0.2), PP1),
        ("swa_ratio == null", PP1, observations.deployment(0, swa_full_tokens_ratio=0.2)),
    ],
    "max_running_requests": [
        ("max_running_requests <= 8", observations.deployment(0, max_running_requests=8), PP1),
        (
            "max_running_requests <= 8",
            observations.deployment(0, max_running_requests=8),
            observations.deployment(0, max_running_requests="8"),
        ),
    ],
    "max_total_tokens": [
        ("max_total_tokens * 2 > 9", observations.deployment(0, max_total_tokens=5), PP1)
    ],
    "budget": [("budget >= 1073741824", PP1, PP1.with_budget((1 << 30) - 1))],
    "server_args": [
        ("'page_size' in server_args", observations.deployment(0, page_size=128), PP1),
        ("server_args['page_size'] == 128", observations.deployment(0, page_size=128), PP1),
        ("not ('page_size' in server_args)", PP1, observations.deployment(0, page_size=128)),
    ],
    "env": [
        ("'SGLANG_X' in env", dataclasses.replace(PP1, env={"SGLANG_X": "1"}), PP1),
        ("env['SGLANG_X'] == '1'", dataclasses.replace(PP1, env={"SGLANG_X": "1"}), PP1),
    ],
}


@pytest.mark.parametrize("field", FIELDS)
def test_condition(field: str, entry: Callable[..., Entry]) -> None:
    """Red when a condition cannot speak of a field, reads another thing as it, or ends a trial on
    a deployment that does not state it."""
    for condition, met, unmet in CONDITIONS[field]:
        one = entry(condition=condition, reproduce=json.dumps(met.to_json()))
        assert one.speaks_of("stage-slice", met, subject())
        assert not one.speaks_of("stage-slice", unmet, subject())


# -- what a trial makes of it ----------------------------------------------------------------------


class Broken(Client):
    """A subject of whose ranks every one counts the layers of the whole model."""

    def __init__(self, version: str = "0.5.12") -> None:
        super().__init__(Subject(label=version, python=Path("none"), paths=(), kind="release"))
        self._info = subject(version)

    def observe(self, request: Request) -> Observation:
        given = Evidence(observations=(observations.observe(request),))
        return observations.ignoring_stages(given).observation


class Sound(Broken):
    """A subject that is consistent."""

    def observe(self, request: Request) -> Observation:
        return observations.observe(request)


ALWAYS = {"condition": "pp_size > 1 or extra_entries > 0", "bound": 99}


def decided(client: Client, ledger: Ledger) -> Trial:
    (trial,) = tried(client, "stage-slice", ledger=ledger, profile=PROFILES["dev"]).values()
    return trial


def test_known_violations_make_no_verdict(ledger: Callable[..., Ledger]) -> None:
    """Red when a known violation violates, is not counted, or its factor is not told."""
    known = decided(Broken(), ledger(ALWAYS))
    assert (known.verdict, known.finding, known.examples) == (Verdict.HELD, None, ())
    assert 10 < known.known < known.deployments
    assert known.factor is not None
    assert known.factor > 2
    assert f"  {known.known} known" in trial_line(known)


def test_without_an_entry_they_do(ledger: Callable[..., Ledger]) -> None:
    """Red when a violation is known by no entry and yet counted as known."""
    for known in (EMPTY, ledger({**ALWAYS, "subjects": "==0.5.13"})):
        trial = decided(Broken(), known)
        assert (trial.verdict, trial.known) == (Verdict.VIOLATED, 0)
        assert "known" not in trial_line(trial)


def test_worse_than_known(ledger: Callable[..., Ledger]) -> None:
    """Red when a violation beyond the bound is known, or the finding is one within it."""
    low = ledger({**ALWAYS, "bound": 2})
    trial = decided(Broken(), low)
    assert trial.verdict is Verdict.VIOLATED
    assert trial.known > 0
    for finding in (trial.finding, *trial.examples):
        assert finding is not None
        assert finding.violation.factor is not None
        assert finding.violation.factor > 2
        assert ledger_line(low, finding, Broken().info).startswith("worse than known: ")


def test_stale(entry: Callable[..., Entry]) -> None:
    """Red when an entry that is no longer true, or was never, is not told from one that is."""
    assert stale(entry(bound=2), Broken()) is None
    assert stale(entry(bound=2), Sound("0.5.13")) == (
        "entry 1 (stage-slice): its deployment no longer violates on 0.5.13: remove the entry"
    )
    for bound in (1.5, "no factor"):
        assert stale(entry(bound=bound), Broken()) == (
            "entry 1 (stage-slice): its deployment now violates by 2.0 on 0.5.12: correct its bound"
        )


@pytest.mark.parametrize(
    ("bound", "line"),
    [
        (
            1.5,
            "worse than known: entry 1 (stage-slice) bears up to ×1.5 (sgl-project/sglang#25750)",
        ),
        (96, "worse than known: entry 1 (stage-slice) bears up to ×96 (sgl-project/sglang#25750)"),
        (
            "no factor",
            "worse than known: entry 1 (stage-slice) bears without a factor "
            "(sgl-project/sglang#25750)",
        ),
        (None, "not known; fix it, or record it with a bound and a reference (docs/ledger.md)"),
    ],
)
def test_ledger_line(bound: JSON, line: str, ledger: Callable[..., Ledger]) -> None:
    """Red when what the gate says of a violation that is not known is another sentence."""
    known = EMPTY if bound is None else ledger({"bound": bound})
    finding = Finding(violation=violation(97.0), deployment=PP2, stages="[0,1)[1,2)")
    assert ledger_line(known, finding, subject()) == line
    shown = text(finding, subject="0.5.12", replay="…", ledger=line).splitlines()
    assert shown[-1] == f"  ledger: {line}"


# -- the command line and the gate -----------------------------------------------------------------

JUDGE = ("judge", "--contract", "stage-slice", "--profile", "dev")


@pytest.fixture
def judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run ``judge``; the exit code, what is written to standard output, and to standard error."""
    monkeypatch.chdir(tmp_path)

    def ended(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["contracts", *JUDGE, *map(str, words)])
        with pytest.raises(SystemExit) as raised:
            cli.run()
        assert isinstance(raised.value.code, int)
        return (int(raised.value.code), *capfd.readouterr())

    return ended


def test_judge_with_a_bad_ledger(
    judged: Callable[..., tuple[int, str, str]], written: Callable[..., Path]
) -> None:
    """Red when a bad ledger is no bad input, or something is judged all the same."""
    path = written({"condition": "pp_sise > 1"})
    code, out, err = judged("--ledger", path)
    assert (code, out) == (2, "")
    assert (
        f"Error: {path}: entry 1 (stage-slice): condition: no field 'pp_sise'; did you mean "
        "'pp_size'?"
    ) in err
    assert judged("--ledger", "no.toml")[0] == 2


def test_judge_with_a_ledger(
    judged: Callable[..., tuple[int, str, str]], written: Callable[..., Path], tmp_path: Path
) -> None:
    """Red when judge consults a ledger unasked, or does not when it is asked."""
    (tmp_path / "fake").mkdir()
    fake = fake_worker.install(tmp_path / "fake", observe="ignore stages").python
    path = written({**ALWAYS, "subjects": "==0.0", "expires": datetime.date(9999, 12, 31)})
    code, out, _ = judged("--sglang", fake, "--ledger", path, "--json", "-")
    (trial,) = json.loads(out)["contracts"]
    assert (code, trial["verdict"], trial["known"] > 0) == (0, "held", True)
    code, out, _ = judged("--sglang", fake, "--json", "-")
    (trial,) = json.loads(out)["contracts"]
    assert (code, trial["verdict"], trial["known"]) == (1, "violated", 0)


def test_the_gate_with_an_expired_ledger(written: Callable[..., Path]) -> None:
    """Red when the gate judges by a ledger that is bad input, or does not say what to do."""
    path = written({"expires": datetime.date(2020, 1, 1)})
    command = [sys.executable, "-m", "pytest", "tests/gate", "-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, "--ledger", str(path)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert f"{path}: entry 1 (stage-slice): it expired on 2020-01-01: look whether" in ended.stderr


# -- the documents ---------------------------------------------------------------------------------

TYPES = {
    "FLOAT": "number",
    "STRING": "text",
    "BOOLEAN": "true or false",
    "ARRAY": "list of numbers",
    "MAPPING": "mapping",
}


def test_the_page_lists_the_fields() -> None:
    """Red when a field of a condition changes and docs/ledger.md does not."""
    rows = [f"| `{name}` | {TYPES[kind.name]} | {said} |" for name, (kind, said) in FIELDS.items()]
    table = "\n".join(["| field | type | meaning |", "|---|---|---|", *rows, "", ""])
    assert table in PAGE, f"docs/ledger.md should say:\n{table}"


def test_the_page_lists_the_keys() -> None:
    """Red when a key of an entry changes and docs/ledger.md does not."""
    table = PAGE.split("| key | meaning |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(GOOD)


def test_the_conditions_of_the_page(entry: Callable[..., Entry]) -> None:
    """Red when docs/ledger.md shows a condition that is refused."""
    met = observations.deployment(0, 128, pp_size=2, speculation=EAGLE, enable_hisparse=True)
    conditions = PAGE.split("For instance ")[1].split(". A condition")[0]
    shown = re.findall(r"`([^`]+)`", conditions)
    assert len(shown) == 5
    for condition in shown:
        entry(condition=condition, reproduce=json.dumps(met.to_json()))


def accepted(document: JSON) -> bool:
    """Whether the schema admits a parsed ledger, as an editor sees it."""
    docs = {
        name: json.loads((ROOT / "docs" / name).read_text(encoding="utf-8"))
        for name in ("known-violations.schema.json", "deployment.schema.json")
    }
    registry: Registry[Any] = Registry().with_resources(
        [(name, Resource.from_contents(content)) for name, content in docs.items()]
    )
    seen = json.loads(json.dumps(document, default=lambda date: date.isoformat()))
    validator = Draft202012Validator(
        docs["known-violations.schema.json"],
        registry=registry,
        format_checker=Draft202012Validator.FORMAT_CHECKER,
    )
    reader = Draft202012Validator(docs["deployment.schema.json"], registry=registry)
    return validator.is_valid(seen) and all(
        reader.is_valid(json.loads(one["reproduce"])) for one in seen.get("known", [])
    )


def test_the_schema_admits_what_is_good(tmp_path: Path) -> None:
    """Red when the shipped ledger or the page's example is refused, by the schema or by us."""
    assert accepted(tomllib.loads(shipped().read_text(encoding="utf-8")))
    assert accepted(tomllib.loads(EXAMPLE))
    path = tmp_path / "example.toml"
    path.write_text(EXAMPLE, encoding="utf-8")
    assert len(load(path, today=TODAY).entries) == 1


@pytest.mark.parametrize("bad", sorted(set(BAD) - UNSEEN))
def test_the_schema_refuses_what_is_bad(bad: str) -> None:
    """Red when an editor that knows the schema accepts an entry that we refuse."""
    assert not accepted({"schema": 1, "known": [{**GOOD, **BAD[bad][0]}]})


def test_the_schema_knows_every_key() -> None:
    """Red when a key is added to an entry, or becomes optional, and the schema does not follow."""
    assert accepted({"schema": 1, "known": [GOOD]})
    for key in GOOD:
        entry = {name: value for name, value in GOOD.items() if name != key}
        assert not accepted({"schema": 1, "known": [entry]})
    assert not accepted({"known": []})
    assert not accepted({"schema": 2})
    assert not accepted({"schema": 1, "know": []})
