"""Deployments as data: what is read, what is refused and in which words, what goes round."""

from __future__ import annotations

import copy
import dataclasses
import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings

from contracts.deployment import Deployment, DeploymentError, Model, Speculation
from contracts.units import GiB
from strategies.deployment import deployments
from strategies.published import DEPLOYMENTS, MODELS

JSON = Any
FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=100)


def document(**changed: JSON) -> dict[str, JSON]:
    """A deployment as JSON with every field stated."""
    stated = {
        "model": {"num_hidden_layers": 4, "compress_ratios": [0, 4, 128, 4, 0]},
        "budget": 1 << 30,
        "pp_size": 2,
        "partition": [1, 3],
        "speculation": {"algorithm": "EAGLE", "num_steps": 3},
        "server_args": {"swa_full_tokens_ratio": 0.15},
        "env": {"SGLANG_X": "1"},
    }
    return {**stated, **changed}


def without(*path: str) -> dict[str, JSON]:
    """The document without one field."""
    stated = copy.deepcopy(document())
    inner = stated
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return stated


def within(record: str, **changed: JSON) -> dict[str, JSON]:
    """The document with fields of a nested record changed or added."""
    return document(**{record: {**document()[record], **changed}})


BAD: dict[str, tuple[JSON, str]] = {
    "no object": ([], "deployment: a JSON object is expected"),
    "unknown field": (
        document(pp_sise=4),
        "pp_sise: unknown field; did you mean 'pp_size'?",
    ),
    "unknown field, nothing near": (
        document(zzz=1),
        "zzz: unknown field; known: model, budget, pp_size, partition, speculation, "
        "server_args, env",
    ),
    "unknown field of the model": (
        within("model", num_hiden_layers=4),
        "model.num_hiden_layers: unknown field; did you mean 'num_hidden_layers'?",
    ),
    "unknown field of the speculation": (
        within("speculation", num_step=4),
        "speculation.num_step: unknown field; did you mean 'num_steps'?",
    ),
    "no model": (without("model"), "model: missing"),
    "no budget": (without("budget"), "budget: missing"),
    "no layers": (without("model", "num_hidden_layers"), "model.num_hidden_layers: missing"),
    "no ratios": (without("model", "compress_ratios"), "model.compress_ratios: missing"),
    "no algorithm": (without("speculation", "algorithm"), "speculation.algorithm: missing"),
    "model of the wrong type": (document(model="flash"), "model: a JSON object is expected"),
    "speculation of the wrong type": (
        document(speculation="EAGLE"),
        "speculation: a JSON object is expected",
    ),
    "number as text": (document(pp_size="2"), "pp_size: a whole number is expected, got '2'"),
    "number with a fraction": (
        document(pp_size=2.0),
        "pp_size: a whole number is expected, got 2.0",
    ),
    "true is no number": (document(pp_size=True), "pp_size: a whole number is expected, got True"),
    "null is no number": (document(pp_size=None), "pp_size: a whole number is expected, got None"),
    "number or null": (
        within("speculation", num_steps="3"),
        "speculation.num_steps: a whole number or null is expected, got '3'",
    ),
    "text": (
        within("speculation", algorithm=3),
        "speculation.algorithm: a text is expected, got 3",
    ),
    "list": (
        within("model", compress_ratios=4),
        "model.compress_ratios: a list of whole numbers is expected, got 4",
    ),
    "list or null": (
        document(partition="1,3"),
        "partition: a list of whole numbers or null is expected, got '1,3'",
    ),
    "an entry of a list": (
        within("model", compress_ratios=[0, 4, "128", 4]),
        "model.compress_ratios[2]: a whole number is expected, got '128'",
    ),
    "true in a list": (
        document(partition=[1, True]),
        "partition[1]: a whole number is expected, got True",
    ),
    "object": (document(server_args=[]), "server_args: an object is expected, got []"),
    "object of texts": (document(env="X=1"), "env: an object of texts is expected, got 'X=1'"),
    "a text of an object": (
        document(env={"SGLANG_X": 1}),
        "env.SGLANG_X: a text is expected, got 1",
    ),
    "budget in words": (
        document(budget="60GB?"),
        "budget: '60GB?' is no size in bytes; write it as 60GiB, 512MiB or 1073741824",
    ),
    "budget with a fraction": (
        document(budget=1e9),
        "budget: a number of bytes or a text such as '60GiB' is expected, got 1000000000.0",
    ),
    "budget of nothing": (document(budget=0), "budget is 0 bytes: it must be positive"),
    "negative budget": (document(budget=-1), "budget is -1 bytes: it must be positive"),
    "no rank": (document(pp_size=0, partition=None), "pp_size is 0: it must be 1 or more"),
    "partition of another sum": (
        document(partition=[1, 4]),
        "partition 1,4 sums to 5 but the model has 4 layers",
    ),
    "partition of other stages": (
        document(partition=[1, 1, 2]),
        "partition 1,1,2 has 3 stages but pp_size is 2",
    ),
    "no layer": (
        within("model", num_hidden_layers=0),
        "model.num_hidden_layers is 0: a decoder has a layer or more",
    ),
    "too few ratios": (
        within("model", num_hidden_layers=6),
        "model.compress_ratios has 5 entries for 6 layers: every layer needs one",
    ),
    **{
        f"owned argument {name}": (
            document(server_args={name: 1}),
            f"server_args.{name}: this is said by {owner}",
        )
        for name, owner in {
            "pp_size": "pp_size",
            "speculative_algorithm": "speculation.algorithm",
            "speculative_num_steps": "speculation.num_steps",
            "speculative_eagle_topk": "speculation.eagle_topk",
            "speculative_num_draft_tokens": "speculation.num_draft_tokens",
            "model_path": "model",
            "device": "the command line's --device",
        }.items()
    },
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input(bad: str) -> None:
    """Red when a wrong field is accepted, raises anything but DeploymentError, or is answered
    with a sentence that does not name the field and what would do."""
    given, sentence = BAD[bad]
    with pytest.raises(DeploymentError) as error:
        Deployment.from_json(given)
    assert str(error.value) == sentence


def test_what_is_read() -> None:
    """Red when a field of a document is dropped or lands in another one."""
    assert Deployment.from_json(document()) == Deployment(
        model=Model(num_hidden_layers=4, compress_ratios=(0, 4, 128, 4, 0)),
        budget=GiB,
        pp_size=2,
        partition=(1, 3),
        speculation=Speculation(algorithm="EAGLE", num_steps=3),
        server_args={"swa_full_tokens_ratio": 0.15},
        env={"SGLANG_X": "1"},
    )


def test_only_model_and_budget_must_be_stated() -> None:
    """Red when a field without need becomes one that every document must have."""
    least = {"model": {"num_hidden_layers": 1, "compress_ratios": [0]}, "budget": "1.5 GiB"}
    assert Deployment.from_json(least) == Deployment(
        model=Model(num_hidden_layers=1, compress_ratios=(0,)), budget=3 * GiB // 2
    )
    nulls = {**least, "partition": None, "speculation": None}
    assert Deployment.from_json(nulls) == Deployment.from_json(least)


@FIXED
@given(deployments(windows=(128, 64)))
def test_generated_deployments_go_round(deployment: Deployment) -> None:
    """Red when a field is not written, or is not read as it was written: a saved case and the
    worker would see another deployment than the one that failed."""
    text = json.dumps(deployment.to_json(), allow_nan=False)
    again = Deployment.from_json(json.loads(text))
    assert again == deployment
    assert again.key() == deployment.key()
    assert json.dumps(again.to_json()) == text


@pytest.mark.parametrize("published", DEPLOYMENTS, ids=lambda published: published.name)
def test_published_deployments_go_round(published: Any) -> None:
    """Red when the nested fields of a published config.json do not survive."""
    deployment = published.deployment
    assert Deployment.from_json(json.loads(json.dumps(deployment.to_json()))) == deployment


@FIXED
@given(deployments(), deployments())
def test_keys_are_equal_exactly_for_equal_deployments(one: Deployment, other: Deployment) -> None:
    """Red when an observation or a case file is shared by two deployments that differ."""
    assert (one.key() == other.key()) == (one == other)


def test_the_order_of_arguments_does_not_matter() -> None:
    """Red when equal deployments get two keys, and are observed twice."""
    model = Model(num_hidden_layers=1, compress_ratios=(0,))
    one = Deployment(model=model, budget=1, server_args={"a": 1, "b": 2}, env={"A": "1", "B": "2"})
    other = Deployment(
        model=model, budget=1, server_args={"b": 2, "a": 1}, env={"B": "2", "A": "1"}
    )
    assert one == other
    assert one.key() == other.key()


def test_a_deployment_does_not_change() -> None:
    """Red when a shared deployment can be altered under those who remember it."""
    stated = {"swa_full_tokens_ratio": 0.1}
    deployment = Deployment(model=MODELS["deepseek-v4-flash"], budget=1, server_args=stated)
    stated["swa_full_tokens_ratio"] = 0.5
    assert deployment.server_args == {"swa_full_tokens_ratio": 0.1}
    with pytest.raises(TypeError):
        deployment.server_args["x"] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        deployment.model.extra["x"] = 1  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        deployment.budget = 2  # type: ignore[misc]


def test_what_sglang_is_told() -> None:
    """Red when a stated partition, speculation or argument does not reach SGLang under its name,
    or a number that was not stated does."""
    deployment = Deployment.from_json(document())
    assert deployment.all_server_args() == {
        "swa_full_tokens_ratio": 0.15,
        "speculative_algorithm": "EAGLE",
        "speculative_num_steps": 3,
        "pp_size": 2,
    }
    assert deployment.all_env() == {"SGLANG_X": "1", "SGLANG_PP_LAYER_PARTITION": "1,3"}
    assert Deployment.from_json(document(partition=None)).all_env() == {"SGLANG_X": "1"}


def test_without_a_pipeline() -> None:
    """Red when the comparison at pp_size 1 keeps the partition or loses anything else."""
    deployment = Deployment.from_json(document())
    single = deployment.single_rank()
    assert single == Deployment.from_json(document(pp_size=1, partition=None))
    assert deployment.with_budget(7) == Deployment.from_json(document(budget=7))


@pytest.mark.parametrize(
    ("stated", "exact"), [(0.1, Fraction(1, 10)), (0.15, Fraction(3, 20)), (1, Fraction(1))]
)
def test_the_swa_ratio_is_the_decimal_that_was_written(stated: float, exact: Fraction) -> None:
    """Red when the ratio that laws align by is the binary fraction next to the written one."""
    deployment = Deployment.from_json(document(server_args={"swa_full_tokens_ratio": stated}))
    assert deployment.swa_ratio() == exact
    assert Deployment.from_json(document(server_args={})).swa_ratio() is None


def test_config_json() -> None:
    """Red when the config.json for SGLang does not state the shape, or keeps our own names."""
    model = Model(
        num_hidden_layers=2, compress_ratios=(0, 4, 0), sliding_window=64, extra={"dspark_x": 5}
    )
    config = model.config_json()
    assert config["architectures"] == ["DeepseekV4ForCausalLM"]
    assert config["num_hidden_layers"] == 2
    assert config["compress_ratios"] == [0, 4, 0]
    assert config["sliding_window"] == 64
    assert config["dspark_x"] == 5
    assert not {"name", "architecture", "extra"} & set(config)
    assert model.decoder_ratios == (0, 4)
    json.dumps(config)


def test_as_text() -> None:
    """Red when a deployment on one line leaves out what tells it from another."""
    assert str(Deployment.from_json(document())) == (
        "layers=4 ratios=(0, 4, 128, 4, 0) pp=2 partition=1,3 speculation=EAGLE "
        "swa_full_tokens_ratio=0.15 SGLANG_X=1 budget=1 GiB"
    )
    flash = Deployment(model=MODELS["deepseek-v4-flash"], budget=60 * GiB)
    assert str(flash) == "deepseek-v4-flash pp=1 budget=60 GiB"
