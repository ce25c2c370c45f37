"""The matrix as a page."""

from __future__ import annotations

from typing import Any

__all__ = ["page"]

JSON = Any


def page(document: JSON) -> str:
    """The page of a matrix."""
    raise NotImplementedError(document)
