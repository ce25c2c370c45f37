"""Bytes as people write them: ``60GiB``, ``512 MiB``, ``1.5TiB``."""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["GiB", "MiB", "TiB", "format_bytes", "parse_bytes"]

MiB = 1 << 20
GiB = 1 << 30
TiB = 1 << 40

_UNITS = {
    "B": 1,
    "KIB": 1 << 10,
    "MIB": MiB,
    "GIB": GiB,
    "TIB": TiB,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str) -> int:
    """The number of bytes that a text such as ``60GiB`` or ``1073741824`` states.

    ``GB`` is 10**9 bytes and ``GiB`` is 2**30; SGLang's log writes GB where it means GiB.

    Raises:
        ValueError: the text states no whole, positive number of bytes.
    """
    match = _WRITTEN.fullmatch(text)
    unit = (match[2].upper() or "B") if match else ""
    if match is None or unit not in _UNITS:
        raise ValueError(f"{text!r} is no size in bytes; write it as 60GiB, 512MiB or 1073741824")
    size = Fraction(match[1]) * _UNITS[unit]
    if size.denominator != 1 or size < 1:
        raise ValueError(f"{text!r} is not a whole, positive number of bytes")
    return int(size)


def format_bytes(size: int) -> str:
    """A size with the largest binary unit that states it in at most two decimals."""
    for name, unit in (("TiB", TiB), ("GiB", GiB), ("MiB", MiB), ("KiB", 1 << 10)):
        if abs(size) >= unit:
            return f"{size / unit:.2f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{size} B"
