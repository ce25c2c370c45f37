"""Token counts between which a pool grows exactly in proportion.

A pool of T tokens is cut into pages and windows, so its bytes are a staircase over T. Between
token counts that lie a whole period apart the steps cancel, and the growth is exact.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction

from contracts.deployment import Deployment

__all__ = ["period", "token_counts"]

#: SGLang's page for DeepSeek-V4 on CUDA, where none is stated.
_DEFAULT_PAGE_SIZE = 256
#: SGLang's own SWA ratio for DeepSeek-V4, where none is stated.
_DEFAULT_SWA_RATIO = Fraction(1, 10)
#: SGLang's SWA ratio for all other models. Up to 0.5.20 who states it for DeepSeek-V4 gets the
#: default all the same, because SGLang cannot tell the two apart.
_GENERIC_SWA_RATIO = Fraction(8, 10)
#: A default that a subject chooses itself is taken to be a decimal of at most two places.
_UNSTATED_DENOMINATOR = 100
#: Without a stated limit SGLang estimates 2048 to 4096 running requests and then takes no more
#: than tokens // 2: above 8192 tokens that last limit does not touch the estimate, which would
#: otherwise grow with the tokens and bring per-request state into the difference.
_FEWEST_TOKENS = 16_384
#: SGLang's ``host_to_device_ratio`` of HiSparse, where none is stated.
_DEFAULT_HOST_RATIO = 2
#: SGLang refuses an SWA pool that does not exceed window + page (since 0.5.20). What the
#: contracts measure lies comfortably above.
_SWA_MARGIN = 4


def period(deployment: Deployment) -> int:
    """The distance D between token counts at which every page and window boundary recurs.

    D full tokens are whole pages and windows, and so are the D * ratio SWA tokens that go with
    them, and those of the c4 tokens that HiSparse keeps on the device.
    """
    ratio = deployment.swa_ratio()
    parts = _UNSTATED_DENOMINATOR if ratio is None else ratio.denominator
    if ratio == _GENERIC_SWA_RATIO:
        parts = math.lcm(parts, _DEFAULT_SWA_RATIO.denominator)
    parts = math.lcm(parts, _on_the_host(deployment))
    return math.lcm(_page_size(deployment), deployment.model.sliding_window) * parts


def _on_the_host(deployment: Deployment) -> int:
    """How many c4 tokens HiSparse has for each one on the device; 1 without it."""
    if not deployment.server_args.get("enable_hisparse"):
        return 1
    stated = deployment.server_args.get("hisparse_config")
    config = json.loads(stated) if isinstance(stated, str) else stated
    ratio = config.get("host_to_device_ratio") if isinstance(config, dict) else None
    return ratio if isinstance(ratio, int) and ratio > 0 else _DEFAULT_HOST_RATIO


def token_counts(deployment: Deployment) -> tuple[int, int, int]:
    """Three token counts T, T + D and T + 2D: the third shows whether the growth is even.

    T is a page above the smallest multiple of D that is large enough. The page matters: on the
    multiple itself, T * ratio is a whole number of pages, and SGLang's float64 product may come
    out a hair below it (0.7 does, and 0.29), which costs a page at some multiples and not at
    others. A page further on, the product lies inside a page, and rounding cannot move it out.
    """
    page = _page_size(deployment)
    swa_tokens = _SWA_MARGIN * (deployment.model.sliding_window + page)
    ratio = deployment.swa_ratio()
    if ratio is None or ratio <= 0:
        ratio = _DEFAULT_SWA_RATIO
    step = period(deployment)
    enough = max(_FEWEST_TOKENS, math.ceil(swa_tokens / ratio))
    # With HiSparse a page on the device holds so many times the tokens.
    first = math.ceil(Fraction(enough, step)) * step + page * _on_the_host(deployment)
    return (first, first + step, first + 2 * step)


def _page_size(deployment: Deployment) -> int:
    stated = deployment.server_args.get("page_size")
    return stated if isinstance(stated, int) and stated > 0 else _DEFAULT_PAGE_SIZE
