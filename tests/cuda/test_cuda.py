"""What is measured on ``meta`` is what is allocated on a CUDA device, where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import Phase, given, settings

from contracts.contract import Request
from contracts.deployment import Deployment, Speculation
from contracts.observation import Observation
from contracts.subject.client import Client
from contracts.units import GiB
from strategies.deployment import deployments
from strategies.published import MODELS
from tests.release.test_meta_equals_cpu import small
from tests.releases import case

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="torch sees no CUDA device on this machine"
)

RELEASES = pytest.mark.parametrize("release", [case("0.5.12"), case("0.5.16"), case("0.5.23")])
VIEWS = frozenset({"final", "own"})
SETTINGS = settings(
    derandomize=True, database=None, deadline=None, max_examples=25, phases=(Phase.generate,)
)
EAGLE = Speculation(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4)


@pytest.fixture(scope="module")
def on_cuda(clients: Callable[[str], Client]) -> Iterator[Callable[[str], Client]]:
    """Clients of releases whose pools are allocated on the GPU."""
    started: dict[str, Client] = {}

    def client(release: str) -> Client:
        if release not in started:
            started[release] = Client(clients(release).subject, device="cuda")
        return started[release]

    yield client
    for one in started.values():
        one.close()


@RELEASES
def test_generated_deployments(
    release: str, clients: Callable[[str], Client], on_cuda: Callable[[str], Client]
) -> None:
    """Red when a footprint on meta is not the one on a GPU."""
    compared = 0

    @SETTINGS
    @given(deployments(max_layers=8, max_budget=GiB))
    def compare(deployment: Deployment) -> None:
        nonlocal compared
        request = Request(deployment=small(deployment), views=VIEWS)
        meta = clients(release).observe(request)
        assert on_cuda(release).observe(request) == meta
        compared += isinstance(meta, Observation)

    compare()
    assert compared >= 20


@RELEASES
@pytest.mark.parametrize("speculation", [None, EAGLE], ids=["plain", "eagle"])
def test_flash(
    release: str,
    speculation: Speculation | None,
    clients: Callable[[str], Client],
    on_cuda: Callable[[str], Client],
) -> None:
    """Red when the pools of a published model, its draft's among them, differ on a GPU."""
    deployment = Deployment(
        model=MODELS["deepseek-v4-flash"],
        budget=2 * GiB,
        speculation=speculation,
        server_args={"swa_full_tokens_ratio": 0.1, "max_running_requests": 4},
    )
    request = Request(deployment=deployment, views=VIEWS)
    meta = clients(release).observe(request)
    assert isinstance(meta, Observation)
    assert on_cuda(release).observe(request) == meta
