"""The releases and contracts that figures of the tests speak of."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.subject.releases import RELEASES

#: The contracts about stages and slopes. What the others find is the ledger's.
CORE = (
    "stage-partition",
    "stage-slice",
    "layer-counts",
    "marginal-bytes",
    "rank-sum",
    "pp1-identity",
)


def since(first: str, last: str = RELEASES[-1]) -> tuple[str, ...]:
    """The releases from one to another, both included."""
    return RELEASES[RELEASES.index(first) : RELEASES.index(last) + 1]


def case(release: str, *values: Any, name: str = "") -> Any:
    """Test parameters for a release; one xdist worker serves all tests of a release."""
    marks = pytest.mark.xdist_group(release)
    return pytest.param(release, *values, marks=marks, id="-".join(filter(None, (release, name))))
