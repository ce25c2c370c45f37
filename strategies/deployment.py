"""Deployments: a model, a pipeline, a speculation and a memory that go together."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from contracts.deployment import Deployment, Model
from contracts.observation import Capabilities
from strategies.layers import MAX_LAYERS, models
from strategies.memory import MAX_BUDGET, Load, check_budget, memories
from strategies.parallel import MAX_PP_SIZE, pipelines
from strategies.speculative import check_algorithms, draftings

__all__ = ["deployments", "known_to"]


def deployments(
    *,
    capabilities: Capabilities | None = None,
    algorithms: tuple[str, ...] = ("EAGLE", "DSPARK"),
    pp: bool = True,
    max_layers: int = MAX_LAYERS,
    max_budget: int = MAX_BUDGET,
    windows: tuple[int, ...] = (128,),
) -> st.SearchStrategy[Deployment]:
    """Deployments that a release with the DSV4 pool accepts, with few exceptions.

    The arguments set what may be drawn, never how often:

    * ``capabilities``: what the subject knows; None is everything. They change no draw: what a
      subject does not know is left out of what was drawn, so that all subjects are asked for the
      same deployments as far as each of them can be.
    * ``algorithms``: the speculative algorithms that the subject knows; DSPARK came with 0.5.16.
      Speculation is generated at ``pp_size`` 1 only: most releases refuse it with a pipeline,
      and the two together come with an issue of their own.
    * ``pp``: whether there are pipelines of more than one stage.
    * ``max_layers``, ``max_budget``: the largest model and the largest budget in bytes.
    * ``windows``: the sliding windows; :func:`strategies.layers.models` says why 128 alone.

    Shrinks to one layer of ratio 0, one stage, no speculation, no server argument and 1 GiB.

    Raises:
        ValueError: an argument is out of range, or the budget is too small for the layers.
    """
    check_algorithms(algorithms)
    shapes = models(max_layers=max_layers, windows=windows)
    check_budget(
        max_budget,
        max_layers=max_layers,
        window=min(windows),
        speculative=bool(algorithms),
    )
    drawn = _deployments(shapes, algorithms, MAX_PP_SIZE if pp else 1, max_budget)
    if capabilities is None:
        return drawn
    return drawn.map(lambda deployment: known_to(capabilities, deployment))


def known_to(capabilities: Capabilities, deployment: Deployment) -> Deployment:
    """The deployment without what a subject of these capabilities does not know."""
    speculation = deployment.speculation
    if speculation is None or speculation.algorithm in capabilities.algorithms:
        return deployment
    model = dataclasses.replace(deployment.model, extra={})
    return dataclasses.replace(deployment, model=model, speculation=None)


@st.composite
def _deployments(
    draw: st.DrawFn,
    shapes: st.SearchStrategy[Model],
    algorithms: tuple[str, ...],
    max_pp_size: int,
    max_budget: int,
) -> Deployment:
    model = draw(shapes)
    layers = model.num_hidden_layers
    pipeline = draw(pipelines(layers=layers, max_pp_size=max_pp_size))
    drafting = draw(
        draftings(algorithms=algorithms if pipeline.pp_size == 1 else (), layers=layers)
    )
    load = Load.of(
        model.compress_ratios,
        pipeline.possible_stages(layers),
        window=model.sliding_window,
        speculative=drafting.speculation is not None,
    )
    memory = draw(memories(load, max_budget=max_budget))
    return Deployment(
        model=dataclasses.replace(model, extra=drafting.model_fields),
        budget=memory.budget,
        pp_size=pipeline.pp_size,
        partition=pipeline.partition,
        speculation=drafting.speculation,
        server_args=memory.server_args(),
    )
