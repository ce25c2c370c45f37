"""The bounds of the shipped ledger, from the measurements: none is wider than needed.

    python -m contracts.hunt.bounds      write them into contracts/known-violations.toml

An entry is written by hand: contract, subjects, condition and a deployment that shows it. Its bound
is the factor farthest from 1 that was measured (``contracts.hunt.measure``) on any of its releases,
rounded up.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from contracts.hunt.measure import FILE, factors_of
from contracts.ledger import Entry, Ledger, load, shipped

__all__ = ["measured", "rounded_up", "tightened"]

JSON = Any

#: Digits behind the point, of which there are more where a bound is nearer to 1.
_FEWEST, _MOST = 4, 12

_BOUND = re.compile(r"^bound = [\d.]+$", re.MULTILINE)


def measured(entry: Entry, measurements: Mapping[str, JSON]) -> float | None:
    """How far from 1 an entry's violations are on its releases; None where none has a factor."""
    factors = filter(None, factors_of(entry, measurements))
    return max((max(factor, 1 / factor) for factor in factors), default=None)


def rounded_up(factor: float) -> float:
    """A factor of 1 or more, rounded up by a hundredth of what it is beyond 1 at most."""
    return next(
        bound
        for bound in (_up(factor, digits) for digits in range(_FEWEST, _MOST + 1))
        if bound - factor <= 0.01 * (factor - 1) or bound == _up(factor, _MOST)
    )


def _up(factor: float, digits: int) -> float:
    unit: float = 10.0**-digits
    # A number that is written with these digits exactly stays what it is.
    bound: float = round(math.ceil(factor / unit - 1e-9) * unit, digits)
    return bound if bound >= factor else round(bound + unit, digits)


def tightened(text: str, ledger: Ledger, measurements: Mapping[str, JSON]) -> str:
    """A ledger's text with the bounds that were measured; entries without a factor have none."""
    head, *tables = re.split(r"(?=^\[\[known\]\]$)", text, flags=re.MULTILINE)
    for place, entry in enumerate(ledger.entries):
        factor = measured(entry, measurements)
        if entry.bound is not None and factor is not None:
            tables[place] = _BOUND.sub(f"bound = {rounded_up(factor)}", tables[place])
    return "".join([head, *tables])


def main() -> None:
    """Write the shipped ledger's bounds."""
    path = shipped()
    measurements = json.loads(FILE.read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    path.write_text(tightened(text, load(path), measurements), encoding="utf-8")


if __name__ == "__main__":
    main()
