"""What a contract is: a statement, the evidence that it needs, and a judge.

A judge is a pure function from evidence to violations. It knows no SGLang version: what a subject
does not have, the observation says so, and the judge raises :class:`NotJudged`.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from contracts.deployment import Deployment
from contracts.observation import Observation, Outcome

__all__ = [
    "Contract",
    "Evidence",
    "NotApplicable",
    "NotJudged",
    "Request",
    "Verdict",
    "Violation",
    "factor",
]

JSON = Any


class Verdict(enum.StrEnum):
    """What is known about a contract and a subject. There is no silent pass."""

    HELD = "held"
    VIOLATED = "violated"
    NOT_JUDGED = "not judged"


class NotJudged(Exception):
    """The evidence does not decide the contract; the text says why."""


class NotApplicable(Exception):
    """The contract says nothing about this deployment; the text says why. It is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One observation that a contract needs.

    ``views`` may name ``final`` and ``own`` (see :class:`contracts.observation.Rank`), ``capacity``
    for the token count that the ranks agree on without any pool, ``charge`` to find each view's
    charge, and ``transfers`` to read the transfer lists. ``tokens`` are token counts to build
    further views at. ``pipeline=False`` asks for the path that a server takes whose model knows no
    pipeline stages.
    """

    deployment: Deployment
    views: frozenset[str] = frozenset()
    tokens: tuple[int, ...] = ()
    pipeline: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The observations that a contract asked for, in the order in which it asked.

    ``baseline`` holds the same requests' answers from the baseline subject, if there is one. A
    contract that judges refusals gets all answers as ``outcomes``, refusals and failures too.
    """

    observations: tuple[Observation, ...]
    baseline: tuple[Observation, ...] = ()
    outcomes: tuple[Outcome, ...] = ()

    @property
    def observation(self) -> Observation:
        """The first observation: the deployment that is judged."""
        return self.observations[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One disagreement, as data.

    ``observed`` and ``expected`` are numbers or texts as they appear in ``message``; ``factor`` is
    observed / expected where both are numbers and expected is not 0, else None. ``bytes`` are those
    that are in question on the rank: lost, too many or unaccounted for; None where the
    disagreement is none about bytes.
    """

    contract: str
    rank: int | None
    component: str | None
    observed: JSON
    expected: JSON
    factor: float | None
    message: str
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """A contract, built from the module in ``contracts.law`` that states it."""

    id: str
    module: ModuleType
    plan: Callable[[Deployment], tuple[Request, ...]]
    judge: Callable[[Evidence], Iterator[Violation]]
    needs_baseline: bool = False
    single_rank: bool = False
    """Whether the contract speaks of pp_size 1 alone, so that other deployments tell no more."""
    judges_refusals: bool = False
    """Whether a refusal or a failure of the subject is evidence, and not the end of judging."""

    def judged(self, deployment: Deployment) -> Deployment:
        """The deployment that is judged in a drawn one's place: the same at pp_size 1, where the
        contract speaks of that alone."""
        return deployment.single_rank() if self.single_rank else deployment

    @property
    def statement(self) -> str:
        """The statement: the first paragraph of the module's docstring, on one line."""
        first = inspect.cleandoc(self.module.__doc__ or "").split("\n\n")[0]
        return " ".join(first.split()).replace("``", "`")

    @property
    def explanation(self) -> str:
        """Everything the module says after the statement: why it matters, where it comes from."""
        said = inspect.cleandoc(self.module.__doc__ or "").partition("\n\n")[2]
        return said.replace("``", "`")


def factor(observed: float, expected: float) -> float | None:
    """observed / expected, or None where expected is 0."""
    return None if expected == 0 else float(observed / expected)
