"""The minimum over the ranks, as real processes take it: one a rank, on a real gloo group.

An observation plays all ranks in one process, and answers SGLang's all-reduce itself. Here SGLang
sets up its world group over loopback, and each rank's process sizes its own stage with its own
budget. What they agree on must be what is observed.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from contracts.contract import Request
from contracts.deployment import Deployment
from contracts.observation import Observation, View
from contracts.subject import client as client_module
from contracts.subject.client import REQUEST_TIMEOUT, START_TIMEOUT, Client, _worker_environment
from contracts.subject.resolve import Subject
from contracts.units import GiB
from strategies.published import MODELS
from tests.releases import case

JSON = Any

#: A release of each era.
ERAS = ("0.5.13", "0.5.20", "0.5.23")
SCRIPT = Path(__file__).with_name("gloo_rank.py")
WORKER = Path(client_module.__file__).with_name("worker.py")

#: Seconds until ranks that hang are given up: as long as a worker may take to start and answer.
PATIENCE = START_TIMEOUT + REQUEST_TIMEOUT

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"

#: In 0.5.13 nothing checks that the ranks agree on no more than a rank has.
MAXIMUM = {
    "module": "sglang.srt.model_executor.model_runner_kv_cache_mixin",
    "find": "op=torch.distributed.ReduceOp.MIN,",
    "replace": "op=torch.distributed.ReduceOp.MAX,",
}


@dataclass(frozen=True, slots=True)
class Meeting:
    """A deployment, and what each of its ranks may spend."""

    deployment: Deployment
    budgets: tuple[int, ...]


def flash(pp_size: int) -> Deployment:
    return Deployment(
        model=MODELS["deepseek-v4-flash"],
        budget=60 * GiB,
        pp_size=pp_size,
        server_args={"swa_full_tokens_ratio": 0.1},
    )


def equally_rich(pp_size: int) -> Meeting:
    return Meeting(flash(pp_size), (60 * GiB,) * pp_size)


def poorest_first(pp_size: int) -> Meeting:
    """The tightest rank is another than with equal budgets, where it is the last."""
    return Meeting(flash(pp_size), tuple(20 * GiB * (rank + 1) for rank in range(pp_size)))


# -- as processes ----------------------------------------------------------------------------------


class Lost(Exception):
    """A rank did not come to an answer; the text says which, and why."""


def met(
    subject: Subject,
    meetings: Sequence[Meeting],
    folder: Path,
    edits: Sequence[Mapping[str, str]] = (),
) -> list[list[JSON]]:
    """What the ranks of each meeting answer. One process a rank goes to all of them.

    Raises:
        Lost: a rank died or hung; all have been ended.
    """
    count = max(meeting.deployment.pp_size for meeting in meetings)
    processes = [
        _start(subject, _task(subject, meetings, rank, folder, edits), folder)
        for rank in range(count)
    ]
    with ThreadPoolExecutor(count) as threads:
        futures = [threads.submit(_answer, rank, one) for rank, one in enumerate(processes)]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            # Whoever waits for a rank that died would wait for long.
            for process in processes:
                process.kill()
    lost = [str(error) for future in futures if (error := future.exception()) is not None]
    if lost:
        raise Lost("; ".join(lost))
    by_rank = [iter(future.result()) for future in futures]
    return [
        [next(answers) for answers in by_rank[: meeting.deployment.pp_size]] for meeting in meetings
    ]


def _task(
    subject: Subject,
    meetings: Sequence[Meeting],
    rank: int,
    folder: Path,
    edits: Sequence[Mapping[str, str]],
) -> JSON:
    return {
        "paths": list(map(str, subject.paths)),
        "worker": str(WORKER),
        "edits": list(map(dict, edits)),
        "meetings": [
            {
                "deployment": meeting.deployment.to_json(),
                "rank": rank,
                "budget": meeting.budgets[rank],
                "rendezvous": f"file://{folder}/meeting-{number}",
                "patience": int(PATIENCE),
            }
            for number, meeting in enumerate(meetings)
            if rank < meeting.deployment.pp_size
        ],
    }


def _start(subject: Subject, task: JSON, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(subject.python), str(SCRIPT), json.dumps(task)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=_worker_environment({"TMPDIR": str(folder), "GLOO_SOCKET_IFNAME": LOOPBACK}),
    )


def _answer(rank: int, process: subprocess.Popen[str]) -> list[JSON]:
    try:
        said, words = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Lost(f"rank {rank} has not come to an answer within {PATIENCE:g} s") from None
    if process.returncode != 0:
        raise Lost(f"rank {rank} ended with exit code {process.returncode}: {words[-2000:]}")
    answers = json.loads(said)
    assert isinstance(answers, list)
    return answers


# -- as observed -----------------------------------------------------------------------------------


def observed(client: Client, deployment: Deployment) -> Observation:
    outcome = client.observe(Request(deployment=deployment, views=frozenset({"final", "own"})))
    assert isinstance(outcome, Observation), outcome
    return outcome


def capacities(client: Client, meeting: Meeting) -> list[int]:
    """Each rank's own capacity with its own budget."""
    found = []
    for rank, budget in enumerate(meeting.budgets):
        own = observed(client, meeting.deployment.with_budget(budget)).ranks[rank].own
        assert own is not None
        found.append(own.tokens)
    return found


def sized(view: View | None) -> JSON:
    assert view is not None
    sizes = dict(view.sizes)
    running = view.max_running_requests
    return {"tokens": view.tokens, "max_running_requests": running, "sizes": sizes}


@pytest.mark.parametrize("release", [case(release) for release in ERAS])
def test_real_ranks_agree(release: str, clients: Callable[[str], Client], tmp_path: Path) -> None:
    """Red when SGLang's own minimum, over real processes, is not what an observation says, or the
    sizes that each rank then derives are not: when the stand-in of the group, or an adapter's way
    through SGLang's resolution, is not the real one."""
    client = clients(release)
    meetings = [make(size) for size in (2, 3) for make in (equally_rich, poorest_first)]
    for meeting, ranks in zip(meetings, met(client.subject, meetings, tmp_path), strict=True):
        own = capacities(client, meeting)
        assert len(set(own)) == meeting.deployment.pp_size
        assert [rank["tokens"] for rank in ranks] == [min(own)] * len(own)
        if len(set(meeting.budgets)) == 1:
            expected = observed(client, meeting.deployment)
            assert min(own) == expected.final_tokens
            assert ranks == [sized(rank.final) for rank in expected.ranks]


@pytest.mark.parametrize("release", [case("0.5.13")])
def test_real_ranks_disagree_where_the_minimum_is_none(
    release: str, clients: Callable[[str], Client], tmp_path: Path
) -> None:
    """Red when what the ranks answer does not come out of SGLang's all-reduce."""
    client, meeting = clients(release), equally_rich(2)
    (ranks,) = met(client.subject, [meeting], tmp_path, edits=[MAXIMUM])
    own = capacities(client, meeting)
    assert [rank["tokens"] for rank in ranks] == [max(own)] * 2
    assert max(own) != observed(client, meeting.deployment).final_tokens


@pytest.mark.parametrize("release", [case("0.5.13")])
def test_a_lost_rank_ends_the_others(
    release: str, clients: Callable[[str], Client], tmp_path: Path
) -> None:
    """Red when the ranks wait for one that died, or nobody says which one that was."""
    meeting = equally_rich(2)
    short = dataclasses.replace(meeting, budgets=(60 * GiB, 1))
    with pytest.raises(Lost, match=r"(?s)rank 1 ended .*Not enough memory"):
        met(clients(release).subject, [short], tmp_path)
