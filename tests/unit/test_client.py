"""The parent's side of a worker, against a fake worker that dies, hangs or talks nonsense."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.contract import Request
from contracts.deployment import Deployment
from contracts.observation import (
    Capabilities,
    Failed,
    Observation,
    Outcome,
    Refused,
    Unreadable,
)
from contracts.subject.client import MAX_WORKERS, Client, SubjectUnreadable
from contracts.subject.resolve import Subject
from tests.unit import fake_worker, observations
from tests.unit.fake_worker import LAST_WORDS, SAID, lives

#: Seconds that a fake worker may take in a test in which it never answers.
SHORT = 0.3

#: What a fake is told to do, and the reason that the user reads.
DEATHS = {
    "exit": f"the worker died with exit code 7: {LAST_WORDS}",
    "exit slowly": "the worker died with exit code 7",
    "be killed": "the worker died by SIGKILL",
    "say half a line and exit": "the worker died with exit code 7",
    "say no json": "the worker's answer is no JSON: Expecting value",
    "say bytes": "the worker's answer is no JSON: ",
    "say a number": "the worker's answer is none of the protocol: 42",
}
HANGS = ("hang", "say half a line and hang")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Clients of one fake subject, closed after the test."""
    started: list[Client] = []

    def client(*, hello: str = "answer", observe: str = "answer", **options: Any) -> Client:
        subject = fake_worker.install(tmp_path, hello=hello, observe=observe)
        started.append(Client(subject, **options))
        return started[-1]

    yield client
    for one in started:
        one.close()


def ask(client: Client, tell: str = "answer", *, env: dict[str, str] | None = None) -> Outcome:
    """Ask for an observation; ``tell`` is what the fake worker is to do."""
    asked = observations.deployment(0, 4, 128, fake=tell)
    stated = Deployment(
        model=asked.model, budget=asked.budget, server_args=asked.server_args, env=env or {}
    )
    return client.observe(Request(deployment=stated, views=frozenset({"final"})))


def reason(outcome: Outcome) -> str:
    assert isinstance(outcome, Unreadable), outcome
    return outcome.reason


def test_an_answer_is_an_observation(start: Callable[..., Client]) -> None:
    """Red when what a worker answers is not read as the observation that it is."""
    client = start()
    asked = Request(deployment=observations.deployment(0, 4, pp_size=2), views=frozenset({"final"}))
    outcome = client.observe(asked)
    assert isinstance(outcome, Observation)
    assert outcome.ranks == observations.observe(asked).ranks
    assert outcome.final_tokens == observations.FINAL_TOKENS
    assert outcome.subject == client.info
    assert (client.info.label, client.info.version, client.info.era) == ("fake", "0.0", "fake")
    assert client.info.capabilities == Capabilities(algorithms=frozenset({"EAGLE"}))


def test_refused_failed_and_unreadable_are_told_apart(start: Callable[..., Client]) -> None:
    """Red when a subject's refusal, its failure and its unknown API look alike."""
    client = start()
    assert ask(client, "refuse") == Refused(**SAID)
    assert ask(client, "fail") == Failed(**SAID, traceback="Traceback …")
    assert ask(client, "be unreadable") == Unreadable(
        reason="sizing: ValueError: I would rather not.", traceback="Traceback …"
    )
    assert len(lives(client.subject)) == 1


@pytest.mark.parametrize("tell", DEATHS)
def test_what_goes_wrong_is_unreadable_and_the_next_request_works(
    tell: str, start: Callable[..., Client]
) -> None:
    """Red when a dead or babbling worker hangs the run, raises, or spoils what is asked next."""
    client = start()
    assert reason(ask(client, tell)).startswith(DEATHS[tell])
    assert isinstance(ask(client), Observation)
    assert [life.alive for life in lives(client.subject)] == [False, True]


@pytest.mark.parametrize("tell", HANGS)
def test_a_worker_that_hangs_is_ended_and_the_next_request_works(
    tell: str, start: Callable[..., Client]
) -> None:
    """Red when a hanging worker outlives its time-out, or the client does not recover from it."""
    client = start(request_timeout=SHORT)
    assert reason(ask(client, tell)) == "the worker gave no answer within 0.3 s and was ended"
    (ended,) = lives(client.subject)
    assert not ended.alive
    client._request_timeout = 60.0  # a busy machine must not make the answer late
    assert isinstance(ask(client), Observation)


@pytest.mark.parametrize("tell", DEATHS)
def test_what_goes_wrong_at_the_start(tell: str, start: Callable[..., Client]) -> None:
    """Red when a subject that does not load raises anything but SubjectUnreadable, is observed, or
    leaves its process behind."""
    client = start(hello=tell)
    with pytest.raises(SubjectUnreadable) as raised:
        _ = client.info
    assert str(raised.value).startswith(DEATHS[tell])
    assert reason(ask(client)).startswith(DEATHS[tell])
    assert [life.alive for life in lives(client.subject)] == [False, False]


def test_hanging_at_the_start(start: Callable[..., Client]) -> None:
    """Red when a subject whose import hangs is waited for without end."""
    client = start(hello="hang", start_timeout=SHORT)
    with pytest.raises(SubjectUnreadable, match=r"no answer within 0\.3 s"):
        _ = client.info
    # On a busy machine it is ended before it could note anything.
    assert not any(life.alive for life in lives(client.subject))


def test_a_subject_that_says_at_the_start_that_it_is_unreadable(
    start: Callable[..., Client],
) -> None:
    """Red when the reason that a worker gives for not loading is lost."""
    client = start(hello="be unreadable")
    with pytest.raises(SubjectUnreadable, match="sizing: ValueError: I would rather not"):
        _ = client.info
    assert [life.alive for life in lives(client.subject)] == [False]


def test_a_subject_that_cannot_be_started(tmp_path: Path) -> None:
    """Red when an interpreter that is gone becomes a traceback and not a reason."""
    gone = Subject(label="gone", python=tmp_path / "gone", paths=(), kind="interpreter")
    with Client(gone) as client:
        assert reason(ask(client)) == f"{tmp_path / 'gone'} does not start: " + os.strerror(2)


def test_a_worker_killed_between_requests(start: Callable[..., Client]) -> None:
    """Red when the death of an idle worker is noticed only by a traceback."""
    client = start()
    assert isinstance(ask(client), Observation)
    (worker,) = client._workers.values()
    os.kill(worker.pid, signal.SIGKILL)
    worker._process.wait()
    assert reason(ask(client, "refuse")) == "the worker died by SIGKILL"
    assert ask(client, "refuse") == Refused(**SAID)


class Interrupted(BaseException):
    """What a signal handler of the parent raises."""


def test_an_interrupt_while_waiting_does_not_mix_up_answers(
    start: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when the answer to an interrupted request is taken for that of the next one."""

    def raising(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, raising)
    try:
        client = start()
        with pytest.raises(Interrupted):
            ask(client, "interrupt")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ask(client, "refuse") == Refused(**SAID)


def test_what_has_been_observed_is_remembered(start: Callable[..., Client]) -> None:
    """Red when contracts that ask for the same observation do not share it, or when a passing
    trouble is remembered as if it were an answer."""
    client = start()
    assert ask(client) is ask(client)
    assert ask(client, "refuse") is ask(client, "refuse")
    assert ask(client, "be unreadable") is not ask(client, "be unreadable")
    (life,) = lives(client.subject)
    assert life.events == ["hello", "observe", "observe", "observe", "observe"]


def test_views_and_tokens_are_part_of_what_is_asked(start: Callable[..., Client]) -> None:
    """Red when a request is answered with what was observed for another one."""
    client, asked = start(), observations.deployment(0, 4)
    plain = client.observe(Request(deployment=asked))
    viewed = client.observe(Request(deployment=asked, views=frozenset({"final"})))
    at = client.observe(Request(deployment=asked, tokens=(512,)))
    unstaged = client.observe(Request(deployment=asked, pipeline=False))
    outcomes = (plain, viewed, at, unstaged)
    assert all(isinstance(outcome, Observation) for outcome in outcomes)
    assert len({id(outcome) for outcome in outcomes}) == 4


def test_an_unknown_environment_has_a_worker_of_its_own(start: Callable[..., Client]) -> None:
    """Red when what SGLang reads at import may be that of another deployment."""
    client = start()
    ask(client)
    ask(client, env={"SGLANG_X": "1"})
    ask(client, "refuse", env={"SGLANG_X": "1"})
    plain, stated = lives(client.subject)
    assert "SGLANG_X" not in plain.environ
    assert stated.environ["SGLANG_X"] == "1"
    assert stated.events == ["hello", "observe", "observe"]


def test_what_is_stated_for_an_observation_needs_no_worker_of_its_own(
    start: Callable[..., Client],
) -> None:
    """Red when a variable that SGLang reads anew costs a worker, or is in a worker's environment,
    where it would stay for the deployments that do not state it."""
    client = start()
    known = {"SGLANG_DSV4_COMPRESS_STATE_DTYPE": "bfloat16"}
    online = {"SGLANG_OPT_USE_ONLINE_COMPRESS": "1"}
    ask(client, env=known)
    ask(client)
    ask(client, env={**known, **online})
    ask(client, env=online)
    plain, early = lives(client.subject)
    assert plain.events == early.events == ["hello", "observe", "observe"]
    assert not known.keys() & {*plain.environ, *early.environ}
    assert online.keys() & {*plain.environ, *early.environ} == online.keys()
    assert "SGLANG_OPT_USE_ONLINE_COMPRESS" not in plain.environ


def test_what_is_stated_is_asked_for(start: Callable[..., Client]) -> None:
    """Red when what one deployment states is answered with what was observed without it."""
    client = start()
    known = {"SGLANG_DSV4_COMPRESS_STATE_DTYPE": "bfloat16"}
    stated = ask(client, env=known)
    assert isinstance(stated, Observation)
    assert stated.deployment.env == known
    assert ask(client) is not stated


def test_no_more_workers_than_allowed_and_the_longest_idle_one_goes(
    start: Callable[..., Client],
) -> None:
    """Red when workers of a gigabyte each pile up, or the busiest one is ended."""
    client = start()
    assert MAX_WORKERS == 2
    ask(client, env={"A": "1"})
    ask(client, env={"A": "2"})
    ask(client, "refuse", env={"A": "1"})
    ask(client, env={"A": "3"})
    assert [life.alive for life in lives(client.subject)] == [True, False, True]


def test_close_ends_all_workers_and_a_closed_client_starts_anew(
    start: Callable[..., Client],
) -> None:
    """Red when a worker outlives its client."""
    client = start()
    ask(client)
    ask(client, env={"A": "1"})
    client.close()
    assert [life.alive for life in lives(client.subject)] == [False, False]
    assert ask(client, "refuse") == Refused(**SAID)


def test_the_parents_environment_stays_out_of_imports(
    start: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when PYTHONPATH and its like decide which modules a foreign interpreter imports, or when
    a worker may reach for a network."""
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    monkeypatch.setenv("PYTHONHOME", "")
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    monkeypatch.setenv("SGLANG_KEPT", "yes")
    client = start()
    ask(client)
    (life,) = lives(client.subject)
    assert not {"PYTHONPATH", "PYTHONHOME", "PYTHONWARNINGS", "PYTEST_CURRENT_TEST"} & {
        *life.environ
    }
    assert life.environ["HF_HUB_OFFLINE"] == life.environ["TRANSFORMERS_OFFLINE"] == "1"
    assert life.environ["SGLANG_KEPT"] == "yes"


def test_a_worker_gets_the_subjects_paths(tmp_path: Path) -> None:
    """Red when a worker is not told where its SGLang is."""
    fake = fake_worker.install(tmp_path)
    subject = Subject(
        label="fake", python=fake.python, paths=(Path("/one"), Path("/two")), kind="release"
    )
    with Client(subject) as client:
        _ = client.info
    (life,) = lives(fake)
    assert Path(life.argv[1]).name == "worker.py"
    assert life.argv[2:] == ["/one", "/two"]


def test_an_interrupt_of_the_terminal_does_not_reach_a_worker(
    start: Callable[..., Client],
) -> None:
    """Red when workers are in the session of the terminal, whose interrupts go to all of it."""
    client = start()
    ask(client)
    (life,) = lives(client.subject)
    assert os.getsid(life.pid) == os.getpgid(life.pid) == life.pid


def test_what_a_worker_leaves_in_its_temporary_folder_goes_with_it(
    start: Callable[..., Client],
) -> None:
    """Red when every worker leaves a folder of models behind."""
    client = start()
    ask(client)
    (life,) = lives(client.subject)
    folder = Path(life.environ["TMPDIR"])
    assert folder.is_dir()
    (folder / "model").mkdir()
    client.close()
    assert not folder.exists()


def test_a_device_that_is_not_there(start: Callable[..., Client]) -> None:
    """Red when SGLang is said to refuse what no deployment can have: a GPU that is missing."""
    client = start(device="cuda")
    with pytest.raises(SubjectUnreadable, match="its torch finds no CUDA device"):
        _ = client.info
    request = Request(deployment=observations.deployment(4))
    assert client.observe(request) == Unreadable(
        reason="its torch finds no CUDA device on this machine"
    )
