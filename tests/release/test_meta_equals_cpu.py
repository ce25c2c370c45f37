"""What is measured on ``meta``, without memory, is what is really allocated on a CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pytest
from hypothesis import Phase, given, settings

from contracts.contract import Request
from contracts.deployment import Deployment, Model, Speculation
from contracts.observation import Observation, Outcome
from contracts.subject.client import Client
from contracts.units import MiB
from strategies.deployment import deployments
from tests.releases import case

RELEASES = pytest.mark.parametrize(
    "release", [case(release) for release in ("0.5.12", "0.5.16", "0.5.23")]
)
EXAMPLES = 10
SETTINGS = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=EXAMPLES,
    phases=(Phase.generate,),
)


@pytest.fixture(scope="module")
def on_cpu(clients: Callable[[str], Client]) -> Iterator[Callable[[str], Client]]:
    """Clients of releases whose pools are allocated for real."""
    started: dict[str, Client] = {}

    def client(release: str) -> Client:
        if release not in started:
            started[release] = Client(clients(release).subject, device="cpu")
        return started[release]

    yield client
    for one in started.values():
        one.close()


def few_requests(deployment: Deployment) -> Deployment:
    """The deployment for 1 to 4 requests: each takes a row of a million tokens in memory."""
    requests = 1 + deployment.model.num_hidden_layers % 4
    stated = {**deployment.server_args, "max_running_requests": requests}
    return dataclasses.replace(deployment, server_args=stated)


def both(
    deployment: Deployment, release: str, clients: Callable[[str], Client], cpu: Client
) -> tuple[Outcome, Outcome]:
    request = Request(deployment=deployment, views=frozenset({"final"}))
    return clients(release).observe(request), cpu.observe(request)


@RELEASES
def test_generated_deployments(
    release: str, clients: Callable[[str], Client], on_cpu: Callable[[str], Client]
) -> None:
    """Red when a footprint depends on the device: when meta rounds, shares, lacks or hides a
    buffer that a CPU has."""
    compared: list[Observation] = []

    @SETTINGS
    @given(deployments(max_layers=4, max_budget=320 * MiB))
    def compare(deployment: Deployment) -> None:
        meta, cpu = both(few_requests(deployment), release, clients, on_cpu(release))
        assert meta == cpu
        if isinstance(meta, Observation):
            compared.append(meta)

    compare()
    assert len(compared) >= EXAMPLES - 2
    assert {len(observation.ranks) > 1 for observation in compared} == {True, False}


@RELEASES
def test_eagle(
    release: str, clients: Callable[[str], Client], on_cpu: Callable[[str], Client]
) -> None:
    """Red when a draft's pool on meta is not the one on a CPU."""
    deployment = Deployment(
        model=Model(num_hidden_layers=3, compress_ratios=(0, 4, 128, 0)),
        budget=256 * MiB,
        speculation=Speculation(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4),
        server_args={"swa_full_tokens_ratio": 0.1, "max_running_requests": 2},
    )
    meta, cpu = both(deployment, release, clients, on_cpu(release))
    assert isinstance(meta, Observation)
    assert meta == cpu
    final = meta.ranks[0].final
    assert final is not None
    assert final.draft is not None
    assert final.draft.bytes > 0
