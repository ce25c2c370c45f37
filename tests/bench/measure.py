"""How fast the suite is: ``tox -e bench``, and with ``--write`` docs/performance.md.

Figures of one machine, no test: a slow machine is no defect.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

from contracts import law
from contracts.contract import Request
from contracts.observation import Outcome
from contracts.profiles import PROFILES
from contracts.subject.client import Client
from contracts.subject.overlay import ConsoleReport
from contracts.subject.releases import NEWEST
from contracts.subject.resolve import resolve
from contracts.survey import Pair, survey
from contracts.trial import drawn, examples

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"

#: What issue and docs promise: observed deployments a second and core, parent over worker, seconds.
LEAST_RATE, MOST_OVERHEAD, MOST_SECONDS = 25, 0.30, 90


@dataclasses.dataclass
class Counting:
    """A client that counts what it is asked."""

    client: Client
    asked: int = 0
    ranks: int = 0

    def observe(self, request: Request) -> Outcome:
        """Ask the client."""
        self.asked += 1
        self.ranks += request.deployment.pp_size
        return self.client.observe(request)


@dataclasses.dataclass(frozen=True)
class Figures:
    """What one core does. CPU seconds, of the worker without its start, and of the parent."""

    deployments: int
    observed: int
    ranks: int
    worker: float
    parent: float
    start: float
    gate: float

    @property
    def rate(self) -> float:
        """Observed deployments a second of a core that does the worker's and the parent's part."""
        return self.observed / (self.worker + self.parent)

    @property
    def overhead(self) -> float:
        """The parent's time over the subject's own."""
        return self.parent / self.worker


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _started(subject: str) -> float:
    """CPU seconds that workers take to start, as many as the deployments need."""
    before = _children()
    with Client(resolve(subject, report=ConsoleReport())) as client:
        for named in _one_of_each_environment(client):
            client.observe(Request(deployment=named))
    return _children() - before


def _one_of_each_environment(client: Client) -> list:  # type: ignore[type-arg]  # deployments
    deployments = [named.deployment for named in drawn(client.info, PROFILES["gate"])]
    return list({tuple(one.env.items()): one for one in deployments}.values())


def _surveyed(subject: str) -> tuple[int, Counting, float, float]:
    before = _children()
    contracts = [contract for contract in law.ALL.values() if not contract.needs_baseline]
    with Client(resolve(subject, report=ConsoleReport())) as client:
        judged = [*examples(), *drawn(client.info, PROFILES["gate"])]
        counting = Counting(client)
        started = time.process_time()
        survey(contracts, judged, [Pair(counting)], info=client.info)
        parent = time.process_time() - started
    return len({named.deployment.key() for named in judged}), counting, _children() - before, parent


def _gate(subject: str) -> float:
    """Seconds that the gate takes as a user runs it, on all cores."""
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "tests/gate", "--sglang", subject]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def measured(subject: str) -> Figures:
    """Measure on one core, then the gate on all."""
    start = _started(subject)
    deployments, counting, worker, parent = _surveyed(subject)
    return Figures(
        deployments=deployments,
        observed=counting.asked,
        ranks=counting.ranks,
        worker=worker - start,
        parent=parent,
        start=start,
        gate=_gate(subject),
    )


def _machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    python = platform.python_version()
    return f"{os.cpu_count()} cores of {name}; Python {python}, torch {torch.__version__}"


def page(subject: str, figures: Figures, machine: str) -> str:
    """docs/performance.md."""
    rows = [
        (
            "deployments sized and allocated, a second and core",
            f"{figures.rate:.1f}",
            f"at least {LEAST_RATE}",
            figures.rate >= LEAST_RATE,
        ),
        (
            "the parent's time over the subject's own",
            f"{figures.overhead:.0%}",
            f"at most {MOST_OVERHEAD:.0%}",
            figures.overhead <= MOST_OVERHEAD,
        ),
        (
            "seconds of the gate, on a fetched subject",
            f"{figures.gate:.0f}",
            f"at most {MOST_SECONDS}",
            figures.gate <= MOST_SECONDS,
        ),
    ]
    table = "\n".join(
        f"| {what} | {value} | {aim} | {'yes' if reached else 'no'} |"
        for what, value, aim, reached in rows
    )
    return f"""# Performance

Measured by `tox -e bench -- --write`, on SGLang {subject} with the gate profile and all contracts
that need no baseline. Machine: {machine}.

| figure | measured | aim | reached |
|---|---:|---:|---|
{table}

{figures.deployments} drawn and published deployments are judged by all contracts. For these the
subject sizes and allocates {figures.observed} deployments, since contracts compare a deployment
with others: at `pp_size` 1, with more budget, with too little. They have {figures.ranks} ranks,
each sized and allocated at several token counts. The subject takes {figures.worker:.1f} CPU seconds
for that, the parent {figures.parent:.1f}: judging and JSON are counted, generating is not. Starting
the workers takes {figures.start:.1f} CPU seconds before that.
"""


def main() -> None:
    """Measure, show, and write where that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sglang", default=NEWEST, help="the subject (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    options = parser.parse_args()
    text = page(options.sglang, measured(options.sglang), _machine())
    sys.stdout.write(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
