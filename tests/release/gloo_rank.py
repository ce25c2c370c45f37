"""One rank of a pipeline: a process that sizes its stage over SGLang's own world group.

    python gloo_rank.py TASK

TASK is JSON. The process runs in a subject's interpreter and begins as ``worker.py`` does; then
it meets the other ranks, meeting after meeting, each on a gloo group that SGLang itself sets up.
What the ranks agree on goes to standard output, in one line; all else goes to standard error.

Nothing stands for the group here, and nothing for its minimum. The adapter of the subject's era
only makes what it makes for every observation: arguments, stages, and a runner without a GPU.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import sys
from typing import Any

JSON = Any


def _era(worker: str, edits: list[dict[str, str]]) -> Any:
    """The adapter of this process's SGLang, found as a worker finds it."""
    spec = importlib.util.spec_from_file_location("contracts_worker", worker)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._load_contracts()
    importlib.import_module("contracts.subject.edits").install(edits)
    placeholders = importlib.import_module("contracts.subject.placeholders")
    placeholders.install()
    placeholders.draft_module()
    return importlib.import_module("contracts.subject.era").choose()


def _meet(era: Any, meeting: dict[str, JSON]) -> dict[str, JSON]:
    """Size this rank's stage with its own budget, together with the other ranks."""
    deployment = importlib.import_module("contracts.deployment").Deployment.from_json(
        meeting["deployment"]
    )
    args, model_config = era._arguments(deployment)
    stage = era._stages(deployment, True)[meeting["rank"]]
    state = importlib.import_module("sglang.srt.distributed.parallel_state")
    state.init_distributed_environment(
        world_size=deployment.pp_size,
        rank=meeting["rank"],
        distributed_init_method=meeting["rendezvous"],
        local_rank=0,
        backend="gloo",
        timeout=meeting["patience"],
    )
    group = state.get_world_group()
    runner = era.runner(args, model_config, stage, group, device="meta", target=None)
    config = era.size(runner, meeting["budget"])
    state.destroy_distributed_environment()
    sizes = importlib.import_module("contracts.subject.era.base")._sizes(config)
    return {
        "tokens": config.max_total_num_tokens,
        "max_running_requests": config.max_running_requests,
        "sizes": sizes,
    }


def main() -> None:
    """Go to all meetings, then say what came of each."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    task = json.loads(sys.argv[1])
    # In place of this script's folder, where our tests are.
    sys.path[:] = [*task["paths"], *sys.path[1:]]
    logging.disable(logging.CRITICAL)
    era = _era(task["worker"], task["edits"])
    with answers:
        answers.write(json.dumps([_meet(era, meeting) for meeting in task["meetings"]]))


if __name__ == "__main__":
    main()
