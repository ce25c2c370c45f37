"""The coefficients of published models, worked out by hand from the releases' formulas.

bytes per full token, ``swa_full_tokens_ratio`` 0.1, no speculation. 0.5.12 charges the whole list
on every rank; from 0.5.13 on each rank is charged for its stage.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts.contract import Request
from contracts.deployment import Deployment, Speculation
from contracts.observation import Observation
from contracts.subject.client import Client
from contracts.units import GiB
from strategies.published import MODELS
from tests.releases import case, since

FLASH, PRO = "deepseek-v4-flash", "deepseek-v4-pro"

ERAS = {
    since("0.5.12", "0.5.12.post1"): {
        (FLASH, 1): [15955.85],
        (FLASH, 2): [15955.85] * 2,
        (FLASH, 4): [15955.85] * 4,
        (PRO, 1): [23749.84],
        (PRO, 4): [23749.84] * 4,
    },
    since("0.5.13", "0.5.14"): {
        (FLASH, 1): [15897.45],
        (FLASH, 2): [7383.86, 8513.59],
        (FLASH, 4): [3212.65, 4171.21, 4342.38, 4171.21],
        (PRO, 1): [23691.44],
        (PRO, 4): [5890.30, 5890.30, 5719.14, 6191.70],
    },
    since("0.5.15", "0.5.20"): {
        (FLASH, 1): [7705.45],
        (FLASH, 2): [3697.46, 4007.99],
        (FLASH, 4): [1574.25, 2123.21, 1884.78, 2123.21],
        (PRO, 1): [10993.84],
        (PRO, 4): [2613.50, 2613.50, 2851.94, 2914.90],
    },
    since("0.5.21"): {
        (FLASH, 1): [7086.75],
        (FLASH, 2): [3401.75, 3685.00],
        (FLASH, 4): [1457.00, 1944.75, 1740.25, 1944.75],
        (PRO, 1): [10115.25],
        (PRO, 4): [2410.25, 2410.25, 2614.75, 2680.00],
    },
}

CASES = [
    case(release, model, pp_size, expected, name=f"{model}-pp{pp_size}")
    for releases, table in ERAS.items()
    for release in releases
    for (model, pp_size), expected in table.items()
]


@pytest.mark.parametrize(("release", "model", "pp_size", "expected"), CASES)
def test_stage_coefficients(
    release: str,
    model: str,
    pp_size: int,
    expected: list[float],
    clients: Callable[[str], Client],
) -> None:
    """Red when a release is observed with another coefficient than its formulas give."""
    deployment = Deployment(
        model=MODELS[model],
        budget=60 * GiB,
        pp_size=pp_size,
        server_args={"swa_full_tokens_ratio": 0.1},
    )
    observation = clients(release).observe(Request(deployment=deployment))
    assert isinstance(observation, Observation), observation
    observed = [rank.configurator.bytes_per_full_token for rank in observation.ranks]
    # The figures are given to a hundredth of a byte, halves rounded either way.
    assert observed == pytest.approx(expected, abs=0.0051)


@pytest.mark.parametrize(
    ("release", "model", "expected"),
    [
        case("0.5.12", FLASH, 26071.21, name=FLASH),
        case("0.5.12.post1", PRO, 38986.27, name=PRO),
        case("0.5.15.post1", FLASH, 9259.90, name=FLASH),
        case("0.5.20", FLASH, 9259.90, name=FLASH),
    ],
)
def test_coefficients_with_eagle(
    release: str, model: str, expected: float, clients: Callable[[str], Client]
) -> None:
    """Red when the ring of the other speculation mode, or no draft reserve, is observed."""
    eagle = Speculation(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4)
    deployment = Deployment(
        model=MODELS[model],
        budget=60 * GiB,
        speculation=eagle,
        server_args={"swa_full_tokens_ratio": 0.1},
    )
    observation = clients(release).observe(Request(deployment=deployment))
    assert isinstance(observation, Observation), observation
    (rank,) = observation.ranks
    assert rank.configurator.bytes_per_full_token == pytest.approx(expected, abs=0.0051)
