"""Against a baseline subject, every observable of a deployment at pp_size 1 is the same.

Who repairs or refactors sizing for pipeline stages wants to be sure that the common case, without
them, still gets the same tokens from the same memory. With a fork or a checkout as the subject and
a release as the baseline, this says what a change does to everybody else.

The fix of sgl-project/sglang#25750 (0.5.13) touched ``DSV4PoolConfigurator`` in
``srt/model_executor/pool_configurator.py``, which sizes every deployment, and did change those at
pp_size 1: the published lists go on past the decoder, for the MTP layers, and until then those
entries were charged. ``DeepSeekV4TokenToKVPool`` in ``srt/mem_cache/deepseek_v4_memory_pool.py``
never built layers for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from contracts.contract import Evidence, NotJudged, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _needs, _same
from contracts.law._say import contract_id

#: Read by the package: deployments with a pipeline tell no more.
SINGLE_RANK = True

_ID = contract_id(__name__)

NEEDS_BASELINE = True


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """What a server finally allocates at pp_size 1; the baseline is asked the same."""
    return (Request(deployment=deployment.single_rank(), views=frozenset({"final"})),)


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare everything with the baseline: tokens and sizes first, buffers last."""
    (observed,) = _needs.observations(evidence, 1)
    if not evidence.baseline:
        raise NotJudged("there is no baseline subject to compare with")
    baseline = evidence.baseline[0]
    source = f"baseline {baseline.subject.label}"
    yield from _same.differences(_ID, observed, baseline, source=source)
