"""The gate: each contract is tried on the subject that ``--sglang`` names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts import law
from contracts.contract import Verdict
from contracts.hunt.case import save
from contracts.report.terminal import trial_line
from contracts.report.violation import replay_line, text
from contracts.subject.client import Client
from contracts.trial import run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("contract") or list(law.ALL)
    metafunc.parametrize("contract_id", chosen)


def test_contract(
    contract_id: str,
    gate_client: Client,
    gate_baseline: Client | None,
    record_property: Callable[[str, object], None],
) -> None:
    contract = law.get(contract_id)
    if contract.needs_baseline and gate_baseline is None:
        pytest.skip("compares with another SGLang; name it with --baseline")
    trial = run(contract, gate_client, baseline=gate_baseline)
    record_property("trial", trial_line(trial))
    if trial.finding is not None:
        label = gate_client.subject.label
        other = gate_baseline.subject.label if gate_baseline else None
        path = save(trial.finding, subject=label, baseline=other)
        shown = text(trial.finding, subject=label, replay=replay_line(path))
        pytest.fail(shown, pytrace=False)
    if trial.verdict is not Verdict.HELD:
        pytest.fail(f"{contract_id}: {trial.verdict}: {trial.reason}", pytrace=False)
