"""Each contract has a fault that it alone catches, and a deployment on which it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contracts import law
from contracts.contract import Contract, NotApplicable, Violation
from contracts.deployment import Deployment, Model, Speculation
from contracts.examination import examine
from contracts.subject.client import Client
from contracts.subject.overlay import ConsoleReport
from contracts.subject.resolve import resolve
from contracts.units import GiB
from strategies.published import DEPLOYMENTS
from tests.fault.alone import FAULTS, REPAIRS, LoneFault
from tests.fault.faults import SUBJECT

#: What a contract says of a deployment: its violations, or why it does not apply.
Said = frozenset[tuple[Any, ...]] | str

#: One xdist worker has the repaired subject, all others the release.
REPAIRED = pytest.mark.xdist_group(f"{SUBJECT} repaired")


@pytest.fixture(scope="module")
def repaired() -> Iterator[Client]:
    """The repaired release; its worker starts when it is first asked."""
    with Client(resolve(SUBJECT, report=ConsoleReport()), edits=REPAIRS) as client:
        yield client


@pytest.fixture
def whole(
    fault: LoneFault, clients: Callable[[str], Client], request: pytest.FixtureRequest
) -> Client:
    """The subject that a fault is seeded into."""
    client = request.getfixturevalue("repaired") if fault.repaired else clients(SUBJECT)
    assert isinstance(client, Client)
    return client


@pytest.fixture
def faulty(fault: LoneFault, whole: Client) -> Iterator[Client]:
    """The same with the fault in it."""
    with Client(whole.subject, edits=fault.edits()) as client:
        _ = client.info  # an edit that does not apply ends here
        yield client


def said(contract: Contract, deployment: Deployment, client: Client, baseline: Client) -> Said:
    """What a contract says of a deployment. A subject that it cannot judge ends the test."""
    try:
        findings = examine(contract, deployment, client, baseline)
    except NotApplicable as reason:
        return str(reason)
    return frozenset(_told(finding.violation) for finding in findings)


def _told(violation: Violation) -> tuple[Any, ...]:
    # Not what was expected: that may be any number, such as a footprint, of the other side.
    return (violation.rank, violation.component, violation.observed)


def differing(
    fault: LoneFault, deployment: Deployment, whole: Client, faulty: Client
) -> dict[str, tuple[Said, Said]]:
    """What each contract says before and after, of those that say something else.

    pp1-unchanged compares with the whole subject for its own fault alone: each fault that shows at
    pp_size 1 is a change, and it is right to say so. For the others' a subject is its own baseline.
    """
    found = {}
    for contract in law.ALL.values():
        baseline = whole if contract.id == fault.contract else faulty
        before = said(contract, deployment, whole, whole)
        after = said(contract, deployment, faulty, baseline)
        if before != after:
            found[contract.id] = (before, after)
    return found


def case(fault: LoneFault) -> Any:
    return pytest.param(fault, marks=REPAIRED if fault.repaired else (), id=fault.contract)


@pytest.mark.parametrize("fault", [case(fault) for fault in FAULTS])
def test_no_other_contract_catches_it(fault: LoneFault, whole: Client, faulty: Client) -> None:
    """Red when a contract goes blind to the fault that is its own, or another one sees it."""
    for deployment in fault.deployments:
        found = differing(fault, deployment, whole, faulty)
        before, after = found.pop(fault.contract, ("", ""))
        assert found == {}, deployment
        assert isinstance(before, frozenset), before
        assert isinstance(after, frozenset), after
        assert after - before


def test_every_contract_has_its_fault() -> None:
    """Red when a contract comes without a fault that it alone catches."""
    assert [fault.contract for fault in FAULTS] == list(law.ALL)


# -- that it holds somewhere -----------------------------------------------------------------------

#: A deployment on which SUBJECT keeps each contract.
HOLDS = {
    "stage-partition": "flash-22gb-pp4-11-11-11-10",
    "stage-slice": "flash-pp4",
    "layer-counts": "pro-h800-pp4",
    "marginal-bytes": "flash-pp8",
    "fixed-bytes": "flash-pp4",
    "rank-sum": "pro-h800-pp4",
    "pp1-identity": "pro-mi355x",
    "pp1-unchanged": "flash-0731",
    "budget-fit": "flash-22gb-pp4-10-11-11-11",
    "budget-use": "flash-h200-pp4",
    "state-rows": "flash-eagle-3-1-4",
    "paging": "flash-v4.1",
    "capacity-agreement": "flash-pp8",
    "monotone": "flash-base-tp8-small",
    "refusal": "flash-v4.1",
    "transfer-buffers": "pro-h800-pp4",
}
#: A draft is charged right where all layers are like its own.
LIKE_ITS_DRAFT = Deployment(
    model=Model(num_hidden_layers=4, compress_ratios=(0, 0, 0, 0)),
    budget=GiB,
    speculation=Speculation(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4),
)
#: The release before, whose V4 sizes are the same.
BEFORE = "0.5.22"


def seen(name: str) -> Deployment:
    return next(example.deployment for example in DEPLOYMENTS if example.name == name)


@pytest.mark.parametrize("contract", list(HOLDS))
def test_it_holds_on_a_published_deployment(
    contract: str, clients: Callable[[str], Client]
) -> None:
    """Red when a judge cries at what is right, or can no longer judge it."""
    judged = law.get(contract)
    baseline = clients(BEFORE) if judged.needs_baseline else None
    assert examine(judged, seen(HOLDS[contract]), clients(SUBJECT), baseline) == []


def test_a_reserve_holds_for_a_draft_like_the_model(clients: Callable[[str], Client]) -> None:
    """Red when draft-reserve cries where the average layer is the draft's."""
    assert examine(law.get("draft-reserve"), LIKE_ITS_DRAFT, clients(SUBJECT)) == []


@REPAIRED
def test_a_reported_size_holds_where_one_is_reported(repaired: Client) -> None:
    """Red when reported-bytes cries at the sum of all buffers. No release reports a size."""
    assert examine(law.get("reported-bytes"), seen("flash-pp4"), repaired) == []


def test_every_contract_holds_somewhere() -> None:
    """Red when a contract comes without a deployment on which it holds."""
    assert {*HOLDS, "draft-reserve", "reported-bytes"} == set(law.ALL)
