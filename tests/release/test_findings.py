"""What docs/findings.md says is what the releases are observed to do."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from contracts import law
from contracts.hunt.measure import FILE, costs, marginal
from contracts.subject.client import Client
from contracts.subject.releases import RELEASES
from tests.releases import case

#: One of the models on the cards, with all that a draft gets wrong; the others are as costly.
SERVED = "Flash EAGLE"
CONTRACTS = [contract for contract in law.ALL.values() if not contract.needs_baseline]


@pytest.mark.parametrize("release", [case(release) for release in RELEASES])
def test_measurements(release: str, clients: Callable[[str], Client]) -> None:
    """Red when a number of docs/measurements.json is not what is observed."""
    measured = json.loads(FILE.read_text(encoding="utf-8"))[release]
    client = clients(release)
    assert marginal(client) == measured["marginal"]
    told = [cost for cost in measured["cards"] if cost["served"] == SERVED]
    assert list(costs(CONTRACTS, client, [SERVED])) == told
