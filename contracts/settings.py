"""Which settings SGLang's DSV4 sizing path reads, and what the suite does about each.

A setting is an environment variable, a server argument, or a leaf of SGLang's runtime contexts
(``sglang.srt.runtime_context``), which are published from the server arguments and named here by
their path. What is read, and in which releases, was measured (:mod:`contracts.subject.reads`) and
is tested against every release; a subject that reads what is not in here fails that test.

Plain data: nothing here imports torch or sglang. docs/settings.md is written from it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Literal

__all__ = ["KNOWN", "SETTINGS", "Kind", "Setting", "Treatment", "at_start"]

Kind = Literal["env", "argument", "context"]


class Treatment(enum.StrEnum):
    """What the suite does about a setting."""

    GENERATED = "generated"
    STATED = "stated"
    HARNESS = "emulated"
    PLATFORM = "not covered"
    NO_EFFECT = "no effect"

    @property
    def meaning(self) -> str:
        """What the word stands for, in a sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Treatment.GENERATED: "the strategies draw it",
    Treatment.STATED: "draws leave it at its default; a deployment may state it, as corners do",
    Treatment.HARNESS: "the observation itself says it, from the deployment or in place of a GPU",
    Treatment.PLATFORM: "only a machine of another kind honours it",
    Treatment.NO_EFFECT: "SGLang reads it, and no size depends on it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting that sizing or allocation reads.

    ``first`` and ``last`` are the releases between which it is read; with ``last`` None the newest
    release reads it. ``at_import`` says that SGLang keeps what it read while a module was
    imported, or at its first use: the value must be there when the process starts. ``resolved``
    says that not sizing reads it but the resolution of the arguments, and what sizing reads of it
    has another name or comes from the adapter.
    """

    name: str
    kind: Kind
    treatment: Treatment
    why: str
    first: str
    last: str | None = None
    at_import: bool = False
    resolved: bool = False


def _read(
    kind: Kind,
    name: str,
    treatment: Treatment,
    span: tuple[str, str | None],
    why: str = "",
    *,
    at_import: bool = False,
    resolved: bool = False,
) -> Setting:
    """A setting; a leaf without a reason of its own is the server argument of the same name."""
    return Setting(
        name=name,
        kind=kind,
        treatment=treatment,
        why=why or f"the server argument `{name.rpartition('.')[2]}`",
        first=span[0],
        last=span[1],
        at_import=at_import,
        resolved=resolved,
    )


_env = partial(_read, "env")
_argument = partial(_read, "argument")
_context = partial(_read, "context")
_GENERATED, _STATED, _HARNESS = Treatment.GENERATED, Treatment.STATED, Treatment.HARNESS
_PLATFORM, _NO_EFFECT = Treatment.PLATFORM, Treatment.NO_EFFECT

#: Reasons that hold for more settings than one.
_PAGE = "SGLang sets it to 256 for these models on CUDA, whatever is stated"
_SAVER = (
    "the same buffers from an allocator that can give them back; needs "
    "torch_memory_saver, which is not fetched"
)
_REFUSED = "SGLang refuses it with the attention backend of these models"
_REFUSED_POOL = "SGLang refuses it for these pools"
_BUDGET = "the deployment's `budget` stands for what would be profiled with it; noted, not used"
_PP = "the deployment's `pp_size`; one process plays every rank"
_FP4 = "narrower rows of the indexer; SGLang refuses it without an SM100, SM120 or gfx95"
_DRAFT = "the draft is that of the deployment's own model, whose config.json has its layers"
_DFLASH = "goes into the bytes of a draft that the configurator of these pools does not ask for"

_VARIABLES = (
    # -- what sizes depend on
    _env(
        "SGLANG_OPT_USE_ONLINE_COMPRESS",
        _GENERATED,
        ("0.5.12", None),
        "one running c128 state a slot instead of a ring of rows; the pool's module keeps the "
        "value that it was imported with, the configurator reads it anew",
        at_import=True,
    ),
    _env(
        "SGLANG_EXPERIMENTAL_ONLINE_C128_MTP",
        _GENERATED,
        ("0.5.14", None),
        "lets online compression go together with EAGLE, with a bank of states a draft token",
    ),
    _env(
        "SGLANG_DSV4_COMPRESS_STATE_DTYPE",
        _GENERATED,
        ("0.5.14", None),
        "the type of the compress states: 4 or 2 bytes",
    ),
    _env(
        "SGLANG_SWA_EVICTION_INTERVAL",
        _GENERATED,
        ("0.5.21", None),
        "what a request may hold beyond its window, where the SWA pool is sized by requests",
    ),
    _env(
        "SGLANG_PP_LAYER_PARTITION",
        _GENERATED,
        ("0.5.12", None),
        "the layers of each stage; a deployment says them as its `partition`",
    ),
    _env(
        "SGLANG_ENABLE_PP_SPEC",
        _GENERATED,
        ("0.5.21", None),
        "lets EAGLE and a pipeline go together outside PD",
        resolved=True,
    ),
    _env(
        "SGLANG_DISAGGREGATION_NUM_PRE_ALLOCATE_REQS",
        _GENERATED,
        ("0.5.12", "0.5.13.post1"),
        "request slots of a PD decode server beyond `max_running_requests`",
    ),
    _env(
        "SGLANG_DSV4_KV_LAYOUT",
        _GENERATED,
        ("0.5.21", None),
        "v4 and auto, which come to the same; not v41 and v41_new, which SGLang refuses without "
        "an SM100, SM103 or gfx950",
    ),
    _env(
        "SGLANG_DSV4_COMPRESSED_KV_LAYOUT",
        _GENERATED,
        ("0.5.21", None),
        "auto and fp8, which come to the same; not fp4, which pairs with v41 layouts alone",
    ),
    # -- what another platform honours
    _env(
        "SGLANG_OPT_SM120_DIRECT_SWA_KV",
        _PLATFORM,
        ("0.5.21", None),
        "SWA pages of 64 tokens, on SM120 alone",
    ),
    _env(
        "SGLANG_HACK_FLASHMLA_BACKEND",
        _PLATFORM,
        ("0.5.14", None),
        "unified_kv_triton chooses the unified pool, on HIP alone; kept from its first use on",
        at_import=True,
    ),
    _env(
        "SGLANG_DSV4_UNIFIED_KV_FP8",
        _PLATFORM,
        ("0.5.20", None),
        "rows of the unified pool in fp8, on gfx95 alone; kept from its first use on",
        at_import=True,
    ),
    _env(
        "SGLANG_HIP_DSV41_INDEX_K_PAGE8",
        _PLATFORM,
        ("0.5.23", None),
        "the shape of V4.1's index pages, on HIP alone",
    ),
    _env(
        "SGLANG_OPT_USE_COMPRESSOR_V2",
        _PLATFORM,
        ("0.5.13", "0.5.14"),
        "switched off, an indexer as small as HiSparse's c4 pool, on HIP alone",
    ),
    _env(
        "SGLANG_USE_AITER",
        _PLATFORM,
        ("0.5.13", None),
        "the layout of other models' pools, on HIP alone",
        at_import=True,
    ),
    _env(
        "SGLANG_ZBAL_LOCAL_MEM_SIZE",
        _PLATFORM,
        ("0.5.14", None),
        "the communication backend of an NPU",
        at_import=True,
    ),
    _env(
        "SGLANG_USE_CPU_ENGINE",
        _PLATFORM,
        ("0.5.14", None),
        "serves from a CPU; what is observed stands for CUDA",
        at_import=True,
    ),
    _env(
        "SGLANG_PLATFORM",
        _PLATFORM,
        ("0.5.13", None),
        "chooses a platform that a plug-in brings, with pools of its own",
        at_import=True,
    ),
    _env(
        "SGLANG_PLUGINS",
        _PLATFORM,
        ("0.5.13", None),
        "the plug-ins that are loaded; none is here",
        at_import=True,
    ),
    # -- what no size depends on
    _env(
        "SGLANG_OPT_CACHE_SWA_TRANSLATION",
        _NO_EFFECT,
        ("0.5.12", "0.5.12.post1"),
        "keeps translated locations during a forward pass",
    ),
    _env(
        "SGLANG_DEBUG_MEMORY_POOL",
        _NO_EFFECT,
        ("0.5.12", None),
        "further checks of the allocator, while it serves",
    ),
    _env(
        "SGLANG_MOONCAKE_CUSTOM_MEM_POOL",
        _NO_EFFECT,
        ("0.5.12", None),
        "the same buffers from an allocator that Mooncake registers; needs its package and CUDA",
    ),
    _env(
        "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION",
        _NO_EFFECT,
        ("0.5.12", None),
        "what a decode server expects of a request, while it serves",
        at_import=True,
    ),
    _env(
        "SGLANG_ENABLE_TORCH_INFERENCE_MODE",
        _NO_EFFECT,
        ("0.5.12", None),
        "inference_mode or no_grad around forward passes",
        at_import=True,
    ),
    _env(
        "SGLANG_EXTERNAL_MM_MODEL_ARCH",
        _NO_EFFECT,
        ("0.5.12", None),
        "a multimodal architecture from outside SGLang",
        at_import=True,
    ),
    _env(
        "SGLANG_KV_CANARY_ENABLE_TOKEN_ORACLE",
        _NO_EFFECT,
        ("0.5.13", "0.5.18"),
        "one more sampling backend",
        at_import=True,
    ),
    _env(
        "SGLANG_MAMBA_DEBUG_ASSERTS",
        _NO_EFFECT,
        ("0.5.17", None),
        "further checks of Mamba pools",
        at_import=True,
    ),
    _env(
        "SGLANG_ENABLE_CUSTOM_ALL_REDUCE_V2_MULTINODE",
        _NO_EFFECT,
        ("0.5.18", "0.5.18"),
        "how tensors are reduced between nodes",
        at_import=True,
    ),
    _env(
        "SGLANG_USE_MODELSCOPE",
        _NO_EFFECT,
        ("0.5.21", None),
        "where models are fetched from",
        at_import=True,
    ),
)

_ARGUMENTS = (
    # -- what sizes depend on
    _argument(
        "swa_full_tokens_ratio",
        _GENERATED,
        ("0.5.12", "0.5.18"),
        "SWA tokens for each full token",
    ),
    _argument(
        "max_running_requests",
        _GENERATED,
        ("0.5.12", "0.5.18"),
        "request slots; from 0.5.15 on each has its c128 states",
    ),
    _argument(
        "max_total_tokens", _GENERATED, ("0.5.12", "0.5.16"), "bounds the tokens below the budget"
    ),
    _argument(
        "disaggregation_mode",
        _GENERATED,
        ("0.5.12", "0.5.18"),
        "a PD decode server has further request slots",
    ),
    _argument(
        "disaggregation_decode_extra_slots",
        _GENERATED,
        ("0.5.14", "0.5.18"),
        "request slots of a PD decode server beyond `max_running_requests`",
    ),
    _argument(
        "enable_hisparse",
        _GENERATED,
        ("0.5.16", "0.5.18"),
        "keeps a part of the c4 tokens on the device; before 0.5.16 the runner says it",
    ),
    _argument(
        "hisparse_config",
        _GENERATED,
        ("0.5.12", "0.5.18"),
        "how large a part of the c4 tokens HiSparse keeps on the device",
    ),
    _argument(
        "speculative_algorithm",
        _GENERATED,
        ("0.5.12", "0.5.18"),
        "whether there is a draft; rings are twice as long with one",
    ),
    _argument(
        "speculative_num_draft_tokens",
        _GENERATED,
        ("0.5.12", "0.5.18"),
        "rows of a request, banks of online states",
    ),
    _argument(
        "speculative_num_steps",
        _GENERATED,
        ("0.5.16", "0.5.17"),
        "rows of a request while it decodes",
    ),
    _argument(
        "speculative_eagle_topk",
        _GENERATED,
        ("0.5.13", "0.5.17"),
        "rows of a request while it decodes; SGLang allows these models 1 alone",
    ),
    _argument(
        "kv_cache_dtype",
        _GENERATED,
        ("0.5.12", None),
        "fp8_e4m3, or auto, which comes to the same; SGLang refuses to build these pools for "
        "another type",
        resolved=True,
    ),
    _argument(
        "dp_size",
        _GENERATED,
        ("0.5.12", None),
        "with `enable_dp_attention` it divides the request slots",
        resolved=True,
    ),
    _argument(
        "enable_dp_attention",
        _GENERATED,
        ("0.5.12", None),
        "whether `dp_size` divides the request slots",
        resolved=True,
    ),
    _argument(
        "tp_size",
        _GENERATED,
        ("0.5.12", None),
        "enters as what attention DP divides, and in no other way",
        resolved=True,
    ),
    # -- what a deployment may state
    _argument(
        "speculative_adaptive",
        _STATED,
        ("0.5.13", "0.5.18"),
        "draft tokens change while it serves; the largest number is what counts",
    ),
    _argument(
        "speculative_adaptive_config",
        _STATED,
        ("0.5.13", "0.5.18"),
        "a file with the numbers of draft tokens that may be chosen",
    ),
    _argument(
        "dcp_size",
        _STATED,
        ("0.5.17", "0.5.17"),
        "pages of decode context parallelism, up to 0.5.19 on HIP alone",
    ),
    # -- what the observation says
    _argument(
        "model_path",
        _HARNESS,
        ("0.5.12", None),
        "a folder with the config.json of the deployment's model, and no weights",
        resolved=True,
    ),
    _argument(
        "device",
        _HARNESS,
        ("0.5.12", None),
        "cuda while arguments are resolved; the buffers are where `--device` says",
        resolved=True,
    ),
    _argument(
        "pp_size",
        _HARNESS,
        ("0.5.16", "0.5.17"),
        _PP,
    ),
    _argument(
        "mem_fraction_static",
        _HARNESS,
        ("0.5.12", "0.5.16"),
        _BUDGET,
    ),
    # -- what no size depends on
    _argument(
        "page_size",
        _NO_EFFECT,
        ("0.5.12", "0.5.17"),
        _PAGE,
    ),
    _argument(
        "enable_memory_saver",
        _NO_EFFECT,
        ("0.5.12", "0.5.16"),
        _SAVER,
    ),
    _argument(
        "enable_page_major_kv_layout",
        _NO_EFFECT,
        ("0.5.15", "0.5.16"),
        _REFUSED,
    ),
    _argument(
        "enable_unified_memory",
        _NO_EFFECT,
        ("0.5.15", "0.5.16"),
        _REFUSED,
    ),
    _argument(
        "prefill_only_disable_kv_cache",
        _NO_EFFECT,
        ("0.5.12", "0.5.16"),
        _REFUSED_POOL,
    ),
    # -- what another platform honours
    _argument(
        "enable_deepseek_v4_fp4_indexer",
        _PLATFORM,
        ("0.5.13", "0.5.16"),
        _FP4,
    ),
)

_CONTEXTS = (
    # -- what sizes depend on
    _context("schedule.swa_full_tokens_ratio", _GENERATED, ("0.5.19", None)),
    _context(
        "schedule._swa_full_tokens_ratio_explicitly_set",
        _GENERATED,
        ("0.5.21", None),
        "whether `swa_full_tokens_ratio` was stated: without it V4.1's SWA pool is sized by "
        "requests",
    ),
    _context("schedule.swa_prefix_tails", _GENERATED, ("0.5.21", None)),
    _context("schedule.max_running_requests", _GENERATED, ("0.5.17", None)),
    _context("schedule.max_total_tokens", _GENERATED, ("0.5.17", None)),
    _context("schedule.chunked_prefill_size", _GENERATED, ("0.5.21", None)),
    _context("memory.disable_radix_cache", _GENERATED, ("0.5.21", None)),
    _context("memory.enable_hisparse", _GENERATED, ("0.5.17", None)),
    _context("memory.hisparse_config", _GENERATED, ("0.5.19", None)),
    _context("disagg.disaggregation_mode", _GENERATED, ("0.5.17", None)),
    _context("disagg.disaggregation_decode_extra_slots", _GENERATED, ("0.5.17", None)),
    _context("spec.speculative_algorithm", _GENERATED, ("0.5.17", None)),
    _context("spec.speculative_num_draft_tokens", _GENERATED, ("0.5.18", None)),
    _context(
        "spec.max_speculative_num_draft_tokens",
        _GENERATED,
        ("0.5.19", None),
        "`speculative_num_draft_tokens`, or the largest number that an adaptive draft may choose",
    ),
    _context("spec.speculative_num_steps", _GENERATED, ("0.5.18", None)),
    _context("spec.speculative_eagle_topk", _GENERATED, ("0.5.18", None)),
    _context("exec.features.enable_encoder_swa_bounded_replay", _GENERATED, ("0.5.21", None)),
    _context(
        "exec.graph.cuda_graph_config",
        _GENERATED,
        ("0.5.23", None),
        "the scratch rows of encoder replay hold the largest batch of a prefill graph; drawn "
        "without such graphs (`cuda_graph_backend_prefill`)",
    ),
    # -- what a deployment may state
    _context("schedule.disable_overlap_schedule", _STATED, ("0.5.21", None)),
    _context("spec.speculative_adaptive", _STATED, ("0.5.18", "0.5.18")),
    _context("spec.speculative_adaptive_config", _STATED, ("0.5.18", "0.5.18")),
    _context("disagg.enable_pd_role_switch", _STATED, ("0.5.21", None)),
    _context(
        "parallel.attn_dcp_size",
        _STATED,
        ("0.5.18", None),
        "the server argument `dcp_size`: up to 0.5.19 on HIP alone",
    ),
    _context(
        "parallel.dcp_enabled",
        _STATED,
        ("0.5.18", "0.5.19"),
        "whether `dcp_size` is more than 1: on HIP alone",
    ),
    _context(
        "parallel.enable_kv_cache_sharding",
        _STATED,
        ("0.5.22", None),
        "the server argument `enable_kv_cache_sharding`: on PD prefill workers alone",
    ),
    # -- what the observation says
    _context(
        "parallel.pp_size",
        _HARNESS,
        ("0.5.18", None),
        _PP,
    ),
    _context(
        "parallel.world_group",
        _HARNESS,
        ("0.5.21", None),
        "stands for the process group over which the ranks agree on the fewest tokens",
    ),
    _context(
        "spec.speculative_draft_model_path",
        _HARNESS,
        ("0.5.21", None),
        _DRAFT,
    ),
    _context(
        "spec.speculative_draft_model_revision",
        _HARNESS,
        ("0.5.21", None),
        _DRAFT,
    ),
    _context(
        "schedule.mem_fraction_static",
        _HARNESS,
        ("0.5.17", None),
        _BUDGET,
    ),
    # -- what no size depends on
    _context(
        "schedule.page_size",
        _NO_EFFECT,
        ("0.5.17", None),
        _PAGE,
    ),
    _context(
        "exec.features.enable_memory_saver",
        _NO_EFFECT,
        ("0.5.17", None),
        _SAVER,
    ),
    _context(
        "memory.enable_page_major_kv_layout",
        _NO_EFFECT,
        ("0.5.17", None),
        _REFUSED,
    ),
    _context(
        "memory.enable_unified_memory",
        _NO_EFFECT,
        ("0.5.17", None),
        _REFUSED,
    ),
    _context(
        "schedule.prefill_only_disable_kv_cache",
        _NO_EFFECT,
        ("0.5.17", None),
        _REFUSED_POOL,
    ),
    _context(
        "exec.features.aux_hidden_state_capture",
        _NO_EFFECT,
        ("0.5.23", None),
        "which hidden states it returns",
    ),
    _context("model.kv_cache_dtype", _NO_EFFECT, ("0.5.21", None), _DFLASH),
    _context("spec.speculative_draft_kv_cache_dtype", _NO_EFFECT, ("0.5.21", None), _DFLASH),
    _context("spec.speculative_draft_attention_backend", _NO_EFFECT, ("0.5.21", None), _DFLASH),
    _context("parallel.attn_tp_size", _NO_EFFECT, ("0.5.22", None), _DFLASH),
    _context("parallel.tp_size", _NO_EFFECT, ("0.5.21", "0.5.21"), _DFLASH),
    # -- what another platform honours
    _context(
        "exec.kernel.enable_deepseek_v4_fp4_indexer",
        _PLATFORM,
        ("0.5.17", None),
        _FP4,
    ),
    _context(
        "exec.kernel.dsv4_attn_backend",
        _PLATFORM,
        ("0.5.20", None),
        "trtllm has rows of 512 bytes, flashmla_mega the layouts of V4.1; on SM100 alone",
    ),
)

SETTINGS: tuple[Setting, ...] = (*_VARIABLES, *_ARGUMENTS, *_CONTEXTS)

#: The settings by kind and name.
KNOWN: Mapping[tuple[str, str], Setting] = MappingProxyType(
    {(setting.kind, setting.name): setting for setting in SETTINGS}
)


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Those variables that must be there when a subject's process starts: all but those that are
    known to be read anew for every observation. Who reads an unknown one when, nobody knows."""
    return {
        name: value
        for name, value in environment.items()
        if (setting := KNOWN.get(("env", name))) is None or setting.at_import
    }
