"""The worst case: the deployment on which a contract is off by the largest factor.

The gate's deployments come first, then two ways to go further take turns: Hypothesis draws with the
factor as its target, and from the best deployments so far, published ones among them, one thing at
a time is changed as long as that makes it worse.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator

from hypothesis import Phase, given, seed, settings, target
from hypothesis.errors import HypothesisException

from contracts.contract import Contract, NotApplicable, NotJudged
from contracts.deployment import Deployment, DeploymentError
from contracts.examination import Finding, Rejected, Stumbled, examine
from contracts.profiles import PROFILES
from contracts.survey import Named, Tally, distance, survey
from contracts.trial import Workforce, drawn, examples
from strategies.deployment import deployments

__all__ = ["Hunt", "worst"]

#: Deployments that Hypothesis draws before the neighbours of the best one have their turn.
_TURN = 150

#: Starting points of a climb: the best deployments so far, of different pipelines or drafts.
_STARTS = 4

_Step = Callable[[Deployment], Deployment]


@dataclasses.dataclass(slots=True)
class Hunt:
    """How far a hunt has come. ``best`` is the worst violation so far, ``judged`` counts
    deployments, ``reason`` says why one could not be judged."""

    best: Finding | None = None
    judged: int = 0
    reason: str | None = None


def worst(
    contract: Contract, workforce: Workforce, *, seconds: float, profile: settings | None = None
) -> Iterator[Hunt]:
    """Hunt for about so many seconds. What is yielded is the hunt whenever it has come further;
    the same object each time."""
    ends = time.monotonic() + seconds
    hunt = Hunt()
    chosen = profile or PROFILES["gate"]
    found = _look(contract, workforce, [*examples(), *drawn(workforce.info, chosen)])
    best = _Best()
    for turn in range(1, 1 + 10**6):
        best.add(found)
        hunt.judged += len(found.judged)
        hunt.reason = hunt.reason or found.reason or found.stumbled
        if best.finding is not None and best.finding is not hunt.best:
            hunt.best = best.finding
        yield hunt
        if hunt.reason is not None or time.monotonic() >= ends:
            return
        # Every other turn draws anew, so that a climb which goes nowhere ends nothing.
        neighbours = [] if turn % 2 else list(best.neighbours(contract))
        if neighbours:
            found = _look(contract, workforce, neighbours)
        else:
            found = _targeted(contract, workforce, turn, ends)


def _look(contract: Contract, workforce: Workforce, judged: list[Named]) -> Tally:
    (tally,) = survey([contract], judged, workforce.pairs, info=workforce.info).values()
    return tally


def _targeted(contract: Contract, workforce: Workforce, turn: int, ends: float) -> Tally:
    """Let Hypothesis look for larger factors, other ones each turn."""
    tally = Tally(contract.id)
    pair = workforce.pairs[0]
    phases = (Phase.generate, Phase.target)
    profile = settings(PROFILES["gate"], max_examples=_TURN, derandomize=False, phases=phases)

    @seed(turn)
    @profile
    @given(deployments(capabilities=workforce.info.capabilities))
    def aim(deployment: Deployment) -> None:
        if time.monotonic() >= ends:
            raise _TimeIsUp
        judged = contract.judged(deployment)
        try:
            findings = examine(contract, judged, pair.subject, pair.baseline)
        except (Rejected, NotApplicable, Stumbled):
            return
        except NotJudged as error:
            tally.reason = f"{error} [{judged}]"
            raise _TimeIsUp from error
        tally.judged[judged.key()] = None
        if findings:
            far = max(findings, key=_distance)
            tally.violated[judged.key()] = far
            target(min(_distance(far), 1e6))

    with contextlib.suppress(_TimeIsUp, HypothesisException):
        aim()
    return tally


class _TimeIsUp(BaseException):
    """Ends a search at once. No ``Exception``: Hypothesis would try to shrink it."""


def _distance(finding: Finding) -> float:
    return distance(finding.violation.factor)


class _Best:
    """The best findings so far, and what has been tried around them."""

    def __init__(self) -> None:
        self._findings: dict[str, Finding] = {}
        self._tried: set[str] = set()

    @property
    def finding(self) -> Finding | None:
        """The best of all."""
        return max(self._findings.values(), key=_distance, default=None)

    def add(self, tally: Tally) -> None:
        """Keep the best few, one of each kind."""
        self._tried |= tally.judged.keys() | tally.rejected.keys()
        for finding in tally.violated.values():
            kind = _kind(finding.deployment)
            if kind not in self._findings or _distance(finding) > _distance(self._findings[kind]):
                self._findings[kind] = finding

    def neighbours(self, contract: Contract) -> Iterator[Named]:
        """Deployments that differ in one thing from the best ones, and were not tried."""
        order = sorted(self._findings.values(), key=_distance, reverse=True)
        for finding in order[:_STARTS]:
            for step in _STEPS:
                try:
                    near = contract.judged(step(finding.deployment))
                except DeploymentError:
                    continue  # one layer fewer than none, for instance
                if near.key() not in self._tried:
                    self._tried.add(near.key())
                    yield Named(near)


def _kind(deployment: Deployment) -> str:
    algorithm = deployment.speculation.algorithm if deployment.speculation else ""
    return f"{deployment.pp_size > 1} {algorithm} {deployment.model.model_type}"


def _budget(times: float) -> _Step:
    return lambda it: it.with_budget(int(it.budget * times))


def _argument(name: str, change: Callable[[float | None], float | None]) -> _Step:
    def step(it: Deployment) -> Deployment:
        stated = dict(it.server_args)
        value = change(stated.get(name))
        stated.pop(name, None)
        return dataclasses.replace(
            it, server_args=stated if value is None else {**stated, name: value}
        )

    return step


def _without(name: str) -> _Step:
    return _argument(name, lambda _value: None)


def _scaled(times: float) -> Callable[[float | None], float | None]:
    return lambda value: None if value is None else max(1, int(value * times))


def _ratio(value: float) -> _Step:
    return _argument("swa_full_tokens_ratio", lambda _value: value)


def _pipeline(change: Callable[[int], int]) -> _Step:
    """Another number of stages, each of a layer or more."""

    def step(it: Deployment) -> Deployment:
        size = min(change(it.pp_size), it.model.num_hidden_layers)
        return dataclasses.replace(it, pp_size=size, partition=None)

    return step


def _layers(change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> _Step:
    """Another decoder; the entries beyond it stay. Without a partition, which would not fit."""

    def step(it: Deployment) -> Deployment:
        decoder = change(it.model.decoder_ratios)
        model = dataclasses.replace(
            it.model,
            num_hidden_layers=len(decoder),
            compress_ratios=decoder + it.model.compress_ratios[it.model.num_hidden_layers :],
        )
        size = min(it.pp_size, len(decoder))
        return dataclasses.replace(it, model=model, pp_size=size, partition=None)

    return step


def _exchanged(old: int, new: int) -> _Step:
    return _layers(lambda ratios: tuple(new if ratio == old else ratio for ratio in ratios))


_STEPS: tuple[_Step, ...] = (
    *(_budget(times) for times in (0.25, 0.5, 0.9, 1.1, 2, 4)),
    *(_ratio(value) for value in (0.01, 0.03, 0.1, 0.25, 0.5, 1.0)),
    _argument("max_running_requests", lambda _value: 1),
    _argument("max_running_requests", _scaled(0.5)),
    _argument("max_running_requests", _scaled(2)),
    _argument("max_total_tokens", _scaled(0.5)),
    _argument("max_total_tokens", _scaled(2)),
    *(_without(name) for name in ("swa_full_tokens_ratio", "max_running_requests")),
    _without("max_total_tokens"),
    _pipeline(lambda size: 2 * size),
    _pipeline(lambda size: size // 2),
    _pipeline(lambda size: size + 1),
    _layers(lambda ratios: ratios[:-1]),
    _layers(lambda ratios: ratios[1:]),
    _layers(lambda ratios: ratios[: len(ratios) // 2]),
    *(_layers(lambda ratios, new=new: (*ratios, new)) for new in (0, 4, 128)),  # type: ignore[misc]
    *(_exchanged(old, new) for old in (0, 4, 128) for new in (0, 4, 128) if old != new),
)
