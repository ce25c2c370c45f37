"""``python -m contracts list``: what must hold."""

from __future__ import annotations

import click

from contracts import law
from contracts.commands.common import (
    console_for,
)

__all__ = ["list_contracts"]


@click.command("list")
def list_contracts() -> None:
    """List the contracts, one line each.

    \b
    Example:
      python -m contracts list

    Exit code: 0.
    """
    console = console_for(None)
    width = max(map(len, law.ALL))
    for contract in law.ALL.values():
        line = f"{contract.id:<{width}}  {contract.statement}"
        console.print(line, markup=False, soft_wrap=True)
