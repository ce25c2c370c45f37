"""Trials and observations as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from rich.table import Table
from rich.text import Text

from contracts.contract import Verdict
from contracts.observation import Observation, Rank, View
from contracts.trial import Trial
from contracts.units import format_bytes

__all__ = ["observation_tables", "trial_line", "trials_table"]

_STYLES = {Verdict.HELD: "green", Verdict.VIOLATED: "red", Verdict.NOT_JUDGED: "yellow"}


def trial_line(trial: Trial) -> str:
    """A trial on one line, for the gate's footer."""
    line = (
        f"{trial.contract:<18} {trial.verdict:<10} {trial.deployments:>5} deployments "
        f"{trial.rejected:>4} rejected {trial.seconds:>7.1f} s"
    )
    return line if trial.reason is None else f"{line}  {trial.reason}"


def trials_table(trials: Sequence[Trial]) -> Table:
    """One row per contract."""
    table = Table(box=None, pad_edge=False)
    table.add_column("contract")
    table.add_column("verdict")
    for heading in ("worst", "deployments", "rejected", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("reason", overflow="fold")
    for trial in trials:
        table.add_row(
            trial.contract,
            Text(trial.verdict, style=_STYLES[trial.verdict]),
            _factor(trial.worst),
            str(trial.deployments),
            str(trial.rejected),
            f"{trial.seconds:.1f}",
            Text(trial.reason or ""),  # a plain text would lose its brackets as markup
        )
    return table


def observation_tables(observation: Observation) -> Iterator[Table]:
    """Per rank: what is charged against what is allocated, by component, with the factor."""
    for rank in observation.ranks:
        if rank.final is not None:
            yield _rank_table(rank, rank.final, len(observation.ranks))


def _rank_table(rank: Rank, view: View, of: int) -> Table:
    stage = f"[{rank.start_layer},{rank.end_layer})"
    own = "" if rank.own is None else f", own capacity {rank.own.tokens:,}"
    table = Table(
        title=f"rank {rank.rank} of {of}, layers {stage}: {view.tokens:,} tokens{own}",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
    )
    table.add_column("component")
    headings = ("layers charged", "buffers", "rows", "bytes charged", "bytes allocated", "factor")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in _component_rows(rank, view):
        table.add_row(*row)
    table.add_section()
    table.add_row(*_total_row(rank, view))
    return table


def _component_rows(rank: Rank, view: View) -> Iterator[tuple[str, ...]]:
    charges = rank.configurator.charges
    names = sorted({*view.pool.components, *(charges or {})})
    for name in names:
        component = view.pool.components.get(name)
        charge = None if charges is None else charges.get(name)
        charged = None if charge is None else round(charge * view.tokens)
        allocated = 0 if component is None else component.bytes
        kind = component.kind if component else None
        layers = rank.configurator.layers.get(kind) if kind else None
        yield (
            name,
            _number(layers),
            _number(component.buffers if component else 0),
            _number(component.rows if component else 0),
            _bytes(charged),
            _bytes(allocated),
            _factor(_quotient(charged, allocated)),
        )
    if view.draft is not None:
        reserve = rank.configurator.bytes_per_full_token - (
            rank.configurator.target_bytes_per_full_token
        )
        charged = round(reserve * view.tokens)
        buffers = sum(part.buffers for part in view.draft.components.values())
        rows = sum(part.rows for part in view.draft.components.values())
        share = _factor(_quotient(charged, view.draft.bytes))
        yield (
            "draft",
            "",
            _number(buffers),
            _number(rows),
            _bytes(charged),
            _bytes(view.draft.bytes),
            share,
        )


def _total_row(rank: Rank, view: View) -> tuple[str, ...]:
    charged = round(rank.configurator.bytes_per_full_token * view.tokens)
    return (
        "total per token",
        _number(rank.configurator.layers.get("total")),
        "",
        "",
        _bytes(charged),
        _bytes(view.bytes),
        _factor(_quotient(charged, view.bytes)),
    )


def _quotient(charged: int | None, allocated: int) -> float | None:
    return None if charged is None or allocated == 0 else float(Fraction(charged, allocated))


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _bytes(value: int | None) -> str:
    return "" if value is None else f"{value:,} ({format_bytes(value)})"


def _factor(value: float | None) -> str:
    return "" if value is None else f"×{value:.4g}"
