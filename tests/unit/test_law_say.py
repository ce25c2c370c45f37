"""The one message shape."""

from fractions import Fraction
from typing import Any

import pytest

from contracts.contract import Violation
from contracts.law._say import by_distance, number, numbers, ratio_lists, violation


def say(observed: Any, expected: Any, **fields: Any) -> Violation:
    stated = {"rank": 1, "of": 2, "what": "c4_kv layers charged", "source": "allocated", **fields}
    return violation("layer-counts", observed=observed, expected=expected, **stated)


def test_the_shape_of_design_section_6() -> None:
    """Red when the message shape changes by a character."""
    assert say(2, 1).message == (
        "layer-counts: rank 1 of 2: c4_kv layers charged = 2, expected 1 (allocated) — ×2.00"
    )


def test_no_factor_where_zero_is_expected() -> None:
    """Red when a division by zero is reported as a factor of 0 or of infinity."""
    found = say(2, 0)
    assert found.factor is None
    assert found.message.endswith("= 2, expected 0 (allocated)")


def test_details_stand_between_the_source_and_the_factor() -> None:
    found = say(2, 1, details=["a 1", "b 2"])
    assert found.message.endswith("expected 1 (allocated); a 1; b 2 — ×2.00")


@pytest.mark.parametrize(("of", "where"), [(2, "all 2 ranks"), (1, "the only rank")])
def test_ranks_that_are_judged_together(of: int, where: str) -> None:
    assert say(2, 1, rank=None, of=of).message.startswith(f"layer-counts: {where}: ")


@pytest.mark.parametrize(
    ("observed", "expected", "shown"),
    [
        (1592, 1598, "×0.9962"),
        (1047, 1000, "×1.047"),
        (1, 2, "×0.50"),
        (0, 3, "×0.00"),
        (1, 1000, "×0.001"),
        (8, 1, "×8.00"),
        (10**9 + 1, 10**9, "×1.0000000010"),
    ],
)
def test_a_factor_is_never_rounded_to_one(observed: int, expected: int, shown: str) -> None:
    """Red when a small but real disagreement is shown as ×1.00."""
    assert say(observed, expected).message.rpartition(" — ")[2] == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (64 * 2**30, "68719476736"),
        (Fraction(585, 8), "73.125"),
        (Fraction(73), "73"),
        (15897.45, "15897.45"),
        (0.1 + 0.2, "0.3"),
        (Fraction(123456789012345, 2), "61728394506172.5"),
    ],
)
def test_numbers_are_shown_as_people_write_them(value: float | Fraction, shown: str) -> None:
    """Red when a count of bytes is shown with an exponent or a tail of float digits."""
    assert number(value) == shown


def test_two_different_numbers_never_look_the_same() -> None:
    """Red when a message says that 0.3 was observed and 0.3 expected."""
    assert numbers(0.1 + 0.2, 0.3) == ("0.30000000000000004", "0.29999999999999999")
    assert numbers(73.0, 73) == ("73", "73")


def test_data_and_message_show_the_same_values() -> None:
    """Red when JSON gets a Fraction, or other digits than the text."""
    found = say(0.1 + 0.2, Fraction(585, 8))
    assert (found.observed, found.expected) == (0.3, 73.125)
    assert type(say(Fraction(4), 2).observed) is int
    assert say("[0,2)", "[0,1)").observed == "[0,2)"


def test_the_most_telling_violation_comes_first() -> None:
    """Red when violations are left in the order of ranks, or sorted by size alone."""
    found = [say(11, 10), say(1, 4), say(2, 1), say(5, 0)]
    assert [one.factor for one in by_distance(found)] == [None, 0.25, 2.0, 1.1]


def test_long_ratio_lists_are_cut_to_where_they_differ() -> None:
    """Red when two lists that differ far behind are shown by their equal beginnings."""
    one = (0, 0, *(4, 128) * 20)
    other = (*one[:30], 128, *one[31:])
    shown, wanted, ratio = ratio_lists(one, other)
    assert shown == "(…, 4, 128, 4, 128, 4, 128, 4, 128, …: 42 in all)"
    assert wanted == "(…, 4, 128, 128, 128, 4, 128, 4, 128, …: 42 in all)"
    assert ratio is None


def test_ratio_lists_of_different_length_have_a_factor() -> None:
    assert ratio_lists((4, 4), (4,)) == ("(4, 4)", "(4,)", 2.0)


def test_ratio_lists_of_different_length_are_cut_to_where_the_shorter_ends() -> None:
    """Red when the window around the difference leaves a list."""
    whole = (0, *(4, 128) * 6)
    shown, wanted, ratio = ratio_lists(whole, whole[:9])
    assert shown == "(…, 4, 128, 4, 128, 4, 128, 4, 128: 13 in all)"
    assert wanted == "(…, 4, 128, 4, 128, 4, 128, 4, 128: 9 in all)"
    assert ratio == 13 / 9
    assert ratio_lists(whole, (4, *whole[1:]))[0] == "(0, 4, 128, 4, 128, 4, 128, 4, …: 13 in all)"
    assert ratio_lists(whole[:8], (4,))[0] == "(0, 4, 128, 4, 128, 4, 128, 4)"


def test_a_number_and_a_text_have_no_factor() -> None:
    found = say(Fraction(3, 2), "nothing")
    assert (found.factor, found.observed, found.expected) == (None, 1.5, "nothing")
    assert found.message.endswith("= 1.5, expected nothing (allocated)")


@pytest.mark.parametrize(("stated", "kept"), [(None, None), (-5, 5), (Fraction(7, 2), 4), (0, 0)])
def test_bytes_in_question(stated: Fraction | int | None, kept: int | None) -> None:
    """Red when the bytes that disagree are signed, broken, or 0 where they are no bytes."""
    made = violation(
        "rank-sum", rank=0, of=1, what="x", observed=1, expected=2, source="y", in_question=stated
    )
    assert made.bytes == kept
