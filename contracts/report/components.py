"""What one rank is charged and what it allocates, component by component."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from contracts.observation import Component, Rank, View

__all__ = ["Row", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One component, the draft, or the sum. None is what the subject does not tell, or what has no
    number of its own: ``charged`` of what is charged by request instead of by token."""

    component: str
    layers: int | None
    buffers: int | None
    rows: int | None
    charged: int | None
    allocated: int
    factor: float | None


def rows(rank: Rank, view: View) -> list[Row]:
    """The components of a rank, then its draft if it owns one, then the sum. Charges are those of
    the view's tokens, in bytes, rounded."""
    return [*_components(rank, view), *_draft(rank, view), _total(rank, view)]


def _components(rank: Rank, view: View) -> Iterator[Row]:
    charges = rank.configurator.charges or {}
    for name in sorted({*view.pool.components, *charges}):
        component = view.pool.components.get(name, Component(buffers=0, rows=0, bytes=0))
        charged = round(charges[name] * view.tokens) if name in charges else None
        yield _row(name, rank.configurator.layers.get(component.kind or ""), component, charged)


def _draft(rank: Rank, view: View) -> Iterator[Row]:
    if view.draft is None:
        return
    parts = view.draft.components.values()
    whole = Component(
        buffers=sum(part.buffers for part in parts),
        rows=sum(part.rows for part in parts),
        bytes=view.draft.bytes,
    )
    configurator = rank.configurator
    reserve = configurator.bytes_per_full_token - configurator.target_bytes_per_full_token
    yield _row("draft", None, whole, round(reserve * view.tokens))


def _row(name: str, layers: int | None, component: Component, charged: int | None) -> Row:
    return Row(
        component=name,
        layers=layers,
        buffers=component.buffers,
        rows=component.rows,
        charged=charged,
        allocated=component.bytes,
        factor=_quotient(charged, component.bytes),
    )


def _total(rank: Rank, view: View) -> Row:
    """The sums. Where a component is charged by request and not by token, there is no factor."""
    charged = round(rank.configurator.bytes_per_full_token * view.tokens)
    all_charged = set(view.pool.components) <= set(rank.configurator.charges or {})
    return Row(
        component="total",
        layers=rank.configurator.layers.get("total"),
        buffers=None,
        rows=None,
        charged=charged,
        allocated=view.bytes,
        factor=_quotient(charged, view.bytes) if all_charged else None,
    )


def _quotient(charged: int | None, allocated: int) -> float | None:
    return None if charged is None or allocated == 0 else float(Fraction(charged, allocated))
