"""Every seeded fault is caught by the contracts named for it, and by no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import Phase, settings

from contracts.contract import Verdict
from contracts.ledger import load, shipped
from contracts.profiles import PROFILES
from contracts.subject.client import Client, SubjectUnreadable
from contracts.trial import Trial
from tests.fault.faults import FAULTS, HIDDEN_BUFFER, SUBJECT, Fault
from tests.releases import CORE
from tests.trying import tried

#: Enough to reach each fault; what is found need not be shrunk to be counted.
SETTINGS = settings(PROFILES["gate"], max_examples=12, phases=(Phase.explicit, Phase.generate))
EXAMPLES = ("flash-pp1", "flash-pp4", "flash-eagle-3-1-4", "flash-22gb-pp4-10-11-11-11")


@pytest.fixture
def faulty(clients: Callable[[str], Client]) -> Iterator[Callable[[Fault], Client]]:
    """Clients of the release with a fault in its source."""
    started: list[Client] = []

    def start(fault: Fault) -> Client:
        client = Client(clients(SUBJECT).subject, edits=[fault.edit()])
        started.append(client)
        return client

    yield start
    for client in started:
        client.close()


def _trials(client: Client, baseline: Client | None = None) -> dict[str, Trial]:
    """What is found beyond what the ledger knows of the release itself."""
    names = CORE if baseline is None else ("pp1-unchanged",)
    options = {"profile": SETTINGS, "names": EXAMPLES, "ledger": load(shipped())}
    return tried(client, *names, baseline=baseline, one_process=True, **options)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_caught_by_exactly(fault: Fault, faulty: Callable[[Fault], Client]) -> None:
    """Red when a judge goes blind to a fault, or cries at one that is not its own."""
    trials = _trials(faulty(fault))
    caught = {name for name, trial in trials.items() if trial.verdict is Verdict.VIOLATED}
    unknown = {name: trial.reason for name, trial in trials.items() if trial.reason}
    assert (caught, unknown) == (set(fault.caught_by), {})


def test_faultless(clients: Callable[[str], Client]) -> None:
    """Red when a contract is violated by the release that all faults are seeded into."""
    trials = _trials(clients(SUBJECT))
    assert {trial.verdict for trial in trials.values()} == {Verdict.HELD}


def test_pp1_unchanged_sees_a_changed_coefficient(
    clients: Callable[[str], Client], faulty: Callable[[Fault], Client]
) -> None:
    """Red when a changed size at pp_size 1 no longer shows against a baseline."""
    fault = next(fault for fault in FAULTS if fault.name == "indexer forgotten")
    trial = _trials(faulty(fault), baseline=clients(SUBJECT))["pp1-unchanged"]
    assert trial.verdict is Verdict.VIOLATED


def test_pp1_unchanged_holds_against_itself(clients: Callable[[str], Client]) -> None:
    """Red when the comparison finds differences where there are none."""
    trial = _trials(clients(SUBJECT), baseline=clients(SUBJECT))["pp1-unchanged"]
    assert trial.verdict is Verdict.HELD


def test_a_hidden_buffer_fails_the_observation(faulty: Callable[[Fault], Client]) -> None:
    """Red when a pool can own bytes that no component accounts for."""
    trials = _trials(faulty(HIDDEN_BUFFER))
    assert trials["layer-counts"].verdict is Verdict.NOT_JUDGED
    assert "other: 4096 bytes in 1 buffers" in str(trials["layer-counts"].reason)
    assert "hidden" in str(trials["layer-counts"].reason)


def test_a_fault_that_does_not_apply_is_an_error(faulty: Callable[[Fault], Client]) -> None:
    """Red when an edit that finds nothing passes for a seeded fault."""
    nowhere = Fault("nowhere", HIDDEN_BUFFER.module, "no such line", "x", frozenset())
    with pytest.raises(SubjectUnreadable, match="0 places for 'no such line'"):
        _trials(faulty(nowhere))
