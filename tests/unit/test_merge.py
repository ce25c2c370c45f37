"""Merging shards: in any order and any groups the same, and never green while one is missing."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.contract import Verdict
from contracts.hunt.merge import MergeError, Shard, merged
from contracts.survey import Named
from tests.unit import observations

JSON = Any
CONTRACTS = ("stage-slice", "rank-sum")
DETERMINISTIC = settings(derandomize=True, deadline=None, database=None)


def contract(name: str, **said: Any) -> JSON:
    made = {"deployments": 10, "rejected": 1, "violated": 0, "reason": None, "worst": None, **said}
    verdict = "violated" if made["violated"] else "not judged"
    return {"id": name, "verdict": verdict, **made}


def worst(factor: float | None, message: str = "") -> JSON:
    return {"factor": factor, "message": message}


def record(index: int, of: int, label: str = "0.5.23", **contracts: JSON) -> JSON:
    told = [contracts.get(name.replace("-", "_")) or contract(name) for name in CONTRACTS]
    return {
        "schema": 1,
        "suite": "1",
        "profile": "gate",
        "device": "meta",
        "subject": {"label": label, "version": label, "era": "test"},
        "baseline": None,
        "shards": {"of": of, "have": [index]},
        "contracts": told,
        "capacities": [],
    }


def verdicts(records: list[JSON]) -> dict[str, str]:
    (one,) = merged(records)
    return {contract["id"]: contract["verdict"] for contract in one["contracts"]}


def told(name: str) -> st.SearchStrategy[JSON]:
    """What a shard may say of a contract."""
    violated = st.builds(
        lambda count, factor, text: contract(name, violated=count, worst=worst(factor, text)),
        st.integers(1, 9),
        st.sampled_from([None, 0.0, 0.5, 2.0, 3.0]),
        st.sampled_from("ab"),
    )
    broken = st.sampled_from(["it died", "it hung"]).map(lambda why: contract(name, reason=why))
    return st.one_of(st.just(contract(name)), violated, broken)


@st.composite
def work(draw: st.DrawFn) -> list[JSON]:
    """Some of the shards of some subjects."""
    of = draw(st.integers(1, 4))
    records = [
        record(
            index,
            of,
            label,
            stage_slice=draw(told("stage-slice")),
            rank_sum=draw(told("rank-sum")),
        )
        for label in draw(st.sampled_from([["a"], ["a", "b"]]))
        for index in range(1, of + 1)
    ]
    return draw(st.lists(st.sampled_from(records), unique_by=id, min_size=1))


def text(records: list[JSON]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in records)


@DETERMINISTIC
@given(work(), st.data())
def test_associative(records: list[JSON], data: st.DataObject) -> None:
    """Red when it makes a difference in which groups, or in which order, records are merged."""
    cut = data.draw(st.integers(0, len(records)))
    shuffled = data.draw(st.permutations(records))
    whole = text(merged(records))
    assert text(merged([*merged(records[:cut]), *merged(records[cut:])])) == whole
    assert text(merged(shuffled)) == whole
    assert text(merged(merged(records))) == whole


@DETERMINISTIC
@given(work())
def test_nothing_changes_what_it_is_given(records: list[JSON]) -> None:
    """Red when merging writes into the records that it reads."""
    before = copy.deepcopy(records)
    merged(records)
    assert records == before


def test_all_shards() -> None:
    """Red when complete shards are not held, or their counts are lost."""
    records = [record(index, 3) for index in (3, 1, 2)]
    assert set(verdicts(records).values()) == {"held"}
    (one,) = merged(records)
    assert one["shards"] == {"of": 3, "have": [1, 2, 3]}
    assert one["contracts"][0]["deployments"] == 30


@pytest.mark.parametrize("have", list(itertools.combinations((1, 2, 3), 2)))
def test_a_missing_shard(have: tuple[int, ...]) -> None:
    """Red when a missing shard passes."""
    found = verdicts([record(index, 3) for index in have])
    assert set(found.values()) == {"not judged"}


def test_a_violation_stands() -> None:
    """Red when a violation is lost because a shard is missing or broke, or the worst is lost."""
    bad = contract("stage-slice", violated=2, worst=worst(2.0))
    worse = contract("stage-slice", violated=1, worst=worst(0.25))
    records = [record(1, 3, stage_slice=bad), record(2, 3, stage_slice=worse)]
    assert verdicts(records)["stage-slice"] == Verdict.VIOLATED
    (one,) = merged(records)
    assert one["contracts"][0]["violated"] == 3
    assert one["contracts"][0]["worst"] == worst(0.25)


def test_a_shard_that_broke() -> None:
    """Red when a shard on which judging broke off passes."""
    broken = contract("stage-slice", reason="the worker died")
    found = verdicts([record(1, 2, stage_slice=broken), record(2, 2)])
    assert found == {"stage-slice": "not judged", "rank-sum": "held"}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (record(1, 2), "0.5.23: shard 1 of 2 is there twice"),
        (record(2, 3), "0.5.23: one record is of 2 shards, another of 3"),
        (
            {**record(2, 2), "contracts": [contract("rank-sum")]},
            "0.5.23: the records are about different contracts",
        ),
    ],
)
def test_what_does_not_go_together(other: JSON, said: str) -> None:
    """Red when records of different work are added up."""
    with pytest.raises(MergeError) as raised:
        merged([record(1, 2), other])
    assert str(raised.value) == said


def test_other_subjects_are_other_records() -> None:
    """Red when records of different subjects, profiles or suites are merged into one."""
    others = [{"suite": "2"}, {"profile": "thorough"}, {"baseline": "0.5.22"}, {"device": "cpu"}]
    records = [record(1, 1), record(1, 1, "0.5.22"), *({**record(1, 1), **one} for one in others)]
    assert len(merged(records)) == len(records)


# -- shards ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_each_deployment_is_in_one_shard(of: int) -> None:
    """Red when a deployment is in no shard, or in two."""
    deployments = [Named(observations.deployment(*[4] * count)) for count in range(1, 11)]
    shares = [Shard(index, of).share(deployments) for index in range(1, of + 1)]
    assert sorted(map(id, itertools.chain(*shares))) == sorted(map(id, deployments))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_parse() -> None:
    """Red when what is no share is taken for one."""
    assert Shard.parse("2/4") == Shard(2, 4)
    for wrong in ("0/4", "5/4", "1/0", "2", "2/4/6", "-1/4", "a/b", ""):
        with pytest.raises(ValueError, match=f"{wrong!r} is no shard"):
            Shard.parse(wrong)
