"""The matrix as a table for a terminal: a row a contract, a column a subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from contracts.contract import Verdict

__all__ = ["grid"]

JSON = Any

_STYLES = {Verdict.HELD: "green", Verdict.VIOLATED: "red", Verdict.NOT_JUDGED: "yellow"}


def grid(records: Sequence[JSON]) -> Table:
    """The worst factor of each contract on each subject, or the verdict where there is none."""
    table = Table(box=None, pad_edge=False)
    table.add_column("contract", no_wrap=True)
    for record in records:
        table.add_column(record["subject"]["label"], justify="right", no_wrap=True)
    verdicts = [{one["id"]: one for one in record["contracts"]} for record in records]
    for name in dict.fromkeys(name for record in verdicts for name in record):
        table.add_row(name, *(_cell(record.get(name)) for record in verdicts))
    return table


def _cell(contract: Mapping[str, JSON] | None) -> Text:
    if contract is None:
        return Text("–", style="dim")
    verdict = Verdict(contract["verdict"])
    factor = contract["worst"] and contract["worst"]["factor"]
    shown = str(verdict) if factor is None else f"×{factor:.4g}"
    return Text(shown, style=_STYLES[verdict])
