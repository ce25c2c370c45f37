"""What docs/findings.md works out by hand: lines of a name, a formula and its result."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Line", "lines", "value"]

_LINE = re.compile(
    r"^ {4}(?P<name>\S.*?) {2,}(?P<formula>\S.*) = (?P<result>[\d,.]+)$", re.MULTILINE
)
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line: what is worked out, how, and what comes out as it is written."""

    name: str
    formula: str
    result: str

    @property
    def decimals(self) -> int:
        """The digits behind the point that the result is written with."""
        return len(self.result.partition(".")[2])


def lines(page: str) -> Iterator[Line]:
    """All lines of a page that work something out."""
    for match in _LINE.finditer(page):
        yield Line(**match.groupdict())


def value(formula: str) -> Fraction:
    """What a formula of numbers, + - × / and parentheses comes to, exactly."""
    return _value(ast.parse(formula.replace("×", "*").replace(",", ""), mode="eval").body, formula)


def _value(node: ast.expr, formula: str) -> Fraction:
    match node:
        case ast.Constant(value=int() | float()):
            return Fraction(ast.unparse(node))
        case ast.BinOp(left, op, right):
            return _OPERATORS[type(op)](_value(left, formula), _value(right, formula))
        case _:
            raise ValueError(f"{formula}: {ast.unparse(node)} is no number")
