"""The lists of buffers for PD disaggregation name every per-layer buffer of the pool exactly once,
with its true length, and nothing else; and list by list, the ranks' entries of each component
concatenate to those of the same deployment at pp_size 1.

A prefill server writes its cache into a decode server's memory by these lists, entry by entry. A
buffer that is missing never arrives, and the decode server answers from what was in its place; a
wrong length reads or writes what belongs to others. Where the servers have different ``pp_size``,
the entries must also pair up across the ranks.

The lists come from ``get_contiguous_buf_infos``, ``get_state_buf_infos`` and their like in
``srt/mem_cache/deepseek_v4_memory_pool.py``. They are grouped by component, not by layer, and were
sliced as if by layer in sgl-project/sglang#24704.

Buffers that do not come one a layer need not be transferred; at most once they may be. Where SGLang
refuses PD disaggregation of a deployment (encoder replay in 0.5.21 and 0.5.22, a pipeline in
0.5.12), its lists go nowhere, and nothing is said.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from contracts.contract import Evidence, NotApplicable, NotJudged, Request, Violation
from contracts.deployment import Deployment
from contracts.law import _aligned, _needs
from contracts.law._say import by_distance, contract_id, violation
from contracts.observation import Observation, Outcome, Pool, Rank, Refused, Transfer

JUDGES_REFUSALS = True

_ID = contract_id(__name__)

#: The two sides of a transfer, as SGLang names them.
_MODES = ("prefill", "decode")

#: So many places in a list or component are named.
_NAMED = 4

_Lists = Mapping[str, tuple[Transfer, ...]]


def plan(deployment: Deployment) -> tuple[Request, ...]:
    """The deployment and the same at pp_size 1, both at one token count; and whether it may
    disaggregate at all, which asks for no pools."""
    tokens = _aligned.token_counts(deployment)[:1]
    listed = tuple(
        Request(deployment=asked, tokens=tokens, views=frozenset({"transfers"}))
        for asked in (deployment, deployment.single_rank())
    )
    return (*listed, *(Request(deployment=side) for side in _sides(deployment)))


def _sides(deployment: Deployment) -> tuple[Deployment, ...]:
    if deployment.server_args.get("disaggregation_mode", "null") != "null":
        return ()
    return tuple(
        dataclasses.replace(
            deployment, server_args={**deployment.server_args, "disaggregation_mode": mode}
        )
        for mode in _MODES
    )


def judge(evidence: Evidence) -> Iterator[Violation]:
    """Compare each rank's lists with its buffers, then all ranks' lists with the single rank's."""
    if not all(isinstance(outcome, Observation) for outcome in evidence.outcomes[:2]):
        raise NotApplicable("SGLang does not serve the deployment itself")
    _may_disaggregate(evidence.outcomes[2:])
    split, single = (_seen(observation) for observation in _needs.observations(evidence, 2))
    of = len(split)
    parts = [_judge_rank(part, of) for part in split]
    if of > 1:
        parts.append(_judge_ranks(split, single))
    yield from by_distance(_needs.decided(parts))


def _may_disaggregate(sides: Sequence[Outcome]) -> None:
    refused = [side.sentence for side in sides if isinstance(side, Refused)]
    if refused and len(refused) == len(sides):
        raise NotApplicable(f"SGLang refuses PD disaggregation: {refused[0]}")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A rank's pool and its lists."""

    rank: int
    pool: Pool
    lists: _Lists


def _seen(observation: Observation) -> list[_Seen]:
    tokens = _aligned.token_counts(observation.deployment)[0]
    return [_lists(rank, _needs.at(rank, tokens).pool) for rank in observation.ranks]


def _lists(rank: Rank, pool: Pool) -> _Seen:
    if pool.transfers is None:
        raise NotJudged(f"rank {rank.rank}: the pool has no transfer lists")
    return _Seen(rank.rank, pool, pool.transfers)


# -- one rank: its lists and its buffers -----------------------------------------------------------


def _judge_rank(seen: _Seen, of: int) -> Iterator[Violation]:
    yield from _judge_strangers(seen, of)
    yield from _judge_coverage(seen, of)
    yield from _judge_lengths(seen, of)


def _judge_strangers(seen: _Seen, of: int) -> Iterator[Violation]:
    for name, entries in seen.lists.items():
        strangers = [place for place, entry in enumerate(entries) if entry.component is None]
        if strangers:
            yield violation(
                _ID,
                rank=seen.rank,
                of=of,
                what=f"entries of the {name} list that are no buffer of the pool",
                observed=len(strangers),
                expected=0,
                source="allocated",
                details=(f"at {_few(strangers)}",),
            )


def _judge_coverage(seen: _Seen, of: int) -> Iterator[Violation]:
    named = Counter(
        (entry.component, entry.index) for entries in seen.lists.values() for entry in entries
    )
    for name, component in seen.pool.components.items():
        counts = {index: named[name, index] for index in range(component.buffers)}
        missing = [index for index, count in counts.items() if count == 0]
        again = [index for index, count in counts.items() if count > 1]
        if component.kind is None:
            missing = []
        if missing or again:
            yield violation(
                _ID,
                rank=seen.rank,
                of=of,
                what=f"{name} buffers in the transfer lists",
                observed=sum(counts.values()),
                expected=component.buffers,
                source="allocated, each once",
                component=name,
                details=(
                    *([f"missing: {_few(missing)}"] if missing else ()),
                    *([f"more than once: {_few(again)}"] if again else ()),
                ),
            )


def _judge_lengths(seen: _Seen, of: int) -> Iterator[Violation]:
    for name, entries in seen.lists.items():
        wrong: dict[str, list[Transfer]] = {}
        for entry in entries:
            if entry.component is not None and entry.stated != entry.bytes:
                wrong.setdefault(entry.component, []).append(entry)
        for component, found in wrong.items():
            yield violation(
                _ID,
                rank=seen.rank,
                of=of,
                what=f"bytes stated for {component} in the {name} list",
                observed=sum(entry.stated for entry in found),
                expected=sum(entry.bytes or 0 for entry in found),
                source="allocated",
                component=component,
                details=(f"buffers {_few([entry.index or 0 for entry in found])}",),
            )


# -- all ranks: their lists and those at pp_size 1 -------------------------------------------------


def _judge_ranks(split: list[_Seen], single: list[_Seen]) -> Iterator[Violation]:
    (whole,) = single
    names = dict.fromkeys(name for seen in (whole, *split) for name in seen.lists)
    for name in names:
        expected = _grouped(whole, name)
        observed = _concatenated(split, name)
        for component in dict.fromkeys((*expected, *observed)):
            yield from _judge_group(
                name,
                component,
                observed.get(component, []),
                expected.get(component, []),
                len(split),
            )


def _judge_group(
    name: str, component: str, observed: list[int], expected: list[int], of: int
) -> Iterator[Violation]:
    if observed == expected:
        return
    alike = len(observed) == len(expected)
    yield violation(
        _ID,
        rank=None,
        of=of,
        what=f"{component} entries of the {name} list, concatenated",
        observed=f"buffers {_few(observed)}" if alike else len(observed),
        expected=f"buffers {_few(expected)}" if alike else len(expected),
        source="pp_size 1",
        component=component,
    )


def _grouped(seen: _Seen, name: str) -> dict[str, list[int]]:
    """The places of a list's per-layer buffers, by component."""
    groups: dict[str, list[int]] = {}
    for entry in seen.lists.get(name, ()):
        component = seen.pool.components.get(entry.component or "")
        # What does not come one a layer may be on every rank, and need not add up.
        if component is None or component.kind is None:
            continue
        assert entry.component is not None
        assert entry.index is not None
        groups.setdefault(entry.component, []).append(entry.index)
    return groups


def _concatenated(split: list[_Seen], name: str) -> dict[str, list[int]]:
    """The ranks' entries by component, a buffer's place counted on from rank to rank."""
    joined: dict[str, list[int]] = {}
    before: dict[str, int] = {}
    for seen in split:
        for component, indices in _grouped(seen, name).items():
            base = before.get(component, 0)
            joined.setdefault(component, []).extend(base + index for index in indices)
        for component, part in seen.pool.components.items():
            before[component] = before.get(component, 0) + part.buffers
    return joined


def _few(places: list[int]) -> str:
    shown = ", ".join(map(str, places[:_NAMED]))
    return shown if len(places) <= _NAMED else f"{shown} … ({len(places)} in all)"
