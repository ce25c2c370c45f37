"""The published models and the deployments that people run."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from contracts.deployment import Deployment, Model
from contracts.units import GiB
from strategies.published import DEPLOYMENTS, MODELS, PublishedDeployment

#: Name: layers, how often each ratio among them, entries beyond, hidden size, index_topk.
_SHAPES = {
    "deepseek-v4-flash": (43, {0: 2, 4: 21, 128: 20}, 1, 4096, 512),
    "deepseek-v4-pro": (61, {4: 30, 128: 31}, 1, 7168, 1024),
    "deepseek-v4-flash-0731": (43, {0: 2, 4: 21, 128: 20}, 3, 4096, 512),
    "deepseek-v4-pro-0813": (61, {4: 30, 128: 31}, 3, 7168, 1024),
    "deepseek-v4.1-flash": (40, {0: 2, 1: 20, 2: 18}, 3, 5120, 512),
}

each_deployment = pytest.mark.parametrize(
    "published", DEPLOYMENTS, ids=lambda published: published.name
)


def test_the_published_models_are_these_five() -> None:
    assert list(MODELS) == list(_SHAPES)


@pytest.mark.parametrize("name", _SHAPES)
def test_a_model_has_its_published_shape(name: str) -> None:
    layers, kinds, beyond, hidden, topk = _SHAPES[name]
    model = MODELS[name]
    assert model.name == name
    assert model.num_hidden_layers == layers
    assert Counter(model.decoder_ratios) == kinds
    assert model.compress_ratios[layers:] == (0,) * beyond
    assert (model.hidden_size, model.index_topk) == (hidden, topk)
    assert (model.head_dim, model.qk_rope_head_dim, model.sliding_window) == (512, 64, 128)


def test_layers_alternate_as_published() -> None:
    assert MODELS["deepseek-v4-flash"].decoder_ratios[:6] == (0, 0, 4, 128, 4, 128)
    assert MODELS["deepseek-v4-flash"].decoder_ratios[-3:] == (4, 128, 4)
    assert MODELS["deepseek-v4-pro"].decoder_ratios[:6] == (128, 128, 4, 128, 4, 128)
    assert MODELS["deepseek-v4-pro"].decoder_ratios[-3:] == (4, 128, 4)


@pytest.mark.parametrize(
    ("name", "targets"),
    [("deepseek-v4-flash-0731", [40, 41, 42]), ("deepseek-v4-pro-0813", [58, 59, 60])],
)
def test_dspark_models_name_their_target_layers(name: str, targets: list[int]) -> None:
    extra = MODELS[name].extra
    assert extra["dspark_target_layer_ids"] == targets
    assert extra["dspark_block_size"] == 5


def test_v41_nests_what_only_its_decoder_has() -> None:
    model = MODELS["deepseek-v4.1-flash"]
    config = model.config_json()
    text = config["text_config"]
    assert config["model_type"] == "deepseek_v41"
    assert config["architectures"] == ["DeepseekV41ForCausalLM"]
    assert config["index_n_heads"] == 32
    assert [model.compress_ratios[n] for n in text["kv_source_layer_ids"]] == [2, 2, 2, 1]
    assert set(text["kv_source_layer_ids"]) <= set(text["index_source_layer_ids"])
    assert text["index_source_layer_ids"] == [2, 8, 14, 20, 24, 28, 32, 36]


def test_there_are_few_enough_to_run_all_of_them() -> None:
    assert len(DEPLOYMENTS) <= 30


@pytest.mark.parametrize(
    "stated",
    [
        *("disaggregation_mode", "enable_hisparse", "enable_dp_attention"),
        *("SGLANG_OPT_USE_ONLINE_COMPRESS", "SGLANG_DSV4_COMPRESS_STATE_DTYPE"),
    ],
)
def test_what_is_deployed_besides_models_and_memory(stated: str) -> None:
    assert any(stated in {**d.server_args, **d.env} for d in (p.deployment for p in DEPLOYMENTS))


def test_names_are_unique() -> None:
    names = [published.name for published in DEPLOYMENTS]
    assert len(set(names)) == len(names)


def test_every_published_model_is_deployed() -> None:
    assert {published.deployment.model.name for published in DEPLOYMENTS} == set(MODELS)


@each_deployment
def test_a_deployment_is_of_a_published_model(published: PublishedDeployment) -> None:
    model: Model = published.deployment.model
    assert MODELS[model.name] == model


@each_deployment
def test_json_brings_a_deployment_back(published: PublishedDeployment) -> None:
    text = json.dumps(published.deployment.to_json())
    assert Deployment.from_json(json.loads(text)) == published.deployment


@each_deployment
def test_what_sglang_refuses_is_not_deployed(published: PublishedDeployment) -> None:
    deployment = published.deployment
    if deployment.speculation is not None:
        assert deployment.pp_size == 1
        if deployment.speculation.algorithm == "DSPARK":
            fields = deployment.model.config_json()
            assert "dspark_block_size" in fields | fields.get("text_config", {})
    if deployment.model.model_type == "deepseek_v41":
        assert deployment.pp_size == 1
    if deployment.server_args.get("enable_hisparse"):
        assert deployment.server_args["disable_radix_cache"]


def test_logged_budgets_print_as_in_the_logs() -> None:
    budgets = {published.name: published.deployment.budget for published in DEPLOYMENTS}
    printed = {name: f"{budget / GiB:.2f}" for name, budget in budgets.items()}
    assert printed["flash-base-tp8"] == "45.78"
    assert printed["flash-base-tp8-small"] == "19.58"
    assert printed["flash-22gb-pp4-10-11-11-11"] == "0.31"
    assert printed["flash-22gb-pp4-11-11-11-10"] == "0.31"
    assert printed["pro-h800-pp4"] == "35.57"
    assert printed["pro-h800-pp2"] == "34.81"
    assert printed["pro-mi355x"] == "105.08"
    assert printed["pro-mi355x-64"] == "118.93"
    assert printed["flash-0731"] == "11.89"
