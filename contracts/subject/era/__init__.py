"""The adapters: the only place that knows which SGLang release has which API.

An era is chosen by what the subject has, not by its version number, so that a checkout and an
unknown newer release find theirs.
"""

from __future__ import annotations

import dataclasses
import importlib.util

from contracts.subject.era.base import Era

__all__ = ["choose"]


def choose() -> Era:
    """The adapter for the SGLang that this process can import."""
    if importlib.util.find_spec("sglang.srt.mem_cache.kv_cache_configurator") is None:
        from contracts.subject.era.runner import RunnerEra

        return RunnerEra()
    from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator

    from contracts.subject.era.configurator import ContextEra, ParallelStateEra

    fields = {field.name for field in dataclasses.fields(KVCacheConfigurator)}
    return ParallelStateEra() if "ps" in fields else ContextEra()
