"""Numbers that real servers on real GPUs have logged, computed again on this machine.

The logs are public. They print budgets rounded to 0.01 GiB ("GB" in SGLang's log), so that a
logged token count must lie between those of the budget's two ends; the pool sizes at the logged
token count must be the logged ones exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from contracts.contract import Request
from contracts.deployment import Deployment
from contracts.observation import Observation
from contracts.subject.client import Client
from contracts.units import GiB
from strategies.published import DEPLOYMENTS
from tests.releases import case, since

NAMED = {published.name: published.deployment for published in DEPLOYMENTS}
SIZES = ("full", "swa", "c4", "c128", "c4_state", "c128_state")


@dataclass(frozen=True)
class Logged:
    """One log: the budget in GiB as printed, the coefficient, and the sizes in SIZES' order."""

    deployment: str
    budget: float
    coefficient: list[float]
    sizes: list[int] = field(default_factory=list)


FLASH_BASE = Logged("flash-base-tp8", 45.78, [15955.85], [3_080_960])
FLASH_BASE_SMALL = Logged("flash-base-tp8-small", 19.58, [15955.85], [1_317_632])
PRO_PP4 = Logged(
    "pro-h800-pp4",
    35.57,
    [23749.84] * 4,
    [1_607_936, 160_768, 401_984, 12_562, 10_048, 160_768],
)
PRO_PP2 = Logged("pro-h800-pp2", 34.81, [23749.84] * 2, [1_573_888])
PRO_MI355X = Logged(
    "pro-mi355x",
    105.08,
    [32781.44],
    [3_441_920, 516_096, 860_480, 26_890, 32_256, 516_096],
)
PRO_MI355X_64 = Logged(
    "pro-mi355x-64", 118.93, [13735.04], [9_217_792, 1_382_656, 2_304_448, 72_014]
)
# Logged on an NPU with pages of 128 tokens: the pool class differs there, and only the sizing of
# these tokens, which are whole pages of 256 as well, can be compared.
FLASH_0731 = Logged("flash-0731", 11.89, [7705.45], [1_641_472, 164_096, 410_368, 12_824, 10_256])
FLASH_22GB = Logged(
    "flash-22gb-pp4-10-11-11-11", 0.31, [1457.00, 1944.75, 1740.25, 1944.75], [153_600]
)

CASES = [
    case("0.5.12", FLASH_BASE, name="flash-base"),
    case("0.5.12", FLASH_BASE_SMALL, name="flash-base-small"),
    case("0.5.12.post1", PRO_PP4, name="pro-pp4"),
    case("0.5.12.post1", PRO_PP2, name="pro-pp2"),
    case("0.5.13", PRO_MI355X, name="pro-mi355x"),
    case("0.5.15.post1", PRO_MI355X_64, name="pro-mi355x-64"),
    *(case(release, FLASH_0731, name="flash-0731") for release in since("0.5.15", "0.5.20")),
    *(case(release, FLASH_22GB, name="flash-22gb") for release in since("0.5.21")),
]


def observed(client: Client, request: Request) -> Observation:
    outcome = client.observe(request)
    assert isinstance(outcome, Observation), outcome
    return outcome


@pytest.mark.parametrize(("release", "logged"), CASES)
def test_logged_tokens(release: str, logged: Logged, clients: Callable[[str], Client]) -> None:
    """Red when a real server's token count is not among those of its rounded budget."""
    deployment = NAMED[logged.deployment]
    ends = [round((logged.budget + end) * GiB) for end in (-0.005, 0.005)]
    low, high = (
        observed(
            clients(release),
            Request(deployment=deployment.with_budget(end), views=frozenset({"final"})),
        ).final_tokens
        for end in ends
    )
    assert low is not None
    assert high is not None
    assert low <= logged.sizes[0] <= high


@pytest.mark.parametrize(("release", "logged"), CASES)
def test_logged_sizes(release: str, logged: Logged, clients: Callable[[str], Client]) -> None:
    """Red when the pools of a logged token count are not of the logged sizes."""
    request = Request(deployment=NAMED[logged.deployment], tokens=(logged.sizes[0],))
    observation = observed(clients(release), request)
    for rank, coefficient in zip(observation.ranks, logged.coefficient, strict=True):
        assert rank.configurator.bytes_per_full_token == pytest.approx(coefficient, abs=0.0051)
        (view,) = rank.at
        assert [view.sizes[name] for name in SIZES[: len(logged.sizes)]] == logged.sizes


@pytest.mark.xdist_group("0.5.12.post1")
def test_logged_use_of_memory(clients: Callable[[str], Client]) -> None:
    """Red when PP4 on 0.5.12.post1 no longer uses the 9.8 to 10.5 of 35.57 GiB that were logged."""
    request = Request(deployment=NAMED["pro-h800-pp4"], views=frozenset({"final"}))
    observation = observed(clients("0.5.12.post1"), request)
    views = [rank.final for rank in observation.ranks if rank.final]
    # The log's figures are free memory before and after: with the request pool, one row of int32
    # for each of 257 slots and a context of 1,048,576 + 4 tokens, with what CUDA's caching
    # allocator rounds up (at most 2 MiB a buffer, 0.13 GiB here), and with whatever else a server
    # takes in between, of which the log says nothing: a tenth of a GiB is granted to it.
    request_pool = 257 * (1_048_576 + 4) * 4
    used = [(view.bytes + request_pool) / GiB for view in views]
    buffers = sum(part.buffers for part in views[0].pool.components.values())
    rounding = buffers * 2 / 1024 + 0.1
    assert min(used) == pytest.approx(9.80, abs=rounding)
    assert max(used) == pytest.approx(10.48, abs=rounding)


@pytest.mark.xdist_group("0.5.15.post1")
def test_profiled_tokens_of_a_real_pp4_run(clients: Callable[[str], Client]) -> None:
    """Red when the stages' capacities are not in the proportion that 8xH200 have shown.

    The run's budget is not on record: it is taken from the first stage, and predicts the others.
    Nor is its request limit, by which the stages reserve c128 state: hence the tolerance.
    """
    logged = [34.66, 26.81, 29.51, 26.81]
    deployment = NAMED["flash-h200-pp4"]
    client = clients("0.5.15.post1")

    def capacities(deployment: Deployment) -> list[float]:
        request = Request(deployment=deployment, views=frozenset({"own"}))
        views = [rank.own for rank in observed(client, request).ranks]
        return [view.tokens / 1e6 for view in views if view]

    first = capacities(deployment)[0]
    scaled = round(deployment.budget * logged[0] / first)
    assert capacities(deployment.with_budget(scaled)) == pytest.approx(logged, rel=0.003)
