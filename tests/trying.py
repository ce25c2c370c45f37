"""Trials of named contracts on one client, as tests ask for them."""

from __future__ import annotations

import dataclasses
from typing import Any

from contracts import law
from contracts.observation import SubjectInfo
from contracts.settings import at_start
from contracts.subject.client import Client
from contracts.trial import Trial, Workforce, examples, run

__all__ = ["tried"]


class _OneProcess(Workforce):
    """Clients that are asked for nothing that takes a process of its own: each start takes as long
    as some dozens of deployments."""

    @property
    def info(self) -> SubjectInfo:
        """What the subject says of itself, without the variables that it reads as it starts."""
        told = super().info
        known = told.capabilities
        later = {name for name in known.variables if not at_start({name: ""})}
        return dataclasses.replace(
            told, capabilities=dataclasses.replace(known, variables=frozenset(later))
        )


def tried(
    client: Client,
    *names: str,
    baseline: Client | None = None,
    one_process: bool = False,
    **options: Any,
) -> dict[str, Trial]:
    """The trials by contract. ``options`` are those of :func:`contracts.trial.run`; with
    ``one_process`` only such deployments are judged as one process of the subject serves."""
    clients = ((client,), () if baseline is None else (baseline,))
    workforce = (_OneProcess if one_process else Workforce)(*clients)
    if one_process:
        options.setdefault(
            "names", [one.name for one in examples() if not at_start(one.deployment.env)]
        )
    trials = run([law.get(name) for name in names], workforce, **options)
    return {trial.contract: trial for trial in trials}
