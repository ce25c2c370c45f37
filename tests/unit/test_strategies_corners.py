"""The corners are deployments like any other; tox -e coverage-of-sglang says what they are for."""

from __future__ import annotations

import pytest

from contracts.deployment import Deployment
from contracts.trial import examples
from strategies.corners import CORNERS
from strategies.published import DEPLOYMENTS


@pytest.mark.parametrize("name", CORNERS)
def test_a_corner_is_written_and_read(name: str) -> None:
    """Red when a case of a corner's cannot be replayed."""
    assert Deployment.from_json(CORNERS[name].to_json()) == CORNERS[name]


def test_every_corner_is_judged() -> None:
    """Red when the gate judges published deployments alone, or one of two of a name."""
    named = {one.name: one.deployment for one in examples()}
    assert {name: named[name] for name in CORNERS} == dict(CORNERS)
    assert len(examples()) == len(DEPLOYMENTS) + len(CORNERS)
    assert [one.name for one in examples(["corner-no-chunks", "flash-pp4"])] == [
        "flash-pp4",
        "corner-no-chunks",
    ]
