"""Speculative decoding that SGLang allows with a DeepSeek-V4 model.

Facts from SGLang's argument resolution: EAGLE needs ``eagle_topk`` 1, and SGLang then makes
``num_draft_tokens`` equal to ``num_steps + 1`` whatever was stated; DSPARK drafts a block and
verifies one token more, and SGLang refuses any other ``num_draft_tokens``. From 0.5.18 on it
refuses more draft tokens than the c4 state ring keeps (10). With more stages than one it
speculates since 0.5.21: on the prefill server of a PD pair, or, with EAGLE and without DP
attention, where ``SGLANG_ENABLE_PP_SPEC`` asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from contracts.deployment import Speculation
from contracts.observation import Capabilities
from strategies.sizes import Span, sizes

__all__ = [
    "ALGORITHMS",
    "MAX_DRAFT_TOKENS",
    "PP_SPECULATION",
    "Drafting",
    "check_algorithms",
    "draftings",
]

#: The algorithms that SGLang allows for these models, each as far as the subject knows it.
ALGORITHMS = ("EAGLE", "DSPARK")

#: More draft tokens than these do not fit into SGLang's c4 state ring.
MAX_DRAFT_TOKENS = 10

#: One table for every model and pipeline: counterexamples shrink from one to the other.
_OPTIONS: tuple[str | None, ...] = (*[None] * 4, *ALGORITHMS)

#: What says that a subject speculates with more stages than one.
PP_SPECULATION = "SGLANG_ENABLE_PP_SPEC"

#: Whether EAGLE in a pipeline is that of a prefill server.
_IN_PAIR = (False, False, True)

#: MTP layers that a model states. SGLang drafts with the first of them, whatever their number.
_NEXTN_LAYERS = (1, 1, 2, 3)

#: Steps of EAGLE, block of DSPARK: one less than the draft tokens. The deployed ones are 3 and 1
#: for EAGLE, 5 and 4 for DSPARK.
_EAGLE_STEPS = (Span(1, MAX_DRAFT_TOKENS - 1), Span(3, 3), Span(3, 3), Span(1, 1))
_DSPARK_BLOCKS = (Span(1, MAX_DRAFT_TOKENS - 1), Span(5, 5), Span(5, 5), Span(4, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """A speculation, or none, and what goes with it.

    ``model_fields`` are ``config.json`` fields that its model must have, ``nextn_layers`` the MTP
    layers that it states. A speculation in a ``pipeline`` is that of the prefill server of a PD
    pair, if ``in_pair``, or asked for by :data:`PP_SPECULATION`.
    """

    speculation: Speculation | None = None
    model_fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    nextn_layers: int = 1
    pipeline: bool = False
    in_pair: bool = False

    @property
    def algorithm(self) -> str | None:
        """The algorithm's name."""
        return None if self.speculation is None else self.speculation.algorithm

    def known_to(self, capabilities: Capabilities) -> bool:
        """Whether a subject has the algorithm, and speculates in a pipeline if this is one."""
        if self.algorithm is None:
            return True
        return self.algorithm in capabilities.algorithms and (
            not self.pipeline or PP_SPECULATION in capabilities.variables
        )


def check_algorithms(algorithms: tuple[str, ...]) -> None:
    """Refuse algorithms that are not known or are named twice.

    Raises:
        ValueError: the message names the algorithm and the known ones.
    """
    if isinstance(algorithms, str):
        raise ValueError(f"algorithms={algorithms!r}: a tuple of names is expected")
    for algorithm in algorithms:
        if algorithm not in ALGORITHMS:
            raise ValueError(f"algorithms: {algorithm!r} is unknown; known: {ALGORITHMS}")
    if len(set(algorithms)) < len(algorithms):
        raise ValueError(f"algorithms={algorithms}: name each one once")


def draftings(
    *, algorithms: tuple[str, ...], layers: int, pipeline: bool = False
) -> st.SearchStrategy[Drafting]:
    """No speculation, or one of ``algorithms``, for a model of ``layers`` layers.

    ``pipeline`` says whether there are more stages than one. Where there is no algorithm, or none
    that drafts for so few layers, there is no speculation. Shrinks to none.

    Raises:
        ValueError: ``algorithms`` or ``layers`` is out of range.
    """
    check_algorithms(algorithms)
    if layers < 1:
        raise ValueError(f"layers={layers}: a decoder has a layer or more")
    allowed = tuple(name for name in ALGORITHMS if name in algorithms and _drafts(name, layers))
    return _draftings(allowed, layers, pipeline)


def _drafts(algorithm: str, layers: int) -> bool:
    """Whether SGLang finds layers to draft from: for DSPARK it leaves out the first and the last
    three, which are no choice in a model of two or three layers."""
    return algorithm != "DSPARK" or layers not in (2, 3)


@st.composite
def _draftings(draw: st.DrawFn, allowed: tuple[str, ...], layers: int, pipeline: bool) -> Drafting:
    algorithm = draw(st.sampled_from(_OPTIONS))
    # In a pipeline it is half as often that there is one.
    if algorithm is None or not allowed or (pipeline and draw(st.booleans())):
        return Drafting()
    # An algorithm that is not allowed gives way to one that is.
    if algorithm not in allowed:
        algorithm = allowed[0]
    if algorithm == "EAGLE":
        steps = draw(sizes(_EAGLE_STEPS))
        nextn_layers = draw(st.sampled_from(_NEXTN_LAYERS))
        in_pair = pipeline and draw(st.sampled_from(_IN_PAIR))
        return _eagle(steps, nextn_layers, pipeline=pipeline, in_pair=in_pair)
    block = draw(sizes(_DSPARK_BLOCKS))
    states_tokens = draw(st.booleans())
    stages = draw(st.sampled_from([min(3, layers)] * 2 + list(range(1, min(3, layers) + 1))))
    targets = tuple(range(layers - stages, layers))
    return _dspark(block, targets, states_tokens=states_tokens, pipeline=pipeline)


def _eagle(steps: int, nextn_layers: int, *, pipeline: bool, in_pair: bool) -> Drafting:
    return Drafting(
        speculation=Speculation(
            algorithm="EAGLE", num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1
        ),
        nextn_layers=nextn_layers,
        pipeline=pipeline,
        in_pair=in_pair,
    )


def _dspark(
    block: int, target_layers: tuple[int, ...], *, states_tokens: bool, pipeline: bool
) -> Drafting:
    model_fields = {
        "dspark_block_size": block,
        "dspark_markov_rank": 256,
        "dspark_noise_token_id": 128_799,
        "dspark_target_layer_ids": list(target_layers),
    }
    return Drafting(
        speculation=Speculation(
            algorithm="DSPARK", num_draft_tokens=block + 1 if states_tokens else None
        ),
        model_fields=MappingProxyType(model_fields),
        pipeline=pipeline,
        # In a pipeline SGLang knows DSPARK on prefill servers alone.
        in_pair=pipeline,
    )
