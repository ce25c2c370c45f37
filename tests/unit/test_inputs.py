"""Deployments as a user states them: options, files and config.json."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from contracts.deployment import Deployment, DeploymentError, Speculation
from contracts.inputs import deployment_from_options, read_deployment
from contracts.units import GiB
from strategies.published import DEPLOYMENTS, MODELS

JSON = Any
FLASH = MODELS["deepseek-v4-flash"]


def stated(*arguments: str, **options: Any) -> Deployment:
    """The deployment of options, those that are not given left out."""
    absent = {"model": None, "pp_size": None, "partition": None, "budget": None, "env": ()}
    return deployment_from_options(**{**absent, **options}, arguments=arguments)


# -- options -------------------------------------------------------------------------------------


def test_nothing_stated() -> None:
    """Red when the documented defaults change: Flash, one rank, 60 GiB."""
    assert stated() == Deployment(model=FLASH, budget=60 * GiB)


@pytest.mark.parametrize("name", MODELS)
def test_published_models(name: str) -> None:
    """Red when a published model cannot be named."""
    assert stated(model=name).model == MODELS[name]


def test_options() -> None:
    """Red when an option does not reach its field."""
    assert stated(pp_size=4, budget="1.5GiB", env=("A=1", "B=x=y", "C=")) == Deployment(
        model=FLASH, budget=3 * GiB // 2, pp_size=4, env={"A": "1", "B": "x=y", "C": ""}
    )


@pytest.mark.parametrize("pp_size", [None, 4])
def test_a_partition_sets_the_ranks(pp_size: int | None) -> None:
    """Red when --partition needs --pp-size beside it, or is refused with the right one."""
    deployment = stated(partition="10,11,11,11", pp_size=pp_size)
    assert (deployment.pp_size, deployment.partition) == (4, (10, 11, 11, 11))


def test_server_arguments() -> None:
    """Red when a server argument loses its SGLang name or the type of its value."""
    deployment = stated(
        *("--swa-full-tokens-ratio", "0.15"),
        *("--max-running-requests", "64"),
        *("--cuda-graph-max-bs=8",),
        "--disable-radix-cache",
        *("--attention-backend", "dsv4"),
        *("--chunked-prefill-size", "-1"),
        *("--enable-x", "false"),
        *("--json-model-override-args={}",),
    )
    assert deployment.server_args == {
        "swa_full_tokens_ratio": 0.15,
        "max_running_requests": 64,
        "cuda_graph_max_bs": 8,
        "disable_radix_cache": True,
        "attention_backend": "dsv4",
        "chunked_prefill_size": -1,
        "enable_x": False,
        "json_model_override_args": {},
    }


def test_speculative_arguments() -> None:
    """Red when speculation is passed on as plain server arguments."""
    deployment = stated(
        *("--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3"),
        *("--speculative-eagle-topk=1", "--speculative-num-draft-tokens", "4"),
        *("--max-running-requests", "8"),
    )
    assert deployment.speculation == Speculation(
        algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4
    )
    assert deployment.server_args == {"max_running_requests": 8}


BAD_OPTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "budget": (
        (),
        {"budget": "60GB?"},
        "--budget: '60GB?' is no size in bytes; write it as 60GiB, 512MiB or 1073741824",
    ),
    "partition of another sum": (
        (),
        {"partition": "10,11"},
        "partition 10,11 sums to 21 but the model has 43 layers",
    ),
    "partition and ranks": (
        (),
        {"partition": "21,22", "pp_size": 4},
        "--partition 21,22 has 2 stages but --pp-size is 4",
    ),
    "partition of words": (
        (),
        {"partition": "10;33"},
        "--partition '10;33': whole numbers with commas are expected, such as 10,11,11,11",
    ),
    "empty partition": (
        (),
        {"partition": ""},
        "--partition '': whole numbers with commas are expected, such as 10,11,11,11",
    ),
    "env without a value": ((), {"env": ("A",)}, "--env 'A': NAME=VALUE is expected"),
    "env without a name": ((), {"env": ("=1",)}, "--env '=1': NAME=VALUE is expected"),
    "unknown model": (
        (),
        {"model": "deepseek-v4-flsh"},
        "--model deepseek-v4-flsh: no published model and no file; "
        "did you mean 'deepseek-v4-flash'?",
    ),
    "unknown model, nothing near": (
        (),
        {"model": "llama"},
        "--model llama: no published model and no file; published: " + ", ".join(MODELS),
    ),
    "value without an option": (("0.15",), {}, "'0.15' follows no option"),
    "two values": (("--a", "1", "2"), {}, "'2' follows no option"),
    "an owned argument": (
        ("--model-path", "x"),
        {},
        "server_args.model_path: this is said by model",
    ),
    "speculation without an algorithm": (
        ("--speculative-num-steps", "3"),
        {},
        "a --speculative-… argument needs --speculative-algorithm",
    ),
    "an algorithm without a name": (
        ("--speculative-algorithm",),
        {},
        "speculation.algorithm: a text is expected, got True",
    ),
    "steps in words": (
        ("--speculative-algorithm", "EAGLE", "--speculative-num-steps", "three"),
        {},
        "speculation.num_steps: a whole number or null is expected, got 'three'",
    ),
}


@pytest.mark.parametrize("bad", BAD_OPTIONS)
def test_bad_options(bad: str) -> None:
    """Red when an option without sense is accepted, or its sentence does not say what would do."""
    arguments, options, sentence = BAD_OPTIONS[bad]
    with pytest.raises(DeploymentError) as error:
        stated(*arguments, **options)
    assert str(error.value) == sentence


# -- config.json ---------------------------------------------------------------------------------


def write(path: Path, content: JSON) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("named", ["file", "folder"])
@pytest.mark.parametrize("name", ["deepseek-v4-pro", "deepseek-v4-flash-0731"])
def test_a_config_json_is_the_model_that_it_states(name: str, named: str, tmp_path: Path) -> None:
    """Red when a field of a config.json is not read, or not passed on; or when a model is not
    named after its folder."""
    model = MODELS[name]
    path = write(tmp_path / name / "config.json", model.config_json())
    read = stated(model=str(path if named == "file" else path.parent)).model
    assert read.name == name
    assert read.compress_ratios == model.compress_ratios
    assert read.config_json() == model.config_json()


def test_an_unknown_field_is_passed_on(tmp_path: Path) -> None:
    """Red when SGLang does not get to see what this project knows nothing of."""
    path = write(tmp_path / "config.json", {**FLASH.config_json(), "new_in_v5": [1, 2]})
    assert stated(model=str(path)).model.config_json()["new_in_v5"] == [1, 2]


def nested_config(name: str) -> dict[str, JSON]:
    """A config.json as V4.1 has it: the decoder's fields in text_config, an eye beside it."""
    config = MODELS[name].config_json()
    text = {**config.pop("text_config"), **config}
    top = {key: text.pop(key) for key in ("architectures", "torch_dtype")}
    vision = {"model_type": "deepseek_v41_vision", "num_hidden_layers": 27, "hidden_size": 1024}
    return {
        **top,
        "model_type": text.pop("model_type"),
        "text_config": {**text, "model_type": "deepseek_v41_text"},
        "vision_config": vision,
    }


def test_a_nested_config_json(tmp_path: Path) -> None:
    """Red when the decoder's fields are not found in text_config, or the vision model's are taken
    for them."""
    published = MODELS["deepseek-v4.1-flash"]
    path = write(tmp_path / "flash" / "config.json", nested_config(published.name))
    model = stated(model=str(path)).model
    assert (model.num_hidden_layers, model.compress_ratios) == (40, published.compress_ratios)
    assert (model.architecture, model.model_type) == ("DeepseekV41ForCausalLM", "deepseek_v41")
    assert (model.hidden_size, model.index_n_heads) == (5120, 32)
    assert model.num_nextn_predict_layers == 3
    assert model.extra["text_config"]["kv_source_layer_ids"] == [2, 8, 14, 20]
    assert model.extra["vision_config"]["num_hidden_layers"] == 27


BAD_CONFIGS: dict[str, tuple[JSON, str]] = {
    "no object": ([], "--model {path}: a config.json is a JSON object"),
    "another family": (
        {"num_hidden_layers": 61, "architectures": ["DeepseekV3ForCausalLM"]},
        "config.json has no 'compress_ratios': it is not of the DeepSeek-V4 family",
    ),
    "no layers": (
        {"compress_ratios": [0]},
        "config.json has no 'num_hidden_layers': it is not of the DeepSeek-V4 family",
    ),
    "layers in words": (
        {"num_hidden_layers": "1", "compress_ratios": [0]},
        "model.num_hidden_layers: a whole number is expected, got '1'",
    ),
    "ratios of null": (
        {"num_hidden_layers": 1, "compress_ratios": None},
        "model.compress_ratios: a list of whole numbers is expected, got None",
    ),
    "too few ratios": (
        {"num_hidden_layers": 2, "compress_ratios": [0]},
        "model.compress_ratios has 1 entries for 2 layers: every layer needs one",
    ),
    "text_config is none": (
        {"text_config": "no"},
        "config.json: text_config: an object is expected, got 'no'",
    ),
}


@pytest.mark.parametrize("bad", BAD_CONFIGS)
def test_bad_config_json(bad: str, tmp_path: Path) -> None:
    """Red when a config.json that states no such model ends in a traceback or in a wrong one."""
    content, sentence = BAD_CONFIGS[bad]
    path = write(tmp_path / "config.json", content)
    with pytest.raises(DeploymentError) as error:
        stated(model=str(path))
    assert str(error.value) == sentence.format(path=path)


def test_a_config_json_that_cannot_be_read(tmp_path: Path) -> None:
    """Red when a file that is no JSON, or a folder without config.json, is a traceback."""
    with pytest.raises(DeploymentError, match=r"config\.json: No such file or directory"):
        stated(model=str(tmp_path))
    (tmp_path / "config.json").write_bytes(b"\xff{")
    with pytest.raises(DeploymentError, match=r"config\.json: no JSON: "):
        stated(model=str(tmp_path))


# -- deployment files ------------------------------------------------------------------------------

SEEN = DEPLOYMENTS[1].deployment


@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: {"schema": 1, "deployment": it}])
def test_a_file(wrap: Any, tmp_path: Path) -> None:
    """Red when a deployment file, a saved case or observe's own JSON cannot be observed again."""
    path = write(tmp_path / "case.json", wrap(SEEN.to_json()))
    assert read_deployment(str(path)) == SEEN


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Red when --deployment - does not read standard input."""
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(SEEN.to_json())))
    assert read_deployment("-") == SEEN


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "no JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        ("[]", "deployment: a JSON object is expected"),
        ('{"deployment": 3}', "deployment: a JSON object is expected"),
        ('{"modle": {}}', "modle: unknown field; did you mean 'model'?"),
        ("{}", "model: missing"),
    ],
)
def test_bad_files(text: str, sentence: str, tmp_path: Path) -> None:
    """Red when a wrong file is answered with anything but a sentence that names it."""
    path = tmp_path / "wrong.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DeploymentError) as error:
        read_deployment(str(path))
    assert str(error.value).startswith(f"{path}: {sentence}")


def test_no_file(tmp_path: Path) -> None:
    """Red when a file that is not there, or is a folder, is a traceback."""
    with pytest.raises(DeploymentError, match=r"none\.json: No such file or directory"):
        read_deployment(str(tmp_path / "none.json"))
    with pytest.raises(DeploymentError, match="Is a directory"):
        read_deployment(str(tmp_path))
