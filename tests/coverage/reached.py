"""What was reached of one source file, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Branch", "Reached"]

#: From the line of a statement that branches to the line that runs next, or to a negative number
#: where that leaves the function.
Branch = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reached:
    """Lines and branches that were run, and those that were not."""

    lines: frozenset[int]
    missing_lines: frozenset[int]
    branches: frozenset[Branch]
    missing_branches: frozenset[Branch]
