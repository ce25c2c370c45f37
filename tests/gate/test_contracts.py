"""The gate: each contract is tried on the subject that ``--sglang`` names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts import law
from contracts.contract import Contract, NotApplicable, NotJudged, Verdict
from contracts.hunt.case import save
from contracts.ledger import Ledger
from contracts.report.terminal import trial_line
from contracts.report.violation import ledger_line, replay_line, text
from contracts.subject.client import Client
from contracts.trial import Rejected, Stumbled, run, stale


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("contract") or list(law.ALL)
    metafunc.parametrize("contract_id", chosen)


def _or_skip(contract_id: str, baseline: Client | None) -> Contract:
    contract = law.get(contract_id)
    if contract.needs_baseline and baseline is None:
        pytest.skip("compares with another SGLang; name it with --baseline")
    return contract


def test_contract(
    contract_id: str,
    gate_client: Client,
    gate_baseline: Client | None,
    gate_ledger: Ledger,
    record_property: Callable[[str, object], None],
) -> None:
    contract = _or_skip(contract_id, gate_baseline)
    trial = run(contract, gate_client, baseline=gate_baseline, ledger=gate_ledger)
    record_property("trial", trial_line(trial))
    if trial.finding is not None:
        label = gate_client.subject.label
        other = gate_baseline.subject.label if gate_baseline else None
        path = save(trial.finding, subject=label, baseline=other)
        shown = text(
            trial.finding,
            subject=label,
            replay=replay_line(path),
            ledger=ledger_line(gate_ledger, trial.finding, gate_client.info),
        )
        pytest.fail(shown, pytrace=False)
    if trial.verdict is not Verdict.HELD:
        pytest.fail(f"{contract_id}: {trial.verdict}: {trial.reason}", pytrace=False)


def test_ledger(
    contract_id: str, gate_client: Client, gate_baseline: Client | None, gate_ledger: Ledger
) -> None:
    """An entry of the ledger that is no longer true must go."""
    _or_skip(contract_id, gate_baseline)
    for entry in gate_ledger.of(contract_id, gate_client.info):
        try:
            reason = stale(entry, gate_client, gate_baseline)
        except (NotApplicable, NotJudged, Rejected, Stumbled) as error:
            reason = f"{entry.name}: its deployment cannot be judged: {error}"
        if reason is not None:
            pytest.fail(reason, pytrace=False)
