"""Deployments as a user states them: a file, or options of ``observe``."""

from __future__ import annotations

import dataclasses
import difflib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contracts.deployment import Deployment, DeploymentError, Model, Speculation
from contracts.units import GiB, parse_bytes
from strategies.published import MODELS

__all__ = ["deployment_from_options", "read_deployment"]

JSON = Any

_DEFAULT_MODEL = "deepseek-v4-flash"
_DEFAULT_BUDGET = 60 * GiB


def read_deployment(file: str) -> Deployment:
    """A deployment from a JSON file; ``-`` is standard input. A saved failing case will do.

    Raises:
        DeploymentError: it cannot be read, is no JSON or has a wrong field; the text names it.
    """
    document = _read_json(file)
    if isinstance(document, dict) and "deployment" in document:
        document = document["deployment"]
    try:
        return Deployment.from_json(document)
    except DeploymentError as error:
        raise DeploymentError(f"{file}: {error}") from None


def deployment_from_options(
    *,
    model: str | None,
    pp_size: int | None,
    partition: str | None,
    budget: str | None,
    env: Sequence[str],
    arguments: Sequence[str],
) -> Deployment:
    """A deployment from the options of ``observe`` and further server arguments.

    Raises:
        DeploymentError: an option makes no sense; the text says which and why.
    """
    stages = None if partition is None else _partition(partition)
    if stages is not None and pp_size not in (None, len(stages)):
        raise DeploymentError(
            f"--partition {partition} has {len(stages)} stages but --pp-size is {pp_size}"
        )
    stated = _server_arguments(arguments)
    return Deployment(
        model=_model(model or _DEFAULT_MODEL),
        budget=_DEFAULT_BUDGET if budget is None else _budget(budget),
        pp_size=len(stages) if stages else (pp_size or 1),
        partition=stages,
        speculation=_speculation(stated),
        server_args=stated,
        env=dict(map(_assignment, env)),
    )


def _read_json(file: str) -> JSON:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as error:
        raise DeploymentError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise DeploymentError(f"{file}: no JSON: {error}") from None


def _model(named: str) -> Model:
    if named in MODELS:
        return MODELS[named]
    if not Path(named).exists():
        close = difflib.get_close_matches(named, MODELS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"published: {', '.join(MODELS)}"
        raise DeploymentError(f"--model {named}: no published model and no file; {hint}")
    path = Path(named, "config.json") if Path(named).is_dir() else Path(named)
    document = _read_json(str(path))
    if not isinstance(document, dict):
        raise DeploymentError(f"--model {named}: a config.json is a JSON object")
    return model_from_config(document, name=path.parent.name or "generated")


def model_from_config(config: dict[str, JSON], *, name: str) -> Model:
    """A model from a ``config.json``; what it has beyond the shape is passed on as it is."""
    nested = config.get("text_config") or {}
    if not isinstance(nested, dict):
        raise DeploymentError(f"config.json: text_config: an object is expected, got {nested!r}")
    text = {**nested, **config}
    shape = {f.name for f in dataclasses.fields(Model)} - {"name", "architecture", "extra"}
    for required in ("num_hidden_layers", "compress_ratios"):
        if required not in text:
            raise DeploymentError(
                f"config.json has no {required!r}: it is not of the DeepSeek-V4 family"
            )
    known = {key: text[key] for key in shape if key in text}
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        known["architecture"] = architectures[0]
    extra = {key: value for key, value in config.items() if key not in {*shape, "architectures"}}
    return Model.from_json({**known, "name": name, "extra": extra})


def _partition(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DeploymentError(
            f"--partition {text!r}: whole numbers with commas are expected, such as 10,11,11,11"
        ) from None


def _budget(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise DeploymentError(f"--budget: {error}") from None


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise DeploymentError(f"--env {text!r}: NAME=VALUE is expected")
    return name, value


def _server_arguments(words: Sequence[str]) -> dict[str, JSON]:
    """``--swa-full-tokens-ratio 0.15 --disable-radix-cache`` as SGLang's field names."""
    stated: dict[str, JSON] = {}
    name: str | None = None
    for word in words:
        if word.startswith("--"):
            option, equals, value = word[2:].partition("=")
            name = option.replace("-", "_")
            stated[name] = _value(value) if equals else True
            if equals:
                name = None
        elif name is None:
            raise DeploymentError(f"{word!r} follows no option")
        else:
            stated[name] = _value(word)
            name = None
    return stated


def _value(text: str) -> JSON:
    """A number, true, false or null as JSON writes it; anything else is a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _speculation(stated: dict[str, JSON]) -> Speculation | None:
    """Take the speculative arguments out of the server arguments."""
    names = {
        "algorithm": "speculative_algorithm",
        "num_steps": "speculative_num_steps",
        "eagle_topk": "speculative_eagle_topk",
        "num_draft_tokens": "speculative_num_draft_tokens",
    }
    found = {short: stated.pop(name) for short, name in names.items() if name in stated}
    if found and "algorithm" not in found:
        raise DeploymentError("a --speculative-… argument needs --speculative-algorithm")
    return Speculation.from_json(found) if found else None
