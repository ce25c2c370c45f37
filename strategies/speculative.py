"""Speculative decoding that SGLang allows with a DeepSeek-V4 model.

Facts from SGLang's argument resolution: EAGLE needs ``eagle_topk`` 1, and SGLang then makes
``num_draft_tokens`` equal to ``num_steps + 1`` whatever was stated; DSPARK drafts a block and
verifies one token more, and SGLang refuses any other ``num_draft_tokens``. From 0.5.18 on it
refuses more draft tokens than the c4 state ring keeps (10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from contracts.deployment import Speculation
from strategies.sizes import Span, sizes

__all__ = ["ALGORITHMS", "MAX_DRAFT_TOKENS", "Drafting", "check_algorithms", "draftings"]

#: The algorithms that SGLang allows for these models, each as far as the subject knows it.
ALGORITHMS = ("EAGLE", "DSPARK")

#: More draft tokens than these do not fit into SGLang's c4 state ring.
MAX_DRAFT_TOKENS = 10

#: How often there is no speculation, for each time that there is some.
_PLAIN = 2

#: Steps of EAGLE, block of DSPARK: one less than the draft tokens. The deployed ones are 3 and 1
#: for EAGLE, 5 and 4 for DSPARK.
_EAGLE_STEPS = (Span(1, MAX_DRAFT_TOKENS - 1), Span(3, 3), Span(3, 3), Span(1, 1))
_DSPARK_BLOCKS = (Span(1, MAX_DRAFT_TOKENS - 1), Span(5, 5), Span(5, 5), Span(4, 4))


@dataclass(frozen=True, slots=True)
class Drafting:
    """A speculation, or none, and the ``config.json`` fields that its model must have."""

    speculation: Speculation | None = None
    model_fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


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


def draftings(*, algorithms: tuple[str, ...], layers: int) -> st.SearchStrategy[Drafting]:
    """No speculation, or one of ``algorithms``, for a model of ``layers`` layers in one stage.

    Speculation together with ``pp_size`` above 1 is refused by most releases; it is not generated
    yet, and comes with an issue of its own. Shrinks to no speculation.

    Raises:
        ValueError: ``algorithms`` or ``layers`` is out of range.
    """
    check_algorithms(algorithms)
    if layers < 1:
        raise ValueError(f"layers={layers}: a decoder has a layer or more")
    known = [name for name in ALGORITHMS if name in algorithms]
    return _draftings((None,) * _PLAIN * max(1, len(known)) + tuple(known), layers)


@st.composite
def _draftings(draw: st.DrawFn, options: tuple[str | None, ...], layers: int) -> Drafting:
    algorithm = draw(st.sampled_from(options))
    if algorithm is None:
        return Drafting()
    if algorithm == "EAGLE":
        return draw(sizes(_EAGLE_STEPS).map(_eagle))
    block = draw(sizes(_DSPARK_BLOCKS))
    states_tokens = draw(st.booleans())
    stages = draw(st.sampled_from([min(3, layers)] * 2 + list(range(1, min(3, layers) + 1))))
    return _dspark(block, tuple(range(layers - stages, layers)), states_tokens=states_tokens)


def _eagle(steps: int) -> Drafting:
    speculation = Speculation(
        algorithm="EAGLE", num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1
    )
    return Drafting(speculation)


def _dspark(block: int, target_layers: tuple[int, ...], *, states_tokens: bool) -> Drafting:
    speculation = Speculation(
        algorithm="DSPARK", num_draft_tokens=block + 1 if states_tokens else None
    )
    model_fields = {
        "dspark_block_size": block,
        "dspark_markov_rank": 256,
        "dspark_noise_token_id": 128_799,
        "dspark_target_layer_ids": list(target_layers),
    }
    return Drafting(speculation, MappingProxyType(model_fields))
