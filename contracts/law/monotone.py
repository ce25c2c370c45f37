"""More budget never gives fewer tokens; more layers or a wider window never gives more.

Whoever tunes a server raises ``--mem-fraction-static`` a little and looks whether it helps, and
plans a larger model by a smaller one. Where capacity falls as memory grows, or grows with the
model, something that should be paid for is not, or is paid for twice.

``DSV4PoolConfigurator`` (``srt/model_executor/pool_configurator.py``) divides what is left of the
budget after fixed terms by a coefficient. From 0.5.15 on a fixed term may grow with the budget, if
the number of requests is estimated from it. Until 0.5.20 the compress states are charged by
windows, and so by half as much where the window is twice as wide, although they are kept by pages
(the contract state-rows). A draft is charged as a further layer of the average kind, so that a
model with one cheap layer more may be charged less for it.

The deployment is compared with its likes: 1 MiB more, twice the budget, one more layer of the last
one's ratio, and a window twice as wide. A like that SGLang refuses, or fails on, is left out. The
layer goes to the only stage, or to the last of a stated partition: where SGLang splits evenly, one
layer more moves every cut, and the fullest stage may rightly become emptier.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from contracts.contract import Evidence, NotApplicable, NotJudged, Request, Violation
from contracts.deployment import Deployment
from contracts.law._say import by_distance, contract_id, violation
from contracts.observation import Observation
from contracts.units import MiB

_ID = contract_id(__name__)

#: Read by the package: a like that SGLang refuses does not end the judging.
JUDGES_REFUSALS = True


@dataclass(frozen=True, slots=True)
class _Like:
    """A deployment that differs in one thing: ``what``. ``sign`` is 1 where it must have no fewer
    tokens, -1 where it must have no more."""

    what: str
    sign: int
    deployment: Deployment


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """The deployment and its likes, sized and agreed on; no pools are needed to compare tokens."""
    asked = [deployment, *(like.deployment for like in _likes(deployment))]
    return tuple(Request(deployment=one, views=frozenset({"capacity"})) for one in asked)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare each like with the deployment."""
    base, *others = evidence.outcomes
    if not isinstance(base, Observation):
        raise NotApplicable("SGLang does not serve the deployment itself")
    likes = _likes(base.deployment)
    if len(likes) != len(others):
        raise NotJudged(f"{len(likes) + 1} outcomes were planned, {len(others) + 1} came back")
    observed = [
        (like, other)
        for like, other in zip(likes, others, strict=True)
        if isinstance(other, Observation)
    ]
    if not observed:
        raise NotApplicable("SGLang serves nothing to compare the deployment with")
    tokens = _tokens(base)
    found = [_compare(base, tokens, like, _tokens(other)) for like, other in observed]
    yield from by_distance(one for one in found if one is not None)


def _compare(base: Observation, tokens: int, like: _Like, others: int) -> Violation | None:
    if (others - tokens) * like.sign >= 0:
        return None
    bound = "at least" if like.sign > 0 else "at most"
    return violation(
        _ID,
        rank=None,
        of=base.deployment.pp_size,
        what=f"tokens with {like.what}",
        observed=others,
        expected=tokens,
        source=f"{bound}, as without",
    )


def _tokens(observation: Observation) -> int:
    if observation.final_tokens is None:
        raise NotJudged("the subject does not tell how many tokens the ranks agree on")
    return observation.final_tokens


def _likes(deployment: Deployment) -> list[_Like]:
    budget, window = deployment.budget, deployment.model.sliding_window
    wider = dataclasses.replace(deployment.model, sliding_window=2 * window)
    return [
        _Like("1 MiB more", 1, deployment.with_budget(budget + MiB)),
        _Like("twice the budget", 1, deployment.with_budget(2 * budget)),
        *_with_a_layer_more(deployment),
        _Like(f"a window of {2 * window}", -1, dataclasses.replace(deployment, model=wider)),
    ]


def _with_a_layer_more(deployment: Deployment) -> list[_Like]:
    partition = deployment.partition
    if partition is None and deployment.pp_size > 1:
        return []
    model, layers = deployment.model, deployment.model.num_hidden_layers
    ratio = model.compress_ratios[layers - 1]
    # Before the entries of the MTP layers, which go on after the decoder.
    ratios = (*model.decoder_ratios, ratio, *model.compress_ratios[layers:])
    longer = dataclasses.replace(model, num_hidden_layers=layers + 1, compress_ratios=ratios)
    if partition is not None:
        partition = (*partition[:-1], partition[-1] + 1)
    more = dataclasses.replace(deployment, model=longer, partition=partition)
    return [_Like(f"a layer more of ratio {ratio}", -1, more)]
