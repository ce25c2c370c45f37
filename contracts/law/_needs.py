"""What a judge needs of the evidence, or else :class:`NotJudged` with the reason."""

from __future__ import annotations

from collections.abc import Iterable

from contracts.contract import Evidence, NotJudged, Violation
from contracts.observation import Observation, Rank, View

__all__ = ["at", "decided", "final", "observations", "own", "same_requests"]


def observations(evidence: Evidence, count: int) -> tuple[Observation, ...]:
    """The planned observations, all of them."""
    found = evidence.observations
    if len(found) < count:
        raise NotJudged(f"{count} observations were planned, {len(found)} came back")
    return found[:count]


def decided(parts: Iterable[Iterable[Violation]]) -> list[Violation]:
    """What the parts of a judgement find, each for itself.

    A violation is one, whatever else could not be judged; but where nothing is found, a part
    that could not be judged leaves the contract undecided.
    """
    found: list[Violation] = []
    undecided: NotJudged | None = None
    for part in parts:
        try:
            found.extend(part)
        except NotJudged as reason:
            undecided = undecided or reason
    if undecided is not None and not found:
        raise undecided
    return found


def final(rank: Rank) -> View:
    """The view of what a server allocates on a rank."""
    if rank.final is None:
        raise NotJudged(f"rank {rank.rank} has no view of what a server finally allocates")
    return rank.final


def own(rank: Rank) -> View:
    """The view of a rank's own capacity, before the ranks agree on one."""
    if rank.own is None:
        raise NotJudged(f"rank {rank.rank} has no view of its own capacity")
    return rank.own


def at(rank: Rank, tokens: int) -> View:
    """The view of a rank at a token count."""
    # By the count, not by the place: evidence that serves several contracts has other views too.
    for view in rank.at:
        if view.tokens == tokens:
            return view
    raise NotJudged(f"rank {rank.rank} has no view at {tokens} tokens")


def same_requests(views: Iterable[View]) -> None:
    """Refuse to compare pools that were built for different numbers of running requests.

    Some state is kept a request, not a token: pools for different numbers of requests differ
    rightly.
    """
    counts = {view.max_running_requests for view in views}
    if len(counts) > 1:
        listed = ", ".join(sorted(map(str, counts)))
        raise NotJudged(f"the compared pools serve different max_running_requests: {listed}")
