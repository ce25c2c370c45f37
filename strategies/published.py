"""The published models, and deployments of them that people really run.

Facts are those of the models' ``config.json`` files and of public server logs. Tensor parallelism
does not enter the sizing of these pools and is left out where DP attention does not need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from contracts.deployment import Deployment, Model, Speculation
from contracts.units import parse_bytes

__all__ = ["DEPLOYMENTS", "DSPARK", "EAGLE", "MODELS", "PublishedDeployment"]


@dataclass(frozen=True, slots=True)
class PublishedDeployment:
    """A deployment that was seen in the field, under a name to refer to."""

    name: str
    deployment: Deployment


_FLASH_RATIOS = (0, 0, *(4, 128) * 20, 4)
_PRO_RATIOS = (128, 128, *(4, 128) * 29, 4)
_V41_RATIOS = (0, 0, *(2,) * 18, *(1,) * 20)


def _flash(name: str, *, beyond: tuple[int, ...], extra: Mapping[str, Any]) -> Model:
    return Model(
        name=name,
        num_hidden_layers=43,
        compress_ratios=_FLASH_RATIOS + beyond,
        hidden_size=4096,
        index_topk=512,
        extra=extra,
    )


def _pro(name: str, *, beyond: tuple[int, ...], extra: Mapping[str, Any]) -> Model:
    return Model(
        name=name,
        num_hidden_layers=61,
        compress_ratios=_PRO_RATIOS + beyond,
        hidden_size=7168,
        num_attention_heads=128,
        index_topk=1024,
        extra=extra,
    )


def _dspark(*target_layers: int) -> dict[str, Any]:
    """The fields that mark a bundled DSpark draft.

    Block, rank and noise token are those of Flash-0731 and V4.1-Flash. For Pro-0813 only the
    target layers are on record; the others are taken to be the same.
    """
    return {
        "dspark_block_size": 5,
        "dspark_markov_rank": 256,
        "dspark_noise_token_id": 128_799,
        "dspark_target_layer_ids": list(target_layers),
    }


#: V4.1 nests its decoder's fields in ``text_config``; SGLang reads both levels as one.
_V41_FLASH = Model(
    name="deepseek-v4.1-flash",
    architecture="DeepseekV41ForCausalLM",
    model_type="deepseek_v41",
    num_hidden_layers=40,
    compress_ratios=(*_V41_RATIOS, 0, 0, 0),
    hidden_size=5120,
    index_n_heads=32,
    index_topk=512,
    num_nextn_predict_layers=3,
    extra={
        "text_config": {
            "model_type": "deepseek_v41_text",
            "kv_source_layer_ids": [2, 8, 14, 20],
            "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36],
            "candidate_source_layer_id": 20,
            "candidate_topk_blocks": 2048,
            "candidate_block_size": 8,
            **_dspark(37, 38, 39),
        },
    },
)

#: The published models by the names that this project uses for them.
MODELS: Mapping[str, Model] = MappingProxyType(
    {
        model.name: model
        for model in (
            _flash("deepseek-v4-flash", beyond=(0,), extra={}),
            _pro("deepseek-v4-pro", beyond=(0,), extra={}),
            _flash("deepseek-v4-flash-0731", beyond=(0, 0, 0), extra=_dspark(40, 41, 42)),
            _pro("deepseek-v4-pro-0813", beyond=(0, 0, 0), extra=_dspark(58, 59, 60)),
            _V41_FLASH,
        )
    }
)

#: The speculative settings of the published recipes that others draft with too.
EAGLE = Speculation(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4)
_EAGLE_1 = Speculation(algorithm="EAGLE", num_steps=1, eagle_topk=1, num_draft_tokens=2)
DSPARK = Speculation(algorithm="DSPARK")


def _seen(
    name: str,
    model: str,
    budget: str,
    *,
    pp_size: int = 1,
    partition: tuple[int, ...] | None = None,
    speculation: Speculation | None = None,
    env: Mapping[str, str] = MappingProxyType({}),
    **server_args: Any,
) -> PublishedDeployment:
    deployment = Deployment(
        model=MODELS[f"deepseek-{model}"],
        budget=parse_bytes(budget),
        pp_size=pp_size,
        partition=partition,
        speculation=speculation,
        server_args=server_args,
        env=env,
    )
    return PublishedDeployment(name, deployment)


#: What people run; the comments say what is known of each. The budget of a logged deployment
#: prints as the log has it (rounded to 0.01 GiB) and yields the token count that the log shows.
DEPLOYMENTS: tuple[PublishedDeployment, ...] = (
    # Flash on one node, with and without a pipeline.
    _seen("flash-pp1", "v4-flash", "60GiB", swa_full_tokens_ratio=0.1),
    _seen("flash-pp2", "v4-flash", "60GiB", pp_size=2, swa_full_tokens_ratio=0.1),
    _seen("flash-pp4", "v4-flash", "60GiB", pp_size=4, swa_full_tokens_ratio=0.1),
    _seen("flash-pp8", "v4-flash", "60GiB", pp_size=8, swa_full_tokens_ratio=0.1),
    _seen("flash-defaults", "v4-flash", "60GiB"),
    # Flash-Base, 0.5.12, TP8: two logs, with much and with little memory left.
    _seen("flash-base-tp8", "v4-flash", "46883MiB", swa_full_tokens_ratio=0.1),
    _seen("flash-base-tp8-small", "v4-flash", "20051MiB", swa_full_tokens_ratio=0.1),
    # Flash FP8 on 8xH200, upstream's own PP4 test; the budget is worked back from its tokens.
    _seen("flash-h200-pp4", "v4-flash", "92GiB", pp_size=4, swa_full_tokens_ratio=0.25),
    # Flash on 22 GB cards, TP2 x PP4, with both partitions; 8 requests fit the log.
    *(
        _seen(
            f"flash-22gb-pp4-{'-'.join(map(str, partition))}",
            "v4-flash",
            "312.5MiB",
            pp_size=4,
            partition=partition,
            swa_full_tokens_ratio=0.1,
            max_running_requests=8,
        )
        for partition in ((10, 11, 11, 11), (11, 11, 11, 10))
    ),
    # Flash with its MTP layer.
    _seen(
        "flash-eagle-3-1-4",
        "v4-flash",
        "60GiB",
        speculation=EAGLE,
        swa_full_tokens_ratio=0.1,
    ),
    _seen(
        "flash-eagle-1-1-2",
        "v4-flash",
        "60GiB",
        speculation=_EAGLE_1,
        swa_full_tokens_ratio=0.1,
        max_running_requests=64,
    ),
    # Pro on 32xH800, 0.5.12.post1: TP8 x PP4 and TP16 x PP2.
    _seen(
        "pro-h800-pp4",
        "v4-pro",
        "36422MiB",
        pp_size=4,
        swa_full_tokens_ratio=0.1,
        max_running_requests=256,
    ),
    _seen(
        "pro-h800-pp2",
        "v4-pro",
        "35649MiB",
        pp_size=2,
        swa_full_tokens_ratio=0.1,
        max_running_requests=256,
    ),
    # Pro on MI355X; in the second log the c128 states tell the requests.
    _seen("pro-mi355x", "v4-pro", "107606MiB", swa_full_tokens_ratio=0.15),
    _seen(
        "pro-mi355x-64",
        "v4-pro",
        "121782MiB",
        swa_full_tokens_ratio=0.15,
        max_running_requests=64,
    ),
    _seen(
        "pro-eagle-3-1-4",
        "v4-pro",
        "105GiB",
        speculation=EAGLE,
        swa_full_tokens_ratio=0.15,
    ),
    # Flash-0731 without and with its DSpark draft.
    _seen(
        "flash-0731",
        "v4-flash-0731",
        "12174MiB",
        swa_full_tokens_ratio=0.1,
        max_running_requests=8,
    ),
    _seen(
        "flash-0731-dspark",
        "v4-flash-0731",
        "60GiB",
        speculation=DSPARK,
        swa_full_tokens_ratio=0.1,
    ),
    _seen("pro-0813-pp4", "v4-pro-0813", "60GiB", pp_size=4, swa_full_tokens_ratio=0.1),
    _seen(
        "pro-0813-dspark",
        "v4-pro-0813",
        "105GiB",
        speculation=DSPARK,
        swa_full_tokens_ratio=0.1,
    ),
    # V4.1-Flash, which SGLang allows no pipeline; its SWA pool is sized by requests.
    _seen("flash-v4.1", "v4.1-flash", "60GiB"),
    _seen("flash-v4.1-dspark", "v4.1-flash", "60GiB", speculation=DSPARK),
    # Servers of PD pairs: a pipeline prefills, few requests at a time decode.
    _seen(
        "flash-prefill-pp4",
        "v4-flash",
        "60GiB",
        pp_size=4,
        swa_full_tokens_ratio=0.1,
        disaggregation_mode="prefill",
    ),
    _seen(
        "flash-decode-16",
        "v4-flash",
        "60GiB",
        swa_full_tokens_ratio=0.1,
        max_running_requests=16,
        disaggregation_mode="decode",
    ),
    # A decode server with c4 tokens on the host, twice as many as on the device (the default).
    _seen(
        "flash-decode-hisparse",
        "v4-flash",
        "60GiB",
        swa_full_tokens_ratio=0.1,
        max_running_requests=64,
        disaggregation_mode="decode",
        disable_radix_cache=True,
        enable_hisparse=True,
    ),
    # DP attention over the 8 GPUs of a node: each rank runs an eighth of the requests.
    _seen(
        "pro-dp8",
        "v4-pro",
        "60GiB",
        swa_full_tokens_ratio=0.15,
        max_running_requests=128,
        tp_size=8,
        dp_size=8,
        enable_dp_attention=True,
    ),
    # Smaller states: one a request in place of a ring of tokens, or of two bytes a number.
    _seen(
        "flash-online-c128",
        "v4-flash",
        "60GiB",
        swa_full_tokens_ratio=0.1,
        env={"SGLANG_OPT_USE_ONLINE_COMPRESS": "1"},
    ),
    _seen(
        "flash-bf16-states",
        "v4-flash",
        "60GiB",
        swa_full_tokens_ratio=0.1,
        env={"SGLANG_DSV4_COMPRESS_STATE_DTYPE": "bfloat16"},
    ),
)
