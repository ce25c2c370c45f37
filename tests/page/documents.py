"""A matrix with a cell of every kind, as `python -m contracts matrix --json` would write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contracts import law
from contracts.deployment import Deployment, Speculation
from contracts.units import GiB
from strategies.published import MODELS
from tests.unit import observations

JSON = Any

RELEASES = ("0.5.12", "0.5.13")
CHECKOUT = "sglang@v0.5.13-7-gabcdef0"
UNREADABLE = "0.5.14"
LABELS = (*RELEASES, CHECKOUT, UNREADABLE)

#: What would be markup, a template or the end of a script if it were not taken for text.
HOSTILE = "</script><img src=x onerror=\"hit=1\"><!-- <script> {{ 7 * 7 }} & 'x' \\u003c "

#: Factors by contract, on the first release and on the checkout; all others hold.
FACTORS: tuple[Mapping[str, float | None], ...] = (
    {
        "rank-sum": 32.0,
        "marginal-bytes": 166.20491452991453,
        "budget-fit": 1.0018479824066162,
        "draft-reserve": 9.413226522237062,
        "monotone": 1.667214565684663,
        "refusal": None,
        "reported-bytes": 0.0,
    },
    {"marginal-bytes": 0.9951826892702959, "pp1-unchanged": 2.0, "budget-use": 1.02},
    {
        "stage-slice": 1.00000082,
        "layer-counts": 0.9,
        "marginal-bytes": 0.95,
        "rank-sum": 0.25,
        "pp1-unchanged": 1.0 / 3,
        "budget-fit": 0.7,
    },
)


def document() -> JSON:
    """Two releases, a checkout, and a release that cannot be read."""
    baselines = (None, *LABELS)
    records = [
        record(label, baseline, factors)
        for label, baseline, factors in zip(LABELS, baselines, FACTORS, strict=False)
    ]
    by_id = {contract["id"]: contract for contract in records[0]["contracts"]}
    by_id["state-rows"] |= {
        "verdict": "not judged",
        "deployments": 0,
        "reason": f"no function that translates {HOSTILE}",
    }
    return {"schema": 1, "records": [*records, unreadable(UNREADABLE, CHECKOUT)]}


def record(label: str, baseline: str | None, factors: Mapping[str, float | None]) -> JSON:
    """A record with these factors; a contract that compares is not tried without a baseline."""
    tried = [one for one in law.ALL.values() if baseline is not None or not one.needs_baseline]
    return {
        **_head(label, baseline),
        "contracts": [
            violated(contract.id, factors[contract.id])
            if contract.id in factors
            else _counts(contract.id, "held")
            for contract in tried
        ],
        "capacities": list(_capacities(label)),
    }


def unreadable(label: str, baseline: str | None) -> JSON:
    """A record of a subject that does not load."""
    reason = "the worker died by SIGKILL"
    contracts = [
        {**_counts(name, "not judged"), "deployments": 0, "rejected": 0, "reason": reason}
        for name in law.ALL
    ]
    return {**_head(label, baseline), "contracts": contracts, "capacities": []}


def violated(contract: str, factor: float | None, *, rank: int | None = 1) -> JSON:
    """A contract that is violated on twenty deployments."""
    message = f"{contract}: rank 1 of 2: {HOSTILE} = 2, expected 1 (allocated)"
    return {
        **_counts(contract, "violated"),
        "violated": 20,
        "worst": {
            "rank": rank,
            "component": "c4_kv",
            "observed": 2,
            "expected": 1,
            "factor": factor,
            "bytes": None if factor is None else 1_984_256,
            "message": message,
            "example": "flash-pp2" if contract == "rank-sum" else None,
            "stages": "[0,3)[3,6)",
            "deployment": deployment(contract).to_json(),
            "rows": None if contract == "refusal" else ROWS,
        },
    }


def deployment(contract: str) -> Deployment:
    """The deployment that violates: six layers on two ranks, unless the contract is of one rank."""
    return law.ALL[contract].judged(
        observations.deployment(
            *(0, 4, 128, 0, 4, 128),
            pp_size=2,
            beyond=(0,),
            speculation=Speculation(algorithm="EAGLE", num_steps=3),
            swa_full_tokens_ratio=0.1,
            fake=HOSTILE,
        )
    )


def _row(name: str, layers: int | None, charged: int | None, allocated: int) -> JSON:
    total = name == "total"
    return {
        "component": name,
        "layers": layers,
        "buffers": None if total else 3,
        "rows": None if total else 2048,
        "charged": charged,
        "allocated": allocated,
        "factor": None if charged is None else charged / allocated,
    }


ROWS = [
    _row("c4_kv", 2, 2_048_000, 1_024_000),
    _row("c4_state", 2, None, 4_096),
    _row("swa_kv", 3, 512_000, 512_000),
    _row("draft", None, 250_000, 500_000),
    _row("total", 3, 2_810_000, 2_040_096),
]


def _head(label: str, baseline: str | None) -> JSON:
    return {
        "schema": 1,
        "suite": "0.1.0",
        "profile": "dev",
        "device": "meta",
        "subject": {"label": label, "version": label, "era": "model-runner"},
        "baseline": baseline,
        "shards": {"of": 1, "have": [1]},
    }


def _counts(contract: str, verdict: str) -> JSON:
    return {
        "id": contract,
        "verdict": verdict,
        "deployments": 35,
        "rejected": 4,
        "violated": 0,
        "reason": None,
        "worst": None,
    }


def tokens(label: str, model: str, budget: int, pp_size: int) -> int | None:
    """What the sample's subjects give: 0.5.12 charges each rank for all, 4.1 has no pipeline."""
    if model == "deepseek-v4.1-flash" and (label == "0.5.12" or pp_size > 1):
        return None
    ranks = 1 if label == "0.5.12" else pp_size
    return budget // (16_000 if "flash" in model else 24_000) * ranks // 256 * 256


def _capacities(label: str) -> list[JSON]:
    return [
        {
            "model": model,
            "budget": budget,
            "pp_size": pp_size,
            "tokens": tokens(label, model, budget, pp_size),
            "reason": None
            if tokens(label, model, budget, pp_size)
            else f"ValueError: no pipeline for this model {HOSTILE}",
        }
        for model in MODELS
        for budget in (80 * GiB, 140 * GiB)
        for pp_size in (1, 2, 4, 8)
    ]
