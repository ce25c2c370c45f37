"""Seeded faults: each an edit of SGLang's source, with the contracts that must catch it.

They are applied to release 0.5.23 as it is loaded, on which the contracts about stages and slopes
hold without them. ``caught_by`` is exact: of these contracts the named are violated, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass

SUBJECT = "0.5.23"

_CONFIGURATOR = "sglang.srt.model_executor.pool_configurator"
_POOL = "sglang.srt.mem_cache.deepseek_v4_memory_pool"
_STAGE = "stage = range(kvc.layer_info.start_layer, kvc.layer_info.end_layer)"
_START, _END = "kvc.layer_info.start_layer", "kvc.layer_info.end_layer"

_SLICE = frozenset({"stage-slice", "layer-counts", "marginal-bytes"})
_COEFFICIENT = frozenset({"marginal-bytes"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One edit: what is looked for in a module's source, what stands there instead."""

    name: str
    module: str
    find: str
    replace: str
    caught_by: frozenset[str]

    def edit(self) -> dict[str, str]:
        return {"module": self.module, "find": self.find, "replace": self.replace}


def _slice(name: str, stage: str, caught_by: frozenset[str]) -> Fault:
    return Fault(name, _CONFIGURATOR, _STAGE, f"stage = {stage}", caught_by)


FAULTS = (
    _slice(
        "whole list on every rank",
        "range(0, len(cfg.compress_ratios))",
        _SLICE | {"rank-sum"},
    ),
    _slice(
        "slice begins a layer late",
        # A stage of one layer is left alone: without any, SGLang divides by zero.
        f"range({_START} + ({_END} - {_START} > 1), {_END})",
        _SLICE | {"rank-sum"},
    ),
    _slice(
        "slice ends a layer late",
        f"range({_START}, min({_END} + 1, len(cfg.compress_ratios)))",
        _SLICE | {"rank-sum"},
    ),
    _slice(
        "slice of the rank before",
        f"range({_START} - ({_END} - {_START}), {_START}) "
        f"if {_START} >= {_END} - {_START} else range({_START}, {_END})",
        _SLICE | {"rank-sum"},
    ),
    _slice(
        "entries beyond the decoder counted",
        f"range({_START}, len(cfg.compress_ratios) if {_END} == cfg.num_hidden_layers else {_END})",
        _SLICE,
    ),
    Fault(
        "c4 and c128 swapped",
        _CONFIGURATOR,
        "        if ratio in (1, 2):\n            return (\n",
        "        ratio = {4: 128, 128: 4}.get(ratio, ratio)\n"
        "        if ratio in (1, 2):\n            return (\n",
        _COEFFICIENT,
    ),
    Fault(
        "indexer forgotten",
        _CONFIGURATOR,
        "+ 1 / 4 * self.indexer_bytes_per_token",
        "+ 0",
        _COEFFICIENT,
    ),
    Fault(
        "state forgotten",
        _CONFIGURATOR,
        "* (c4_state_bytes + c4_indexer_state_bytes)",
        "* c4_indexer_state_bytes",
        _COEFFICIENT,
    ),
    Fault(
        "draft forgotten",
        _CONFIGURATOR,
        "draft_layers = 1\n            target_layers",
        "draft_layers = 0\n            target_layers",
        frozenset({"rank-sum"}),
    ),
    Fault(
        "wrong head dim",
        _CONFIGURATOR,
        "self.attn_head_dim = self.qk_nope_head_dim + self.qk_rope_head_dim",
        "self.attn_head_dim = self.qk_nope_head_dim",
        _COEFFICIENT,
    ),
    Fault(
        "ring of the other speculation mode",
        _CONFIGURATOR,
        "c4_state_ratio = self.ring_sizes.get(4, 0) / self.page_size",
        "c4_state_ratio = (24 - self.ring_sizes.get(4, 0)) / self.page_size",
        _COEFFICIENT,
    ),
    Fault(
        "c128 page charged by 127",
        _CONFIGURATOR,
        "return 1 / 128 * self._get_paged_kv_bytes_per_token(128)",
        "return 1 / 127 * self._get_paged_kv_bytes_per_token(128)",
        _COEFFICIENT,
    ),
    Fault(
        "pool builds the whole list",
        _POOL,
        "stage_layer_num = len(stage_ratios)",
        "stage_layer_num = len(compression_ratios)",
        frozenset({"layer-counts", "marginal-bytes", "rank-sum"}),
    ),
    Fault(
        "pool begins at layer 0",
        _POOL,
        "self._stage_start = start_layer",
        "self._stage_start = 0",
        _SLICE | {"rank-sum"},
    ),
    Fault(
        "stages leave a gap",
        "sglang.srt.distributed.utils",
        "end_layer = start_layer + base_layers\n",
        # A stage of one layer is left alone here too.
        "end_layer = start_layer + base_layers - (pp_size > 1 and base_layers > 1)\n",
        # Sizing and pool take the same wrong stage: they agree on it.
        frozenset({"stage-partition", "rank-sum"}),
    ),
    Fault(
        "a model without stages begins at layer 1",
        "sglang.srt.model_executor.model_runner_components.layer_setup",
        'start_layer=getattr(model, "start_layer", 0),',
        'start_layer=getattr(model, "start_layer", min(1, model_num_layers - 1)),',
        frozenset({"pp1-identity"}),
    ),
)

#: A buffer that no component accounts for: nothing can be judged, and the reason names it.
HIDDEN_BUFFER = Fault(
    "a buffer hides in the pool",
    _POOL,
    "        self._init_compressed_layer_mapping()\n\n        self._init_paged_compress_states",
    "        self.hidden = torch.zeros(4096, dtype=torch.uint8, device=device)\n"
    "        self._init_compressed_layer_mapping()\n\n        self._init_paged_compress_states",
    frozenset(),
)
