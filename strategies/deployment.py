"""Deployments: a model, a pipeline, a speculation, settings and a memory that go together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

from hypothesis import strategies as st

from contracts.deployment import Deployment, Model
from contracts.observation import Capabilities
from strategies.layers import MAX_LAYERS, models
from strategies.memory import MAX_BUDGET, Load, Memory, check_budget, memories, suffices
from strategies.parallel import MAX_PP_SIZE, Pipeline, pipelines
from strategies.settings import PREFILL, Place, Settings, Stated, settings
from strategies.shared import MODEL_TYPE, SharedLayers, shared_layers
from strategies.speculative import ALGORITHMS, PP_SPECULATION, Drafting, draftings

__all__ = ["deployments"]

#: Whether a model is of V4.1.
_IS_SHARED = (*[False] * 7, True)


def deployments(
    *,
    capabilities: Capabilities | None = None,
    pp: bool = True,
    max_layers: int = MAX_LAYERS,
    max_budget: int = MAX_BUDGET,
    windows: tuple[int, ...] = (128,),
) -> st.SearchStrategy[Deployment]:
    """Deployments that a release with the DSV4 pool accepts, with few exceptions.

    ``capabilities`` are what the subject knows; None is everything. They change no draw: what a
    subject does not know is left out of what was drawn, so that all subjects are asked for the
    same deployments as far as each of them can be. A V4.1 model gives way to a V4 model of as many
    layers, a speculation to none, a setting that is not known in all its parts to none.

    The other arguments set what may be drawn, never how often:

    * ``pp``: whether there are pipelines of more than one stage.
    * ``max_layers``, ``max_budget``: the largest model and the largest budget in bytes.
    * ``windows``: the sliding windows; :func:`strategies.layers.models` says why 128 alone.

    Shrinks to one V4 layer of ratio 0, one stage, no speculation, nothing stated and 1 GiB.

    Raises:
        ValueError: an argument is out of range, or the budget is too small for the layers.
    """
    shapes = models(max_layers=max_layers, windows=windows)
    check_budget(max_budget, max_layers=max_layers, window=min(windows), speculative=True)
    drawn = _deployments(shapes, MAX_PP_SIZE if pp else 1, max_budget, capabilities)
    # Five of six times Hypothesis draws nothing anew, but copies one part of the case before over
    # another: its settings again, with some layer or number changed. It leaves alone what is
    # inside a collection without duplicates. So there are a third more different deployments in
    # as many draws, and each setting is drawn as often as its table says.
    return st.lists(drawn, min_size=1, max_size=1, unique_by=id).map(itemgetter(0))


@st.composite
def _deployments(
    draw: st.DrawFn,
    shapes: st.SearchStrategy[Model],
    max_pp_size: int,
    max_budget: int,
    capabilities: Capabilities | None,
) -> Deployment:
    wish = draw(_wishes(shapes, max_pp_size))
    if not suffices(max_budget, *wish.loads()):
        wish = dataclasses.replace(wish, settings=Settings())
    memory = draw(memories(*wish.loads(), max_budget=max_budget))
    return wish.granted(capabilities).deployment(memory, capabilities)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """A deployment without its memory. ``shared`` are the layers of a V4.1 model that stands in
    the place of ``model``."""

    model: Model
    shared: SharedLayers | None
    pipeline: Pipeline
    drafting: Drafting
    settings: Settings

    def granted(self, capabilities: Capabilities | None) -> _Wish:
        """What is left of it for a subject; settings are looked at one by one afterwards."""
        if capabilities is None:
            return self
        knows_model = MODEL_TYPE in capabilities.model_types
        return self._less(
            shared=self.shared if knows_model else None,
            drafting=self.drafting if self.drafting.known_to(capabilities) else Drafting(),
        )

    def _less(self, *, shared: SharedLayers | None, drafting: Drafting) -> _Wish:
        return dataclasses.replace(self, shared=shared, drafting=drafting)

    def _grants(self) -> Iterator[_Wish]:
        """All that may be left of it."""
        for shared in {self.shared, None}:
            for drafting in (self.drafting, Drafting()):
                yield self._less(shared=shared, drafting=drafting)

    def loads(self) -> tuple[Load, ...]:
        """What a budget must hold, whichever subject is asked."""
        return tuple(grant._load() for grant in self._grants())

    def _load(self) -> Load:
        layers = self.model.num_hidden_layers
        shared = self.shared
        return Load.of(
            self.model.compress_ratios if shared is None else shared.ratios,
            self.pipeline.possible_stages(layers),
            sources=None if shared is None else len(shared.sources),
            window=self.model.sliding_window,
            speculative=self.drafting.speculation is not None,
            settings=self._legal_settings(),
        )

    def _legal_settings(self) -> Settings:
        """The settings, as speculation in a pipeline allows them."""
        drafting = self.drafting
        if drafting.speculation is None or not drafting.pipeline:
            return self.settings
        if drafting.in_pair:
            return dataclasses.replace(self.settings, role=PREFILL)
        return dataclasses.replace(self.settings, role=None, dp_size=1)

    def _stated(self) -> tuple[Stated, ...]:
        stated = self._legal_settings().stated(Place(algorithm=self.drafting.algorithm))
        drafting = self.drafting
        if drafting.speculation is None or not drafting.pipeline or drafting.in_pair:
            return stated
        return (*stated, Stated(env={PP_SPECULATION: "1"}))

    def _whole_model(self) -> Model:
        fields = self.drafting.model_fields
        if self.shared is not None:
            model = self.shared.model(sliding_window=self.model.sliding_window)
            text: Mapping[str, Any] = model.extra["text_config"]
            return dataclasses.replace(model, extra={"text_config": {**text, **fields}})
        return dataclasses.replace(
            self.model, extra=fields, num_nextn_predict_layers=self.drafting.nextn_layers
        )

    def deployment(self, memory: Memory, capabilities: Capabilities | None) -> Deployment:
        """The deployment, without the settings that a subject has no name for."""
        known = [
            part for part in self._stated() if capabilities is None or part.known_to(capabilities)
        ]
        settings_args = chain.from_iterable(part.server_args.items() for part in known)
        return Deployment(
            model=self._whole_model(),
            budget=memory.budget,
            pp_size=self.pipeline.pp_size,
            partition=self.pipeline.partition,
            speculation=self.drafting.speculation,
            server_args={**memory.server_args(), **dict(settings_args)},
            env=dict(chain.from_iterable(part.env.items() for part in known)),
        )


@st.composite
def _wishes(draw: st.DrawFn, shapes: st.SearchStrategy[Model], max_pp_size: int) -> _Wish:
    model = draw(shapes)
    layers = model.num_hidden_layers
    is_shared = draw(st.sampled_from(_IS_SHARED))
    shared = draw(shared_layers(layers=layers)) if is_shared else None
    # SGLang serves V4.1 models in one stage, and speculates with DSPARK alone.
    pipeline = draw(pipelines(layers=layers, max_pp_size=1 if is_shared else max_pp_size))
    algorithms = ("DSPARK",) if is_shared else ALGORITHMS
    in_pipeline = pipeline.pp_size > 1
    drafting = draw(draftings(algorithms=algorithms, layers=layers, pipeline=in_pipeline))
    place = Place(
        shared=is_shared,
        algorithm=drafting.algorithm,
        pipeline=in_pipeline,
        c4=4 in model.decoder_ratios,
    )
    return _Wish(
        model=model,
        shared=shared,
        pipeline=pipeline,
        drafting=drafting,
        settings=draw(settings(place)),
    )
