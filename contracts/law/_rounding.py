"""The slack that float64 arithmetic in a configurator earns, and no more.

A coefficient is a sum of about seven positive terms. Into it go: the rounding of the SWA ratio to
binary (1), up to four products a term (4), six additions (6), and the factor for a draft, which is
put in and taken out again (4). Since no term is negative, each of these 15 steps moves the result
by at most 2**-53 of itself, which is less than a unit in its last place; 16 units bound them all.
"""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["FLOAT_ROUNDINGS", "float_rounding", "say"]

FLOAT_ROUNDINGS = 16


def float_rounding(charge: float) -> Fraction:
    """How far float64 rounding can have moved a charge."""
    return FLOAT_ROUNDINGS * Fraction(math.ulp(charge))


def say(slack: Fraction) -> str:
    """The slack, by its name, for a message."""
    return f"float_rounding ±{float(slack):.2g}"
