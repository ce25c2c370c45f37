"""Bytes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.units import GiB, MiB, TiB, format_bytes, parse_bytes

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=200)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("60GiB", 60 * GiB),
        ("512 MiB", 512 * MiB),
        ("1.5TiB", 3 * TiB // 2),
        ("312.5MiB", 327_680_000),
        ("1073741824", GiB),
        ("7 B", 7),
        ("2KiB", 2048),
        (" 1 gib ", GiB),
        ("0.5KIB", 512),
        ("1KB", 10**3),
        ("1MB", 10**6),
        ("60GB", 60 * 10**9),
        ("1TB", 10**12),
    ],
)
def test_parse(text: str, size: int) -> None:
    """Red when a unit changes its value: GB is 10**9 and GiB is 2**30."""
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "60GB?", "60 G", "-1GiB", "1e9", "1,5GiB", "1_000", "60GiB 1", "½GiB", "∞"]
)
def test_no_size(text: str) -> None:
    """Red when something that is no size is read as one, or the sentence does not show the way."""
    with pytest.raises(ValueError, match="is no size in bytes; write it as 60GiB, 512MiB") as error:
        parse_bytes(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize("text", ["0", "0GiB", "0.3B", "1.0000000001KiB"])
def test_no_whole_positive_size(text: str) -> None:
    """Red when a part of a byte is rounded away, or nothing passes for a budget."""
    with pytest.raises(ValueError, match="is not a whole, positive number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (MiB - 1, "1024 KiB"),
        (327_680_000, "312.5 MiB"),
        (60 * GiB, "60 GiB"),
        (46_883 * MiB, "45.78 GiB"),
        (100 * GiB, "100 GiB"),
        (3 * TiB, "3 TiB"),
        (-2 * GiB, "-2 GiB"),
    ],
)
def test_format(size: int, text: str) -> None:
    """Red when a size is shown in another unit, with other decimals or with zeros cut off its
    whole part."""
    assert format_bytes(size) == text


@FIXED
@given(st.integers(1, 2**50))
def test_what_is_formatted_can_be_parsed(size: int) -> None:
    """Red when a size as we show it is none as we read it, or is off by more than its decimals."""
    shown = format_bytes(size)
    unit = parse_bytes(f"1{shown.split()[1]}")
    written, _, decimals = shown.split()[0].partition(".")
    read = int(written) + (int(decimals) / 10 ** len(decimals) if decimals else 0)
    assert abs(read * unit - size) <= unit / 200


@FIXED
@given(st.integers(1, 2**60))
def test_plain_numbers_are_bytes(size: int) -> None:
    """Red when a number without a unit is taken for anything but bytes."""
    assert parse_bytes(str(size)) == parse_bytes(f"{size} B") == size
