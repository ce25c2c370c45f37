"""Pages and compress ratios of a pool, as its buffers tell them."""

from __future__ import annotations

import re

from contracts.contract import NotJudged
from contracts.observation import Component, Pool

__all__ = ["page", "paged", "ratio"]

_COMPRESSED = re.compile(r"c([1-9]\d*)")


def ratio(kind: str | None) -> int | None:
    """The compress ratio of a kind of layers (``c4``), None where they are not compressed."""
    match = _COMPRESSED.fullmatch(kind or "")
    return int(match[1]) if match else None


def paged(pool: Pool) -> dict[str, Component]:
    """The components of a pool whose buffers are cut into pages."""
    return {
        name: component
        for name, component in pool.components.items()
        if component.buffers and component.page is not None and component.ring is None
    }


def page(pool: Pool) -> int:
    """The tokens of one page: as many as the largest row of a paged buffer stands for.

    A row of a compressed buffer stands for its ratio times as many tokens as it has slots. What a
    deployment states as its page size is no witness: SGLang replaces it.

    Raises:
        NotJudged: no buffer tells its page.
    """
    pages = [
        (component.page or 0) * (ratio(component.kind) or 1) for component in paged(pool).values()
    ]
    if not pages:
        raise NotJudged("the subject does not tell the page of any buffer")
    return max(pages)
