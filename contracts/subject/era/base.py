"""What all eras share: how one deployment is observed through SGLang's production path.

An era adapter says which SGLang objects stand for a rank; everything that sizes or allocates is
SGLang's own. Steps are named, so that an exception tells whether SGLang refused the deployment,
failed on it, or has an API that the adapter does not know.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import difflib
import functools
import hashlib
import inspect
import json
import os
import re
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from contracts.deployment import Deployment
from contracts.subject.footprint import AllocationLedger, Part, footprint, homes
from contracts.subject.geometry import geometry, transfers

__all__ = ["Era", "Group", "Plan", "Stage", "Step", "UnknownAPI", "current_step", "step"]


#: Deployments whose resolved arguments are remembered: about as many as a gate draws.
_REMEMBERED = 512


class UnknownAPI(Exception):
    """The subject lacks something that the adapter needs; the text names it."""


@dataclass(frozen=True, slots=True)
class Step:
    """A named step of an observation. In a step that may refuse, SGLang's own errors of the
    ordinary kinds are refusals of the deployment."""

    name: str
    may_refuse: bool


_step = Step("start", may_refuse=False)


def current_step() -> Step:
    """The step in which an exception was raised."""
    return _step


@contextlib.contextmanager
def step(name: str, *, may_refuse: bool = True) -> Iterator[None]:
    """Name what is going on. The name stays after an exception, for the report of it."""
    global _step  # noqa: PLW0603 # one observation at a time in a worker
    before, _step = _step, Step(name, may_refuse)
    yield
    _step = before


@dataclass(frozen=True, slots=True)
class Stage:
    """The layers of one rank, as ``get_pp_indices`` gives them.

    With ``split`` False the rank's model knows no stages, as without pipeline parallelism.
    """

    rank: int
    start_layer: int
    end_layer: int
    split: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What one request asks for."""

    deployment: Deployment
    device: str
    views: frozenset[str]
    tokens: tuple[int, ...]
    pipeline: bool


class Group:
    """A process group of which this process plays every rank, one after the other.

    SGLang reduces the token count over it with MIN. ``reduce`` stands for that all-reduce: it
    leaves a rank its own capacity until the minimum over the ranks is agreed, then answers with it.
    """

    def __init__(self, size: int) -> None:
        self.world_size = size
        self.rank_in_group = 0
        self.cpu_group = None
        self.agreed: int | None = None

    def reduce(self, tensor: torch.Tensor, op: Any = None, group: Any = None) -> None:  # noqa: ARG002
        """Stand for ``torch.distributed.all_reduce`` with MIN, in place."""
        if op != torch.distributed.ReduceOp.MIN:
            raise UnknownAPI(f"the ranks are reduced with {op}, not with MIN")
        if self.agreed is not None:
            tensor.fill_(self.agreed)


#: The views that need the ranks' capacities.
_CAPACITY = frozenset({"capacity", "final", "own"})
_STATE = re.compile(r"(indexer_)?compress_state_pools\[(\d+)\]")
#: Single buffers that come with a pool, not one a layer.
_SINGLE = {
    "swa_valid_from": "swa_valid_from",
    "online_c128_mtp_pending_seq_lens": "c128_pending",
    "c4_kv_pool.data_ptrs": "c4_kv_pointers",
    "kv_pools[4].data_ptrs": "c4_kv_pointers",
    "request_window.tags": "window_tags",
}
#: Pools that are not kept by ratio: how their paths begin, and the kind of layer they come with.
_WHOLE = {
    "swa_kv_pool.": Part("swa_kv", "total"),
    "request_window.state.": Part("window_kv", "total"),
    "request_window.workspace.": Part("window_scratch", None),
}
_POOLS = (
    (re.compile(r"(?:c(\d+)_kv_pool|kv_pools\[(\d+)\])\."), "c{}_kv"),
    (re.compile(r"(?:c(\d+)_indexer_kv_pool|index_pools\[(\d+)\])\."), "c{}_indexer"),
)


class Era(abc.ABC):
    """Adapter for a span of releases with one sizing API."""

    name: str

    def __init__(self) -> None:
        self._models = Path(tempfile.mkdtemp(prefix="contracts-models-"))
        self._resolved: OrderedDict[str, tuple[Any, Any]] = OrderedDict()

    # -- what an era must say ------------------------------------------------------------------

    @abc.abstractmethod
    def resolve(self, fields: Mapping[str, Any]) -> Any:
        """SGLang's ``ServerArgs``, resolved and checked as its launcher does."""

    @abc.abstractmethod
    def publish(self, args: Any) -> None:
        """Make resolved arguments the ones that SGLang's modules read."""

    @abc.abstractmethod
    def runner(
        self, args: Any, model_config: Any, stage: Stage, group: Group, *, device: str, target: Any
    ) -> Any:
        """The object that sizes and builds the pools of one rank: the target's, or with
        ``target`` (the target's built runner) the draft's."""

    @abc.abstractmethod
    def size_for_tokens(self, runner: Any, configurator: Any, tokens: int) -> Any:
        """SGLang's ``MemoryPoolConfig`` for a token count, finalized."""

    @abc.abstractmethod
    def build(self, runner: Any, config: Any) -> tuple[Any, list[Any]]:
        """The pool that SGLang builds from a config, and the other objects built with it."""

    @abc.abstractmethod
    def ratios(self, configurator: Any) -> Sequence[int]:
        """The compress ratios that a configurator counts."""

    @abc.abstractmethod
    def layers(self, configurator: Any) -> dict[str, int]:
        """The layers that a configurator charges, by kind."""

    @abc.abstractmethod
    def target_coefficient(self, configurator: Any) -> float:
        """Bytes per full token without the draft's reserve."""

    def draft_layers(self, configurator: Any, target: float) -> float:
        """The draft's reserve in layers: SGLang scales the coefficient by (T+D)/T."""
        if target == 0:
            return 0.0
        coefficient = float(configurator.bytes_per_full_token)
        return (coefficient / target - 1) * self.layers(configurator)["total"]

    def draft_fixed_bytes(self, runner: Any, configurator: Any) -> float | None:  # noqa: ARG002
        """What is reserved for the draft at any size, where SGLang charges it by itself."""
        return None

    @abc.abstractmethod
    def charges(self, configurator: Any) -> dict[str, float]:
        """Bytes per full token and component, of a hypothetical stage's SGLang coefficient."""

    @abc.abstractmethod
    def reducing(self, args: Any, group: Group) -> contextlib.AbstractContextManager[None]:
        """Let SGLang's minimum over the ranks run on ``group``."""

    # -- the same in all eras ------------------------------------------------------------------

    def configurator(self, runner: Any) -> Any:
        """From the factory that SGLang itself calls for a rank."""
        from sglang.srt.model_executor.pool_configurator import create_memory_pool_configurator

        return create_memory_pool_configurator(runner)

    def size(self, runner: Any, budget: int) -> Any:
        """SGLang's ``MemoryPoolConfig``, constrained and finalized, by its own resolution; the
        budget stands where it would profile a GPU."""
        runner.observed_budget = budget
        return runner._resolve_memory_pool_config(pre_model_load_memory=0)

    # -- the observation -----------------------------------------------------------------------

    def observe(self, plan: Plan) -> dict[str, Any]:
        """Observe one deployment. Returns the observation as JSON."""
        deployment = plan.deployment
        # The outermost step also forgets the one in which the observation before broke off.
        with _environment(deployment.all_env()), step("reading", may_refuse=False):
            with step("arguments"):
                args, model_config = self._arguments(deployment)
            with step("stages"):
                stages = self._stages(deployment, plan.pipeline)
            group = Group(len(stages))
            with self.reducing(args, group):
                ranks = [self._rank(plan, args, model_config, stage, group) for stage in stages]
                self._agree(ranks, group)
                documents = [self._views(plan, rank, group) for rank in ranks]
        return {"ranks": documents, "final_tokens": group.agreed}

    def _arguments(self, deployment: Deployment) -> tuple[Any, Any]:
        """Resolved arguments and model config, remembered: contracts ask for a deployment several
        times, and resolving is half of an observation. Sizing only reads them, as in a server,
        where one ServerArgs sizes target and draft."""
        self._check_names(deployment.server_args)
        fields = self._fields(deployment)
        key = json.dumps([fields, deployment.all_env()], sort_keys=True)
        if key not in self._resolved:
            args = self.resolve(fields)
            self.publish(args)
            model_config = self._model_config(args, deployment, is_draft=False)
            self._resolved[key] = (args, model_config)
            if len(self._resolved) > _REMEMBERED:
                self._resolved.popitem(last=False)
        self.publish(self._resolved[key][0])
        return self._resolved[key]

    def _check_names(self, stated: Mapping[str, Any]) -> None:
        """Refuse what is no server argument of the subject, as its own command line would."""
        for name in stated:
            if name not in self.argument_names:
                close = difflib.get_close_matches(name, self.argument_names, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise ValueError(f"ServerArgs has no argument {name!r}{hint}")

    @functools.cached_property
    def argument_names(self) -> frozenset[str]:
        """The server arguments that the subject has, by its names."""
        from sglang.srt.server_args import ServerArgs

        return frozenset(inspect.signature(ServerArgs).parameters)

    def _fields(self, deployment: Deployment) -> dict[str, Any]:
        fields = {**deployment.all_server_args(), "model_path": self._model_path(deployment)}
        # The arguments resolve for CUDA whatever the buffers' device: that is what is served.
        fields["device"] = "cuda"
        return fields

    def _model_path(self, deployment: Deployment, role: str = "target") -> str:
        """A folder with the model's config.json.

        Each role has its own: SGLang caches a parsed config by its path and then rewrites it for
        a draft, and in production target and draft of the next server are other processes.
        """
        config = json.dumps(deployment.model.config_json(), sort_keys=True)
        folder = self._models / f"{hashlib.sha256(config.encode()).hexdigest()[:20]}-{role}"
        if not folder.exists():
            folder.mkdir()
            (folder / "config.json").write_text(config, encoding="utf-8")
        return str(folder)

    def _model_config(self, args: Any, deployment: Deployment, *, is_draft: bool) -> Any:
        from sglang.srt.configs.model_config import ModelConfig

        if not is_draft:
            return ModelConfig.from_server_args(args)
        path = self._model_path(deployment, "draft")
        return ModelConfig.from_server_args(args, model_path=path, is_draft_model=True)

    def _stages(self, deployment: Deployment, pipeline: bool) -> list[Stage]:
        from sglang.srt.distributed.utils import get_pp_indices

        layers = deployment.model.num_hidden_layers
        if not pipeline:
            return [Stage(0, 0, layers, split=False)]
        size = deployment.pp_size
        return [Stage(rank, *get_pp_indices(layers, rank, size)) for rank in range(size)]

    def _rank(
        self, plan: Plan, args: Any, model_config: Any, stage: Stage, group: Group
    ) -> _RankAtWork:
        group.rank_in_group = stage.rank
        with step("sizing"):
            runner = self.runner(args, model_config, stage, group, device=plan.device, target=None)
            configurator = self.configurator(runner)
            own = self.size(runner, plan.deployment.budget) if plan.views & _CAPACITY else None
        return _RankAtWork(args, model_config, stage, runner, configurator, own)

    def _agree(self, ranks: list[_RankAtWork], group: Group) -> None:
        capacities = [rank.own.max_total_num_tokens for rank in ranks if rank.own is not None]
        group.agreed = min(capacities) if capacities else None

    def _views(self, plan: Plan, rank: _RankAtWork, group: Group) -> dict[str, Any]:
        group.rank_in_group = rank.stage.rank
        config = final = own = None
        if "final" in plan.views:
            with step("sizing"):
                config = self.size(rank.runner, plan.deployment.budget)
            final = self._view(plan, rank, group, config)
        if "own" in plan.views:
            # Where the minimum is the rank's own capacity, the same pools would be built again.
            own = final if config == rank.own else self._view(plan, rank, group, rank.own)
        at = []
        for tokens in plan.tokens:
            with step("sizing"):
                config = self.size_for_tokens(rank.runner, rank.configurator, tokens)
            at.append(self._view(plan, rank, group, config))
        return {
            "rank": rank.stage.rank,
            "start_layer": rank.stage.start_layer,
            "end_layer": rank.stage.end_layer,
            "configurator": self._configurator(rank.runner, rank.configurator),
            "final": final,
            "own": own,
            "at": at,
        }

    def _configurator(self, runner: Any, configurator: Any) -> dict[str, Any]:
        layers = self.layers(configurator)
        coefficient = float(configurator.bytes_per_full_token)
        target = float(self.target_coefficient(configurator))
        return {
            "ratios": list(self.ratios(configurator)),
            "layers": layers,
            "bytes_per_full_token": coefficient,
            "target_bytes_per_full_token": target,
            "draft_layers": self.draft_layers(configurator, target),
            "draft_fixed_bytes": self.draft_fixed_bytes(runner, configurator),
            "charges": self._charges(configurator, target),
        }

    def _charges(self, configurator: Any, target: float) -> dict[str, float] | None:
        charges = {name: charge for name, charge in self.charges(configurator).items() if charge}
        # Parts that do not add up were not found; none is better than a wrong one.
        return charges if abs(sum(charges.values()) - target) <= 1e-9 * abs(target) else None

    def _view(self, plan: Plan, rank: _RankAtWork, group: Group, config: Any) -> dict[str, Any]:
        with step("allocation"):
            runner, pool = self._built(rank, group, plan, config, target=None)
        draft = None
        if self.owns_draft(rank.args, group):
            with step("draft allocation"):
                draft = self._built(rank, group, plan, config, target=runner)[1]
        tokens = int(config.max_total_num_tokens)
        charge = None
        if "charge" in plan.views:
            with step("charging"):
                charge = _least_budget(rank.configurator, tokens, rank.runner.page_size)
        return {
            "tokens": tokens,
            "charge": charge,
            "sizes": _sizes(config),
            "max_running_requests": config.max_running_requests,
            "pool": pool,
            "draft": draft,
        }

    def _built(
        self, rank: _RankAtWork, group: Group, plan: Plan, config: Any, *, target: Any
    ) -> tuple[Any, dict[str, Any]]:
        stage = rank.stage
        model_config = rank.model_config
        if target is not None:
            model_config = self._model_config(rank.args, plan.deployment, is_draft=True)
        runner = self.runner(
            rank.args, model_config, stage, group, device=plan.device, target=target
        )
        with AllocationLedger(plan.device) as ledger:
            pool, owners = self.build(runner, config)
        attribute = _attribution(pool)
        components = footprint(pool, attribute, ledger.alive(), owners)
        for name, measures in geometry(pool, *owners).items():
            if name in components:
                components[name].update(measures)
        first, last = pool._stage_start, pool._stage_end
        read = "transfers" in plan.views and target is None
        document = {
            "stage_ratios": list(pool.compression_ratios[first:last]),
            "components": components,
            "reported": _reported(pool),
            "transfers": transfers(pool, homes(pool, attribute)) if read else None,
        }
        return runner, document

    def owns_draft(self, args: Any, group: Group) -> bool:
        """Whether the rank that ``group`` plays has a draft and a pool for it: the last one does.

        The draft needs the final hidden states. Since 0.5.21 ``EAGLEWorkerV2``
        (speculative/eagle_worker_v2.py:1228, in 0.5.23 :1334) and ``DSparkWorkerV2``
        (speculative/dspark_components/dspark_worker_v2.py:154, in 0.5.23 :195) make one where
        ``pp_group.is_last_rank``; with SGLANG_ENABLE_PP_SPEC the other ranks' schedulers have
        no such worker at all (managers/scheduler.py:1012, in 0.5.23 :1041). Before, the scheduler
        makes one on every rank (managers/scheduler.py:675 in 0.5.12, :1024 in 0.5.20), but then
        SGLang refuses to speculate with more ranks than one.
        """
        if self.argument(args, "speculative_algorithm") is None:
            return False
        return group.rank_in_group == group.world_size - 1

    def argument(self, args: Any, name: str) -> Any:
        """A resolved server argument."""
        return getattr(args, name)


def _least_budget(configurator: Any, tokens: int, page_size: int) -> int:
    """What a configurator charges for a token count: the least budget that gives as many.

    Nothing is assumed of its arithmetic but that more budget never gives fewer tokens.
    """

    def enough(budget: int) -> bool:
        try:
            config = configurator.calculate_pool_sizes(budget, page_size)
        except (RuntimeError, ValueError, AssertionError):
            # Too little to admit a request: SGLang refuses it, so it is not enough.
            return False
        return bool(config.max_total_num_tokens >= tokens)

    most = max(1, int(configurator.bytes_per_full_token * tokens))
    while not enough(most):
        most *= 2
    least = 0
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if enough(middle) else (middle, most)
    return most


@dataclass(frozen=True, slots=True)
class _RankAtWork:
    args: Any
    model_config: Any
    stage: Stage
    runner: Any
    configurator: Any
    own: Any


def _reported(pool: Any) -> int | None:
    """What the pool states as its size; SGLang keeps it in GiB."""
    stated = getattr(pool, "mem_usage", None)
    return None if stated is None else round(stated * (1 << 30))


def _sizes(config: Any) -> dict[str, int | None]:
    names = {
        "full": "full_max_total_num_tokens",
        "swa": "swa_max_total_num_tokens",
        "c4": "c4_max_total_num_tokens",
        "c128": "c128_max_total_num_tokens",
        "c4_state": "c4_state_pool_size",
        "c128_state": "c128_state_pool_size",
    }
    return {short: getattr(config, name) for short, name in names.items()}


def _attribution(pool: Any) -> Any:
    """Attribute paths of a DSV4 pool to components."""

    def attribute(path: str) -> Part | None:
        if path in _SINGLE:
            return Part(_SINGLE[path], None)
        for beginning, part in _WHOLE.items():
            if path.startswith(beginning):
                return part
        if state := _STATE.match(path):
            ratio = pool.compression_ratios[int(state[2])]
            return Part(f"c{ratio}_{state[1] or ''}state", f"c{ratio}")
        for pattern, name in _POOLS:
            if match := pattern.match(path):
                ratio = match[1] or match[2]
                return Part(name.format(ratio), f"c{ratio}")
        return None

    return attribute


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """State variables for a while. Afterwards all are as before: SGLang sets some itself."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        if os.environ != before:
            os.environ.clear()
            os.environ.update(before)


def hypothetical(configurator: Any, **attributes: Any) -> Any:
    """A copy of a configurator that is asked about another stage."""
    twin = copy.copy(configurator)
    for name, value in attributes.items():
        if not hasattr(twin, name):
            raise UnknownAPI(f"{type(twin).__name__} has no attribute {name!r}")
        setattr(twin, name, value)
    return twin
