"""The command line: ``python -m contracts …``, a command a module of :mod:`contracts.commands`.

Exit codes: 0 held, 1 violated, 2 usage or bad input, 3 not judged. With ``--json -`` the document
goes to standard output and everything else to standard error.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from contracts import __version__
from contracts.commands.bisect import bisect, bisect_run
from contracts.commands.common import Exit
from contracts.commands.fetch import fetch
from contracts.commands.gate import gate
from contracts.commands.judge import judge
from contracts.commands.listing import list_contracts
from contracts.commands.matrix import matrix
from contracts.commands.merge import merge
from contracts.commands.observe import observe
from contracts.commands.replay import replay_case
from contracts.commands.worst import worst

__all__ = ["Exit", "main", "run"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="sglang-pool-contracts")
def main() -> None:
    """Judge whether SGLang's KV pool sizing and its KV pool allocation agree.

    A real SGLang sizes and allocates generated deployments on this machine, with or without a
    GPU. Exit codes: 0 held, 1 violated, 2 usage or bad input, 3 not judged.

    \b
    Examples:
      python -m contracts list
      python -m contracts judge --sglang 0.5.12
    """


_COMMANDS = (
    list_contracts,
    judge,
    observe,
    replay_case,
    gate,
    matrix,
    merge,
    bisect,
    bisect_run,
    worst,
    fetch,
)
for _command in _COMMANDS:
    main.add_command(_command)


def run() -> NoReturn:
    """The entry point: an interrupt must not look like a verdict."""
    try:
        main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; there is no verdict", err=True)
        sys.exit(Exit.INTERRUPTED)
    sys.exit(Exit.HELD)
