"""What a deployment states beyond its model, pipeline, speculation and memory.

Each setting is one that SGLang sizes or allocates V4 pools by, or that it must be told to allow
another. Most deployments state none, so that the plain space stays covered; of those that state
some, most state one or two. What is drawn is legal wherever SGLang has names for all of it; what
a release has no name for is left out afterwards, by :meth:`Stated.known_to`, and never drawn
differently.

Not here, though SGLang has a name for it:

* ``page_size``: for V4 models SGLang replaces whatever is stated by 256 on CUDA.
* ``kv_cache_dtype`` bfloat16: its pools assert that a slot is a byte (0.5.14 and later accept the
  argument all the same). V4.1 layouts (``SGLANG_DSV4_KV_LAYOUT`` v41, v41_new; compressed fp4) and
  ``enable_deepseek_v4_fp4_indexer``: they need a GPU of SM100, and SGLang asks the machine.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from contracts.observation import Capabilities

__all__ = ["DECODE", "PREFILL", "Place", "Settings", "Stated", "settings"]

PREFILL, DECODE = "prefill", "decode"

#: Values, the simplest first.
_EXTRA_SLOTS = (None, None, 1, 4, 16, 64, 0)
_DP_SIZES = (2, 4, 8, 8)
_HISPARSE_RATIOS = (2, 1, 3, 4, 4, 8, 10)
_STATE_DTYPES = ("bfloat16", "bfloat16", "bf16", "float32", "fp32")
_KV_LAYOUTS = ("v4", "auto")
_COMPRESSED_LAYOUTS = ("auto", "fp8")
#: Prefill chunks in tokens; -1 is no chunks. Every DP rank's share is whole pages.
_CHUNKS = (8192, 4096, 2048, 16_384, -1)
_TAILS = (0, 1, 8, 64)
_INTERVALS = (128, 1, 32, 256, 1024)

#: How many settings a deployment states: of V4 models most state none, of V4.1 models few do, and
#: with EAGLE it is between, for the sake of drafts with online states. The tables begin alike, so
#: that counterexamples shrink from one to the other.
_COUNTS = (0, 1, 2, 3, *[0] * 18, *[1] * 3, *[2] * 2, 3)
_EAGLE_COUNTS = (0, 1, 2, 3, *[0] * 9, *[1] * 3, *[2] * 2, 3)
_SHARED_COUNTS = (0, 1, 2, 3, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which deployment settings are for, as far as their legality depends on it."""

    shared: bool = False
    """Whether the model's layers share their storage (V4.1)."""
    algorithm: str | None = None
    pipeline: bool = False
    """Whether there is more than one stage."""
    c4: bool = True
    """Whether a layer has the ratio 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """Server arguments and environment variables that only make sense together."""

    server_args: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def known_to(self, capabilities: Capabilities) -> bool:
        """Whether a subject has a name for all of it."""
        arguments, variables = frozenset(self.server_args), frozenset(self.env)
        return arguments <= capabilities.arguments and variables <= capabilities.variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings by what they mean; a default states nothing.

    ``role`` is that of a server of a PD pair and ``extra_slots`` the request slots that a decode
    server keeps for requests on their way to it. ``dp_size`` ranks share out the running requests
    (DP attention), over ``tp_ranks`` GPUs each. ``hisparse`` is the ratio of the c4 tokens on the
    host to those on the device. ``online`` keeps one c128 state a request instead of a ring of
    tokens. ``tails`` are cached prefixes that stay usable, ``interval`` the tokens after which
    what has left the window is evicted; both count where the SWA pool is sized by requests.
    ``replay`` keeps V4.1's SWA by request and ``chunk`` is the prefill chunk in tokens.
    """

    role: str | None = None
    extra_slots: int | None = None
    dp_size: int = 1
    tp_ranks: int = 1
    hisparse: int | None = None
    online: bool = False
    state_dtype: str | None = None
    kv_dtype: str | None = None
    kv_layout: str | None = None
    compressed_layout: str | None = None
    radix: bool = True
    chunk: int | None = None
    tails: int | None = None
    interval: int | None = None
    replay: bool = False

    def stated(self, place: Place) -> tuple[Stated, ...]:
        """All that is stated in a place, in parts that stay or fall together."""
        parts = [*self._pair(), *self._parallel(place), *self._memory(), *self._layouts()]
        if self.online:
            parts.append(_online(place.algorithm))
        if self.replay:
            graphs = {"cuda_graph_backend_prefill": "disabled"}
            parts.append(_args(enable_encoder_swa_bounded_replay=True, **graphs))
        return tuple(parts)

    def _pair(self) -> list[Stated]:
        if self.role is None:
            return []
        parts = [_args(disaggregation_mode=self.role)]
        if self.role == DECODE and self.extra_slots is not None:
            # Stated in both ways that there have been; each release knows one of them.
            slots = self.extra_slots
            parts.append(_args(disaggregation_decode_extra_slots=slots))
            parts.append(_env(SGLANG_DISAGGREGATION_NUM_PRE_ALLOCATE_REQS=str(slots)))
        return parts

    def _parallel(self, place: Place) -> list[Stated]:
        if self.dp_size == 1:
            return []
        ranks = self.dp_size * self.tp_ranks
        parts = [_args(dp_size=self.dp_size, tp_size=ranks, enable_dp_attention=True)]
        if place.algorithm == "DSPARK":
            parts.append(_args(enable_dp_lm_head=True))
        return parts

    def _memory(self) -> list[Stated]:
        parts = []
        if self.hisparse is not None:
            config = json.dumps({"host_to_device_ratio": self.hisparse})
            parts.append(_args(enable_hisparse=True, hisparse_config=config))
        if self.hisparse is not None or not self.radix:
            parts.append(_args(disable_radix_cache=True))
        if self.chunk is not None:
            parts.append(_args(chunked_prefill_size=self.chunk))
        if self.tails is not None:
            parts.append(_args(swa_prefix_tails=self.tails))
        if self.interval is not None:
            parts.append(_env(SGLANG_SWA_EVICTION_INTERVAL=str(self.interval)))
        return parts

    def _layouts(self) -> list[Stated]:
        named = {
            "SGLANG_DSV4_COMPRESS_STATE_DTYPE": self.state_dtype,
            "SGLANG_DSV4_KV_LAYOUT": self.kv_layout,
            "SGLANG_DSV4_COMPRESSED_KV_LAYOUT": self.compressed_layout,
        }
        parts = [_env(**{name: value}) for name, value in named.items() if value is not None]
        if self.kv_dtype is not None:
            parts.append(_args(kv_cache_dtype=self.kv_dtype))
        return parts


def _args(**server_args: Any) -> Stated:
    return Stated(server_args=MappingProxyType(server_args))


def _env(**env: str) -> Stated:
    return Stated(env=MappingProxyType(env))


def _online(algorithm: str | None) -> Stated:
    online = {"SGLANG_OPT_USE_ONLINE_COMPRESS": "1"}
    if algorithm is None:
        return _env(**online)
    return _env(**online, SGLANG_EXPERIMENTAL_ONLINE_C128_MTP="1")


def settings(place: Place) -> st.SearchStrategy[Settings]:
    """Settings that are legal in a place. Shrinks to none."""
    return _settings(place)


@st.composite
def _settings(draw: st.DrawFn, place: Place) -> Settings:
    features = _features(place)
    drawn = Settings()
    for _ in range(draw(st.sampled_from(_counts(place)))):
        drawn = draw(st.sampled_from(features))(draw, drawn)
    return _legal(drawn, place)


def _legal(drawn: Settings, place: Place) -> Settings:
    """Settings without those that SGLang refuses beside the others or in this place."""
    legal = drawn
    if not place.c4:
        # HiSparse keeps c4 tokens on the host; since 0.5.21 it asserts that there are some.
        legal = dataclasses.replace(legal, hisparse=None)
    if place.algorithm == "DSPARK":
        # It has no states to roll back, and wants attention over one GPU a DP rank.
        legal = dataclasses.replace(legal, online=False, tp_ranks=1)
    if legal.replay:
        # A decode server receives its windows and replays nothing; a hit replays in its chunk.
        chunk = None if legal.chunk == -1 else legal.chunk
        role = None if legal.role == DECODE else legal.role
        legal = dataclasses.replace(legal, role=role, chunk=chunk)
    return legal


# -- one setting each ------------------------------------------------------------------------------


def _prefill(_draw: st.DrawFn, settings: Settings) -> Settings:
    return dataclasses.replace(settings, role=PREFILL)


def _decode(draw: st.DrawFn, settings: Settings) -> Settings:
    slots = draw(st.sampled_from(_EXTRA_SLOTS))
    return dataclasses.replace(settings, role=DECODE, extra_slots=slots)


def _dp(draw: st.DrawFn, settings: Settings) -> Settings:
    size, ranks = draw(st.sampled_from(_DP_SIZES)), draw(st.sampled_from((1, 1, 2)))
    return dataclasses.replace(settings, dp_size=size, tp_ranks=ranks)


def _hisparse(draw: st.DrawFn, settings: Settings) -> Settings:
    return dataclasses.replace(settings, hisparse=draw(st.sampled_from(_HISPARSE_RATIOS)))


def _online_states(_draw: st.DrawFn, settings: Settings) -> Settings:
    return dataclasses.replace(settings, online=True)


def _state_dtype(draw: st.DrawFn, settings: Settings) -> Settings:
    return dataclasses.replace(settings, state_dtype=draw(st.sampled_from(_STATE_DTYPES)))


def _kv_dtype(_draw: st.DrawFn, settings: Settings) -> Settings:
    return dataclasses.replace(settings, kv_dtype="fp8_e4m3")


def _kv_layout(draw: st.DrawFn, settings: Settings) -> Settings:
    return dataclasses.replace(settings, kv_layout=draw(st.sampled_from(_KV_LAYOUTS)))


def _compressed_layout(draw: st.DrawFn, settings: Settings) -> Settings:
    layout = draw(st.sampled_from(_COMPRESSED_LAYOUTS))
    return dataclasses.replace(settings, compressed_layout=layout)


def _no_radix(_draw: st.DrawFn, settings: Settings) -> Settings:
    return dataclasses.replace(settings, radix=False)


def _chunk(draw: st.DrawFn, settings: Settings) -> Settings:
    return dataclasses.replace(settings, chunk=draw(st.sampled_from(_CHUNKS)))


def _tails(draw: st.DrawFn, settings: Settings) -> Settings:
    return dataclasses.replace(settings, tails=draw(st.sampled_from(_TAILS)))


def _interval(draw: st.DrawFn, settings: Settings) -> Settings:
    return dataclasses.replace(settings, interval=draw(st.sampled_from(_INTERVALS)))


def _replay(_draw: st.DrawFn, settings: Settings) -> Settings:
    return dataclasses.replace(settings, replay=True)


_Feature = Callable[[st.DrawFn, Settings], Settings]

#: What V4 models are deployed with, the simplest first. What changes no size of theirs stands once.
_FEATURES: tuple[_Feature, ...] = (
    _no_radix,
    _chunk,
    _kv_dtype,
    _kv_layout,
    _compressed_layout,
    *[_state_dtype] * 3,
    *[_online_states] * 3,
    *[_dp] * 3,
    *[_prefill] * 2,
    _decode,
    *[_hisparse] * 3,
)

#: What V4.1 models are deployed with; HiSparse is refused, and there are no c128 states.
_SHARED_FEATURES: tuple[_Feature, ...] = (
    *[_no_radix] * 2,
    *[_chunk] * 2,
    _compressed_layout,
    *[_tails] * 5,
    *[_interval] * 4,
    *[_dp] * 2,
    _prefill,
    *[_decode] * 2,
    *[_replay] * 4,
)


def _features(place: Place) -> tuple[_Feature, ...]:
    if place.shared:
        return _SHARED_FEATURES
    # Pipelines are for prefill servers. Drafts with online states are a matter of their own.
    more = () if place.pipeline else (_decode,) * 3
    return (*_FEATURES, *more, *[_online_states] * 8 * (place.algorithm == "EAGLE"))


def _counts(place: Place) -> tuple[int, ...]:
    if place.shared:
        return _SHARED_COUNTS
    return _EAGLE_COUNTS if place.algorithm == "EAGLE" and not place.pipeline else _COUNTS
