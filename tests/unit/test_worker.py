"""The worker with real SGLangs: what it observes, what it tells apart, what it leaves behind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.contract import Request
from contracts.deployment import Deployment, Model, Speculation
from contracts.inputs import model_from_config
from contracts.observation import Failed, Observation, Outcome, Refused, Unreadable
from contracts.subject.client import Client
from contracts.units import GiB
from strategies.published import DEPLOYMENTS, MODELS
from tests.releases import case

Clients = Callable[[str], Client]

NEWEST, OLDEST = "0.5.23", "0.5.12"
VIEWS = frozenset({"final", "own"})
BOTH = pytest.mark.parametrize("release", [case(NEWEST), case(OLDEST)])
IN_NEWEST = pytest.mark.xdist_group(NEWEST)

RATIOS = (0, 4, 128, 4, 128, 0)
EAGLE = Speculation(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4)


def deployment(*, budget: int = GiB, **fields: Any) -> Deployment:
    stated = {"swa_full_tokens_ratio": 0.1, **fields.pop("server_args", {})}
    model = Model(num_hidden_layers=5, compress_ratios=RATIOS)
    return Deployment(model=model, budget=budget, server_args=stated, **fields)


def observe(client: Client, asked: Deployment, *, tokens: tuple[int, ...] = ()) -> Outcome:
    """Ask the worker itself, past what the client remembers."""
    client._remembered.clear()
    return client.observe(Request(deployment=asked, views=VIEWS, tokens=tokens))


def observed(client: Client, asked: Deployment) -> Observation:
    outcome = observe(client, asked, tokens=(8192,))
    assert isinstance(outcome, Observation), outcome
    return outcome


# -- one deployment after the other ----------------------------------------------------------------


@BOTH
def test_the_same_deployment_twice(release: str, clients: Clients) -> None:
    """Red when an observation depends on how often it was made."""
    client = clients(release)
    for asked in (deployment(), deployment(pp_size=2), deployment(speculation=EAGLE)):
        assert observed(client, asked) == observed(client, asked)


@BOTH
@pytest.mark.parametrize(
    "between",
    [
        deployment(budget=2 * GiB, server_args={"max_running_requests": 8}),
        deployment(pp_size=2, partition=(1, 4)),
        deployment(pp_size=5, partition=(1, 1, 1, 1, 1)),
        deployment(speculation=Speculation(algorithm="EAGLE", num_steps=1, eagle_topk=1)),
        deployment(server_args={"max_total_tokens": 20_000, "swa_full_tokens_ratio": 0.8}),
        Deployment(model=MODELS["deepseek-v4-pro"], budget=60 * GiB),
    ],
    ids=["memory", "partition", "ranks", "eagle", "tokens", "model"],
)
@pytest.mark.parametrize(
    "asked",
    [deployment(), deployment(pp_size=2), deployment(speculation=EAGLE)],
    ids=["plain", "pipeline", "eagle"],
)
def test_nothing_leaks_from_one_request_to_the_next(
    release: str, asked: Deployment, between: Deployment, clients: Clients
) -> None:
    """Red when what SGLang keeps of a request (globals, caches, environment) changes the next."""
    client = clients(release)
    before = observed(client, asked)
    assert observed(client, between) != before
    assert observed(client, asked) == before


@BOTH
@pytest.mark.parametrize(
    "bad",
    [
        deployment(server_args={"no_such_argument": 1}),
        deployment(budget=1000),
        deployment(server_args={"swa_full_tokens_ratio": 7}),
        deployment(speculation=Speculation(algorithm="NGRAM")),
    ],
    ids=["argument", "budget", "ratio", "algorithm"],
)
def test_nothing_leaks_from_a_refusal(release: str, bad: Deployment, clients: Clients) -> None:
    """Red when a deployment that broke off in the middle changes the next one."""
    client = clients(release)
    for asked in (deployment(pp_size=2), deployment(speculation=EAGLE)):
        before = observed(client, asked)
        assert isinstance(observe(client, bad), Refused)
        assert observed(client, asked) == before


@BOTH
def test_a_partition_is_for_its_own_request(release: str, clients: Clients) -> None:
    """Red when the environment that a deployment states outlives its request."""
    client = clients(release)
    stated = observed(client, deployment(pp_size=2, partition=(1, 4)))
    even = observed(client, deployment(pp_size=2))
    assert stated.stages() == "[0,1)[1,5)"
    assert even.stages() in ("[0,2)[2,5)", "[0,3)[3,5)")


# -- what is told apart ----------------------------------------------------------------------------


@BOTH
def test_an_unknown_server_argument_is_refused_by_name(release: str, clients: Clients) -> None:
    """Red when a mistyped server argument is not named, or looks like a subject that cannot be
    read."""
    asked = deployment(server_args={"max_runing_requests": 8})
    assert observe(clients(release), asked) == Refused(
        where="arguments",
        kind="ValueError",
        sentence="ServerArgs has no argument 'max_runing_requests'; "
        "did you mean 'max_running_requests'?",
    )


@pytest.mark.parametrize(
    ("release", "kind", "sentence"),
    [
        case(OLDEST, "RuntimeError", "Not enough memory. Please try to increase --mem-fraction"),
        case(NEWEST, "ValueError", "SWA pool (0 tokens) cannot hold even one request: "),
    ],
)
def test_a_budget_that_is_too_small_is_refused_in_sglangs_own_words(
    release: str, kind: str, sentence: str, clients: Clients
) -> None:
    """Red when SGLang's refusal of a budget is lost, reworded or taken for a failure."""
    outcome = observe(clients(release), deployment(budget=1000))
    assert isinstance(outcome, Refused)
    assert (outcome.where, outcome.kind) == ("sizing", kind)
    assert outcome.sentence.startswith(sentence)


@BOTH
def test_an_illegal_argument_is_refused(release: str, clients: Clients) -> None:
    """Red when SGLang's own check of its arguments is not run."""
    outcome = observe(clients(release), deployment(server_args={"swa_full_tokens_ratio": 1.5}))
    assert isinstance(outcome, Refused)
    assert "--swa-full-tokens-ratio should be in range" in outcome.sentence


_CONFIGURATOR = "sglang.srt.model_executor.pool_configurator"
_BUILDER = "sglang.srt.mem_cache.kv_cache_configurator"

#: A subject that lacks two names which the adapter needs, and divides by zero where it sizes. They
#: do not get into each other's way: each is reached by a request of its own.
BENT = (
    (_BUILDER, "    def _init_pools(", "    def _make_pools("),
    (_CONFIGURATOR, "self.stage_compress_ratios = cfg", "ratios_here = self.ratios_here = cfg"),
    (_CONFIGURATOR, "local={len(self.stage_compress_ratios)}", "local={len(ratios_here)}"),
    (_CONFIGURATOR, "len(self.stage_compress_ratios)\n", "len(ratios_here)\n"),
    (
        _CONFIGURATOR,
        "        swa_ring_fixed_bytes = self._fixed_swa_bytes(max_running_requests_per_worker)\n",
        "        swa_ring_fixed_bytes = 1 // 0\n",
    ),
)


@IN_NEWEST
def test_an_unknown_api_is_told_from_a_failure(clients: Clients) -> None:
    """Red when a bug of SGLang is taken for its refusal of the deployment, when a renamed
    attribute passes for a bug, or when the reason names neither it nor the right step."""
    edits = [{"module": module, "find": a, "replace": b} for module, a, b in BENT]
    with Client(clients(NEWEST).subject, edits=edits) as bent:
        failed = bent.observe(Request(deployment=deployment(), views=VIEWS))
        unread = bent.observe(Request(deployment=deployment()))
        unbuilt = bent.observe(Request(deployment=deployment(), tokens=(8192,)))
    assert isinstance(failed, Failed)
    assert (failed.where, failed.kind) == ("sizing", "ZeroDivisionError")
    assert "division" in failed.sentence
    assert "calculate_pool_sizes" in failed.traceback
    for outcome, step, name in (
        (unread, "reading", "stage_compress_ratios"),
        (unbuilt, "allocation", "_init_pools"),
    ):
        assert isinstance(outcome, Unreadable)
        assert outcome.reason.startswith(f"{step}: AttributeError: ")
        assert outcome.reason.endswith(f"has no attribute '{name}'")
        assert "Traceback" in outcome.traceback


# -- what is observed ------------------------------------------------------------------------------


@BOTH
def test_views(release: str, clients: Clients) -> None:
    """Red when a view that was asked for is missing, is another's, or one is made unasked."""
    client, asked = clients(release), deployment(pp_size=2)
    outcome = observe(client, asked, tokens=(8192, 16_384))
    assert isinstance(outcome, Observation)
    assert outcome.final_tokens == min(rank.own.tokens for rank in outcome.ranks if rank.own)
    for rank in outcome.ranks:
        assert rank.final is not None
        assert rank.own is not None
        assert rank.final.tokens == outcome.final_tokens
        assert [view.tokens for view in rank.at] == [8192, 16_384]
        assert rank.at[0].pool.bytes < rank.at[1].pool.bytes < rank.final.pool.bytes
    bare = client.observe(Request(deployment=asked))
    assert isinstance(bare, Observation)
    assert bare.final_tokens is None
    assert {(rank.final, rank.own, rank.at) for rank in bare.ranks} == {(None, None, ())}
    assert [rank.configurator for rank in bare.ranks] == [
        rank.configurator for rank in outcome.ranks
    ]


@BOTH
def test_the_capacity_is_agreed_on_without_a_pool(release: str, clients: Clients) -> None:
    """Red when a capacity that no pool was built for is another than a server's."""
    client, asked = clients(release), deployment(pp_size=2)
    sized = client.observe(Request(deployment=asked, views=frozenset({"capacity"})))
    built = observe(client, asked)
    assert isinstance(sized, Observation)
    assert isinstance(built, Observation)
    assert sized.final_tokens == built.final_tokens
    assert {(rank.final, rank.own, rank.at) for rank in sized.ranks} == {(None, None, ())}


@BOTH
def test_own_capacity_is_as_if_it_were_asked_for_alone(release: str, clients: Clients) -> None:
    """Red when a rank's own view is the final one where the two are of different sizes."""
    client, asked = clients(release), deployment(pp_size=2)
    both = observe(client, asked)
    alone = client.observe(Request(deployment=asked, views=frozenset({"own"})))
    assert isinstance(both, Observation)
    assert isinstance(alone, Observation)
    assert [rank.own for rank in both.ranks] == [rank.own for rank in alone.ranks]
    # 0.5.12 charges every rank for all layers: all are as tight.
    assert any(rank.own != rank.final for rank in both.ranks) == (release == NEWEST)


@BOTH
def test_a_model_without_stages(release: str, clients: Clients) -> None:
    """Red when pipeline=False does not take the path of a model that knows no stages."""
    plain = clients(release).observe(Request(deployment=deployment(), views=VIEWS, pipeline=False))
    assert isinstance(plain, Observation)
    (rank,) = plain.ranks
    assert (rank.start_layer, rank.end_layer) == (0, 5)


@BOTH
def test_a_draft_has_a_pool_of_its_own(release: str, clients: Clients) -> None:
    """Red when a draft's pool is not built, is counted with the target's, or is built unasked."""
    client = clients(release)
    with_draft, without = (
        observed(client, deployment(speculation=speculation)).ranks[0].at[0]
        for speculation in (EAGLE, None)
    )
    assert without.draft is None
    assert with_draft.draft is not None
    assert set(with_draft.draft.components) == {"swa_kv"}
    assert with_draft.draft.components["swa_kv"].buffers == 1
    assert with_draft.bytes == with_draft.pool.bytes + with_draft.draft.bytes


@BOTH
def test_what_the_subject_says_of_itself(release: str, clients: Clients) -> None:
    """Red when a run names another version or era than is judged, or asks for what it is not."""
    info = clients(release).info
    known = info.capabilities
    assert (info.label, info.version) == (release, release)
    assert info.era == {NEWEST: "runtime-context", OLDEST: "model-runner"}[release]
    assert known.algorithms == {NEWEST: {"EAGLE", "DSPARK"}, OLDEST: {"EAGLE"}}[release]
    assert {"swa_full_tokens_ratio", "enable_hisparse"} <= known.arguments
    assert ("swa_prefix_tails" in known.arguments) == (release == NEWEST)
    assert {"SGLANG_OPT_USE_ONLINE_COMPRESS", "SGLANG_PP_LAYER_PARTITION"} <= known.variables
    assert ("SGLANG_ENABLE_PP_SPEC" in known.variables) == (release == NEWEST)
    assert "deepseek_v4" in known.model_types
    assert ("deepseek_v41" in known.model_types) == (release == NEWEST)


@IN_NEWEST
def test_a_nested_config_json_is_sized_like_the_published_model(
    clients: Clients, tmp_path: Path
) -> None:
    """Red when a V4.1 config.json, whose decoder is in text_config, is read as another model."""
    published = next(one.deployment for one in DEPLOYMENTS if one.name == "flash-v4.1")
    flat = published.model.config_json()
    text = {**flat.pop("text_config"), **flat, "model_type": "deepseek_v41_text"}
    config = {
        "architectures": text.pop("architectures"),
        "model_type": "deepseek_v41",
        "text_config": text,
        "vision_config": {"model_type": "deepseek_v41_vision", "num_hidden_layers": 27},
    }
    model = model_from_config(json.loads(json.dumps(config)), name=published.model.name)
    nested = dataclasses.replace(published, model=model)
    client = clients(NEWEST)
    assert observed(client, nested).ranks == observed(client, published).ranks
