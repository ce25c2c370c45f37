"""Model shapes of DeepSeek-V4.1: layers that share what one of them compresses and stores.

A layer of ratio 1 or 2 reads the storage of the nearest source layer of its ratio before it; only
sources own any. Facts from SGLang's ``models/deepseek_v4.py`` and ``deepseek_v4_memory_pool.py``,
which every shape here obeys: each such layer has a source at or before it; the last source also
indexes and, where there are candidates, is their source; no layer of ratio 2 comes after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from hypothesis import strategies as st

from contracts.deployment import Model
from strategies.layers import MAX_LAYERS

__all__ = ["MODEL_TYPE", "SharedLayers", "shared_layers"]

#: The ``model_type`` by which a subject shows that it knows these models.
MODEL_TYPE = "deepseek_v41"

#: Layers of ratio 0 that come first.
_HEADS = (0, 2, 2, 2, 1)
#: The ratios of the runs after them; the last run takes what the others leave.
_RUNS: tuple[tuple[int, ...], ...] = ((1,), (2, 1), (2, 1), (2, 1), (2,), (1, 2, 1), (2, 1, 2, 1))
#: Every how many layers of a run there is a source; None is at its start alone.
_SOURCE_STEPS = (None, 6, 6, 4, 3, 1)
#: Every how many layers the index is made anew after the last source.
_INDEX_STEP = 4
#: Entries beyond the layers, all zero: those of the MTP or DSpark layers.
_EXTRA_ENTRIES = (3, 3, 3, 1, 0)


@dataclass(frozen=True, slots=True)
class SharedLayers:
    """The ratios of a decoder's layers, which of them are sources, and the entries beyond."""

    ratios: tuple[int, ...]
    sources: tuple[int, ...]
    extra_entries: int = 3

    def model(self, *, sliding_window: int = 128) -> Model:
        """A model that has these layers, its decoder's fields nested as the published one's are."""
        layers = len(self.ratios)
        last = self.sources[-1] if self.sources else -1
        later = range(last + _INDEX_STEP, layers, _INDEX_STEP) if self.sources else ()
        text = {
            "model_type": "deepseek_v41_text",
            "kv_source_layer_ids": list(self.sources),
            "index_source_layer_ids": [*self.sources, *later],
            "candidate_source_layer_id": last if self.sources and self.ratios[last] == 1 else -1,
            "candidate_topk_blocks": 2048,
            "candidate_block_size": 8,
        }
        return Model(
            architecture="DeepseekV41ForCausalLM",
            model_type=MODEL_TYPE,
            num_hidden_layers=layers,
            compress_ratios=self.ratios + (0,) * self.extra_entries,
            sliding_window=sliding_window,
            hidden_size=5120,
            index_n_heads=32,
            num_nextn_predict_layers=3,
            extra=MappingProxyType({"text_config": text}),
        )


def shared_layers(*, layers: int) -> st.SearchStrategy[SharedLayers]:
    """Shapes of ``layers`` layers. Shrinks to layers of ratio 1 with one source.

    Raises:
        ValueError: ``layers`` is not from 1 to 96.
    """
    if not 1 <= layers <= MAX_LAYERS:
        raise ValueError(f"layers={layers}: 1 to {MAX_LAYERS} can be generated")
    return _shared_layers(layers)


@st.composite
def _shared_layers(draw: st.DrawFn, layers: int) -> SharedLayers:
    head = min(draw(st.sampled_from(_HEADS)), layers - 1)
    kinds = draw(st.sampled_from(_RUNS))
    step = draw(st.sampled_from(_SOURCE_STEPS))
    extra = draw(st.sampled_from(_EXTRA_ENTRIES))
    ratios, sources = [0] * head, []
    for number, ratio in enumerate(kinds):
        spare = layers - len(ratios)
        is_last = number == len(kinds) - 1
        length = spare if is_last else min(draw(st.integers(1, 24)), max(0, spare - 1))
        if not length:
            continue
        start, end = len(ratios), len(ratios) + length
        starts = list(range(start, end, step or length))
        if is_last and ratio == 2 and starts[-1] != end - 1:
            # Nothing of ratio 2 may come after the last source.
            starts.append(end - 1)
        ratios += [ratio] * length
        sources += starts
    return SharedLayers(tuple(ratios), tuple(sources), extra)
