"""Options, header and footer of the gate, and the subjects that tests share."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from contracts import law, profiles
from contracts.ledger import Ledger, LedgerError, load, shipped
from contracts.subject.client import Client, SubjectUnreadable, default_jobs
from contracts.subject.overlay import ConsoleReport, OverlayError
from contracts.subject.placeholders import PLACEHOLDERS
from contracts.subject.releases import NEWEST
from contracts.subject.resolve import SubjectError, resolve
from contracts.trial import Trial, Workforce, run

profiles.register()

#: Environment variables that a subject may read, by how their names begin. What pip reads is not
#: shown: an index address may hold a password.
RELATED = ("SGLANG", "SGL_", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "TORCH")

#: Clients that keep their workers: an imported SGLang takes about 1 GB.
MAX_CLIENTS = 3

LEDGER = pytest.StashKey[Ledger]()
_clients = pytest.StashKey[OrderedDict[tuple[str, str], Client]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("contracts", "SGLang's pool contracts")
    group.addoption(
        "--sglang",
        metavar="SUBJECT",
        default=os.environ.get("SGLANG") or NEWEST,
        help="the SGLang to judge: a release, a source checkout or an interpreter "
        f"(default: $SGLANG or {NEWEST})",
    )
    group.addoption(
        "--baseline", metavar="SUBJECT", help="the other side of pp1-unchanged, named likewise"
    )
    group.addoption(
        "--device",
        choices=["meta", "cpu", "cuda"],
        default="meta",
        help="where the pools are built (default: meta, which needs no memory)",
    )
    group.addoption(
        "--jobs",
        metavar="N",
        type=int,
        default=default_jobs(),
        help="workers side by side (default: one a core, at most 4)",
    )
    group.addoption(
        "--ledger",
        metavar="FILE",
        type=Path,
        default=shipped(),
        help="known violations (default: the ledger that comes with the suite)",
    )
    group.addoption(
        "--contract",
        metavar="ID",
        action="append",
        default=[],
        help="judge this contract only; may be repeated",
    )


@pytest.hookimpl(trylast=True)  # after Hypothesis has loaded the profile that was asked for
def pytest_configure(config: pytest.Config) -> None:
    config.stash[_clients] = OrderedDict()
    for name in config.getoption("contract"):
        try:
            law.get(name)
        except law.UnknownContractError as error:
            raise pytest.UsageError(f"--contract: {error}") from None
    if config.getoption("hypothesis_seed", None) is not None and settings().derandomize:
        raise pytest.UsageError(
            "--hypothesis-seed has no effect under a deterministic profile; "
            "add --hypothesis-profile thorough, or leave it out"
        )


def pytest_unconfigure(config: pytest.Config) -> None:
    for client in config.stash.get(_clients, OrderedDict()).values():
        client.close()


def _client(config: pytest.Config, subject: str, device: str) -> Client:
    """A started client, shared by all tests of this process.

    Raises:
        pytest.UsageError: the subject does not exist, cannot be fetched or cannot be read.
    """
    clients = config.stash[_clients]
    if (subject, device) not in clients:
        try:
            client = Client(resolve(subject, report=ConsoleReport()), device=device)
            _ = client.info
        except (SubjectError, OverlayError) as error:
            raise pytest.UsageError(str(error)) from None
        except SubjectUnreadable as error:
            raise pytest.UsageError(f"not judged: {subject} cannot be read: {error}") from None
        clients[subject, device] = client
        while len(clients) > MAX_CLIENTS:
            # Whoever still holds it can go on: a closed client starts a worker when asked again.
            clients.popitem(last=False)[1].close()
    clients.move_to_end((subject, device))
    return clients[subject, device]


def _ledger(config: pytest.Config) -> Ledger:
    """The gate's ledger. Only the gate reads it: other tests must not end when it expires.

    Raises:
        pytest.UsageError: the ledger cannot be used.
    """
    if LEDGER not in config.stash:
        try:
            config.stash[LEDGER] = load(config.getoption("ledger"))
        except LedgerError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[LEDGER]


def _is_gate(config: pytest.Config) -> bool:
    return any("gate" in Path(argument.split("::")[0]).parts for argument in config.args)


def pytest_sessionstart(session: pytest.Session) -> None:
    """A subject or a ledger that cannot be used ends the gate before its first test."""
    if _is_gate(session.config):
        _ledger(session.config)
        _client(
            session.config, session.config.getoption("sglang"), session.config.getoption("device")
        )


def pytest_report_header(config: pytest.Config) -> list[str]:
    if not _is_gate(config):
        return []
    ledger = _ledger(config)
    device = config.getoption("device")
    client = _client(config, config.getoption("sglang"), device)
    info = client.info
    lines = [
        f"sglang: {info.label}, version {info.version}, era {info.era}, device {device}",
        *(f"placeholder: {name} ({PLACEHOLDERS[name]})" for name in info.placeholders),
    ]
    if config.getoption("baseline"):
        other = _client(config, config.getoption("baseline"), device).info
        lines.append(f"baseline: {other.label}, version {other.version}, era {other.era}")
    known = sum(len(ledger.of(name, info)) for name in law.ALL)
    lines.append(f"ledger: {config.getoption('ledger')}, {known} entries about this version")
    related = sorted(name for name in os.environ if name.startswith(RELATED))
    lines += [f"environment: {name}={os.environ[name]}" for name in related]
    return lines


@pytest.fixture(scope="session")
def clients(pytestconfig: pytest.Config) -> Callable[[str], Client]:
    """Started clients by subject, on ``meta``; one worker each for the whole session."""
    return lambda subject: _client(pytestconfig, subject, "meta")


@pytest.fixture(scope="session")
def gate_ledger(pytestconfig: pytest.Config) -> Ledger:
    """The ledger of the gate."""
    return _ledger(pytestconfig)


@pytest.fixture(scope="session")
def gate_workforce(pytestconfig: pytest.Config) -> Iterator[Workforce]:
    """Clients of the gate's subject and baseline, on the device that was asked for."""
    device = pytestconfig.getoption("device")
    if device == "cuda":
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("--device cuda: torch finds no CUDA device on this machine")
    jobs, named = pytestconfig.getoption("jobs"), pytestconfig.getoption("baseline")
    subjects = _client(pytestconfig, pytestconfig.getoption("sglang"), device).alike(jobs)
    baselines = _client(pytestconfig, named, device).alike(jobs) if named else ()
    yield Workforce(subjects, baselines)
    for client in (*subjects[1:], *baselines[1:]):
        client.close()


@pytest.fixture(scope="session")
def gate_trials(
    request: pytest.FixtureRequest, gate_workforce: Workforce, gate_ledger: Ledger
) -> Mapping[str, Trial]:
    """The trials of the contracts that are to be tested, all made in one go."""
    chosen = {
        str(item.callspec.params["contract_id"]): None
        for item in request.session.items
        if isinstance(item, pytest.Function) and "gate_trials" in item.fixturenames
    }
    contracts = [
        contract
        for contract in map(law.get, chosen)
        if gate_workforce.baselines or not contract.needs_baseline
    ]
    trials = run(contracts, gate_workforce, ledger=gate_ledger)
    return {trial.contract: trial for trial in trials}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = [
        str(line)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, line in report.user_properties
        if name == "trial"
    ]
    if lines:
        terminalreporter.section("contracts")
        for line in lines:
            terminalreporter.write_line(line)
