"""A budget or token limit too small to admit one request, an illegal ratio, or a stage without
layers is refused with an error that names the cause; no size is ever zero, negative or below a
page, and a legal deployment is never met with an unexpected error.

Who mistypes an argument should read what to change, not a traceback of arithmetic. And a server
that starts with an SWA pool of no tokens answers nothing: no request is ever admitted.

From 0.5.13 on ``DSV4PoolConfigurator`` (``srt/model_executor/pool_configurator.py``) divides by the
coefficient of the rank's stage, which is 0 for a stage without layers: ``get_pp_indices``
(``srt/distributed/utils.py``) lets it pass. Until 0.5.19 a limit of a page of tokens, or a budget
for so much, is accepted with SWA and state pools of size 0. A ratio that is none breaks off the
reading of ``config.json`` with a bare KeyError.

An error counts as a refusal if it is of an ordinary kind (ValueError, RuntimeError, AssertionError,
NotImplementedError) and its text has a word of the cause: memory, budget, fraction, token, page or
pool for what is too small; ratio or compress for a ratio; layer, stage, partition or pipeline for
a stage. Whether its advice is the best one is not judged. A budget of 1 byte, a limit below a page
of 256 tokens, a ratio of 3 and a stage without layers must be refused; 64 KiB and a limit of 256
tokens may be served, if every size is positive.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from contracts.contract import Evidence, NotApplicable, NotJudged, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _needs, _paged
from contracts.law._say import contract_id, violation
from contracts.observation import Failed, Observation, Outcome, Rank, Refused

_ID = contract_id(__name__)

#: Read by the package: what SGLang refuses, and how, is what is judged.
JUDGES_REFUSALS = True

_ITSELF = "the deployment itself"
_ILLEGAL_RATIO = 3
#: 64 KiB: less than one page of SWA tokens takes.
_LITTLE = 1 << 16
#: The longest sentence of SGLang's that a message repeats.
_SHOWN = 160

_CAPACITY = ("memory", "budget", "fraction", "token", "page", "pool")
_RATIO = ("ratio", "compress")
_STAGE = ("layer", "stage", "partition", "pipeline")


@dataclass(frozen=True, slots=True)
class _Case:
    """A deployment made from a legal one. ``causes`` are words of which a refusal has one;
    ``illegal`` says why it must be refused, None where it may be served."""

    what: str
    causes: tuple[str, ...]
    illegal: str | None
    deployment: Deployment


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """The deployment, and the cases made from it."""
    asked = [deployment, *(case.deployment for case in _cases(deployment))]
    return tuple(Request(deployment=one, views=frozenset({"final"})) for one in asked)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Judge the deployment's own outcome, then the cases, those for any deployment last."""
    base, *others = evidence.outcomes
    if isinstance(base, Failed):
        # Nobody tells how many ranks a deployment has that was never observed.
        of = evidence.observations[0].deployment.pp_size if evidence.observations else 1
        yield _unlike(of, _ITSELF, _said(base), "sizes, or a refusal", base.where)
        return
    if not isinstance(base, Observation):
        raise NotApplicable("SGLang refuses the deployment itself")
    cases = _cases(base.deployment)
    if len(cases) != len(others):
        raise NotJudged(f"{len(cases) + 1} outcomes were planned, {len(others) + 1} came back")
    of = base.deployment.pp_size
    judged = [_judge_case(of, case, outcome) for case, outcome in zip(cases, others, strict=True)]
    yield from chain(_judge_sizes(_ITSELF, base), *judged)


def _judge_case(of: int, case: _Case, outcome: Outcome) -> Iterable[Violation]:
    wanted = "a refusal that names the cause"
    match outcome:
        case Failed():
            yield _unlike(of, case.what, _said(outcome), wanted, outcome.where)
        case Refused() if not _names(case.causes, outcome.sentence):
            yield _unlike(of, case.what, _said(outcome), wanted, outcome.where)
        case Observation() if case.illegal is not None:
            served = f"served with {outcome.final_tokens} tokens"
            yield _unlike(of, case.what, served, "a refusal", case.illegal)
        case Observation():
            yield from _judge_sizes(case.what, outcome)


def _unlike(of: int, what: str, observed: str, expected: str, source: str) -> Violation:
    return violation(
        _ID, rank=None, of=of, what=what, observed=observed, expected=expected, source=source
    )


def _said(outcome: Failed | Refused) -> str:
    lines = outcome.sentence.splitlines() or [""]
    sentence = lines[0] if len(lines[0]) <= _SHOWN else f"{lines[0][:_SHOWN]}…"
    return f"{outcome.kind}: {sentence}"


def _names(causes: tuple[str, ...], sentence: str) -> bool:
    # From a word's beginning on: "configuration" says nothing of a ratio.
    return any(re.search(rf"(?<![a-z]){cause}", sentence.lower()) for cause in causes)


def _judge_sizes(what: str, observation: Observation) -> Iterator[Violation]:
    """The first size that is none on each rank: what follows from it need not be said."""
    of = observation.deployment.pp_size
    for rank in observation.ranks:
        for name, observed, least in _least(observation.deployment, rank):
            if observed is not None and observed < least:
                yield violation(
                    _ID,
                    rank=rank.rank,
                    of=of,
                    what=f"{name} with {what}",
                    observed=observed,
                    expected=f"{least} or more",
                    source="or a refusal",
                )
                break


def _least(deployment: Deployment, rank: Rank) -> Iterator[tuple[str, int | None, int]]:
    """What must have a least size on a rank: its name, its size and the least."""
    view = _needs.final(rank)
    yield "tokens", view.tokens, _paged.page(view.pool)
    yield "max_running_requests", view.max_running_requests, 1
    ratios = deployment.model.compress_ratios[rank.start_layer : rank.end_layer]
    for name, size in view.sizes.items():
        ratio = _paged.ratio(name.partition("_")[0])
        if ratio is not None and ratio not in ratios:
            continue
        # Where requests have windows of their own (encoder replay), there is no SWA pool to size.
        if name == "swa" and "swa_kv" not in view.pool.components:
            continue
        yield f"{name} size", size, 1


def _cases(deployment: Deployment) -> list[_Case]:
    """The telling ones first: those that hold of every deployment come last."""
    return [
        *_without_layers(deployment),
        _limit(deployment, 256, None),
        _limit(deployment, 255, "less than a page"),
        _limit(deployment, 1, "less than a page"),
        _Case("64 KiB", _CAPACITY, None, deployment.with_budget(_LITTLE)),
        _Case("1 byte", _CAPACITY, "less than a token", deployment.with_budget(1)),
        _with_illegal_ratio(deployment),
    ]


def _limit(deployment: Deployment, tokens: int, illegal: str | None) -> _Case:
    arguments = {**deployment.server_args, "max_total_tokens": tokens}
    limited = dataclasses.replace(deployment, server_args=arguments)
    return _Case(f"max_total_tokens {tokens}", _CAPACITY, illegal, limited)


def _with_illegal_ratio(deployment: Deployment) -> _Case:
    model = deployment.model
    last = model.num_hidden_layers - 1
    ratios = (*model.compress_ratios[:last], _ILLEGAL_RATIO, *model.compress_ratios[last + 1 :])
    broken = dataclasses.replace(model, compress_ratios=ratios)
    illegal = dataclasses.replace(deployment, model=broken)
    return _Case(f"a layer of ratio {_ILLEGAL_RATIO}", _RATIO, "no such ratio", illegal)


def _without_layers(deployment: Deployment) -> list[_Case]:
    if deployment.pp_size == 1:
        return []
    size, layers = deployment.pp_size, deployment.model.num_hidden_layers
    even = tuple((layers + index) // size for index in range(size))
    *stages, before, last = deployment.partition or even
    emptied = dataclasses.replace(deployment, partition=(*stages, before + last, 0))
    return [_Case("a stage without layers", _STAGE, "no layers", emptied)]
