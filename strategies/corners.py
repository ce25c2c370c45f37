"""Deployments that the draws seldom make, one for each step of SGLang's sizing that no other takes.

``tox -e coverage-of-sglang`` tells which steps those are. They are judged like published ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from contracts.deployment import Deployment, Speculation
from contracts.units import GiB
from strategies.published import DSPARK, EAGLE, MODELS

__all__ = ["CORNERS"]


def _corner(
    model: str,
    *,
    speculation: Speculation | None = None,
    **server_args: Any,
) -> Deployment:
    return Deployment(
        model=MODELS[f"deepseek-{model}"],
        budget=60 * GiB,
        speculation=speculation,
        server_args=server_args,
    )


#: By name; a comment says what step is taken.
CORNERS: Mapping[str, Deployment] = MappingProxyType(
    {
        # The draft's SWA is a ring a request, and the target's a window: no SWA pool has pages.
        "corner-replay-dspark": _corner(
            "v4.1-flash",
            speculation=DSPARK,
            enable_encoder_swa_bounded_replay=True,
            # Until 0.5.22 replay is refused with them.
            cuda_graph_backend_prefill="disabled",
        ),
        # What a request may hold in SWA is counted otherwise without the overlap scheduler.
        "corner-no-overlap": _corner(
            "v4.1-flash", speculation=DSPARK, disable_overlap_schedule=True
        ),
        # Without chunks nothing bounds what a prefill holds: the SWA pool goes by its ratio.
        "corner-no-chunks": _corner("v4.1-flash", chunked_prefill_size=-1),
        # A prefill server that may turn into a decode server has the request pool of one.
        "corner-role-switch": _corner(
            "v4-flash",
            swa_full_tokens_ratio=0.1,
            disaggregation_mode="prefill",
            enable_pd_role_switch=True,
        ),
        # The draft's allocator is found inside of HiSparse's.
        "corner-hisparse-eagle": _corner(
            "v4-flash",
            speculation=EAGLE,
            swa_full_tokens_ratio=0.1,
            max_running_requests=16,
            disaggregation_mode="decode",
            enable_hisparse=True,
            disable_radix_cache=True,
        ),
        # More requests than there are tokens for: fewer are admitted than were asked for.
        "corner-few-tokens": _corner(
            "v4-flash",
            swa_full_tokens_ratio=0.1,
            max_running_requests=4096,
            max_total_tokens=8000,
        ),
    }
)
