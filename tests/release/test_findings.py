"""The table in docs/findings.md holds what the releases are observed to do."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from contracts import law
from contracts.contract import Request
from contracts.deployment import Deployment
from contracts.observation import Observation
from contracts.subject.client import Client
from contracts.subject.releases import RELEASES
from contracts.units import GiB
from strategies.published import MODELS
from tests.releases import case

FINDINGS = Path(__file__).parents[2] / "docs" / "findings.md"


def row(release: str, client: Client) -> str:
    """One release's marginal bytes for Flash at pp_size 1: charged, allocated, where they part."""
    deployment = Deployment(
        model=MODELS["deepseek-v4-flash"],
        budget=60 * GiB,
        server_args={"swa_full_tokens_ratio": 0.1},
    )
    (request,) = law.get("marginal-bytes").plan(deployment)
    assert request == Request(deployment=deployment, tokens=request.tokens)
    observation = client.observe(request)
    assert isinstance(observation, Observation), observation
    (rank,) = observation.ranks
    below, above = rank.at[0], rank.at[1]
    step = above.tokens - below.tokens
    grown = {
        name: Fraction(part.bytes - below.pool.components[name].bytes, step)
        for name, part in above.pool.components.items()
    }
    charges = rank.configurator.charges
    assert charges is not None
    parts = [
        f"{name} {charges.get(name, 0.0):.2f} → {float(rate):.2f}"
        for name, rate in sorted(grown.items())
        if abs(charges.get(name, 0.0) - rate) > 1e-6
    ]
    charged, allocated = rank.configurator.target_bytes_per_full_token, float(sum(grown.values()))
    where = ", ".join(parts) or "exact"
    return f"| {release} | {charged:.2f} | {allocated:.2f} | {charged / allocated:.4f} | {where} |"


@pytest.mark.parametrize("release", [case(release) for release in RELEASES])
def test_marginal_bytes_row(release: str, clients: Callable[[str], Client]) -> None:
    """Red when a release's row in docs/findings.md is not what is observed."""
    assert row(release, clients(release)) in FINDINGS.read_text(encoding="utf-8").splitlines()
