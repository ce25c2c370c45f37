"""The parent's side of a worker: requests with a time-out, a restart after a crash.

Whatever goes wrong between here and the subject is an :class:`Unreadable`, which no contract can
take for held.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from contracts.contract import Request
from contracts.observation import (
    Capabilities,
    Failed,
    Observation,
    Outcome,
    Refused,
    SubjectInfo,
    Unreadable,
)
from contracts.settings import at_start
from contracts.subject.reads import Recording
from contracts.subject.resolve import Subject

__all__ = ["Client", "SubjectUnreadable", "WorkerProcess", "default_jobs"]

JSON = Any

#: Seconds that a subject may take to import, and that one observation may take. Import takes 5 to
#: 10 s of one core, an observation of 32 ranks on ``meta`` well under one; both leave room for a
#: loaded machine, and for first imports from a cold disk.
START_TIMEOUT = 300.0
REQUEST_TIMEOUT = 120.0

#: Seconds that a worker which has closed its end of the pipe may take to end.
_LAST_MOMENTS = 5.0

#: Workers that stay alive at once: each holds an imported SGLang of about 1 GB.
MAX_WORKERS = 2

#: Workers side by side at most, where nobody says how many.
MAX_JOBS = 4

#: Observations that are remembered, so that contracts which ask for the same one share it.
MAX_REMEMBERED = 2048


def default_jobs() -> int:
    """Workers side by side where nobody says how many: one a core, as far as memory goes."""
    return min(MAX_JOBS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


class SubjectUnreadable(Exception):
    """The subject cannot be loaded or read; the text says why, and names what was missing."""


class WorkerProcess:
    """One worker process, started on construction.

    Raises:
        SubjectUnreadable: the subject's interpreter cannot be started.
    """

    def __init__(self, subject: Subject, environment: Mapping[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 # lives as long as the process
        # For everything temporary of the worker, which is ended without a chance to tidy up.
        self._scratch = tempfile.TemporaryDirectory(
            prefix="contracts-worker-", ignore_cleanup_errors=True
        )
        script = Path(__file__).with_name("worker.py")
        command = [str(subject.python), str(script), *map(str, subject.paths)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=_worker_environment({"TMPDIR": self._scratch.name, **environment}),
                # An interrupt from the terminal is the parent's to handle.
                start_new_session=True,
            )
        except OSError as error:
            self._stderr.close()
            self._scratch.cleanup()
            raise SubjectUnreadable(f"{subject.python} does not start: {error.strerror}") from None
        self._buffer = b""

    def ask(self, request: JSON, timeout: float) -> JSON:
        """Send one request and wait for its answer.

        Raises:
            SubjectUnreadable: the worker died, hung or answered no JSON. It is closed then.
        """
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer = json.loads(self._line(timeout))
        except (BrokenPipeError, _Ended):
            raise SubjectUnreadable(self._death()) from None
        except TimeoutError:
            self.close()
            raise SubjectUnreadable(
                f"the worker gave no answer within {timeout:g} s and was ended"
            ) from None
        except ValueError as error:
            self.close()
            raise SubjectUnreadable(f"the worker's answer is no JSON: {error}") from None
        if not isinstance(answer, dict) or "status" not in answer:
            self.close()
            raise SubjectUnreadable(f"the worker's answer is none of the protocol: {answer!r:.200}")
        return answer

    def _line(self, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError
                chunk = os.read(self._process.stdout.fileno(), 1 << 16)
                if not chunk:
                    raise _Ended
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _death(self) -> str:
        # Its end of the pipe closes before it is gone; killed in between, it would not say how.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_MOMENTS)
        code = self._end()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        said = self._last_words()
        self.close()
        return f"the worker died {how}" + (f": {said}" if said else "")

    def _last_words(self) -> str:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 4096))
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _end(self) -> int:
        if self._process.poll() is None:
            self._process.kill()
        return self._process.wait()

    def close(self) -> None:
        """End the process, wait for it and remove what it left. Closing twice is harmless."""
        self._end()
        self._stderr.close()
        self._scratch.cleanup()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    @property
    def pid(self) -> int:
        """The process id, for tests that kill it."""
        return self._process.pid


class _Ended(Exception):
    """The worker closed its end of the pipe."""


def _worker_environment(stated: Mapping[str, str]) -> dict[str, str]:
    """The user's environment, without what would change the worker's imports or reach a network."""
    ours = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Sizing is single-threaded; idle OpenMP threads only cost the other core.
        "OMP_NUM_THREADS": "1",
    }
    dropped = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS", "PYTEST_CURRENT_TEST")
    inherited = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**inherited, **ours, **stated}


class Client:
    """Asks one subject for observations on one device.

    What SGLang reads at import needs a process of its own, so workers are pooled by those of a
    deployment's variables that must be there when one starts (:func:`contracts.settings.at_start`);
    the others are stated for an observation at a time. ``edits`` change the subject's source as it
    is loaded (see :mod:`contracts.subject.edits`): they seed the faults that prove the suite. With
    ``record`` the settings that SGLang reads are noted (see :mod:`contracts.subject.reads`).
    """

    def __init__(
        self,
        subject: Subject,
        *,
        device: str = "meta",
        start_timeout: float = START_TIMEOUT,
        request_timeout: float = REQUEST_TIMEOUT,
        edits: Sequence[Mapping[str, str]] = (),
        record: bool = False,
    ) -> None:
        self.subject = subject
        self.device = device
        self._start_timeout = start_timeout
        self._request_timeout = request_timeout
        self._edits = list(map(dict, edits))
        self._record = record
        self._recording = Recording()
        self._workers: OrderedDict[tuple[tuple[str, str], ...], WorkerProcess] = OrderedDict()
        self._info: SubjectInfo | None = None
        self._remembered: OrderedDict[str, Outcome] = OrderedDict()

    def alike(self, count: int) -> tuple[Client, ...]:
        """So many clients of the same subject, of which this one is the first."""
        others = (
            Client(
                self.subject,
                device=self.device,
                start_timeout=self._start_timeout,
                request_timeout=self._request_timeout,
                edits=self._edits,
                record=self._record,
            )
            for _ in range(count - 1)
        )
        return (self, *others)

    @property
    def info(self) -> SubjectInfo:
        """What the subject says of itself. Starts a worker if none has answered yet.

        Raises:
            SubjectUnreadable: the subject does not load, or no adapter understands it.
        """
        if self._info is None:
            self._worker({})
        assert self._info is not None
        return self._info

    def observe(self, request: Request) -> Outcome:
        """Observe one deployment. Never raises for what the subject or the worker does."""
        key = _key(request)
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        environment = at_start(request.deployment.env)
        try:
            worker = self._worker(environment)
            answer = worker.ask(_asked(request, self.device), self._request_timeout)
        except SubjectUnreadable as error:
            self._drop(environment)
            return Unreadable(reason=str(error))
        except BaseException:  # an interrupt: the answer to come must not answer the next request
            self._drop(environment)
            raise
        if "recording" in answer:
            self._recording |= Recording.from_json(answer["recording"])
        outcome = self._outcome(answer, request)
        if not isinstance(outcome, Unreadable):
            self._remembered[key] = outcome
            if len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return outcome

    def take_recording(self) -> Recording:
        """What SGLang read during the observations since this was last asked."""
        taken, self._recording = self._recording, Recording()
        return taken

    def _outcome(self, answer: JSON, request: Request) -> Outcome:
        status = answer["status"]
        if status == "ok":
            return Observation.from_json(
                answer["observation"], subject=self.info, deployment=request.deployment
            )
        said = {name: answer[name] for name in ("where", "kind", "sentence")}
        if status == "refused":
            return Refused(**said)
        if status == "failed":
            return Failed(**said, traceback=answer["traceback"])
        return Unreadable(reason=_unread(answer), traceback=answer["traceback"])

    def _worker(self, environment: Mapping[str, str]) -> WorkerProcess:
        key = tuple(sorted(environment.items()))
        if key in self._workers:
            self._workers.move_to_end(key)
            return self._workers[key]
        while len(self._workers) >= MAX_WORKERS:
            self._workers.popitem(last=False)[1].close()
        worker = WorkerProcess(self.subject, environment)
        try:
            asked = {"op": "hello", "edits": self._edits, "record": self._record}
            hello = worker.ask(asked, self._start_timeout)
        except BaseException:
            worker.close()
            raise
        if hello["status"] != "ok":
            worker.close()
            raise SubjectUnreadable(_unread(hello))
        if self.device == "cuda" and not hello["cuda"]:
            worker.close()
            raise SubjectUnreadable("its torch finds no CUDA device on this machine")
        self._workers[key] = worker
        self._info = SubjectInfo(
            label=self.subject.label,
            version=hello["version"],
            era=hello["era"],
            capabilities=Capabilities.from_json(hello["capabilities"]),
            placeholders=tuple(hello["placeholders"]),
            definitions={
                name: (str(path), int(line))
                for name, (path, line) in hello.get("definitions", {}).items()
            },
        )
        return worker

    def _drop(self, environment: Mapping[str, str]) -> None:
        worker = self._workers.pop(tuple(sorted(environment.items())), None)
        if worker is not None:
            worker.close()

    def close(self) -> None:
        """End all workers."""
        while self._workers:
            self._workers.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        self.close()


def _key(request: Request) -> str:
    views, tokens = sorted(request.views), list(request.tokens)
    return json.dumps([request.deployment.key(), views, tokens, request.pipeline])


def _asked(request: Request, device: str) -> JSON:
    return {
        "op": "observe",
        "deployment": request.deployment.to_json(),
        "device": device,
        "views": sorted(request.views),
        "tokens": list(request.tokens),
        "pipeline": request.pipeline,
    }


def _unread(answer: JSON) -> str:
    return f"{answer['where']}: {answer['kind']}: {answer['sentence']}"
