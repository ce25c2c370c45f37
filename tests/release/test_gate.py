"""What the gate says of the change that repaired the over-count, and of one that would undo it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings

from contracts import law
from contracts.hunt.comparison import Comparison, Standing
from contracts.hunt.gate import run
from contracts.profiles import PROFILES
from contracts.report.comparison import markdown
from contracts.subject.client import Client
from contracts.trial import Workforce

GATE = settings(PROFILES["gate"], max_examples=60)
REPAIRED = ("stage-slice", "layer-counts", "rank-sum")
CHOSEN = (*REPAIRED, "stage-partition", "pp1-identity", "pp1-unchanged")


def compared(candidate: Client, baseline: Client, *expected: str) -> dict[str, Comparison]:
    workforce = Workforce((candidate,), (baseline,))
    contracts = [law.get(name) for name in CHOSEN]
    found = run(contracts, workforce, profile=GATE, expected=expected)
    return {comparison.contract: comparison for comparison in found}


@pytest.mark.xdist_group("0.5.13")
def test_the_repair(clients: Callable[[str], Client]) -> None:
    """Red when the gate does not say what sgl-project/sglang#25750 repaired, that it changed
    pp_size 1 for published lists, and why."""
    fixed, before = clients("0.5.13"), clients("0.5.12")
    found = compared(fixed, before)
    assert {name: found[name].standing for name in REPAIRED} == dict.fromkeys(
        REPAIRED, Standing.FIXED
    )
    assert not any(found[name].fails for name in CHOSEN if name != "pp1-unchanged")
    changed = found["pp1-unchanged"]
    assert changed.standing is Standing.UNEXPLAINED
    assert changed.examples["flash-pp1"] is Standing.UNEXPLAINED
    messages = [finding.violation.message for finding in changed.shown]
    assert any("final tokens = " in message for message in messages)
    assert any("total layers charged = 1, expected 2" in message for message in messages)
    assert any("configurator's ratios = " in message for message in messages)
    text = markdown(list(found.values()), fixed.info, before.info)
    assert "fixes stage-slice, layer-counts, rank-sum" in text
    expected = compared(fixed, before, "pp1-unchanged")["pp1-unchanged"]
    assert (expected.standing, expected.fails) == (Standing.EXPECTED, False)


@pytest.mark.xdist_group("0.5.13")
def test_undoing_it(clients: Callable[[str], Client]) -> None:
    """Red when a change that brings the over-count back is not shown with its factor, on two
    layers."""
    found = compared(clients("0.5.12"), clients("0.5.13"))
    assert {name: found[name].standing for name in REPAIRED} == dict.fromkeys(
        REPAIRED, Standing.NEW
    )
    (over, *_) = found["rank-sum"].shown
    assert over.violation.factor == 2.0
    assert over.deployment.model.compress_ratios == (0, 0)
    assert over.deployment.pp_size == 2
