"""A subject without an SGLang: an executable that speaks the worker's protocol.

It answers with the consistent observations of ``tests.unit.observations``, or does what it was
told when it was installed or what a deployment's server argument ``fake`` tells it. It notes what
happens to it in a folder, one file for each of its processes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from contracts.contract import Evidence, Request
from contracts.deployment import Deployment
from contracts.subject.resolve import Subject
from tests.unit import observations

JSON = Any
ROOT = Path(__file__).parent.parent.parent
LABEL = "fake"
LAST_WORDS = "RuntimeError: these are my last words"
SAID = {"where": "sizing", "kind": "ValueError", "sentence": "I would rather not."}

_SCRIPT = """#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.unit import fake_worker
fake_worker.main({folder!r}, {hello!r}, {observe!r})
"""


def install(folder: Path, *, hello: str = "answer", observe: str = "answer") -> Subject:
    """A fake subject in an empty folder, and what it does when it is asked.

    Its ``python`` also answers the questions by which ``resolve`` knows an interpreter.
    """
    pool = folder / "sglang" / "srt" / "mem_cache" / "deepseek_v4_memory_pool.py"
    pool.parent.mkdir(parents=True)
    pool.touch()
    (folder / "log").mkdir()
    os.mkfifo(folder / "bell")
    script = folder / "python"
    values = {"root": str(ROOT), "folder": str(folder), "hello": hello, "observe": observe}
    script.write_text(_SCRIPT.format(python=sys.executable, **values), encoding="utf-8")
    script.chmod(0o755)
    return Subject(label=LABEL, python=script, paths=(), kind="interpreter")


@dataclasses.dataclass(frozen=True, slots=True)
class Life:
    """What one process of a fake subject has noted, and whether it is still there."""

    pid: int
    argv: list[str]
    environ: dict[str, str]
    events: list[str]

    @property
    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


def lives(subject: Subject) -> list[Life]:
    """The processes that a fake subject has had, in the order of their starts."""
    found = []
    for log in sorted((subject.python.parent / "log").iterdir()):
        noted = log.read_text(encoding="utf-8").splitlines()
        if not noted:
            continue  # ended in the middle of its first note
        first, *events = map(json.loads, noted)
        found.append(Life(int(log.stem.split("-")[1]), first["argv"], first["environ"], events))
    return found


# -- in the fake's own process ---------------------------------------------------------------------


def main(folder: str, hello: str, observe: str) -> None:
    """Be an interpreter that is asked a question, or a worker."""
    if sys.argv[1] == "-c":
        places = [str(Path(folder, "sglang"))]
        _say({"version": [3, 11], "sglang": places, "torch": True})
        return
    _Fake(Path(folder), hello, observe).serve()


def _say(answer: JSON) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class _Fake:
    def __init__(self, folder: Path, hello: str, observe: str) -> None:
        self._folder = folder
        self._told = {"hello": hello, "observe": observe}
        earlier = len(list((folder / "log").iterdir()))
        self._log = folder / "log" / f"{earlier:03}-{os.getpid()}"
        self._note({"argv": sys.argv, "environ": dict(os.environ)})
        signal.signal(signal.SIGINT, lambda *_: self._note("interrupted"))

    def _note(self, event: JSON) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(event) + "\n")

    def serve(self) -> None:
        for line in sys.stdin:
            document = json.loads(line)
            operation = document["op"]
            self._note(operation)
            request = _request(document) if operation == "observe" else None
            stated = {} if request is None else request.deployment.server_args
            said = stated.get("fake", self._told[operation])
            getattr(self, said.replace(" ", "_"))(request)

    # What it can be told to do. To hang is to wait for an end of the requests.

    def answer(self, request: Request | None) -> None:
        _say(_hello() if request is None else _observed(observations.observe(request)))

    def exit(self, _request: Request | None) -> None:
        sys.stderr.write(f"first words\n{LAST_WORDS}\n\n")
        sys.exit(7)

    def exit_slowly(self, _request: Request | None) -> None:
        os.close(1)
        sum(range(3_000_000))
        os._exit(7)

    def be_killed(self, _request: Request | None) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self, _request: Request | None) -> None:
        sys.stdin.read()

    def ring_and_hang(self, _request: Request | None) -> None:
        (self._folder / "bell").write_text("rung\n", encoding="utf-8")
        sys.stdin.read()

    def interrupt(self, request: Request | None) -> None:
        os.kill(os.getppid(), signal.SIGUSR1)
        self.answer(request)

    def say_no_json(self, _request: Request | None) -> None:
        os.write(1, b"Loading weights: 100%\n")

    def say_bytes(self, _request: Request | None) -> None:
        os.write(1, b"\xff\xfe\n")

    def say_a_number(self, _request: Request | None) -> None:
        _say(42)

    def say_half_a_line_and_exit(self, _request: Request | None) -> None:
        os.write(1, b'{"status": "ok", "obser')
        sys.exit(7)

    def say_half_a_line_and_hang(self, _request: Request | None) -> None:
        os.write(1, b'{"status": "ok", "obser')
        sys.stdin.read()

    def refuse(self, _request: Request | None) -> None:
        _say({"status": "refused", **SAID})

    def fail(self, _request: Request | None) -> None:
        _say({"status": "failed", **SAID, "traceback": "Traceback …"})

    def be_unreadable(self, _request: Request | None) -> None:
        _say({"status": "unreadable", **SAID, "traceback": "Traceback …"})

    def ignore_stages(self, request: Request | None) -> None:
        """The seed bug: every rank counts the layers of the whole model."""
        assert request is not None
        given = Evidence(observations=(observations.observe(request),))
        _say(_observed(observations.ignoring_stages(given).observation))


def _hello() -> JSON:
    said = {"version": "0.0", "era": "fake", "placeholders": []}
    return {"status": "ok", "cuda": False, "capabilities": {"algorithms": ["EAGLE"]}, **said}


def _request(document: JSON) -> Request:
    return Request(
        deployment=Deployment.from_json(document["deployment"]),
        views=frozenset(document["views"]),
        tokens=tuple(document["tokens"]),
        pipeline=document["pipeline"],
    )


def _observed(observation: Any) -> JSON:
    ranks = [dataclasses.asdict(rank) for rank in observation.ranks]
    final = observation.final_tokens
    return {"status": "ok", "observation": {"ranks": ranks, "final_tokens": final}}
