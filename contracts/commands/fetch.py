"""``python -m contracts fetch``: releases for later, without a network."""

from __future__ import annotations

import click

from contracts.commands.common import (
    resolved,
)

__all__ = ["fetch"]


@click.command()
@click.argument("subjects", nargs=-1, required=True, metavar="SUBJECT…")
def fetch(subjects: tuple[str, ...]) -> None:
    """Fetch SGLang releases into the cache, for later use without a network.

    \b
    Example:
      python -m contracts fetch 0.5.12 0.5.23

    Exit codes: 0 all are there, 2 no such release, 3 one cannot be fetched.
    """
    for subject in subjects:
        resolved(subject)
