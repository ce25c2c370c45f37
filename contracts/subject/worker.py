"""The worker: the process in which a subject runs.

It reads one JSON request a line from standard input and writes one JSON answer a line to what was
standard output when it started; what SGLang prints goes to standard error. It uses the standard
library, torch, the subject, and the ``contracts`` modules beside this file, which it loads without
putting the folder that holds them on the path: a foreign interpreter must not find our packages.

    python worker.py PATH…      PATH… lead the module search path
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any

JSON = Any


def _load_contracts() -> None:
    """Make ``contracts`` importable from its own folder alone."""
    folder = Path(__file__).resolve().parent.parent
    spec = importlib.util.spec_from_file_location(
        "contracts", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["contracts"] = module
    spec.loader.exec_module(module)


class Worker:
    """Answers requests about the SGLang that this process can import."""

    def __init__(self, edits: list[dict[str, str]], *, record: bool) -> None:
        from contracts.subject import placeholders
        from contracts.subject.edits import install

        self._recorder = _recorder() if record else None
        install(edits)
        placeholders.install()
        import sglang

        from contracts.subject import era

        placeholders.draft_module()
        self._era = era.choose()
        self._version = str(getattr(sglang, "__version__", "unknown"))
        self._capabilities = _capabilities(self._era.argument_names)
        if self._recorder is not None:
            self._recorder.watch_sglang()

    def answer(self, request: dict[str, JSON]) -> dict[str, JSON]:
        """Answer one request; whatever SGLang raises becomes an answer that says so."""
        if request["op"] == "hello":
            return self._hello()
        if self._recorder is None:
            return self._observe(request)
        with self._recorder.observing():
            answer = self._observe(request)
        return {**answer, "recording": self._recorder.take().to_json()}

    def _hello(self) -> dict[str, JSON]:
        from contracts.subject import placeholders

        return {
            "status": "ok",
            "version": self._version,
            "era": self._era.name,
            "capabilities": self._capabilities,
            "placeholders": placeholders.used(),
            "definitions": _definitions(),
            "cuda": importlib.import_module("torch").cuda.is_available(),
        }

    def _observe(self, request: dict[str, JSON]) -> dict[str, JSON]:
        from contracts.deployment import Deployment
        from contracts.subject.era.base import Plan

        plan = Plan(
            deployment=Deployment.from_json(request["deployment"]),
            device=request["device"],
            views=frozenset(request["views"]),
            tokens=tuple(request["tokens"]),
            pipeline=request["pipeline"],
        )
        try:
            return {"status": "ok", "observation": self._era.observe(plan)}
        except Exception as error:  # every failure of the subject is an answer
            return _failure(error)


def _recorder() -> Any:
    """A recorder of what is read, which watches the environment from now on."""
    from contracts.subject.reads import Recorder

    def step() -> str:
        # Not imported by us: that comes after SGLang's placeholders, and brings torch along.
        base = sys.modules.get("contracts.subject.era.base")
        return "start" if base is None else str(base.current_step().name)

    recorder = Recorder(step)
    recorder.watch_environment()
    return recorder


def _capabilities(arguments: frozenset[str]) -> dict[str, list[str]]:
    """The names that the subject has for what it can be asked for."""
    from sglang.srt.environ import EnvField, envs
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    # With this SGLang makes its own model types known to transformers, which we do not depend on.
    importlib.import_module("sglang.srt.utils.hf_transformers")
    model_types = importlib.import_module("transformers").CONFIG_MAPPING
    declared = {name for name, field in vars(type(envs)).items() if isinstance(field, EnvField)}
    return {
        "algorithms": [name for name in _ALGORITHMS if hasattr(SpeculativeAlgorithm, name)],
        "arguments": sorted(arguments),
        "variables": sorted(declared | _UNDECLARED),
        "model_types": sorted(name for name in model_types if name.startswith("deepseek_v4")),
    }


def _definitions() -> dict[str, list[JSON]]:
    """Where configurator and pool are defined: a path below the folder of the package, a line."""
    from sglang.srt.mem_cache.deepseek_v4_memory_pool import DeepSeekV4TokenToKVPool
    from sglang.srt.model_executor.pool_configurator import DSV4PoolConfigurator

    return {
        name: ["/".join(kind.__module__.split(".")) + ".py", inspect.getsourcelines(kind)[1]]
        for name, kind in (
            ("configurator", DSV4PoolConfigurator),
            ("pool", DeepSeekV4TokenToKVPool),
        )
    }


#: The speculative algorithms that SGLang allows for V4 models.
_ALGORITHMS = ("EAGLE", "DSPARK")

#: What every release reads from the environment without declaring it in ``sglang.srt.environ``:
#: the pipeline partition (``get_pp_indices`` in ``sglang/srt/distributed/utils.py``).
_UNDECLARED = frozenset({"SGLANG_PP_LAYER_PARTITION"})


def _failure(error: Exception) -> dict[str, JSON]:
    """Tell apart: SGLang refused, SGLang failed, or the adapter does not know its API."""
    from contracts.subject.era.base import UnknownAPI, current_step
    from contracts.subject.footprint import Unattributed

    step = current_step()
    described = {
        "where": step.name,
        "kind": type(error).__name__,
        "sentence": str(error).strip() or type(error).__name__,
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, UnknownAPI | Unattributed) or _is_ours(error):
        return {"status": "unreadable", **described}
    ordinary = isinstance(error, ValueError | AssertionError | RuntimeError | NotImplementedError)
    refused = step.may_refuse and ordinary
    return {"status": "refused" if refused else "failed", **described}


def _is_ours(error: Exception) -> bool:
    """Whether the adapter asked for something that the subject does not have."""
    if not isinstance(error, AttributeError | TypeError | ImportError | KeyError):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    raised_here = Path(frames[-1].filename).is_relative_to(Path(__file__).parent)
    stand_in = isinstance(error, AttributeError) and type(error.obj).__module__.startswith(
        "contracts."
    )
    return raised_here or stand_in


def main() -> None:
    """Serve requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    sys.path[:] = [*sys.argv[1:], *sys.path[1:]]
    _load_contracts()
    # SGLang logs several lines for each pool; nobody reads them, and writing takes its time.
    logging.disable(logging.CRITICAL)
    worker = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            worker = worker or Worker(request.get("edits", []), record=request.get("record", False))
            answer = worker.answer(request)
        except Exception as error:  # the parent must learn why, not just that, we end
            answer = {
                "status": "unreadable",
                "where": "import" if worker is None else "request",
                "kind": type(error).__name__,
                "sentence": str(error),
                "traceback": traceback.format_exc(),
            }
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
