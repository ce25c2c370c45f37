"""transfer-buffers: the lists name every buffer once, on one rank and across them."""

import dataclasses
from collections.abc import Callable

import pytest

from contracts.contract import Evidence, NotApplicable, NotJudged, Request
from contracts.deployment import Deployment
from contracts.law._aligned import token_counts
from contracts.law.transfer_buffers import JUDGES_REFUSALS, judge, plan
from contracts.observation import Outcome, Refused, Transfer, View

from .locations import of_outcomes
from .observations import bend_views, deployment
from .pools import observe, paged, with_part

Entries = tuple[Transfer, ...]
REFUSED = Refused(where="arguments", kind="ValueError", sentence="No PD disaggregation.")


def evidence(plan: tuple[Request, ...]) -> Evidence:
    return of_outcomes(*map(observe, plan))


def listing(
    given: Evidence, rank: int, name: str, change: Callable[[Entries], Entries], *, at: int = 0
) -> Evidence:
    """The evidence with one list of one rank changed."""

    def changed(view: View) -> View:
        assert view.pool.transfers is not None
        lists = {**view.pool.transfers, name: change(view.pool.transfers.get(name, ()))}
        return dataclasses.replace(view, pool=dataclasses.replace(view.pool, transfers=lists))

    return bend_views(given, rank, changed, at=at)


def messages(given: Evidence) -> list[str]:
    return [found.message for found in judge(given)]


@pytest.mark.parametrize(
    "asked",
    [
        deployment(4),
        deployment(0, 4, 128, 4, pp_size=2),
        deployment(0, 0, 4, 4, 128, pp_size=3, partition=(2, 1, 2)),
    ],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    """Red when a stage without a kind of layers lacks something."""
    assert not messages(evidence(plan(asked)))


def test_both_observations_are_at_one_token_count() -> None:
    """Red when buffers of different lengths would be compared."""
    asked = deployment(4, 4, pp_size=2)
    split, single = plan(asked)[:2]
    assert split.tokens == single.tokens == token_counts(asked)[:1]
    assert split.views == single.views == {"transfers"}
    assert (split.deployment, single.deployment) == (asked, asked.single_rank())


def test_both_sides_of_a_transfer_are_asked_about() -> None:
    """Red when a refusal ends the judging, or pools are built to learn of it."""
    assert JUDGES_REFUSALS
    _split, _single, *sides = plan(deployment(4, 4, pp_size=2))
    modes = [side.deployment.server_args["disaggregation_mode"] for side in sides]
    assert modes == ["prefill", "decode"]
    assert {(side.views, side.tokens, side.deployment.pp_size) for side in sides} == {
        (frozenset(), (), 2)
    }
    assert len(plan(deployment(4, disaggregation_mode="decode"))) == 2


def answers(asked: Deployment, *sides: Outcome) -> Evidence:
    """A buffer is missing in the lists, and these are the answers about the two sides."""
    listed = evidence(plan(asked)[:2])
    missing = listing(listed, 0, "kv", lambda entries: entries[1:])
    return dataclasses.replace(missing, outcomes=(*listed.outcomes, *sides))


def test_lists_that_go_nowhere() -> None:
    """Red when lists are judged by which SGLang can transfer nothing (0.5.22, encoder replay)."""
    with pytest.raises(NotApplicable, match="PD disaggregation: No PD"):
        messages(answers(deployment(4, 4), REFUSED, REFUSED))


def test_one_side_is_enough() -> None:
    """Red when a refusal of one side silences the contract (0.5.23, encoder replay)."""
    served = observe(plan(deployment(4, 4))[2])
    assert messages(answers(deployment(4, 4), served, REFUSED))
    assert messages(answers(deployment(4, 4), REFUSED, served))


def test_not_applicable_where_the_deployment_is_refused() -> None:
    with pytest.raises(NotApplicable, match="does not serve the deployment itself"):
        messages(of_outcomes(REFUSED, REFUSED))


def test_a_missing_buffer() -> None:
    """Red when a buffer that never arrives goes unnoticed."""
    given = evidence(plan(deployment(4, 4, 4)))
    (found,) = judge(listing(given, 0, "kv", lambda entries: entries[:1] + entries[2:]))
    assert found.message == (
        "transfer-buffers: rank 0 of 1: c4_kv buffers in the transfer lists = 2, "
        "expected 3 (allocated, each once); missing: 1 — ×0.67"
    )
    assert found.component == "c4_kv"


def test_a_buffer_named_twice_over_all_lists() -> None:
    """Red when each list is looked at for itself."""
    given = evidence(plan(deployment(4, 4)))
    first = given.observation.ranks[0].at[0].pool.transfers
    assert first is not None
    (message,) = messages(listing(given, 0, "state", lambda entries: (*entries, first["kv"][1])))
    assert "c4_kv buffers in the transfer lists = 3, expected 2" in message
    assert message.endswith("; more than once: 1 — ×1.50")


def test_one_missing_and_one_twice() -> None:
    """Red when it is enough that the numbers are the same."""
    given = evidence(plan(deployment(4, 4)))
    (message,) = messages(listing(given, 0, "kv", lambda entries: (entries[0], entries[0])))
    assert message.endswith("expected 2 (allocated, each once); missing: 1; more than once: 0 — ×1")


def test_many_missing_buffers_are_counted() -> None:
    given = evidence(plan(deployment(*[4] * 9)))
    (message,) = messages(listing(given, 0, "kv", lambda _entries: ()))
    assert "; missing: 0, 1, 2, 3 … (9 in all) — ×0.00" in message


def test_a_wrong_length() -> None:
    """Red when what a list states is not compared with the buffer."""
    given = evidence(plan(deployment(4, 4)))
    size = given.observation.ranks[0].at[0].pool.components["c4_kv"].bytes // 2

    def change(entries: Entries) -> Entries:
        return (entries[0], dataclasses.replace(entries[1], stated=2 * size))

    (found,) = judge(listing(given, 0, "kv", change))
    assert (found.observed, found.expected, found.factor) == (2 * size, size, 2.0)
    assert "bytes stated for c4_kv in the kv list" in found.message
    assert "; buffers 1 — ×2.00" in found.message


def test_an_entry_that_is_no_buffer() -> None:
    """Red when a stale pointer goes unnoticed."""
    given = evidence(plan(deployment(4)))
    stranger = Transfer(component=None, index=None, bytes=None, stated=7)
    (found,) = judge(listing(given, 0, "kv", lambda entries: (*entries, stranger)))
    assert (found.observed, found.expected, found.factor) == (1, 0, None)
    assert found.message == (
        "transfer-buffers: rank 0 of 1: entries of the kv list that are no buffer of the pool = 1, "
        "expected 0 (allocated); at 1"
    )


def with_table(given: Evidence, rank: int, *, at: int, listed: int) -> Evidence:
    """A buffer that does not come one a layer, so many times in the kv list."""
    given = bend_views(
        given, rank, lambda view: with_part(view, "table", paged(None, 1, 0, 1, 1)), at=at
    )
    entry = Transfer(component="table", index=0, bytes=1, stated=1)
    return listing(given, rank, "kv", lambda entries: (*entries, *[entry] * listed), at=at)


@pytest.mark.parametrize(("listed", "violations"), [(0, 0), (1, 0), (2, 1)])
def test_what_is_not_layerwise_may_be_listed_once(listed: int, violations: int) -> None:
    """Red when it must be, or when it must add up over the ranks."""
    given = evidence(plan(deployment(4, 4, pp_size=2)))
    given = with_table(with_table(given, 0, at=0, listed=listed), 1, at=0, listed=1)
    assert len(messages(with_table(given, 0, at=1, listed=1))) == violations


def test_lists_that_are_sliced_by_layer() -> None:
    """Red when the ranks' lists need not be the single rank's (sgl-project/sglang#24704)."""
    given = evidence(plan(deployment(0, 4, 0, 4, pp_size=2)))
    moved = listing(given, 1, "kv", lambda _entries: ())
    found = list(judge(moved))
    assert {(one.rank, one.component) for one in found} == {(1, "c4_kv"), (None, "c4_kv")}
    assert [one.message for one in found if one.rank is None] == [
        "transfer-buffers: all 2 ranks: c4_kv entries of the kv list, concatenated = 1, "
        "expected 2 (pp_size 1) — ×0.50"
    ]


def test_entries_in_another_order() -> None:
    """Red when the numbers alone are compared."""
    given = evidence(plan(deployment(4, 4, 4, 4, pp_size=2)))
    (message,) = messages(listing(given, 1, "kv", lambda entries: entries[::-1]))
    assert message == (
        "transfer-buffers: all 2 ranks: c4_kv entries of the kv list, concatenated = "
        "buffers 0, 1, 3, 2, expected buffers 0, 1, 2, 3 (pp_size 1)"
    )


def test_a_component_in_another_list() -> None:
    """Red when the ranks need only name the same buffers, wherever."""
    given = evidence(plan(deployment(128, 128, pp_size=2)))
    lists = given.observation.ranks[1].at[0].pool.transfers
    assert lists is not None
    states = lists["request_state"]
    given = listing(given, 1, "request_state", lambda _entries: ())
    given = listing(given, 1, "state", lambda entries: (*entries, *states))
    assert sorted(messages(given)) == [
        "transfer-buffers: all 2 ranks: c128_state entries of the request_state list, "
        "concatenated = 1, expected 2 (pp_size 1) — ×0.50",
        "transfer-buffers: all 2 ranks: c128_state entries of the state list, "
        "concatenated = 1, expected 0 (pp_size 1)",
    ]


def by_layer(view: View) -> View:
    """The view with all states in one list, c4 and c128 in turn."""
    lists = view.pool.transfers
    assert lists is not None
    swa = [entry for entry in lists["state"] if entry.component == "swa_kv"]
    c4 = [entry for entry in lists["state"] if entry.component == "c4_state"]
    turns = zip(c4, lists["request_state"], strict=True)
    states = (*swa, *[entry for turn in turns for entry in turn])
    changed = {"kv": lists["kv"], "state": states}
    return dataclasses.replace(view, pool=dataclasses.replace(view.pool, transfers=changed))


def test_components_may_alternate_by_layer() -> None:
    """Red when a list must have each component in one piece: states came by layer until 0.5.14."""
    given = evidence(plan(deployment(4, 128, 4, 128, pp_size=2)))
    for at, rank in ((0, 0), (0, 1), (1, 0)):
        given = bend_views(given, rank, by_layer, at=at)
    assert not messages(given)


def test_not_judged_without_lists() -> None:
    given = bend_views(
        evidence(plan(deployment(4))),
        0,
        lambda view: dataclasses.replace(view, pool=dataclasses.replace(view.pool, transfers=None)),
    )
    with pytest.raises(NotJudged, match="rank 0: the pool has no transfer lists"):
        list(judge(given))
