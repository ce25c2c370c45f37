"""Releases from 0.5.16: a KVCacheConfigurator sizes and builds the pools of a rank.

``DSV4PoolConfigurator`` takes the ``KVCacheConfigurator`` (kv_cache_configurator.py). The adapter
makes a real one and states where it would look at a GPU or at a process group.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch

from contracts.subject.era.base import Era, Group, Stage, UnknownAPI, hypothetical
from contracts.subject.era.counted import CountedLayers

__all__ = ["ConfiguratorEra", "ContextEra", "ParallelStateEra"]


class ConfiguratorEra(Era):
    """What the eras of the KVCacheConfigurator share."""

    def __init__(self) -> None:
        super().__init__()
        from sglang.srt.mem_cache import kv_cache_configurator as module

        self._module = module
        self._class = _observed(module.KVCacheConfigurator)

    def resolve(self, fields: Mapping[str, Any]) -> Any:
        """Resolve and check, in the launcher's order."""
        from sglang.srt.server_args import ServerArgs

        args = ServerArgs(**fields)
        # Until 0.5.18 construction resolves; from 0.5.19 it is a step of its own.
        if hasattr(args, "resolve_once"):
            args.resolve_once()
        args.check_server_args()
        return args

    def publish(self, args: Any) -> None:
        """The runtime contexts where there are any, else the scheduler's global arguments."""
        from sglang.srt import runtime_context

        if hasattr(runtime_context, "publish"):
            runtime_context.publish(args, role="scheduler")
        else:
            from sglang.srt.server_args import set_global_server_args_for_scheduler

            set_global_server_args_for_scheduler(args)

    def runner(
        self, args: Any, model_config: Any, stage: Stage, group: Group, *, device: str, target: Any
    ) -> Any:
        """A KVCacheConfigurator of the subject, with every field that it declares stated."""
        values = self._values(args, model_config, stage, group, device=device, target=target)
        stated = {}
        for declared in dataclasses.fields(self._module.KVCacheConfigurator):
            if not declared.init:
                continue
            if declared.name in values:
                stated[declared.name] = values[declared.name]
            elif declared.default is dataclasses.MISSING:
                raise UnknownAPI(f"KVCacheConfigurator wants a field {declared.name!r}")
        return self._class(**stated)

    def _values(
        self, args: Any, model_config: Any, stage: Stage, group: Group, *, device: str, target: Any
    ) -> dict[str, Any]:
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        algorithm = SpeculativeAlgorithm.from_string(self.argument(args, "speculative_algorithm"))
        is_draft = target is not None
        dtype_name, dtype = self._kv_cache_dtype(args, model_config, is_draft, algorithm)
        model = _Model(stage, model_config, is_draft=is_draft)
        return {
            "device": device,
            "gpu_id": 0,
            "pp_group": group,
            "model": model,
            "model_config": model_config,
            "server_args": args,
            "kv_cache_dtype": dtype,
            "kv_cache_dtype_str": dtype_name,
            "model_dtype": model_config.dtype,
            "page_size": self.argument(args, "page_size"),
            "sliding_window_size": model_config.sliding_window_size,
            "spec_algorithm": algorithm,
            "is_draft_worker": is_draft,
            "post_capture_kv_active": False,
            "spec_aux_config": self._spec_aux_config(args, model_config, algorithm, is_draft),
            "is_hybrid_swa": model_config.is_hybrid_swa,
            "is_hybrid_swa_compress": False,
            "use_mla_backend": True,
            "layer_info": self._layer_info(model, model_config, is_draft, algorithm),
            "forward_stream": None,
            # A draft works on the target's request pool and allocator.
            "req_to_token_pool": target.observed_pools.req_to_token_pool if is_draft else None,
            "token_to_kv_pool_allocator": (
                target.observed_pools.token_to_kv_pool_allocator if is_draft else None
            ),
            "memory_pool_config": None,
            **self._parallel(args, stage, group),
        }

    def _parallel(self, args: Any, stage: Stage, group: Group) -> dict[str, Any]:
        raise NotImplementedError

    def _spec_aux_config(self, args: Any, model_config: Any, algorithm: Any, is_draft: bool) -> Any:
        """What a target knows of its draft; no V4 pool is sized by it in this era."""
        from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import (
            SpecAuxHiddenStateConfig,
        )

        del args, model_config, algorithm, is_draft
        return SpecAuxHiddenStateConfig()

    def _kv_cache_dtype(
        self, args: Any, model_config: Any, is_draft: bool, algorithm: Any
    ) -> tuple[str, torch.dtype]:
        from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype

        stated = self.argument(args, "kv_cache_dtype")
        values = {
            "server_args_kv_cache_dtype": stated,
            "model": None,
            "model_dtype": model_config.dtype,
            "is_draft_worker": is_draft,
            "is_dflash": algorithm.is_dflash_family()
            if hasattr(algorithm, "is_dflash_family")
            else algorithm.is_dflash(),
            "speculative_draft_attention_backend": None,
        }
        resolved, dtype = configure_kv_cache_dtype(**values)
        return resolved or stated, dtype

    def _layer_info(self, model: Any, model_config: Any, is_draft: bool, algorithm: Any) -> Any:
        from sglang.srt.model_executor.model_runner_components import layer_setup

        values = {
            "model": model,
            "model_config": model_config,
            "is_draft_worker": is_draft,
            "spec_algorithm": algorithm,
        }
        wanted = inspect.signature(layer_setup.resolve_layer_indices).parameters
        return layer_setup.resolve_layer_indices(
            **{name: value for name, value in values.items() if name in wanted}
        )

    def size_for_tokens(self, runner: Any, configurator: Any, tokens: int) -> Any:
        """As SGLang does after a constraint has changed the token count."""
        config = configurator.calculate_pool_sizes_from_max_tokens(tokens, runner.page_size)
        config.max_running_requests = runner.resolve_max_num_reqs(config.max_total_num_tokens)
        return configurator.finalize_with_max_running_requests(config)

    def build(self, runner: Any, config: Any) -> tuple[Any, list[Any]]:
        """``_derive_pool_sizes`` and ``_init_pools``, as ``configure`` calls them."""
        pools = runner._init_pools(
            sizes=runner._derive_pool_sizes(config=config),
            req_to_token_pool=runner.req_to_token_pool,
            token_to_kv_pool_allocator=runner.token_to_kv_pool_allocator,
        )
        runner.observed_pools = pools
        return pools.token_to_kv_pool, [pools.req_to_token_pool, pools.token_to_kv_pool_allocator]


class ParallelStateEra(CountedLayers, ConfiguratorEra):
    """0.5.16 to 0.5.20: the parallel state is a record in the field ``ps``."""

    name = "parallel-state"

    def argument(self, args: Any, name: str) -> Any:
        """From the resolving view where there is one (0.5.19), else from the arguments."""
        try:
            from sglang.srt.arg_groups.overrides import resolved_view
        except ImportError:
            return getattr(args, name)
        return getattr(resolved_view(args), name)

    def _parallel(self, args: Any, stage: Stage, group: Group) -> dict[str, Any]:
        from sglang.srt.distributed.parallel_state_wrapper import ParallelState

        enabled = self.argument(args, "enable_dp_attention")
        size = self.argument(args, "dp_size") if enabled else 1
        state = ParallelState.trivial(
            pp_rank=stage.rank, pp_size=group.world_size, attn_dp_size=size, dp_size=size
        )
        return {"ps": state}

    @contextlib.contextmanager
    def reducing(self, args: Any, group: Group) -> Iterator[None]:
        """SGLang reduces over the world group's CPU group."""
        del args
        with (
            mock.patch.object(self._module, "get_world_group", return_value=group),
            mock.patch.object(torch.distributed, "all_reduce", group.reduce),
        ):
            yield


class ContextEra(ConfiguratorEra):
    """0.5.21 and later: everything but the fields is read from published runtime contexts."""

    name = "runtime-context"

    def __init__(self) -> None:
        super().__init__()
        self._aux: Any = None
        self._aux_of: Any = None

    def argument(self, args: Any, name: str) -> Any:
        """From the view that SGLang's own checks read."""
        from sglang.srt.arg_groups.overrides import resolved_view

        return getattr(resolved_view(args), name)

    def resolve(self, fields: Mapping[str, Any]) -> Any:
        """For CUDA, which SGLang's checks ask the machine about and not the arguments."""
        from sglang.srt.runtime_context import override_platform

        with override_platform(is_cuda=True):
            return super().resolve(fields)

    def _spec_aux_config(self, args: Any, model_config: Any, algorithm: Any, is_draft: bool) -> Any:
        """With the draft's layers, as a runner resolves it: encoder replay is sized by them."""
        from sglang.srt.model_executor.model_runner_components import spec_aux_hidden_state

        def resolved() -> Any:
            return spec_aux_hidden_state.resolve_spec_aux_hidden_state_config(
                server_args=args,
                model_config=model_config,
                spec_algorithm=algorithm,
                is_draft_worker=is_draft,
            )

        if is_draft:
            return resolved()
        # It reads the draft's config.json: once for a deployment, not once a rank and view.
        if self._aux_of is not args:
            self._aux, self._aux_of = resolved(), args
        return self._aux

    def _parallel(self, args: Any, stage: Stage, group: Group) -> dict[str, Any]:
        from sglang.srt.runtime_context import get_parallel

        del args, stage
        return {"attn_dp_size": get_parallel().attn_dp_size, "pp_size": group.world_size}

    @contextlib.contextmanager
    def reducing(self, args: Any, group: Group) -> Iterator[None]:
        """SGLang reduces over the CPU group of the published world group."""
        from sglang.srt.runtime_context import get_parallel

        del args
        with (
            get_parallel().override(world_group=group, pp_rank=0),
            mock.patch.object(torch.distributed, "all_reduce", group.reduce),
        ):
            yield

    def ratios(self, configurator: Any) -> Sequence[int]:
        """The list whose layers are charged."""
        return list(configurator.stage_compress_ratios)

    def layers(self, configurator: Any) -> dict[str, int]:
        """Layers that own storage, by ratio."""
        owners = configurator.stage_owner_layers
        kinds = sorted({4, 128, *owners} - {0})
        counts = {f"c{ratio}": len(owners.get(ratio, ())) for ratio in kinds}
        return {"total": configurator.num_layers_total, **counts}

    def target_coefficient(self, configurator: Any) -> float:
        """The coefficient before the configurator scales it for a draft, or without the draft's
        own layers, which encoder replay charges instead."""
        if configurator.encoder_replay:
            return float(_without_draft(configurator)._get_bytes_per_full_token())
        return float(configurator.bytes_per_full_token / configurator._spec_infl)

    def draft_layers(self, configurator: Any, target: float) -> float:
        """With encoder replay it is one draft whatever its size: its own layers are charged, in
        part among the fixed bytes, and SGLang asserts that there are some."""
        if configurator.encoder_replay:
            return float(configurator.is_speculative)
        return super().draft_layers(configurator, target)

    def draft_fixed_bytes(self, runner: Any, configurator: Any) -> float | None:
        """With encoder replay, what a configurator of the same deployment charges less that is
        told of no draft."""
        if not configurator.encoder_replay:
            return None
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        alone = self.configurator(hypothetical(runner, spec_algorithm=SpeculativeAlgorithm.NONE))
        return float(configurator._get_swa_fixed_bytes() - alone._get_swa_fixed_bytes())

    def charges(self, configurator: Any) -> dict[str, float]:
        """Ask about stages of one kind of layer, with and without SWA slots and an indexer."""
        configurator = _without_draft(configurator)
        unindexed = {
            "indexer_head_dim": 0,
            "indexer_bytes_per_token": 0,
            "low_ratio_index_bytes": 0,
        }

        def ask(total: int, ratio: int | None, **without: Any) -> float:
            owners = configurator.stage_owner_layers
            stage = {ratio: owners[ratio]} if ratio in owners else {}
            twin = hypothetical(
                configurator, num_layers_total=total, stage_owner_layers=stage, **without
            )
            twin.bytes_per_swa_token = twin._get_bytes_per_swa_token()
            return float(twin._get_bytes_per_full_token())

        charges = {"swa_kv": ask(configurator.num_layers_total, None)}
        for ratio in configurator.stage_owner_layers:
            kv = ask(0, ratio, swa_ratio=0, **unindexed)
            paged = ask(0, ratio, swa_ratio=0)
            state = ask(0, ratio, **unindexed) - kv
            charges[f"c{ratio}_kv"] = kv
            charges[f"c{ratio}_indexer"] = paged - kv
            charges[f"c{ratio}_state"] = state
            charges[f"c{ratio}_indexer_state"] = ask(0, ratio) - paged - state
        return charges


def _without_draft(configurator: Any) -> Any:
    """A configurator that charges no layers of a draft's own, as encoder replay does."""
    twin = hypothetical(configurator, paged_draft_layers=0)
    twin.bytes_per_swa_token = twin._get_bytes_per_swa_token()
    return twin


class _Model:
    """What layer set-up reads of a loaded model. A model without stages has no such attributes."""

    def __init__(self, stage: Stage, model_config: Any, *, is_draft: bool) -> None:
        if is_draft:
            stages = getattr(model_config.hf_config, "dspark_target_layer_ids", None)
            if stages and model_config.hf_config.architectures[0].endswith("DSpark"):
                self.num_stages = len(stages)
            return
        if stage.split:
            self.start_layer = stage.start_layer
            self.end_layer = stage.end_layer


def _observed(base: type) -> type:
    """KVCacheConfigurator with a stated budget instead of a profiled one."""

    def _profile_available_bytes(self: Any, pre_model_load_memory: int) -> int:
        del pre_model_load_memory
        return int(self.observed_budget)

    members = {
        "_profile_available_bytes": _profile_available_bytes,
        "observed_budget": 0,
        "observed_pools": None,
    }
    return type("ObservedKVCacheConfigurator", (base,), members)
