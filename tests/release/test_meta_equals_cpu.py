"""What is measured on ``meta``, without memory, is what is really allocated on a CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import Phase, example, given, settings

from contracts.contract import Request
from contracts.deployment import Deployment, Model, Speculation
from contracts.observation import Observation
from contracts.subject.client import Client
from contracts.units import MiB
from strategies.deployment import deployments
from tests.releases import case

RELEASES = ("0.5.12", "0.5.16", "0.5.23")
EXAMPLES = 10
SETTINGS = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.generate),
)

WITH_DRAFT = Deployment(
    model=Model(num_hidden_layers=3, compress_ratios=(0, 4, 128, 0)),
    budget=256 * MiB,
    speculation=Speculation(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4),
    server_args={"swa_full_tokens_ratio": 0.1},
)


def small(deployment: Deployment) -> Deployment:
    """The deployment for 1 to 4 requests and a quarter of the budget.

    Each request takes a row of a million tokens, and all of it is memory.
    """
    requests = 1 + deployment.model.num_hidden_layers % 4
    stated = {**deployment.server_args, "max_running_requests": requests}
    return dataclasses.replace(deployment, budget=deployment.budget // 4, server_args=stated)


@pytest.mark.parametrize("release", [case(release) for release in RELEASES])
def test_meta_equals_cpu(release: str, clients: Callable[[str], Client]) -> None:
    """Red when a footprint depends on the device: when meta rounds, shares, lacks or hides a
    buffer that a CPU has, the target's or the draft's."""
    meta = clients(release)
    compared: list[Observation] = []
    with Client(meta.subject, device="cpu") as cpu:

        @SETTINGS
        @given(deployments(max_layers=4, max_budget=320 * MiB))
        @example(WITH_DRAFT)
        def compare(deployment: Deployment) -> None:
            request = Request(deployment=small(deployment), views=frozenset({"final"}))
            outcome = meta.observe(request)
            assert cpu.observe(request) == outcome
            if isinstance(outcome, Observation):
                compared.append(outcome)

        compare()
    # A quarter of a budget is too little for some, and old releases refuse others.
    assert len(compared) > EXAMPLES // 2
    views = [rank.final for observation in compared for rank in observation.ranks]
    assert any(view is not None and view.draft is not None for view in views)
    assert {len(observation.ranks) > 1 for observation in compared} == {True, False}
