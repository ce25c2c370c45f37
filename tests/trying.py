"""Trials of named contracts on one client, as tests ask for them."""

from __future__ import annotations

from typing import Any

from contracts import law
from contracts.subject.client import Client
from contracts.trial import Trial, Workforce, run

__all__ = ["tried"]


def tried(
    client: Client, *names: str, baseline: Client | None = None, **options: Any
) -> dict[str, Trial]:
    """The trials by contract. ``options`` are those of :func:`contracts.trial.run`."""
    workforce = Workforce((client,), () if baseline is None else (baseline,))
    trials = run([law.get(name) for name in names], workforce, **options)
    return {trial.contract: trial for trial in trials}
