"""The command line as its users meet it: help, exit codes, sentences, streams."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from contracts import __version__, cli, law
from contracts.commands import common
from contracts.contract import Verdict, Violation
from contracts.examination import Finding
from contracts.hunt.case import load, save
from contracts.report.terminal import trials_table
from contracts.subject.resolve import Subject
from contracts.trial import Trial
from strategies.published import DEPLOYMENTS
from tests.unit import fake_worker, observations
from tests.unit.fake_worker import LAST_WORDS, lives

JSON = Any
ROOT = Path(__file__).parent.parent.parent
COMMAND = (sys.executable, "-m", "contracts")
ESCAPE = "\x1b"
#: Seconds after which a test gives up on a process: never reached when things are well.
PATIENCE = 60.0


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a run of the command line ended."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failing cases go to a folder of the test; the user's settings stay out."""
    monkeypatch.chdir(tmp_path)
    for name in ("SGLANG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run the entry point in this process; whatever it raises but SystemExit fails the test."""

    def ended(*words: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["contracts", *map(str, words)])
        with pytest.raises(SystemExit) as raised:
            cli.run()
        out, err = capsys.readouterr()
        assert isinstance(raised.value.code, int)
        return Ended(int(raised.value.code), out, err)

    return ended


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., Subject]:
    """Fake subjects; the path of their ``python`` names them."""

    def installed(name: str = "fake", **told: str) -> Subject:
        folder = tmp_path / name
        folder.mkdir()
        return fake_worker.install(folder, **told)

    return installed


def a_case(subject: str | Path, contract: str = "stage-slice") -> Path:
    """A saved case; on a consistent subject its contract holds."""
    violation = Violation(
        contract=contract,
        rank=0,
        component=None,
        observed=2,
        expected=1,
        factor=2.0,
        message=f"{contract}: rank 0 of 2: …",
    )
    deployment = observations.deployment(0, 4, pp_size=2)
    finding = Finding(violation=violation, deployment=deployment, stages="[0,1)[1,2)")
    return save(finding, subject=str(subject), baseline=None)


# -- what it teaches -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [None, *cli.main.commands])
def test_help_teaches(command: str | None, run: Callable[..., Ended]) -> None:
    """Red when a command's help has no example or does not tell its exit codes."""
    ended = run(*filter(None, [command]), "--help")
    assert (ended.code, ended.err) == (0, "")
    assert re.search(r"Examples?:\n +python -m contracts", ended.out)
    assert re.search(r"Exit codes?: 0", ended.out)
    if command is not None:
        assert f"  python -m contracts {command} " in ended.out.replace("\n", " \n")


@pytest.mark.parametrize("command", ["judge", "observe", "replay"])
def test_help_names_the_subject(command: str, run: Callable[..., Ended]) -> None:
    """Red when a command that needs a subject does not say what one is called."""
    assert "--sglang SUBJECT" in run(command, "-h").out


def test_every_command_that_is_promised() -> None:
    """Red when a command of the interface is gone."""
    assert {"list", "judge", "observe", "replay", "fetch"} <= set(cli.main.commands)


def test_version(run: Callable[..., Ended]) -> None:
    """Red when --version does not say the version."""
    ended = run("--version")
    assert ended.code == 0
    assert __version__ in ended.out


def test_list_shows_each_statement(run: Callable[..., Ended]) -> None:
    """Red when a contract is missing from the list, or its statement is cut or wrapped."""
    ended = run("list")
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split(maxsplit=1) for line in ended.out.splitlines()]
    assert lines == [[contract.id, contract.statement] for contract in law.ALL.values()]


# -- bad input: exit code 2, one sentence, no traceback --------------------------------------------

DEPLOYMENT: dict[str, JSON] = DEPLOYMENTS[0].deployment.to_json()
CASE: dict[str, JSON] = {
    "schema": 1,
    "contract": "stage-slice",
    "subject": "0.5.12",
    "baseline": None,
    "deployment": DEPLOYMENT,
    "message": "stage-slice: rank 1 of 2: …",
}

#: The words of the command, what stands in the file ``given``, and what the sentence must say.
BAD: dict[str, tuple[str, JSON, str]] = {
    "unknown command": ("jugde", None, "No such command 'jugde'"),
    "unknown option": ("judge --contrat x", None, "No such option '--contrat'"),
    "unknown contract": (
        "judge --contract stage-slize",
        None,
        "no contract 'stage-slize'; did you mean 'stage-slice'?",
    ),
    "unknown profile": ("judge --profile fast", None, "'fast' is not one of 'gate'"),
    "unknown device": ("judge --device tpu", None, "'tpu' is not one of 'meta'"),
    "no baseline": (
        "judge --contract pp1-unchanged",
        None,
        "pp1-unchanged compares with another SGLang; name it with --baseline",
    ),
    "unknown release": (
        "judge --sglang 0.5.12.post9",
        None,
        "SGLang 0.5.12.post9 is not a known release; the nearest that are known: "
        "0.5.12.post1, 0.5.13",
    ),
    "a release before the pool": ("judge --sglang 0.5.11", None, "the first release that has it"),
    "no release number": (
        "observe --sglang 0.5.l2",
        None,
        "'0.5.l2' is no release number; the nearest that are known: ",
    ),
    "unknown baseline": (
        "judge --sglang FAKE --baseline 0.5.12.post9",
        None,
        "SGLang 0.5.12.post9 is not a known release",
    ),
    "a folder that is no SGLang": (
        "judge --sglang .",
        None,
        "is no SGLang checkout: it has neither sglang/srt nor python/sglang/srt",
    ),
    "a file that is no SGLang": (
        "observe --sglang given",
        {},
        "given is a file that cannot be run",
    ),
    "a path that is not there": ("judge --sglang ./nowhere", None, "./nowhere does not exist"),
    "nothing to fetch": ("fetch", None, "Missing argument 'SUBJECT…'"),
    "fetch of no release": ("fetch 0.5.12.post9", None, "is not a known release"),
    "a wrong field": (
        "observe --deployment given",
        {**DEPLOYMENT, "pp_sise": 2},
        "given: pp_sise: unknown field; did you mean 'pp_size'?",
    ),
    "no deployment file": ("observe --deployment nowhere", None, "nowhere: No such file"),
    "a deployment and options": (
        "observe --deployment given --pp-size 2 --max-running-requests 8",
        DEPLOYMENT,
        "--deployment states everything; leave out --pp-size, --max-running-requests, 8",
    ),
    "budget": ("observe --budget 60GB?", None, "--budget: '60GB?' is no size in bytes; write"),
    "partition": (
        "observe --partition 10,11",
        None,
        "partition 10,11 sums to 21 but the model has 43 layers",
    ),
    "no rank": ("observe --pp-size 0", None, "0 is not in the range x>=1"),
    "unknown model": ("observe --model deepseek-v4-flsh", None, "did you mean 'deepseek-v4-flash'"),
    "no case": ("replay nowhere.json", None, "nowhere.json: No such file or directory"),
    "a case that is no case": ("replay given", DEPLOYMENT, "given: no failing case of schema 1"),
    "a case of the future": ("replay given", {**CASE, "schema": 2}, "no failing case of schema 1"),
    "a case without contract": (
        "replay given",
        {name: value for name, value in CASE.items() if name != "contract"},
        "given: field 'contract' is missing",
    ),
    "a case of no contract": (
        "replay given",
        {**CASE, "contract": 5},
        "given: contract: a text is expected, got 5",
    ),
    "a case of no subject": (
        "replay given",
        {**CASE, "subject": None},
        "given: subject: a text is expected, got None",
    ),
    "a case with a wrong field": (
        "replay given",
        {**CASE, "deployment": {"budget": 1}},
        "given: deployment: model: missing",
    ),
    "an argument that SGLang refuses": (
        "observe --sglang FAKE --fake refuse",
        None,
        "SGLang refuses this deployment (ValueError): I would rather not.",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input(bad: str, run: Callable[..., Ended], fake: Callable[..., Subject]) -> None:
    """Red when bad input is not answered with exit code 2 and one sentence that says what is
    wrong, on standard error alone."""
    words, content, sentence = BAD[bad]
    if content is not None:
        Path("given").write_text(json.dumps(content), encoding="utf-8")
    if "FAKE" in words:
        words = words.replace("FAKE", str(fake().python))
    ended = run(*words.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("Error: ") == 1
    assert sentence in ended.err.splitlines()[-1]
    assert ended.err.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize("text", ["{", "\xff"])
def test_a_case_that_is_no_json(text: str, run: Callable[..., Ended]) -> None:
    """Red when a broken case file is a traceback."""
    Path("given").write_bytes(text.encode("latin-1"))
    ended = run("replay", "given")
    assert ended.code == 2
    assert "Error: given: no JSON: " in ended.err


def test_no_traceback_from_the_real_process() -> None:
    """Red when ``python -m contracts`` does not end through the same entry point."""
    ended = in_a_pipe("observe", "--budget", "60GB?")
    assert ended.code == 2
    assert "Traceback" not in ended.err
    assert ended.err.splitlines()[-1].startswith("Error: --budget: '60GB?' is no size")


# -- judge -----------------------------------------------------------------------------------------

JUDGE = ("judge", "--profile", "dev", "--contract", "stage-slice")


def test_held(run: Callable[..., Ended], fake: Callable[..., Subject]) -> None:
    """Red when a contract that holds does not end with 0, or is not shown as held."""
    ended = run(*JUDGE, "--sglang", fake().python)
    assert ended.code == 0
    assert re.search(r"stage-slice +held", ended.out)


def test_violated(run: Callable[..., Ended], fake: Callable[..., Subject]) -> None:
    """Red when a violation does not end with 1, is not shown in its three lines, or what is shown
    for a replay does not replay it."""
    subject = fake(observe="ignore stages").python
    ended = run(*JUDGE, "--sglang", subject)
    assert ended.code == 1
    assert re.search(r"stage-slice +violated", ended.out)
    message, deployment, replay, *_ = ended.out.splitlines()
    assert message.startswith("stage-slice: rank ")
    # A layer, and an entry beyond the decoder that is counted all the same.
    assert re.match(r"  \[layers=1 ratios=\(0, 0\) pp=1 .* sglang=.*\]", deployment)
    assert replay.startswith("  replay: python -m contracts replay .contracts/stage-slice-")
    again = run(*replay.split()[4:])
    assert again.code == 1
    assert again.out.splitlines()[0] == "FAILED"
    assert again.out.splitlines()[1] == message


def test_nothing_judged(run: Callable[..., Ended], fake: Callable[..., Subject]) -> None:
    """Red when a subject that dies on a deployment passes for one on which all is well."""
    ended = run(*JUDGE, "--sglang", fake(observe="exit").python)
    assert ended.code == 3
    assert "not judged" in ended.out
    assert LAST_WORDS in ended.out


def test_a_reason_is_shown_as_it_is() -> None:
    """Red when the deployment in brackets is taken for markup, and is gone."""
    reason = "the worker died by SIGKILL [layers=2 ratios=(0, 4) pp=1 budget=1 GiB]"
    trial = Trial(
        contract="stage-slice",
        verdict=Verdict.NOT_JUDGED,
        deployments=1,
        rejected=0,
        reason=reason,
    )
    console = Console(file=io.StringIO(), width=300)
    with console.capture() as capture:
        console.print(trials_table([trial]))
    assert reason in capture.get()


@pytest.mark.parametrize("command", [JUDGE, ("observe",)])
def test_a_subject_that_does_not_load(
    command: tuple[str, ...], run: Callable[..., Ended], fake: Callable[..., Subject]
) -> None:
    """Red when a subject that does not load is a traceback, or anything but 3."""
    ended = run(*command, "--sglang", fake(hello="exit").python)
    assert (ended.code, ended.out) == (3, "")
    assert re.search(rf"Error: .* cannot be read: the worker died .*{LAST_WORDS}", ended.err)


def test_the_subject_of_the_environment(
    run: Callable[..., Ended], fake: Callable[..., Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when $SGLANG does not name the subject."""
    monkeypatch.setenv("SGLANG", str(fake().python))
    assert run(*JUDGE).code == 0


def test_a_baseline(run: Callable[..., Ended], fake: Callable[..., Subject]) -> None:
    """Red when --baseline does not bring in the contract that compares, or it judges nothing."""
    subject, baseline = fake("one").python, fake("other").python
    words = ("judge", "--profile", "dev", "--contract", "pp1-unchanged")
    ended = run(*words, "--sglang", subject, "--baseline", baseline)
    assert ended.code == 0
    assert re.search(r"pp1-unchanged +held", ended.out)


def test_judge_json(run: Callable[..., Ended], fake: Callable[..., Subject]) -> None:
    """Red when --json - mixes anything else into standard output, or keeps the tables back."""
    ended = run(*JUDGE, "--sglang", fake(observe="ignore stages").python, "--json", "-")
    document = json.loads(ended.out)
    assert document["schema"] == 1
    assert document["profile"] == "dev"
    (contract,) = document["contracts"]
    assert (contract["id"], contract["verdict"]) == ("stage-slice", "violated")
    assert contract["violation"]["message"] in ended.err
    assert contract["violation"]["replay"] in ended.err
    assert re.search(r"stage-slice +violated", ended.err)


def test_judge_json_file(run: Callable[..., Ended], fake: Callable[..., Subject]) -> None:
    """Red when --json FILE takes the tables off standard output, or writes something else."""
    ended = run(*JUDGE, "--sglang", fake().python, "--json", "verdicts.json")
    assert re.search(r"stage-slice +held", ended.out)
    document = json.loads(Path("verdicts.json").read_text(encoding="utf-8"))
    assert document["contracts"][0]["verdict"] == "held"


def test_json_file_that_cannot_be_written(
    run: Callable[..., Ended], fake: Callable[..., Subject]
) -> None:
    """Red when a wrong place for the JSON is a traceback."""
    ended = run("observe", "--sglang", fake().python, "--json", "no/such/folder.json")
    assert ended.code == 2
    assert "Error: --json no/such/folder.json: there is no such folder" in ended.err


# -- observe ---------------------------------------------------------------------------------------


def test_observe(run: Callable[..., Ended], fake: Callable[..., Subject]) -> None:
    """Red when a rank or a component is not shown."""
    ended = run("observe", "--sglang", fake().python, "--pp-size", "2", "--budget", "1GiB")
    assert ended.code == 0
    assert "rank 0 of 2 [0,21): 4,096 tokens" in ended.out
    assert "rank 1 of 2 [21,43): 4,096 tokens" in ended.out
    assert all(ended.out.count(name) == 2 for name in observations.PARTS)


def test_observe_json(
    run: Callable[..., Ended], fake: Callable[..., Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when what observe writes cannot be parsed, or cannot be observed again."""
    subject = fake().python
    first = run("observe", "--sglang", subject, "--partition", "20,23", "--json", "-")
    document = json.loads(first.out)
    assert document["deployment"]["partition"] == [20, 23]
    assert "rank 1 of 2" in first.err
    monkeypatch.setattr("sys.stdin", io.StringIO(first.out))
    second = run("observe", "--sglang", subject, "--deployment", "-", "--json", "-")
    assert json.loads(second.out) == document


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ("fail", "SGLang failed in sizing: ValueError: I would rather not."),
        ("be unreadable", "the subject could not be observed: sizing: ValueError: I would"),
        (
            "exit",
            f"the subject could not be observed: the worker died with exit code 7: {LAST_WORDS}",
        ),
    ],
)
def test_what_cannot_be_observed(
    told: str, sentence: str, run: Callable[..., Ended], fake: Callable[..., Subject]
) -> None:
    """Red when a subject that cannot be observed ends with anything but 3 and the reason."""
    ended = run("observe", "--sglang", fake(observe=told).python, "--json", "-")
    assert (ended.code, ended.out) == (3, "")
    assert f"Error: {sentence}" in ended.err


# -- replay ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "code", "answer"),
    [
        ("answer", 0, "FIXED"),
        ("ignore stages", 1, "FAILED"),
        ("refuse", 3, "ERROR"),
        ("exit", 3, "ERROR"),
    ],
)
def test_replay(
    told: str, code: int, answer: str, run: Callable[..., Ended], fake: Callable[..., Subject]
) -> None:
    """Red when one of the three answers is given for another, or with another exit code."""
    ended = run("replay", a_case(fake(observe=told).python))
    assert ended.code == code
    assert ended.out.splitlines()[0] == answer


def test_replay_on_another_subject(run: Callable[..., Ended], fake: Callable[..., Subject]) -> None:
    """Red when --sglang does not override the subject of the case."""
    case = a_case(fake("failing", observe="ignore stages").python)
    assert run("replay", case, "--sglang", fake("fixed").python).code == 0


def test_replay_of_an_unknown_contract(
    run: Callable[..., Ended], fake: Callable[..., Subject]
) -> None:
    """Red when a case of a contract that this suite does not know passes for fixed."""
    ended = run("replay", a_case(fake().python, contract="stage-slize"))
    assert ended.code == 3
    assert ended.out.splitlines() == [
        "ERROR",
        "no contract 'stage-slize'; did you mean 'stage-slice'?",
    ]


def test_a_case_goes_round() -> None:
    """Red when a saved case is not what is loaded."""
    case = load(a_case("0.5.12"))
    assert (case.contract, case.subject, case.baseline) == ("stage-slice", "0.5.12", None)
    assert case.deployment == observations.deployment(0, 4, pp_size=2)
    assert not list(Path(".contracts").glob("*.tmp"))


# -- the process -----------------------------------------------------------------------------------


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Processes of the command line, in a session of their own, ended after the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*words: str | Path, **streams: Any) -> subprocess.Popen[str]:
        options = {"stderr": subprocess.PIPE, "encoding": "utf-8", "start_new_session": True}
        processes.append(subprocess.Popen([*COMMAND, *map(str, words)], **{**options, **streams}))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_interrupt(
    started: Callable[..., subprocess.Popen[str]], fake: Callable[..., Subject]
) -> None:
    """Red when an interrupt from the terminal looks like a verdict, prints a traceback, reaches
    the worker or leaves it behind."""
    subject = fake()
    bell = os.open(subject.python.parent / "bell", os.O_RDONLY | os.O_NONBLOCK)
    words = ("observe", "--sglang", subject.python, "--fake", "ring and hang")
    # A shell that puts the tests into the background has them ignore interrupts; a process that
    # is started then would ignore them too, and a terminal's user is not in that case.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = started(*words, stdout=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stderr is not None
    heard, _, _ = select.select([bell, process.stderr.fileno()], [], [], PATIENCE)
    os.close(bell)
    assert bell in heard
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "interrupted; there is no verdict"
    (worker,) = lives(subject)
    assert not worker.alive
    assert "interrupted" not in worker.events


@pytest.mark.parametrize("words", [("list",), ("observe", "--json", "-")], ids=str)
def test_a_broken_pipe_is_quiet_and_no_verdict(
    words: tuple[str, ...],
    started: Callable[..., subprocess.Popen[str]],
    fake: Callable[..., Subject],
) -> None:
    """Red when a reader such as head gets a traceback, or its leaving looks like a verdict."""
    subject = ("--sglang", fake().python) if words != ("list",) else ()
    reader, writer = os.pipe()
    os.close(reader)
    process = started(*words, *subject, stdout=writer)
    os.close(writer)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 141
    assert "Error" not in err
    assert "Traceback" not in err


def test_no_escape_codes_in_a_pipe(fake: Callable[..., Subject]) -> None:
    """Red when what is piped has colours or a progress bar in it."""
    words = (*JUDGE, "--sglang", str(fake(observe="ignore stages").python))
    ended = in_a_pipe(*words)
    assert "violated" in ended.out
    assert ESCAPE not in ended.out + ended.err


def in_a_pipe(*words: str) -> Ended:
    """A run of the real process."""
    command = [*COMMAND, *words]
    ended = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def in_a_terminal(*words: str, **environment: str) -> str:
    """What a command writes to a terminal."""
    master, slave = os.openpty()
    settings = {**os.environ, "TERM": "xterm-256color", **environment}
    with subprocess.Popen([*COMMAND, *words], stdout=slave, env=settings) as process:
        os.close(slave)
        written = b""
        try:
            while chunk := os.read(master, 1 << 16):
                written += chunk
        except OSError:  # EIO: Linux's way of saying that the other side is closed
            pass
        finally:
            os.close(master)
    assert process.returncode == 0
    return written.decode()


def colours(text: str) -> set[int]:
    """The numbers of the colours that escape codes in a text set."""
    codes = {
        int(code) for codes in re.findall(r"\x1b\[([\d;]+)m", text) for code in codes.split(";")
    }
    return {code for code in codes if 30 <= code <= 49 or 90 <= code <= 107}


def test_no_color() -> None:
    """Red when NO_COLOR does not keep colours out of a terminal."""
    assert colours(in_a_terminal("list"))
    assert not colours(in_a_terminal("list", NO_COLOR="1"))


# -- with a real SGLang ----------------------------------------------------------------------------


@pytest.mark.xdist_group("0.5.23")
def test_a_server_argument_that_sglang_does_not_have(
    run: Callable[..., Ended], clients: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when a mistyped server argument is not bad input that names it."""
    use(clients("0.5.23"), monkeypatch)
    ended = run("observe", "--max-runing-requests", "8")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1] == (
        "Error: SGLang refuses this deployment (ValueError): ServerArgs has no argument "
        "'max_runing_requests'; did you mean 'max_running_requests'?"
    )


@pytest.mark.xdist_group("0.5.23")
def test_observing_the_real_thing(
    run: Callable[..., Ended], clients: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when a real observation cannot be shown as a table and as JSON."""
    client = clients("0.5.23")
    use(client, monkeypatch)
    ended = run("observe", "--pp-size", "2", "--swa-full-tokens-ratio", "0.1", "--json", "-")
    assert ended.code == 0
    document = json.loads(ended.out)
    assert document["subject"] == {"label": "0.5.23", "version": "0.5.23", "era": client.info.era}
    assert [rank["pool"]["bytes"] > 0 for rank in document["ranks"]] == [True, True]
    assert "c4_indexer" in ended.err


def use(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command line use a client that is started, and not close it."""

    class Started:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __enter__(self) -> Any:
            return client

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(common, "Client", Started)
