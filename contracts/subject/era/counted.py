"""Configurators that keep one layer count a ratio (0.5.12 to 0.5.20)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contracts.subject.era.base import Era, hypothetical

__all__ = ["CountedLayers"]


class CountedLayers(Era):
    """How to read a ``DSV4PoolConfigurator`` with ``num_layers_ca4`` and ``num_layers_ca128``."""

    def ratios(self, configurator: Any) -> Sequence[int]:
        """The list whose layers are charged."""
        return list(configurator.compression_ratios)

    def layers(self, configurator: Any) -> dict[str, int]:
        """Counts as the configurator keeps them."""
        return {
            "total": configurator.num_layers_total,
            "c4": configurator.num_layers_ca4,
            "c128": configurator.num_layers_ca128,
        }

    def target_coefficient(self, configurator: Any) -> float:
        """The coefficient before the configurator scales it for a draft."""
        return float(configurator._get_bytes_per_full_token())

    def charges(self, configurator: Any) -> dict[str, float]:
        """Ask about stages of one kind of layer, with and without SWA slots and an indexer."""
        unindexed = {
            name: 0
            for name in ("indexer_head_dim", "indexer_bytes_per_token")
            if hasattr(configurator, name)
        }

        def ask(total: int, c4: int, c128: int, **without: Any) -> float:
            stage = {"num_layers_total": total, "num_layers_ca4": c4, "num_layers_ca128": c128}
            return float(hypothetical(configurator, **stage, **without)._get_bytes_per_full_token())

        counts = self.layers(configurator)
        total, c4, c128 = counts["total"], counts["c4"], counts["c128"]
        kv4 = ask(0, c4, 0, swa_ratio=0, **unindexed)
        paged4 = ask(0, c4, 0, swa_ratio=0)
        state4 = ask(0, c4, 0, **unindexed) - kv4
        kv128 = ask(0, 0, c128, swa_ratio=0)
        return {
            "swa_kv": ask(total, 0, 0),
            "c4_kv": kv4,
            "c4_indexer": paged4 - kv4,
            "c4_state": state4,
            "c4_indexer_state": ask(0, c4, 0) - paged4 - state4,
            "c128_kv": kv128,
            "c128_state": ask(0, 0, c128) - kv128,
        }
