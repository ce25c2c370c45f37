"""How a contract says that it is violated: one message shape for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from contracts.contract import Violation, factor

__all__ = ["by_distance", "contract_id", "number", "numbers", "ratio_lists", "violation"]

Number = int | float | Fraction

#: A list of ratios no longer than this is shown in full.
_SHOWN = 8


def contract_id(module: str) -> str:
    """The id of the contract that a module of this package states: its name, with hyphens."""
    return module.rpartition(".")[2].replace("_", "-")


def violation(
    contract: str,
    *,
    rank: int | None,
    of: int,
    what: str,
    observed: Number | str,
    expected: Number | str,
    source: str,
    component: str | None = None,
    ratio: float | None = None,
    details: Iterable[str] = (),
    in_question: Number | None = None,
) -> Violation:
    """A violation whose message has the shape that all contracts share.

    ``rank`` is counted from 0 as SGLang does, None where the ranks are judged together; ``of`` is
    how many there are. ``source`` says where the expected value comes from. ``ratio`` is the
    factor where observed and expected are texts; between two numbers it is computed.
    ``in_question`` are the bytes that disagree, in either direction.
    """
    if not isinstance(observed, str) and not isinstance(expected, str):
        ratio = factor(float(observed), float(expected))
        shown, wanted = numbers(observed, expected)
    else:
        shown, wanted = _text(observed), _text(expected)
    message = f"{contract}: {_where(rank, of)}: {what} = {shown}, expected {wanted} ({source})"
    message = "; ".join([message, *details])
    return Violation(
        contract=contract,
        rank=rank,
        component=component,
        observed=_json(observed, shown),
        expected=_json(expected, wanted),
        factor=ratio,
        message=message if ratio is None else f"{message} — ×{_factor(ratio)}",
        bytes=None if in_question is None else round(abs(Fraction(in_question))),
    )


def by_distance(violations: Iterable[Violation]) -> list[Violation]:
    """The most telling first: the farther its factor is from 1, the earlier.

    A violation without a factor compares with nothing (0 was expected, or another thing
    altogether): it goes before all that are merely off by a factor.
    """
    return sorted(violations, key=_distance, reverse=True)


def number(value: Number) -> str:
    """A number as a message shows it: whole, or with ten significant digits."""
    return _digits(value, 10)


def numbers(one: Number, other: Number) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to tell them apart."""
    short = (number(one), number(other))
    if short[0] != short[1] or one == other:
        return short
    return (_digits(one, 17), _digits(other, 17))


def ratio_lists(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[str, str, float | None]:
    """Two differing lists of ratios as texts, and the factor between their lengths.

    Long lists are cut to where they begin to differ.
    """
    pairs = enumerate(zip(one, other, strict=False))
    differ = next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))
    # As many ratios but other ones: there is no factor to speak of, and ×1 would mislead.
    ratio = None if len(one) == len(other) else factor(len(one), len(other))
    return (_excerpt(one, differ), _excerpt(other, differ), ratio)


def _excerpt(ratios: tuple[int, ...], around: int) -> str:
    if len(ratios) <= _SHOWN:
        return str(ratios)
    start = max(0, min(around - 2, len(ratios) - _SHOWN))
    shown = [str(ratio) for ratio in ratios[start : start + _SHOWN]]
    before = ["…"] if start else []
    after = ["…"] if start + _SHOWN < len(ratios) else []
    return f"({', '.join([*before, *shown, *after])}: {len(ratios)} in all)"


def _digits(value: Number, digits: int) -> str:
    exact = Fraction(value)
    if exact.denominator == 1:
        return str(exact.numerator)
    # Never so few digits that a count of bytes turns into an exponent.
    whole = len(str(int(abs(exact))))
    return f"{float(value):.{max(digits, whole + 2)}g}"


def _text(value: Number | str) -> str:
    return value if isinstance(value, str) else number(value)


def _json(value: Number | str, shown: str) -> int | float | str:
    """The value as data: a number or a text, as it appears in the message."""
    if isinstance(value, str | int):
        return value
    return int(shown) if shown.lstrip("-").isdigit() else float(shown)


def _where(rank: int | None, of: int) -> str:
    if rank is not None:
        return f"rank {rank} of {of}"
    return "the only rank" if of == 1 else f"all {of} ranks"


def _factor(ratio: float) -> str:
    """A factor with two decimals, or as many as show two digits of what parts it from 1."""
    distance = abs(ratio - 1)
    if 0 < ratio < 0.01 or distance == 0:
        return f"{ratio:.3g}"
    return f"{ratio:.{max(2, math.ceil(-math.log10(distance)) + 1)}f}"


def _distance(violation: Violation) -> float:
    if violation.factor is None or violation.factor <= 0:
        return math.inf
    return abs(math.log(violation.factor))
