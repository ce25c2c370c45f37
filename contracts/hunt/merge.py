"""Merging: the records that several machines made of shares of the same work.

It does not matter in which order or in which groups records are merged. A record says which shards
are in it; as long as one is missing, nothing in it is held.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from contracts.contract import Verdict
from contracts.survey import Named, distance

__all__ = ["WHOLE", "MergeError", "Shard", "merged", "verdict"]

JSON = Any


class MergeError(ValueError):
    """Records do not go together; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of ``of`` equal shares of the deployments; the first has ``index`` 1."""

    index: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``2/4``.

        Raises:
            ValueError: it is no share; the text says what would be one.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError(f"{text!r} is no shard: write 2/4 for the second of four")
        return cls(int(match[1]), int(match[2]))

    def share(self, deployments: list[Named]) -> list[Named]:
        """This shard's deployments: of the same list, every one is in one shard."""
        return deployments[self.index - 1 :: self.of]

    def to_json(self) -> JSON:
        """As a record says which shards are in it."""
        return {"of": self.of, "have": [self.index]}


#: All of the work.
WHOLE = Shard()

#: What records must agree in to be about the same work.
_SAME = ("schema", "suite", "profile", "device", "subject", "baseline")


def merged(records: Iterable[JSON]) -> list[JSON]:
    """One record for each subject, in the order in which subjects come first.

    Raises:
        MergeError: two records have the same shard, or other shares, or contracts.
    """
    found: dict[str, JSON] = {}
    for record in records:
        key = json.dumps([record[name] for name in _SAME], sort_keys=True)
        found[key] = _both(found[key], record) if key in found else record
    return list(found.values())


def _both(one: JSON, other: JSON) -> JSON:
    label = one["subject"]["label"]
    shards = _shards(label, one["shards"], other["shards"])
    contracts = [[contract["id"] for contract in record["contracts"]] for record in (one, other)]
    if contracts[0] != contracts[1]:
        raise MergeError(f"{label}: the records are about different contracts")
    pairs = zip(one["contracts"], other["contracts"], strict=True)
    return {
        **one,
        "shards": shards,
        "contracts": [_contract(*pair, shards) for pair in pairs],
        "capacities": one["capacities"] or other["capacities"],
    }


def _shards(label: str, one: JSON, other: JSON) -> JSON:
    if one["of"] != other["of"]:
        raise MergeError(f"{label}: one record is of {one['of']} shards, another of {other['of']}")
    twice = set(one["have"]) & set(other["have"])
    if twice:
        raise MergeError(f"{label}: shard {min(twice)} of {one['of']} is there twice")
    return {"of": one["of"], "have": sorted([*one["have"], *other["have"]])}


def _contract(one: JSON, other: JSON, shards: JSON) -> JSON:
    counts = {name: one[name] + other[name] for name in ("deployments", "rejected", "violated")}
    reasons = {contract["reason"] for contract in (one, other)} - {None}
    both = {
        "id": one["id"],
        **counts,
        # One reason is enough, always the same one.
        "reason": min(reasons, default=None),
        "worst": max((one["worst"], other["worst"]), key=_rank),
    }
    return {**both, "verdict": str(verdict(both, shards))}


def _rank(worst: JSON) -> tuple[float, str]:
    """The farther factor is worse; of two alike any, but always the same."""
    if worst is None:
        return (-2.0, "")
    return (distance(worst["factor"]), json.dumps(worst, sort_keys=True))


def verdict(contract: JSON, shards: JSON) -> Verdict:
    """What a contract's counts say. A violation that was seen stands, whatever is missing; without
    one, what is missing leaves it open."""
    if contract["violated"]:
        return Verdict.VIOLATED
    missing = set(range(1, shards["of"] + 1)) - set(shards["have"])
    if missing or contract["reason"] or not contract["deployments"]:
        return Verdict.NOT_JUDGED
    return Verdict.HELD
