"""For each contract a seeded fault that it alone catches.

Each fault is one slip in the source of release 0.5.23, with deployments on which the other
contracts say of the faulty subject what they say of the whole one. Where two contracts watch the
same number, the slip is one that the second cannot see there: it shows with a pipeline only, or
cancels in a sum, or stays within what a guard term allows.

Some slips change how many tokens fit, and with them the rows in which 0.5.23's compressed pools
violate paging anyhow. Those are seeded into a repaired 0.5.23, where that violation is gone, and
so is the one fault that could not be told from the release itself: a size that is not reported.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from contracts.deployment import Deployment, Model, Speculation
from contracts.units import GiB, MiB
from strategies.published import DEPLOYMENTS, MODELS

__all__ = ["FAULTS", "REPAIRS", "LoneFault"]

_CONFIGURATOR = "sglang.srt.model_executor.pool_configurator"
_POOL = "sglang.srt.mem_cache.deepseek_v4_memory_pool"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoneFault:
    """One edit that ``contract`` alone catches on ``deployments``; ``slip`` says what it imitates.

    With ``repaired`` the edit goes on top of :data:`REPAIRS`.
    """

    contract: str
    slip: str
    module: str
    find: str
    replace: str
    deployments: tuple[Deployment, ...]
    repaired: bool = False

    def edits(self) -> list[dict[str, str]]:
        """All edits of the faulty subject, in the order in which they apply."""
        mine = {"module": self.module, "find": self.find, "replace": self.replace}
        return [*(REPAIRS if self.repaired else ()), mine]


#: What 0.5.23 gets wrong on most deployments (docs/findings.md): a compressed pool reserves one
#: page, and a pool reports the bytes of all buffers that its transfer lists name.
REPAIRS = (
    {
        "module": _POOL,
        "find": "return ceil_div(size + logical_page_size, physical_page_size)",
        "replace": "return ceil_div(size, physical_page_size) + 1",
    },
    {
        "module": _POOL,
        "find": "        self._init_paged_compress_states(enable_memory_saver)\n",
        "replace": "        self._init_paged_compress_states(enable_memory_saver)\n"
        "        lists = [\n"
        "            self.get_contiguous_buf_infos(),\n"
        "            self.get_state_buf_infos(),\n"
        "            self.get_request_state_buf_infos(),\n"
        "        ]\n"
        "        self.mem_usage = sum(sum(lengths) for _, lengths, _ in lists) / (1 << 30)\n",
    },
)

_EAGLE = Speculation(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4)


def _seen(name: str) -> Deployment:
    return next(seen.deployment for seen in DEPLOYMENTS if seen.name == name)


def _drafting(*ratios: int, budget: int, **server_args: Any) -> Deployment:
    model = Model(num_hidden_layers=len(ratios), compress_ratios=ratios)
    return Deployment(model=model, budget=budget, speculation=_EAGLE, server_args=server_args)


def _flash_of_42() -> Deployment:
    """Flash without its last layer, so that it ends in a layer of ratio 128, for 8 requests."""
    flash = MODELS["deepseek-v4-flash"]
    ratios = flash.decoder_ratios[:42]
    model = dataclasses.replace(
        flash, name="flash-42", num_hidden_layers=len(ratios), compress_ratios=ratios
    )
    return Deployment(model=model, budget=60 * GiB, server_args={"max_running_requests": 8})


def _plain(*ratios: int, pp_size: int = 1) -> Deployment:
    model = Model(num_hidden_layers=len(ratios), compress_ratios=ratios)
    return Deployment(model=model, budget=GiB, pp_size=pp_size)


#: Its draft's reserve is a hair more than its draft, and at this budget not enough to matter.
_DRAFTING = _drafting(*(0, 128) * 4, budget=512 * MiB, max_running_requests=16)

#: In the order of the contracts.
FAULTS = (
    LoneFault(
        contract="stage-partition",
        # Rank 1 has layer 20 again and lacks layer 42. Both have ratio 4: every sum is right.
        slip="the stages with a layer more begin a layer early",
        module="sglang.srt.distributed.utils",
        find="start_layer = pp_rank * (base_layers + 1) - partitions_without_extra_layer",
        replace="start_layer = pp_rank * (base_layers + 1) - partitions_without_extra_layer - 1",
        deployments=(_seen("flash-pp2"),),
    ),
    LoneFault(
        contract="stage-slice",
        # Layers are charged by another list; of this one only the length is used.
        slip="the slice has the stage's length and not its beginning",
        module=_CONFIGURATOR,
        find="cfg.compress_ratios[stage.start : stage.stop]",
        replace="cfg.compress_ratios[: stage.stop - stage.start]",
        deployments=(_seen("flash-pp2"), _seen("flash-pp4")),
    ),
    LoneFault(
        contract="layer-counts",
        # A c128 state does not grow, and of 8 requests is less than the pages that are reserved.
        slip="the loop that builds the compress states ends a layer early",
        module=_POOL,
        find="        ] * total_L\n\n        for idx in range(self._stage_start, self._stage_end):",
        replace="        ] * total_L\n\n"
        "        for idx in range(self._stage_start, self._stage_end - 1):",
        deployments=(_flash_of_42(),),
    ),
    LoneFault(
        contract="marginal-bytes",
        # 0.9 % of 312.5 MiB is less than the guard terms.
        slip="the padding of a page is not priced, as up to 0.5.20",
        module=_CONFIGURATOR,
        find="return layout.page_bytes(page_size) / page_size",
        replace="return self.kv_bytes",
        deployments=(_seen("flash-22gb-pp4-10-11-11-11"),),
        repaired=True,
    ),
    LoneFault(
        contract="fixed-bytes",
        # A ring a layer: more than is reserved and not charged, less than the guard terms.
        slip="a second ring is charged for what is beyond the requests' own",
        module=_CONFIGURATOR,
        find="state_rows = state_pool_size + ring_size + 1",
        replace="state_rows = state_pool_size + 2 * ring_size + 1",
        deployments=(_seen("flash-pp1"),),
        repaired=True,
    ),
    LoneFault(
        contract="rank-sum",
        # One function for the configurator and the pool: on each rank they agree.
        slip="the micro-batches of a pipeline count as drafts, and rings get twice as long",
        module=_POOL,
        find="    return get_compress_state_ring_size(compress_ratio, num_draft_tokens)\n",
        replace="    from sglang.srt.runtime_context import get_parallel\n\n"
        "    in_flight = num_draft_tokens or get_parallel().pp_size - 1\n"
        "    return get_compress_state_ring_size(compress_ratio, in_flight)\n",
        deployments=(_seen("flash-pp2"),),
        repaired=True,
    ),
    LoneFault(
        contract="pp1-identity",
        # Nobody else asks about a model that knows no stages.
        slip="a model without stages begins at layer 1",
        module="sglang.srt.model_executor.model_runner_components.layer_setup",
        find='start_layer=getattr(model, "start_layer", 0),',
        replace='start_layer=getattr(model, "start_layer", min(1, model_num_layers - 1)),',
        deployments=(_seen("flash-pp1"),),
    ),
    LoneFault(
        contract="pp1-unchanged",
        # Another default: what follows from it is right, and is something else than before.
        slip="half as many requests run if nobody says how many",
        module="sglang.srt.arg_groups.deepseek_v4_hook",
        find="max_running_requests=256,",
        replace="max_running_requests=128,",
        deployments=(_seen("flash-pp1"),),
        repaired=True,
    ),
    LoneFault(
        contract="budget-fit",
        # With a draft nobody can tell what of the charge is fixed: fixed-bytes does not apply.
        slip="the c128 state is charged by the ring that it has without a draft",
        module=_CONFIGURATOR,
        find="ring_size = self.ring_sizes[128]",
        replace="ring_size = 128",
        deployments=(_DRAFTING,),
        repaired=True,
    ),
    LoneFault(
        contract="budget-use",
        slip="a c128 state is charged for the draft's layer too",
        module=_CONFIGURATOR,
        find="        num_layers = self.num_layers(128)\n",
        replace="        num_layers = self.num_layers(128) + self.is_speculative\n",
        deployments=(_DRAFTING,),
        repaired=True,
    ),
    LoneFault(
        contract="draft-reserve",
        # The user limits the tokens, so that the budget has room for the layer.
        slip="a draft is built with a layer more than it has",
        module="sglang.srt.model_executor.model_runner_components.layer_setup",
        find='getattr(model, "num_stages", model_config.num_nextn_predict_layers)',
        replace='getattr(model, "num_stages", model_config.num_nextn_predict_layers) + 1',
        deployments=(_drafting(0, 0, 0, 0, budget=GiB, max_total_tokens=65_536),),
    ),
    LoneFault(
        contract="state-rows",
        # The pages that are reserved and not charged hide the bytes from fixed-bytes.
        slip="the ring is forgotten that belongs to the allocator's page 0",
        module="sglang.srt.mem_cache.deepseek_v4_compress_state",
        find="            self._size = size + self.ring_size + 1",
        replace="            self._size = size + 1",
        deployments=(_seen("flash-pp1"),),
    ),
    LoneFault(
        contract="paging",
        slip="the page is forgotten that the allocator keeps for itself",
        module=_POOL,
        find="return ceil_div(size + logical_page_size, physical_page_size)",
        replace="return ceil_div(size, physical_page_size)",
        deployments=(_seen("flash-pp1"),),
    ),
    LoneFault(
        contract="capacity-agreement",
        slip="two ranks are not taken for a pipeline, and keep what each has",
        module="sglang.srt.mem_cache.kv_cache_configurator",
        find="        if get_parallel().pp_size > 1:\n            tensor",
        replace="        if get_parallel().pp_size > 2:\n            tensor",
        deployments=(_plain(0, 0, 0, 0, 0, pp_size=2),),
    ),
    LoneFault(
        contract="monotone",
        # At the published window of 128 nothing changes.
        slip="the SWA ratio by default goes down where the window goes up",
        module="sglang.srt.arg_groups.model_overrides.deepseek_v4",
        find='overrides["swa_full_tokens_ratio"] = 0.1',
        replace='overrides["swa_full_tokens_ratio"] = 12.8 / hf_config.sliding_window',
        deployments=(_seen("flash-defaults"),),
    ),
    LoneFault(
        contract="refusal",
        slip="the SWA pool is checked where there is no window, and not where there is one",
        module=_CONFIGURATOR,
        find="        if sliding_window_size is None:\n            return",
        replace="        if sliding_window_size is not None:\n            return",
        deployments=(_seen("flash-pp1"),),
    ),
    LoneFault(
        contract="reported-bytes",
        slip="the states that are kept by request are left out of the reported size",
        module=_POOL,
        find="            self.get_request_state_buf_infos(),\n        ]",
        replace="        ]",
        deployments=(_seen("flash-pp2"),),
        repaired=True,
    ),
    LoneFault(
        contract="transfer-buffers",
        slip="the list of states names those of the attention twice, and not the indexer's",
        module=_POOL,
        find="self.compress_state_pools,\n            self.indexer_compress_state_pools,",
        replace="self.compress_state_pools,\n            self.compress_state_pools,",
        deployments=(_seen("flash-pp2"),),
    ),
)
