"""What each release's sizing is known to do, judged on the gate's deployments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, reject, settings

from contracts import law
from contracts.contract import Verdict
from contracts.deployment import Deployment
from contracts.examination import Rejected, examine
from contracts.profiles import PROFILES
from contracts.subject.client import Client
from contracts.subject.releases import RELEASES
from contracts.trial import Trial, examples
from strategies.deployment import deployments
from tests.releases import CORE, case, since
from tests.trying import tried

#: A quarter of the gate's draws: every release is tried, and code rarely differs between two.
GATE = settings(PROFILES["gate"], max_examples=60)
OVER_COUNTING = since("0.5.12", "0.5.12.post1")
V41 = {one.name for one in examples() if one.deployment.model.model_type == "deepseek_v41"}
SLICED = {"stage-slice", "layer-counts", "rank-sum"}


def decided(client: Client, *contracts: str, **options: Any) -> dict[str, Trial]:
    trials = tried(client, *contracts, profile=GATE, one_process=True, **options)
    assert {name: trial.reason for name, trial in trials.items() if trial.reason} == {}
    return trials


@pytest.mark.parametrize("release", [case(release) for release in RELEASES])
def test_verdicts(release: str, clients: Callable[[str], Client]) -> None:
    """Red when a judge, a strategy or an adapter changes what is known of a release.

    0.5.12 and 0.5.12.post1 count every layer on every rank; 0.5.13 cut the list by stage;
    0.5.21 priced padded pages and made the coefficient exact for V4, 0.5.23 for V4.1 too. Since
    0.5.21 it can speculate with a pipeline, whose ranks are all charged for the draft.
    """
    trials = decided(clients(release), *CORE)
    violated = {name for name, trial in trials.items() if trial.verdict is Verdict.VIOLATED}
    expected = set() if release in since("0.5.23") else {"marginal-bytes"}
    expected |= SLICED if release in OVER_COUNTING else set()
    # A draft is charged on every rank, and SGLang speculates with a pipeline.
    expected |= {"rank-sum"} if release in since("0.5.21") else set()
    assert violated == expected
    if release in since("0.5.21", "0.5.22"):
        inexact = {found.example for found in trials["marginal-bytes"].examples}
        assert inexact == V41
    assert {trials[name].verdict for name in set(CORE) - expected} == {Verdict.HELD}
    for name in set(CORE) - expected:
        assert trials[name].deployments >= 60
    # Of the draws: named deployments of newer models and settings are refused, and rightly.
    drawn = decided(clients(release), "stage-partition", names=())["stage-partition"]
    # 0.5.12 alone refuses PD disaggregation in a pipeline.
    most = 0.1 if release == "0.5.12" else 0.05
    assert drawn.rejected <= most * (drawn.deployments + drawn.rejected)


@pytest.mark.parametrize("release", [case(release) for release in OVER_COUNTING])
def test_factor_of_the_over_count(release: str, clients: Callable[[str], Client]) -> None:
    """Red when the over-count of sgl-project/sglang#25750 is not seen as exactly pp_size."""
    trial = decided(clients(release), "rank-sum")["rank-sum"]
    factors = {found.example: found.violation.factor for found in trial.examples}
    assert [factors[f"flash-pp{size}"] for size in (2, 4, 8)] == [2.0, 4.0, 8.0]


@pytest.mark.parametrize("release", [case(release) for release in OVER_COUNTING])
def test_the_over_count_shrinks(release: str, clients: Callable[[str], Client]) -> None:
    """Red when a counterexample is not shown with two layers on two ranks and nothing else."""
    finding = decided(clients(release), "rank-sum")["rank-sum"].finding
    assert finding is not None
    deployment = finding.deployment
    assert (deployment.model.compress_ratios, deployment.pp_size) == ((0, 0), 2)
    assert (deployment.partition, deployment.speculation) == (None, None)


def exactly_as_long_as_the_decoder(deployment: Deployment) -> Deployment:
    model = dataclasses.replace(deployment.model, compress_ratios=deployment.model.decoder_ratios)
    return dataclasses.replace(deployment, model=model)


@pytest.mark.xdist_group("0.5.13")
def test_the_fix_changed_pp_size_1_for_published_lists(clients: Callable[[str], Client]) -> None:
    """Red when 0.5.13 is not seen to differ from 0.5.12 at pp_size 1 for the published lists:
    their entries beyond the decoder were charged before."""
    (trial,) = decided(clients("0.5.13"), "pp1-unchanged", baseline=clients("0.5.12")).values()
    assert trial.verdict is Verdict.VIOLATED
    violated = {found.example for found in trial.examples}
    assert {"flash-pp1", "flash-0731", "pro-mi355x"} <= violated
    assert trial.finding is not None
    model = trial.finding.deployment.model
    assert (model.num_hidden_layers, model.compress_ratios) == (1, (0, 0))


@pytest.mark.xdist_group("0.5.13")
def test_the_fix_changed_nothing_for_lists_of_the_decoder(
    clients: Callable[[str], Client],
) -> None:
    """Red when 0.5.13 is seen to differ from 0.5.12 at pp_size 1 for lists of exactly L entries."""
    fixed, before = clients("0.5.13"), clients("0.5.12")
    contract = law.get("pp1-unchanged")
    judged: set[str] = set()

    @GATE
    @given(deployments(capabilities=before.info.capabilities))
    def unchanged(deployment: Deployment) -> None:
        exact = exactly_as_long_as_the_decoder(deployment.single_rank())
        try:
            assert examine(contract, exact, fixed, before) == []
        except Rejected:
            reject()
        judged.add(exact.key())

    unchanged()
    assert len(judged) >= 50


@pytest.mark.xdist_group("0.5.23")
def test_the_gate_judges_200_deployments(clients: Callable[[str], Client]) -> None:
    """Red when the gate's profile or the strategies yield fewer than 200 different deployments."""
    client = clients("0.5.23")
    (trial,) = tried(client, "stage-partition", profile=PROFILES["gate"], names=()).values()
    assert trial.verdict is Verdict.HELD
    assert trial.deployments >= 200
