"""Trials and observations as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from contracts.contract import Verdict
from contracts.observation import Observation, Rank, View
from contracts.report.components import rows
from contracts.trial import Trial

__all__ = ["observation_tables", "trial_line", "trials_table"]

_STYLES = {Verdict.HELD: "green", Verdict.VIOLATED: "red", Verdict.NOT_JUDGED: "yellow"}


def trial_line(trial: Trial) -> str:
    """A trial on one line, for the gate's footer."""
    line = (
        f"{trial.contract:<18} {trial.verdict:<10} {trial.deployments:>5} deployments "
        f"{trial.rejected:>4} rejected"
    )
    line += f"  {trial.known} known" if trial.known else ""
    return line if trial.reason is None else f"{line}  {trial.reason}"


def trials_table(trials: Sequence[Trial]) -> Table:
    """One row per contract."""
    table = Table(box=None, pad_edge=False)
    table.add_column("contract")
    table.add_column("verdict")
    for heading in ("worst", "deployments", "known", "rejected"):
        table.add_column(heading, justify="right")
    table.add_column("reason", overflow="fold")
    for trial in trials:
        table.add_row(
            trial.contract,
            Text(trial.verdict, style=_STYLES[trial.verdict]),
            _factor(trial.factor),
            str(trial.deployments),
            str(trial.known or ""),
            str(trial.rejected),
            Text(trial.reason or ""),  # a plain text would lose its brackets as markup
        )
    return table


def observation_tables(observation: Observation) -> Iterator[Table]:
    """Per rank: bytes charged for the tokens against bytes allocated, by component.

    ``layers`` are those that the configurator charges. What is charged by request instead has no
    number under ``charged``.
    """
    for rank in observation.ranks:
        if rank.final is not None:
            yield _rank_table(rank, rank.final, len(observation.ranks))


def _rank_table(rank: Rank, view: View, of: int) -> Table:
    stage = f"[{rank.start_layer},{rank.end_layer})"
    own = "" if rank.own is None else f", own capacity {rank.own.tokens:,}"
    table = Table(
        title=f"rank {rank.rank} of {of} {stage}: {view.tokens:,} tokens{own} (bytes)",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("component", no_wrap=True)
    for heading in ("layers", "buffers", "rows", "charged", "allocated", "factor"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows(rank, view):
        numbers = (row.layers, row.buffers, row.rows, row.charged, row.allocated)
        table.add_row(row.component, *map(_number, numbers), _factor(row.factor))
    return table


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _factor(value: float | None) -> str:
    return "" if value is None else f"×{value:.4g}"
