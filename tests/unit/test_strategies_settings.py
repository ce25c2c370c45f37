"""The settings that deployments state: that each is drawn, fits the others, and is left out of
what a subject is asked for that has no name for it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings

from contracts.deployment import Deployment
from contracts.observation import Capabilities
from strategies.deployment import deployments
from strategies.settings import DECODE, PREFILL, Place, Settings
from strategies.settings import settings as drawn_settings
from strategies.shared import SharedLayers, shared_layers

GENERATING = settings(derandomize=True, database=None, deadline=None, max_examples=150)
FINDING = settings(derandomize=True, database=None, deadline=None, max_examples=2000)

MEMORY = {"swa_full_tokens_ratio", "max_running_requests", "max_total_tokens"}
ALGORITHMS = frozenset({"EAGLE", "DSPARK"})
PP_SPECULATION = "SGLANG_ENABLE_PP_SPEC"

Has = Callable[[Deployment], bool]


def stated(deployment: Deployment) -> set[str]:
    """The names of all settings that a deployment states."""
    return (set(deployment.server_args) - MEMORY) | set(deployment.env)


def is_shared(deployment: Deployment) -> bool:
    return deployment.model.model_type == "deepseek_v41"


def is_plain(deployment: Deployment) -> bool:
    """Whether there is nothing but a V4 model, a pipeline, a speculation and a memory."""
    return not stated(deployment) and not is_shared(deployment)


@functools.cache
def generated(capabilities: Capabilities | None = None) -> tuple[Deployment, ...]:
    """A thousand deployments, the same ones for all capabilities as far as they go."""
    collected = []

    @settings(GENERATING, max_examples=1000, phases=[Phase.generate])
    @given(deployments(capabilities=capabilities))
    def collect(deployment: Deployment) -> None:
        collected.append(deployment)

    collect()
    return tuple(collected)


# -- what is drawn ---------------------------------------------------------------------------------


def _argument(name: str, value: object = None) -> Has:
    return lambda d: name in d.server_args and (value is None or d.server_args[name] == value)


def _variable(name: str, value: str | None = None) -> Has:
    return lambda d: name in d.env and (value is None or d.env[name] == value)


def _both(one: Has, other: Has) -> Has:
    return lambda d: one(d) and other(d)


def _drafts(algorithm: str) -> Has:
    return lambda d: d.speculation is not None and d.speculation.algorithm == algorithm


def _in_pipeline(deployment: Deployment) -> bool:
    return deployment.pp_size > 1


_DRAWN: dict[str, Has] = {
    "online c128 states": _variable("SGLANG_OPT_USE_ONLINE_COMPRESS", "1"),
    "online c128 states with EAGLE": _both(
        _variable("SGLANG_EXPERIMENTAL_ONLINE_C128_MTP"), _drafts("EAGLE")
    ),
    "states of two bytes": _variable("SGLANG_DSV4_COMPRESS_STATE_DTYPE", "bfloat16"),
    "DP attention": _argument("enable_dp_attention", True),
    "DP attention with EAGLE": _both(_argument("dp_size"), _drafts("EAGLE")),
    "DP attention with DSPARK": _both(_argument("enable_dp_lm_head"), _drafts("DSPARK")),
    "a prefill server": _argument("disaggregation_mode", PREFILL),
    "a prefill server's pipeline": _both(_argument("disaggregation_mode", PREFILL), _in_pipeline),
    "a decode server": _argument("disaggregation_mode", DECODE),
    "extra slots": _argument("disaggregation_decode_extra_slots"),
    "extra slots as they were stated before 0.5.14": _variable(
        "SGLANG_DISAGGREGATION_NUM_PRE_ALLOCATE_REQS"
    ),
    "HiSparse": _argument("enable_hisparse", True),
    "HiSparse on a decode server": _both(
        _argument("enable_hisparse"), _argument("disaggregation_mode", DECODE)
    ),
    "HiSparse with a draft": lambda d: "enable_hisparse" in d.server_args and bool(d.speculation),
    "no radix cache": _argument("disable_radix_cache", True),
    "a prefill chunk": _argument("chunked_prefill_size", 2048),
    "no prefill chunks": _argument("chunked_prefill_size", -1),
    "a KV dtype": _argument("kv_cache_dtype"),
    "a KV layout": _variable("SGLANG_DSV4_KV_LAYOUT"),
    "a compressed KV layout": _variable("SGLANG_DSV4_COMPRESSED_KV_LAYOUT"),
    "EAGLE in a pipeline, by its variable": _both(_drafts("EAGLE"), _variable(PP_SPECULATION)),
    "EAGLE in a prefill server's pipeline": _both(
        _both(_drafts("EAGLE"), _in_pipeline), _argument("disaggregation_mode", PREFILL)
    ),
    "DSPARK in a prefill server's pipeline": _both(
        _both(_drafts("DSPARK"), _in_pipeline), _argument("disaggregation_mode", PREFILL)
    ),
    **{
        f"{layers} MTP layers": lambda d, layers=layers: (  # type: ignore[misc]  # bound now
            _drafts("EAGLE")(d) and d.model.num_nextn_predict_layers == layers
        )
        for layers in (1, 2, 3)
    },
    "a V4.1 model": is_shared,
    "a V4.1 model with DSPARK": _both(is_shared, _drafts("DSPARK")),
    "a V4.1 model with a ratio": _both(is_shared, _argument("swa_full_tokens_ratio")),
    "prefix tails": _both(is_shared, _argument("swa_prefix_tails")),
    "no prefix tails": _argument("swa_prefix_tails", 0),
    "an eviction interval": _both(is_shared, _variable("SGLANG_SWA_EVICTION_INTERVAL")),
    "replay": _both(is_shared, _argument("enable_encoder_swa_bounded_replay")),
    "replay with DSPARK": _both(_drafts("DSPARK"), _argument("enable_encoder_swa_bounded_replay")),
}


@pytest.mark.parametrize("sought", _DRAWN)
def test_a_setting_is_drawn(sought: str) -> None:
    """Red when a setting that SGLang sizes pools by is no longer among what is generated."""
    assert any(map(_DRAWN[sought], generated()))


def test_half_of_all_deployments_state_nothing() -> None:
    """Red when the plain space is given up for the settings."""
    assert sum(map(is_plain, generated())) >= len(generated()) // 2


def test_online_states_are_rare() -> None:
    """Red when workers of their own, which online states need, are needed often."""
    online = [d for d in generated() if "SGLANG_OPT_USE_ONLINE_COMPRESS" in d.env]
    assert len(online) <= len(generated()) // 8


def test_pipelines_are_short_on_average() -> None:
    """Red when the cost of a search grows: each rank is sized and built."""
    assert sum(d.pp_size for d in generated()) <= 4 * len(generated())


@GENERATING
@given(deployments())
def test_settings_go_together(deployment: Deployment) -> None:
    """Red when what SGLang refuses is generated as a matter of course."""
    arguments, env = deployment.server_args, deployment.env
    if is_shared(deployment):
        assert deployment.pp_size == 1
        assert "enable_hisparse" not in arguments
        assert "SGLANG_OPT_USE_ONLINE_COMPRESS" not in env
    else:
        assert not {"swa_prefix_tails", "enable_encoder_swa_bounded_replay"} & set(arguments)
    if "enable_hisparse" in arguments:
        assert arguments["disable_radix_cache"] is True
        assert json.loads(arguments["hisparse_config"])["host_to_device_ratio"] >= 1
        assert 4 in deployment.model.decoder_ratios
    if "SGLANG_OPT_USE_ONLINE_COMPRESS" in env and deployment.speculation is not None:
        assert _drafts("EAGLE")(deployment)
        assert "SGLANG_EXPERIMENTAL_ONLINE_C128_MTP" in env
    if PP_SPECULATION in env:
        assert not {"disaggregation_mode", "dp_size"} & set(arguments)
    if "dp_size" in arguments:
        ranks = arguments["tp_size"] // arguments["dp_size"]
        assert ranks == 1 or (ranks == 2 and not _drafts("DSPARK")(deployment))
        assert ("enable_dp_lm_head" in arguments) == _drafts("DSPARK")(deployment)
    if "enable_encoder_swa_bounded_replay" in arguments:
        assert arguments.get("disaggregation_mode") != DECODE
        assert arguments.get("chunked_prefill_size") != -1


# -- what a subject does not know ------------------------------------------------------------------


NOTHING = Capabilities()
#: About what 0.5.12, 0.5.20 and the newest release know.
OLDEST = Capabilities(
    algorithms=frozenset({"EAGLE"}),
    arguments=frozenset(
        {
            *("dp_size", "tp_size", "enable_dp_attention", "disaggregation_mode"),
            *("enable_hisparse", "hisparse_config", "disable_radix_cache"),
        }
    ),
    variables=frozenset({"SGLANG_OPT_USE_ONLINE_COMPRESS"}),
    model_types=frozenset({"deepseek_v4"}),
)
ALL_NAMES = Capabilities(
    algorithms=ALGORITHMS,
    arguments=frozenset(name for d in generated() for name in d.server_args),
    variables=frozenset(name for d in generated() for name in d.env),
    model_types=frozenset({"deepseek_v4", "deepseek_v41"}),
)


def test_who_knows_all_names_is_asked_for_everything() -> None:
    """Red when something is left out that the subject has a name for."""
    assert generated(ALL_NAMES) == generated()


@pytest.mark.parametrize("known", [NOTHING, OLDEST], ids=["nothing", "oldest"])
def test_subjects_are_judged_on_the_same_draws(known: Capabilities) -> None:
    """Red when what a subject knows changes what is drawn, and not just what is left of it."""
    for less, whole in zip(generated(known), generated(), strict=True):
        assert less.budget == whole.budget
        assert (less.pp_size, less.partition) == (whole.pp_size, whole.partition)
        assert less.model.num_hidden_layers == whole.model.num_hidden_layers
        assert less.speculation in (None, whole.speculation)
        for name in MEMORY:
            assert less.server_args.get(name) == whole.server_args.get(name)
        kept = set(less.server_args.items()) - set(whole.server_args.items())
        # Where speculation in a pipeline is left out, so is what it asked for.
        assert not kept or (whole.pp_size > 1 and whole.speculation is not None)


@pytest.mark.parametrize("known", [NOTHING, OLDEST], ids=["nothing", "oldest"])
def test_what_a_subject_does_not_know_is_left_out(known: Capabilities) -> None:
    """Red when a subject is asked for what it can only refuse."""
    for deployment in generated(known):
        assert not is_shared(deployment)
        assert stated(deployment) <= known.arguments | known.variables
        if deployment.speculation is not None:
            assert deployment.speculation.algorithm in known.algorithms
            assert deployment.pp_size == 1


def test_parts_that_need_each_other_fall_together() -> None:
    """Red when half of a setting is asked for, such as online states without those for drafts."""
    for deployment in generated(OLDEST):
        if "SGLANG_OPT_USE_ONLINE_COMPRESS" in deployment.env:
            assert deployment.speculation is None
    alone = Capabilities(arguments=frozenset({"enable_hisparse"}))
    assert all("enable_hisparse" not in d.server_args for d in generated(alone))


# -- shrinking -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sought", "smallest"),
    [
        ("DP attention", Settings(dp_size=2)),
        ("a prefill server", Settings(role=PREFILL)),
        ("a decode server", Settings(role=DECODE)),
        ("online c128 states", Settings(online=True)),
        ("no radix cache", Settings(radix=False)),
        ("states of two bytes", Settings(state_dtype="bfloat16")),
    ],
)
def test_a_setting_shrinks_to_itself(sought: str, smallest: Settings) -> None:
    """Red when a counterexample shows settings that it does not need."""
    found = find(deployments(), _DRAWN[sought], settings=FINDING)
    expected: dict[str, Any] = {}
    for part in smallest.stated(Place()):
        expected.update(part.server_args)
        expected.update(part.env)
    assert stated(found) == set(expected)
    assert found.model.num_hidden_layers == 1
    assert (found.pp_size, found.speculation) == (1, None)


def test_settings_shrink_to_none() -> None:
    assert find(drawn_settings(Place()), lambda _: True) == Settings()
    assert find(drawn_settings(Place(shared=True)), lambda _: True) == Settings()


# -- V4.1 models -----------------------------------------------------------------------------------


@GENERATING
@given(shared_layers(layers=24))
def test_layers_that_share_have_a_source(layers: SharedLayers) -> None:
    """Red when a shape is generated that SGLang's pool or model would not build."""
    assert len(layers.ratios) == 24
    for layer, ratio in enumerate(layers.ratios):
        sources = [s for s in layers.sources if s <= layer and layers.ratios[s] == ratio]
        assert ratio == 0 or sources
    last = layers.sources[-1]
    assert set(layers.ratios[last + 1 :]) <= {0, 1}
    text = layers.model().extra["text_config"]
    assert text["kv_source_layer_ids"] == sorted(set(layers.sources))
    assert set(layers.sources) <= set(text["index_source_layer_ids"])
    assert text["candidate_source_layer_id"] in (-1, last)


@pytest.mark.parametrize("layers", [1, 2, 3, 96])
def test_shapes_of_any_size(layers: int) -> None:
    found = find(shared_layers(layers=layers), lambda _: True)
    assert (found.ratios, found.sources) == ((1,) * layers, (0,))


def test_the_published_shape_is_reachable() -> None:
    def is_published(layers: SharedLayers) -> bool:
        return layers.ratios[:2] == (0, 0) and layers.sources[:3] == (2, 8, 14)

    small = settings(FINDING, max_examples=5000, phases=[Phase.generate])
    assert find(shared_layers(layers=40), is_published, settings=small)
