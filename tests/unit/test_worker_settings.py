"""Settings with real SGLangs: that each takes effect, and what is observed of it.

These are no contracts: whether a size is right is not asked, but whether the setting reached what
computes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from contracts.contract import Request
from contracts.deployment import Deployment, Model, Speculation
from contracts.observation import Component, Observation, Outcome, Refused, View
from contracts.subject.client import Client
from contracts.units import GiB
from tests.releases import case

Clients = Callable[[str], Client]

NEWEST = "0.5.23"
EACH = pytest.mark.parametrize("release", [case("0.5.12"), case("0.5.20"), case(NEWEST)])
WITH_FIXED_STATES = pytest.mark.parametrize("release", [case("0.5.20"), case(NEWEST)])
IN_NEWEST = pytest.mark.xdist_group(NEWEST)

EAGLE = Speculation(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4)
DSPARK = Speculation(algorithm="DSPARK")
DSPARK_FIELDS: dict[str, Any] = {
    "dspark_block_size": 5,
    "dspark_markov_rank": 256,
    "dspark_noise_token_id": 128_799,
    "dspark_target_layer_ids": [4, 5],
}

V4 = Model(num_hidden_layers=6, compress_ratios=(0, 4, 128, 4, 128, 0, 0), extra=DSPARK_FIELDS)
V41 = Model(
    architecture="DeepseekV41ForCausalLM",
    model_type="deepseek_v41",
    num_hidden_layers=6,
    compress_ratios=(0, 2, 2, 1, 1, 1, 0, 0, 0),
    hidden_size=5120,
    index_n_heads=32,
    num_nextn_predict_layers=3,
    extra={
        "text_config": {
            "model_type": "deepseek_v41_text",
            "kv_source_layer_ids": [1, 3],
            "index_source_layer_ids": [1, 3],
            "candidate_source_layer_id": 3,
            "candidate_topk_blocks": 2048,
            "candidate_block_size": 8,
            **DSPARK_FIELDS,
        }
    },
)
REPLAY: dict[str, Any] = {
    "enable_encoder_swa_bounded_replay": True,
    "cuda_graph_backend_prefill": "disabled",
}
HISPARSE: dict[str, Any] = {"enable_hisparse": True, "disable_radix_cache": True}


def deployment(
    model: Model = V4,
    *,
    env: Mapping[str, str] | None = None,
    pp_size: int = 1,
    speculation: Speculation | None = None,
    **server_args: Any,
) -> Deployment:
    return Deployment(
        model=model,
        budget=20 * GiB,
        pp_size=pp_size,
        speculation=speculation,
        env=env or {},
        server_args={"max_running_requests": 16, **server_args},
    )


def observe(client: Client, asked: Deployment) -> Outcome:
    return client.observe(Request(deployment=asked, views=frozenset({"final"})))


def observed(client: Client, asked: Deployment) -> Observation:
    outcome = observe(client, asked)
    assert isinstance(outcome, Observation), outcome
    return outcome


def final(client: Client, asked: Deployment) -> View:
    view = observed(client, asked).ranks[0].final
    assert view is not None
    return view


def part(view: View, name: str) -> Component:
    return view.pool.components[name]


# -- requests and their slots ----------------------------------------------------------------------


@EACH
def test_dp_attention_shares_out_the_requests(release: str, clients: Clients) -> None:
    """Red when a DP rank is sized for the requests of all of them."""
    asked = deployment(dp_size=8, tp_size=8, enable_dp_attention=True)
    assert final(clients(release), deployment()).max_running_requests == 16
    assert final(clients(release), asked).max_running_requests == 2


@WITH_FIXED_STATES
def test_a_decode_server_has_slots_more(release: str, clients: Clients) -> None:
    """Red when the slots of requests on their way have no states."""
    plain, some, unstated = (
        part(final(clients(release), asked), "c128_state").rows
        for asked in (
            deployment(),
            deployment(disaggregation_mode="decode", disaggregation_decode_extra_slots=5),
            deployment(disaggregation_mode="decode"),
        )
    )
    layers, ring = 2, 128
    assert some - plain == 5 * ring * layers
    assert unstated - plain == 2 * 16 * ring * layers


# -- states ----------------------------------------------------------------------------------------


@EACH
def test_online_states_are_one_a_request(release: str, clients: Clients) -> None:
    """Red when a worker does not read the variable before it imports SGLang."""
    online = deployment(env={"SGLANG_OPT_USE_ONLINE_COMPRESS": "1"})
    rings, ones = (
        part(final(clients(release), asked), "c128_state") for asked in (deployment(), online)
    )
    assert (rings.ring, ones.ring) == (128, 1)
    assert ones.bytes * 10 < rings.bytes


@WITH_FIXED_STATES
def test_online_states_with_drafts(release: str, clients: Clients) -> None:
    """Red when a bank of draft states is not found, or the requests that wait for one are not."""
    online = {"SGLANG_OPT_USE_ONLINE_COMPRESS": "1"}
    with_drafts = {**online, "SGLANG_EXPERIMENTAL_ONLINE_C128_MTP": "1"}
    asked = deployment(env=with_drafts, speculation=EAGLE)
    plain = part(final(clients(release), deployment(env=online)), "c128_state")
    view = final(clients(release), asked)
    state = part(view, "c128_state")
    assert state.rows == plain.rows * (1 + 4)
    assert state.last_row is not None
    assert plain.rows // 2 <= state.last_row < state.rows // 2
    assert part(view, "c128_pending").kind is None


@WITH_FIXED_STATES
def test_states_of_two_bytes(release: str, clients: Clients) -> None:
    """Red when a variable that SGLang reads anew each time does not reach it."""
    asked = deployment(env={"SGLANG_DSV4_COMPRESS_STATE_DTYPE": "bfloat16"})
    wide, narrow = (
        part(final(clients(release), each), "c128_state") for each in (deployment(), asked)
    )
    assert (narrow.rows, narrow.bytes) == (wide.rows, wide.bytes // 2)


# -- HiSparse --------------------------------------------------------------------------------------


@EACH
def test_hisparse_shrinks_c4(release: str, clients: Clients) -> None:
    """Red when c4 is not shrunk, or the table of its slots is taken for a part of it."""
    view = final(
        clients(release),
        deployment(**HISPARSE, hisparse_config='{"host_to_device_ratio": 4}'),
    )
    kv, indexer = part(view, "c4_kv"), part(view, "c4_indexer")
    assert view.sizes["c4"] == view.tokens // (4 * 4)
    assert (kv.buffers, indexer.buffers) == (2, 2)
    assert kv.page == 64
    # The allocator of device slots hands out whole pages, and page 0 to nobody.
    assert kv.size is not None
    assert kv.last_row == kv.size // 64 < kv.rows // kv.buffers
    assert kv.rows < indexer.rows / 3


@EACH
def test_hisparse_on_a_stage_without_c4(release: str, clients: Clients) -> None:
    """Red when a rank that has nothing to shrink cannot be read."""
    seen = observed(clients(release), deployment(**HISPARSE, pp_size=6))
    assert [rank.start_layer for rank in seen.ranks] == list(range(6))


# -- drafts in a pipeline --------------------------------------------------------------------------


IN_PIPELINE = {
    "EAGLE, by its variable": deployment(
        speculation=EAGLE, pp_size=3, env={"SGLANG_ENABLE_PP_SPEC": "1"}
    ),
    "EAGLE, on a prefill server": deployment(
        speculation=EAGLE, pp_size=3, disaggregation_mode="prefill"
    ),
    "DSPARK, on a prefill server": deployment(
        speculation=DSPARK, pp_size=3, disaggregation_mode="prefill"
    ),
}


@IN_NEWEST
@pytest.mark.parametrize("asked", IN_PIPELINE.values(), ids=IN_PIPELINE)
def test_the_last_rank_has_the_draft(asked: Deployment, clients: Clients) -> None:
    """Red when a rank has a draft's pool that SGLang makes none for, or the last has none."""
    ranks = observed(clients(NEWEST), asked).ranks
    assert [rank.final is not None and rank.final.draft is not None for rank in ranks] == [
        False,
        False,
        True,
    ]
    single = final(clients(NEWEST), asked.single_rank())
    assert single.draft is not None
    assert ranks[-1].final is not None
    assert ranks[-1].final.draft is not None
    assert set(ranks[-1].final.draft.components) == set(single.draft.components)


@pytest.mark.xdist_group("0.5.20")
@pytest.mark.parametrize("asked", IN_PIPELINE.values(), ids=IN_PIPELINE)
def test_no_draft_in_a_pipeline_before(asked: Deployment, clients: Clients) -> None:
    """Red when a release that refuses to speculate in a pipeline is observed to do so."""
    assert isinstance(observe(clients("0.5.20"), asked), Refused)


# -- V4.1 ------------------------------------------------------------------------------------------


@IN_NEWEST
@pytest.mark.parametrize(
    ("more", "fewer"),
    [
        ({}, {"swa_prefix_tails": 3}),
        ({}, {"disable_radix_cache": True}),
        ({}, {"chunked_prefill_size": 2048}),
        ({"env": {"SGLANG_SWA_EVICTION_INTERVAL": "1024"}}, {}),
        ({}, {"dp_size": 8, "tp_size": 8, "enable_dp_attention": True}),
    ],
    ids=["tails", "radix", "chunk", "interval", "dp"],
)
def test_swa_by_requests(more: dict[str, Any], fewer: dict[str, Any], clients: Clients) -> None:
    """Red when a setting that counts where the SWA pool is sized by requests does not count."""
    large, small = (
        final(clients(NEWEST), deployment(V41, **settings)).sizes["swa"]
        for settings in (more, fewer)
    )
    assert large is not None
    assert small is not None
    assert large > small > 0


@IN_NEWEST
def test_replay_keeps_windows_by_request(clients: Clients) -> None:
    """Red when the buffers of encoder replay are read as others, or their last rows are lost."""
    view = final(clients(NEWEST), deployment(V41, **REPLAY))
    components = view.pool.components
    assert view.sizes["swa"] == 0
    assert "swa_kv" not in components
    window = components["window_kv"]
    assert (window.buffers, window.kind, window.page) == (6, "total", 256)
    assert window.last_row is not None
    assert window.last_row < window.rows // window.buffers
    assert components["window_tags"].kind is None
    assert components["window_scratch"].kind is None


@IN_NEWEST
def test_replay_charges_the_draft_s_own_layers(clients: Clients) -> None:
    """Red when what is reserved for a draft is taken for the target's, or is not seen."""
    asked = deployment(V41, speculation=DSPARK, **REPLAY)
    (rank,) = observed(clients(NEWEST), asked).ranks
    (plain,) = observed(clients(NEWEST), dataclasses.replace(asked, speculation=None)).ranks
    assert rank.configurator.draft_layers == 1.0
    assert plain.configurator.draft_layers == 0.0
    charge = plain.configurator.target_bytes_per_full_token
    assert rank.configurator.target_bytes_per_full_token == charge
    assert rank.final is not None
    assert rank.final.draft is not None
    ring = rank.final.draft.components["swa_kv"]
    assert ring.buffers == len(DSPARK_FIELDS["dspark_target_layer_ids"])
    assert ring.last_row is not None
    assert ring.last_row < ring.rows // ring.buffers
    # A page of a draft's buffer is padded, and its charge is not.
    assert plain.configurator.draft_fixed_bytes == 0
    assert rank.configurator.draft_fixed_bytes is not None
    assert 0 < rank.configurator.draft_fixed_bytes <= ring.bytes


@pytest.mark.xdist_group("0.5.21")
def test_replay_whose_draft_is_paged(clients: Clients) -> None:
    """Red when the paged tokens of a draft, which a ratio sizes, are charged to the target."""
    asked = deployment(V41, speculation=DSPARK, swa_full_tokens_ratio=0.1, **REPLAY)
    (rank,) = observed(clients("0.5.21"), asked).ranks
    configurator = rank.configurator
    assert configurator.target_bytes_per_full_token < configurator.bytes_per_full_token
    assert configurator.charges is not None
    assert "swa_kv" not in configurator.charges
    assert configurator.draft_layers == 1.0
