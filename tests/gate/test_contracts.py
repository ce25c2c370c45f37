"""The gate: each contract is tried on the subject that ``--sglang`` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from contracts import law
from contracts.contract import NotApplicable, NotJudged, Verdict
from contracts.examination import Finding, Rejected, Stumbled
from contracts.hunt.case import save
from contracts.ledger import Ledger
from contracts.report.terminal import trial_line
from contracts.report.violation import ledger_line, replay_line, text
from contracts.trial import Trial, Workforce, stale


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("contract") or list(law.ALL)
    metafunc.parametrize("contract_id", chosen)


def _or_skip(contract_id: str, workforce: Workforce) -> None:
    if law.get(contract_id).needs_baseline and not workforce.baselines:
        pytest.skip("compares with another SGLang; name it with --baseline")


def test_contract(
    contract_id: str,
    gate_workforce: Workforce,
    gate_ledger: Ledger,
    gate_trials: Mapping[str, Trial],
    record_property: Callable[[str, object], None],
) -> None:
    _or_skip(contract_id, gate_workforce)
    trial = gate_trials[contract_id]
    record_property("trial", trial_line(trial))
    if trial.finding is not None:
        pytest.fail(_shown(trial.finding, gate_workforce, gate_ledger), pytrace=False)
    if trial.verdict is not Verdict.HELD:
        pytest.fail(f"{contract_id}: {trial.verdict}: {trial.reason}", pytrace=False)


def _shown(finding: Finding, workforce: Workforce, ledger: Ledger) -> str:
    subject = workforce.subjects[0].subject.label
    baseline = workforce.baselines[0].subject.label if workforce.baselines else None
    path = save(finding, subject=subject, baseline=baseline)
    return text(
        finding,
        subject=subject,
        replay=replay_line(path),
        ledger=ledger_line(ledger, finding, workforce.info),
    )


def test_ledger(contract_id: str, gate_workforce: Workforce, gate_ledger: Ledger) -> None:
    """An entry of the ledger that is no longer true must go."""
    _or_skip(contract_id, gate_workforce)
    (pair, *_others) = zip(
        gate_workforce.subjects, gate_workforce.baselines or (None,), strict=False
    )
    for entry in gate_ledger.of(contract_id, gate_workforce.info):
        try:
            reason = stale(entry, *pair)
        except (NotApplicable, NotJudged, Rejected, Stumbled) as error:
            reason = f"{entry.name}: its deployment cannot be judged: {error}"
        if reason is not None:
            pytest.fail(reason, pytrace=False)
