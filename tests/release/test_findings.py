"""What docs/findings.md says is what the releases are observed to do."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from contracts import law
from contracts.contract import Request, Violation
from contracts.examination import examine
from contracts.hunt.measure import CARDS, FILE, SERVED, costs, marginal
from contracts.observation import Observation, Rank
from contracts.report.findings import template
from contracts.subject.client import Client
from contracts.subject.releases import RELEASES
from tests.by_hand import lines
from tests.releases import case

#: One of the models on the cards, with all that a draft gets wrong; the others are as costly.
MEASURED = "Flash EAGLE"
CONTRACTS = [contract for contract in law.ALL.values() if not contract.needs_baseline]


@pytest.mark.parametrize("release", [case(release) for release in RELEASES])
def test_measurements(release: str, clients: Callable[[str], Client]) -> None:
    """Red when a number of docs/measurements.json is not what is observed."""
    measured = json.loads(FILE.read_text(encoding="utf-8"))[release]
    client = clients(release)
    assert marginal(client) == measured["marginal"]
    told = [cost for cost in measured["cards"] if cost["served"] == MEASURED]
    assert list(costs(CONTRACTS, client, [MEASURED])) == told


#: The newest release, of which the page works things out, and the budget that it does it with.
HAND = "0.5.23"
BIG = next(card.budget for card in CARDS if card.name == "140 GiB")


def observed(client: Client, served: str) -> Rank:
    """The one rank of a served model on the 140 GiB card, at its own capacity."""
    deployment = SERVED[served].with_budget(BIG)
    answer = client.observe(Request(deployment=deployment, views=frozenset({"own"})))
    assert isinstance(answer, Observation), answer
    (rank,) = answer.ranks
    return rank


def said(client: Client, contract: str, served: str) -> dict[str | None, Violation]:
    """What a contract says of a served model on the 140 GiB card, by component."""
    found = examine(law.get(contract), SERVED[served].with_budget(BIG), client)
    return {one.violation.component: one.violation for one in found}


def replay(client: Client) -> dict[str, float]:
    rank = observed(client, "V4.1-Flash replay")
    assert rank.own is not None
    parts = {name: part.bytes for name, part in rank.own.pool.components.items()}
    (wrong,) = said(client, "fixed-bytes", "V4.1-Flash replay").values()
    assert wrong.bytes is not None
    return {
        "allocated for windows": parts["window_kv"],
        "allocated for tags": parts["window_tags"],
        "allocated for scratch": parts["window_scratch"],
        "charged too much": wrong.bytes,
    }


def draft(client: Client) -> dict[str, float]:
    rank = observed(client, "Flash EAGLE")
    assert rank.own is not None
    (wrong,) = said(client, "draft-reserve", "Flash EAGLE").values()
    charged = rank.configurator
    reserved = charged.bytes_per_full_token - charged.target_bytes_per_full_token
    return {
        "reserved by the token": reserved,
        "allocated by the token": wrong.expected,
        "too much, of all tokens": rank.own.tokens * (reserved - wrong.expected),
    }


def pages(client: Client) -> dict[str, float]:
    wrong = said(client, "paging", "Flash")
    sizes = {name: violation.bytes for name, violation in wrong.items()}
    assert set(sizes) == {"c128_kv", "c4_kv", "c4_indexer"}
    return {
        "c128 pages, a buffer": wrong["c128_kv"].observed,
        "c4 pages, a buffer": wrong["c4_kv"].observed,
        "that do": wrong["c4_kv"].expected,
        "c128 KV too much": sizes["c128_kv"] or 0,
        "c4 KV too much": sizes["c4_kv"] or 0,
        "c4 indexer too much": sizes["c4_indexer"] or 0,
    }


@pytest.mark.xdist_group(HAND)
@pytest.mark.parametrize("told", [replay, draft, pages], ids=lambda told: told.__name__)
def test_by_hand(
    told: Callable[[Client], dict[str, float]], clients: Callable[[str], Client]
) -> None:
    """Red when what the page works out by hand is not what the release does."""
    page = {line.name: line for line in lines(template())}
    for name, number in told(clients(HAND)).items():
        assert f"{number:,.{page[name].decimals}f}" == page[name].result, name


@pytest.mark.xdist_group(HAND)
def test_the_refusals_of_the_page(clients: Callable[[str], Client]) -> None:
    """Red when SGLang says something else than the page quotes."""
    wrong = examine(law.get("refusal"), SERVED["Flash PP4"].with_budget(BIG), clients(HAND))
    said = {one.violation.observed for one in wrong}
    assert said == {"KeyError: 3", "ZeroDivisionError: float division by zero"}
    assert all(f"`{one}`" in " ".join(template().split()) for one in said)
