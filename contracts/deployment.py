"""A deployment: one generated or written input that a subject is asked to size and allocate.

Plain, frozen data. A deployment says *what is served and how* in SGLang's own words; it says
nothing about how many tokens or bytes come out of it: that is the subject's to compute.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from contracts.units import format_bytes, parse_bytes

__all__ = ["Deployment", "DeploymentError", "Model", "Speculation"]

JSON = Any


class DeploymentError(ValueError):
    """A deployment file or argument is wrong; the message names the field and what would do."""


def _frozen(mapping: Mapping[str, JSON]) -> Mapping[str, JSON]:
    return MappingProxyType(dict(sorted(mapping.items())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The shape of a DeepSeek-V4-family model, as its ``config.json`` states it.

    ``compress_ratios`` has one entry per decoder layer and may go on past
    ``num_hidden_layers``: the entries beyond belong to the MTP or DSpark layers. Defaults are
    the fields that all published V4 models share.
    """

    num_hidden_layers: int
    compress_ratios: tuple[int, ...]
    name: str = "generated"
    architecture: str = "DeepseekV4ForCausalLM"
    model_type: str = "deepseek_v4"
    sliding_window: int = 128
    head_dim: int = 512
    qk_rope_head_dim: int = 64
    index_head_dim: int = 128
    index_n_heads: int = 64
    index_topk: int = 512
    hidden_size: int = 4096
    num_attention_heads: int = 64
    num_key_value_heads: int = 1
    max_position_embeddings: int = 1_048_576
    num_nextn_predict_layers: int = 1
    extra: Mapping[str, JSON] = field(default_factory=dict)
    """Further ``config.json`` fields, passed to SGLang as they are."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "compress_ratios", tuple(self.compress_ratios))
        object.__setattr__(self, "extra", _frozen(self.extra))
        if self.num_hidden_layers < 1:
            raise DeploymentError(
                f"model.num_hidden_layers is {self.num_hidden_layers}: "
                "a decoder has a layer or more"
            )
        if len(self.compress_ratios) < self.num_hidden_layers:
            raise DeploymentError(
                f"model.compress_ratios has {len(self.compress_ratios)} entries for "
                f"{self.num_hidden_layers} layers: every layer needs one"
            )

    @property
    def decoder_ratios(self) -> tuple[int, ...]:
        """The ratios of the decoder's own layers, without the MTP entries beyond them."""
        return self.compress_ratios[: self.num_hidden_layers]

    def config_json(self) -> dict[str, JSON]:
        """The ``config.json`` that SGLang's ``ModelConfig`` reads."""
        shape = {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.name not in ("name", "architecture", "extra")
        }
        shape["compress_ratios"] = list(self.compress_ratios)
        return {"architectures": [self.architecture], **_UNSIZED_FIELDS, **shape, **self.extra}

    @classmethod
    def from_json(cls, document: JSON) -> Model:
        """Read a model from JSON.

        Raises:
            DeploymentError: a field is unknown, missing or of the wrong type; the message names it.
        """
        fields = _fields(cls, document, "model.")
        fields["compress_ratios"] = _integers(fields["compress_ratios"], "model.compress_ratios")
        return cls(**fields)


#: Fields that a DeepSeek-V4 config.json must have and that no pool size depends on.
_UNSIZED_FIELDS: Mapping[str, JSON] = MappingProxyType(
    {
        "torch_dtype": "bfloat16",
        "vocab_size": 129_280,
        "n_routed_experts": 256,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 2048,
        "q_lora_rank": 1024,
        "o_lora_rank": 1024,
        "o_groups": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000,
        "hidden_act": "silu",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding, in the words of SGLang's ``--speculative-*`` arguments.

    A number left at ``None`` is not passed, and SGLang chooses.
    """

    algorithm: str
    num_steps: int | None = None
    eagle_topk: int | None = None
    num_draft_tokens: int | None = None

    def server_args(self) -> dict[str, JSON]:
        """The server arguments that state this speculation, by SGLang's names."""
        stated = {
            "speculative_algorithm": self.algorithm,
            "speculative_num_steps": self.num_steps,
            "speculative_eagle_topk": self.eagle_topk,
            "speculative_num_draft_tokens": self.num_draft_tokens,
        }
        return {name: value for name, value in stated.items() if value is not None}

    @classmethod
    def from_json(cls, document: JSON) -> Speculation:
        """Read a speculation from JSON.

        Raises:
            DeploymentError: a field is unknown, missing or of the wrong type; the message names it.
        """
        return cls(**_fields(cls, document, "speculation."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One input for a subject.

    ``budget`` is what one rank may spend on its pools, in bytes; SGLang gets it where it would
    have profiled the free memory of a GPU. ``partition`` gives the layers of each stage (SGLang's
    ``SGLANG_PP_LAYER_PARTITION``); without it SGLang splits evenly. ``server_args`` are further
    server arguments by their SGLang names, ``env`` further environment variables.
    """

    model: Model
    budget: int
    pp_size: int = 1
    partition: tuple[int, ...] | None = None
    speculation: Speculation | None = None
    server_args: Mapping[str, JSON] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "server_args", _frozen(self.server_args))
        object.__setattr__(self, "env", _frozen(self.env))
        if self.partition is not None:
            object.__setattr__(self, "partition", tuple(self.partition))
        self._check()

    def _check(self) -> None:
        if self.budget < 1:
            raise DeploymentError(f"budget is {self.budget} bytes: it must be positive")
        if self.pp_size < 1:
            raise DeploymentError(f"pp_size is {self.pp_size}: it must be 1 or more")
        for owned in _OWNED_ARGUMENTS:
            if owned in self.server_args:
                raise DeploymentError(
                    f"server_args.{owned}: this is said by {_OWNED_ARGUMENTS[owned]}"
                )
        if self.partition is None:
            return
        if len(self.partition) != self.pp_size:
            raise DeploymentError(
                f"partition {_listed(self.partition)} has {len(self.partition)} stages "
                f"but pp_size is {self.pp_size}"
            )
        total, layers = sum(self.partition), self.model.num_hidden_layers
        if total != layers:
            raise DeploymentError(
                f"partition {_listed(self.partition)} sums to {total} "
                f"but the model has {layers} layers"
            )

    def single_rank(self) -> Deployment:
        """The same deployment without pipeline parallelism (pp_size 1)."""
        return dataclasses.replace(self, pp_size=1, partition=None)

    def with_budget(self, budget: int) -> Deployment:
        """The same deployment with another byte budget."""
        return dataclasses.replace(self, budget=budget)

    def all_server_args(self) -> dict[str, JSON]:
        """Every server argument that this deployment states, by SGLang's names."""
        speculation = self.speculation.server_args() if self.speculation else {}
        return {**self.server_args, **speculation, "pp_size": self.pp_size}

    def all_env(self) -> dict[str, str]:
        """Every environment variable that this deployment states."""
        if self.partition is None:
            return dict(self.env)
        return {**self.env, "SGLANG_PP_LAYER_PARTITION": _listed(self.partition)}

    def swa_ratio(self) -> Fraction | None:
        """The stated ``swa_full_tokens_ratio`` as the decimal that was written, or None."""
        stated = self.server_args.get("swa_full_tokens_ratio")
        return None if stated is None else Fraction(str(stated))

    def to_json(self) -> dict[str, JSON]:
        """This deployment as JSON (docs/deployment.schema.json)."""
        document = _to_json(self)
        assert isinstance(document, dict)
        return document

    def key(self) -> str:
        """A canonical text: equal deployments have equal keys."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, document: JSON) -> Deployment:
        """Read a deployment from JSON.

        ``budget`` may be a number of bytes or a text such as ``"60GiB"``.

        Raises:
            DeploymentError: a field is unknown, missing or of the wrong type; the message names it.
        """
        fields = _fields(cls, document, "")
        fields["model"] = Model.from_json(fields["model"])
        fields["budget"] = _budget(fields["budget"])
        if fields.get("speculation") is not None:
            fields["speculation"] = Speculation.from_json(fields["speculation"])
        if fields.get("partition") is not None:
            fields["partition"] = _integers(fields["partition"], "partition")
        for name, value in fields.get("env", {}).items():
            if not isinstance(value, str):
                raise DeploymentError(f"env.{name}: a text is expected, got {value!r}")
        return cls(**fields)

    def __str__(self) -> str:
        parts = [f"layers={self.model.num_hidden_layers}", f"ratios={self.model.compress_ratios}"]
        if self.model.name != "generated":
            parts = [self.model.name]
        parts.append(f"pp={self.pp_size}")
        if self.partition is not None:
            parts.append(f"partition={_listed(self.partition)}")
        if self.speculation is not None:
            parts.append(f"speculation={self.speculation.algorithm}")
        parts += [f"{name}={value}" for name, value in self.server_args.items()]
        parts += [f"{name}={value}" for name, value in self.env.items()]
        parts.append(f"budget={format_bytes(self.budget)}")
        return " ".join(parts)


#: Server arguments that a deployment has a field of its own for.
_OWNED_ARGUMENTS: Mapping[str, str] = MappingProxyType(
    {
        "pp_size": "pp_size",
        "speculative_algorithm": "speculation.algorithm",
        "speculative_num_steps": "speculation.num_steps",
        "speculative_eagle_topk": "speculation.eagle_topk",
        "speculative_num_draft_tokens": "speculation.num_draft_tokens",
        "model_path": "model",
        "device": "the command line's --device",
    }
)


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _to_json(value: JSON) -> JSON:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_to_json(item) for item in value]
    return value


_KINDS: Mapping[str, type | tuple[type, ...]] = MappingProxyType(
    {
        "int": int,
        "int | None": (int, type(None)),
        "str": str,
        "tuple[int, ...]": (list, tuple),
        "tuple[int, ...] | None": (list, tuple, type(None)),
        "Mapping[str, JSON]": Mapping,
        "Mapping[str, str]": Mapping,
    }
)


_SAID: Mapping[str, str] = MappingProxyType(
    {
        "int": "a whole number",
        "int | None": "a whole number or null",
        "str": "a text",
        "tuple[int, ...]": "a list of whole numbers",
        "tuple[int, ...] | None": "a list of whole numbers or null",
        "Mapping[str, JSON]": "an object",
        "Mapping[str, str]": "an object of texts",
    }
)


def _fields(record: type, document: JSON, path: str) -> dict[str, JSON]:
    """The fields of a JSON object, checked against those of a record."""
    if not isinstance(document, Mapping):
        raise DeploymentError(f"{path.rstrip('.') or 'deployment'}: a JSON object is expected")
    known = {f.name: f for f in dataclasses.fields(record)}
    for name, value in document.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
            raise DeploymentError(f"{path}{name}: unknown field; {hint}")
        kind = str(known[name].type)
        expected = _KINDS.get(kind, object)
        wrong_bool = isinstance(value, bool) and kind.startswith("int")
        checked = name != "budget"  # a budget may be a text, read later
        if checked and (wrong_bool or not isinstance(value, expected)):
            raise DeploymentError(f"{path}{name}: {_SAID[kind]} is expected, got {value!r}")
    for name, known_field in known.items():
        required = (
            known_field.default is dataclasses.MISSING
            and known_field.default_factory is dataclasses.MISSING
        )
        if required and name not in document:
            raise DeploymentError(f"{path}{name}: missing")
    return dict(document)


def _integers(values: JSON, path: str) -> tuple[int, ...]:
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int):
            raise DeploymentError(f"{path}[{index}]: a whole number is expected, got {value!r}")
    return tuple(values)


def _budget(stated: JSON) -> int:
    if isinstance(stated, str):
        try:
            return parse_bytes(stated)
        except ValueError as error:
            raise DeploymentError(f"budget: {error}") from None
    if isinstance(stated, bool) or not isinstance(stated, int):
        raise DeploymentError(
            f"budget: a number of bytes or a text such as '60GiB' is expected, got {stated!r}"
        )
    return stated
