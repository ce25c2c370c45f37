"""Releases 0.5.12 to 0.5.15.post1: a ModelRunner sizes and builds its own pools.

``DSV4PoolConfigurator`` takes the runner; ``ModelRunnerKVCacheMixin``
(model_runner_kv_cache_mixin.py) resolves a config and builds the pools. The adapter's runner is
that mixin on a typed record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import torch

from contracts.subject.era.base import Group, Stage, UnknownAPI
from contracts.subject.era.counted import CountedLayers

__all__ = ["RunnerEra"]


class RunnerEra(CountedLayers):
    """Adapter for the ModelRunner era."""

    name = "model-runner"

    def __init__(self) -> None:
        super().__init__()
        from sglang.srt.model_executor import model_runner_kv_cache_mixin as mixin

        self._mixin = mixin
        self._runner_class = type(
            "ObservedModelRunner", (_Runner, mixin.ModelRunnerKVCacheMixin), {}
        )

    def resolve(self, fields: Mapping[str, Any]) -> Any:
        """ServerArgs resolve themselves on construction in this era."""
        from sglang.srt.server_args import ServerArgs

        args = ServerArgs(**fields)
        args.check_server_args()
        return args

    def publish(self, args: Any) -> None:
        """The scheduler's own arguments, as its process sets them."""
        from sglang.srt.server_args import set_global_server_args_for_scheduler

        set_global_server_args_for_scheduler(args)

    def runner(
        self, args: Any, model_config: Any, stage: Stage, group: Group, *, device: str, target: Any
    ) -> Any:
        """A typed record of what the mixin and the configurator read of a ModelRunner."""
        return self._runner_class(args, model_config, stage, group, device=device, target=target)

    def size_for_tokens(self, runner: Any, configurator: Any, tokens: int) -> Any:
        """As the mixin does after a constraint has changed the token count."""
        config = configurator.calculate_pool_sizes_from_max_tokens(tokens, runner.page_size)
        config.max_running_requests = runner._resolve_max_num_reqs(config.max_total_num_tokens)
        if hasattr(configurator, "finalize_with_max_running_requests"):
            config = configurator.finalize_with_max_running_requests(config)
        return config

    def build(self, runner: Any, config: Any) -> tuple[Any, list[Any]]:
        """``_apply_memory_pool_config``, which builds request pool, KV pool and allocator."""
        runner._apply_memory_pool_config(config)
        return runner.token_to_kv_pool, [
            runner.req_to_token_pool,
            runner.token_to_kv_pool_allocator,
        ]

    @contextlib.contextmanager
    def reducing(self, args: Any, group: Group) -> Iterator[None]:
        """The mixin reduces over the world group's CPU group."""
        del args
        with (
            mock.patch.object(self._mixin, "get_world_group", return_value=group),
            mock.patch.object(torch.distributed, "all_reduce", group.reduce),
        ):
            yield


_DTYPES = {"fp8_e4m3": torch.float8_e4m3fn, "bfloat16": torch.bfloat16, "bf16": torch.bfloat16}


class _Runner:
    """What sizing reads of a ModelRunner, under the names that it has there."""

    def __init__(
        self, args: Any, model_config: Any, stage: Stage, group: Group, *, device: str, target: Any
    ) -> None:
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        self.server_args = args
        self.model_config = model_config
        self.device = device
        self.gpu_id = 0
        self.is_draft_worker = target is not None
        self.start_layer, self.end_layer = _layers(model_config, stage, self.is_draft_worker)
        self.num_effective_layers = self.end_layer - self.start_layer
        self.pp_size = group.world_size
        self.pp_group = group
        self.dp_size = args.dp_size if args.enable_dp_attention else 1
        self.dcp_size = 1
        self.page_size = args.page_size
        self.sliding_window_size = model_config.sliding_window_size
        self.enable_hisparse = args.enable_hisparse
        self.is_hybrid_swa = model_config.is_hybrid_swa
        self.is_hybrid_swa_compress = False
        self.use_mla_backend = True
        self.mem_fraction_static = args.mem_fraction_static
        self.spec_algorithm = SpeculativeAlgorithm.from_string(args.speculative_algorithm)
        self.kv_cache_dtype = _dtype(args.kv_cache_dtype)
        self.mambaish_config = None
        self.hybrid_gdn_config = None
        self.dflash_draft_num_layers = None
        # A draft works on the target's request pool and allocator.
        self.req_to_token_pool = target.req_to_token_pool if target else None
        self.token_to_kv_pool_allocator = target.token_to_kv_pool_allocator if target else None
        self.observed_budget = 0

    def _profile_available_bytes(self, pre_model_load_memory: int) -> int:
        """Where the mixin would look at a GPU's free memory."""
        del pre_model_load_memory
        return self.observed_budget


def _layers(model_config: Any, stage: Stage, is_draft: bool) -> tuple[int, int]:
    """A model's layers as ModelRunner.initialize finds them."""
    if is_draft:
        return 0, int(model_config.num_nextn_predict_layers)
    if not stage.split:
        layers = max(model_config.num_hidden_layers, model_config.num_attention_layers)
        return 0, int(layers)
    return stage.start_layer, stage.end_layer


def _dtype(name: str) -> torch.dtype:
    if name not in _DTYPES:
        raise UnknownAPI(f"kv_cache_dtype {name!r} is not one that this era's adapter knows")
    return _DTYPES[name]
