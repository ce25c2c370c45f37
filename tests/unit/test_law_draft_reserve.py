"""draft-reserve: what is reserved for a draft is what the draft takes."""

import dataclasses
import math

import pytest

from contracts.contract import Evidence, NotApplicable, NotJudged
from contracts.deployment import Deployment, Speculation
from contracts.law import fixed_bytes
from contracts.law._aligned import token_counts
from contracts.law.draft_reserve import judge, plan
from contracts.observation import View

from .observations import bend_configurator, bend_rank, bend_views, deployment
from .pools import evidence, paged, pool, without_geometry

SPECULATION = Speculation(algorithm="EAGLE")
#: A draft of one layer takes 2 bytes a token, and 512 for its reserved page.
PLAIN = deployment(0, 4, speculation=SPECULATION, swa_full_tokens_ratio=1)
TOKENS = token_counts(PLAIN)[0]


def reserving(given: Evidence, more: float, *, rank: int = 0) -> Evidence:
    """The configurator reserves so many bytes more per token."""
    before = given.observation.ranks[rank].configurator.bytes_per_full_token
    return bend_configurator(given, rank, bytes_per_full_token=before + more)


@pytest.mark.parametrize(
    "asked",
    [
        PLAIN,
        deployment(0, 4, 128, speculation=SPECULATION, swa_full_tokens_ratio=0.25),
        deployment(0, 4, 128, speculation=SPECULATION),
        deployment(0, 4, 4, 4, pp_size=2, speculation=SPECULATION, swa_full_tokens_ratio=0.29),
    ],
    ids=str,
)
def test_held(asked: Deployment) -> None:
    """Red when SWA tokens that whole pages cut off count as reserved for nothing."""
    assert not list(judge(evidence(plan(asked))))


def test_the_plan_is_that_of_fixed_bytes() -> None:
    assert plan(PLAIN) == fixed_bytes.plan(PLAIN)


def test_too_much_is_reserved() -> None:
    """Red when a draft may be charged like an average layer, which has compressed parts."""
    (found,) = judge(reserving(evidence(plan(PLAIN)), 1.0))
    assert found.message == (
        "draft-reserve: rank 0 of 1: bytes reserved for the draft per full token = 3, "
        "expected 2 (allocated); float_rounding ±4.3e-14 — ×1.50"
    )
    assert (found.component, found.observed, found.expected) == ("draft", 3, 2)


def test_too_little_is_reserved() -> None:
    """Red when a draft of more layers than one may be charged like one (DSpark's are)."""

    def change(view: View) -> View:
        swa = view.sizes["swa"] or 0
        return dataclasses.replace(view, draft=pool((0, 0, 0), view.tokens, swa))

    (found,) = judge(bend_views(evidence(plan(PLAIN)), 0, change))
    assert (found.observed, found.expected) == (2, 6)
    assert found.factor == pytest.approx(1 / 3)


def test_nothing_is_reserved() -> None:
    """Red when a rank that reserves nothing counts as one without a draft."""
    (found,) = judge(reserving(evidence(plan(PLAIN)), -2.0))
    assert (found.observed, found.factor) == (0, 0.0)


def test_a_rank_without_a_draft_reserves() -> None:
    """Red when every rank may pay for the draft of one (bytedance-iaas/sglang#730)."""
    asked = deployment(0, 4, 4, pp_size=2, speculation=SPECULATION, swa_full_tokens_ratio=1)
    given = bend_views(evidence(plan(asked)), 0, lambda view: dataclasses.replace(view, draft=None))
    (found,) = judge(given)
    assert (found.rank, found.component, found.expected, found.factor) == (0, "draft", 0, None)
    assert found.message.startswith(
        "draft-reserve: rank 0 of 2: bytes reserved for the draft per full token = 2, expected 0 ("
    )


@pytest.mark.parametrize(("ulps", "violations"), [(0, 0), (8, 0), (64, 1)])
def test_what_is_reserved_by_the_token_is_exact(ulps: int, violations: int) -> None:
    """Red when a draft's reserved page hides what is reserved too little by the token."""
    given = evidence(plan(PLAIN))
    before = given.observation.ranks[0].configurator.bytes_per_full_token
    given = reserving(given, -ulps * math.ulp(before))
    assert len(list(judge(given))) == violations


def pages_beyond(given: Evidence, pages: int) -> Evidence:
    """The draft's pool has so many pages more, at any size."""

    def change(view: View) -> View:
        assert view.draft is not None
        swa = view.draft.components["swa_kv"]
        more = dataclasses.replace(swa, rows=swa.rows + pages, bytes=swa.bytes + pages * 512)
        return dataclasses.replace(
            view, draft=dataclasses.replace(view.draft, components={"swa_kv": more})
        )

    return bend_views(given, 0, change)


def test_what_is_allocated_at_any_size_is_a_guard_or_reserved() -> None:
    """Red when a draft's pool may have more than the page that it reserves."""
    (found,) = judge(pages_beyond(evidence(plan(PLAIN)), 1))
    assert found.message == (
        "draft-reserve: rank 0 of 1: bytes reserved for the draft = 33280, "
        "expected 34304 (allocated at 16640 tokens); reserved page ±512; whole bytes ±1; "
        "float_rounding ±7.1e-10 — ×0.970"
    )
    assert found.bytes == 1024


@pytest.mark.parametrize(
    ("reserved", "violations"), [(0, 1), (511, 0), (512, 0), (1024, 0), (1025, 0), (1026, 1)]
)
def test_what_is_charged_apart_counts(reserved: int, violations: int) -> None:
    """Red when bytes that SGLang reserves at any size are not seen, or are not compared.

    The draft has a page beyond its size and its guard: one page is the least, two the most.
    """
    given = pages_beyond(evidence(plan(PLAIN)), 1)
    for at in (0, 1):
        given = bend_configurator(given, 0, at=at, draft_fixed_bytes=float(reserved))
    assert len(list(judge(given))) == violations


def capped(given: Evidence, more: int = 0) -> Evidence:
    """The SWA pools of target and draft are sized by requests: 1024 tokens at any size.

    Charged is what they take without their reserved pages, and so many bytes more.
    """

    def change(view: View) -> View:
        assert view.draft is not None
        target = {**view.pool.components, "swa_kv": paged("total", 2, 1024, 256, 512)}
        draft = {**view.draft.components, "swa_kv": paged("total", 1, 1024, 256, 512)}
        return dataclasses.replace(
            view,
            sizes={**view.sizes, "swa": 1024},
            pool=dataclasses.replace(view.pool, components=target),
            draft=dataclasses.replace(view.draft, components=draft),
        )

    configurator = given.observation.ranks[0].configurator
    target = configurator.target_bytes_per_full_token
    for at in (0, 1):
        given = bend_views(given, 0, change, at=at)
        given = bend_configurator(given, 0, at=at, bytes_per_full_token=target)
    states = given.observation.ranks[0].at[0].pool.components["c4_state"].bytes
    charge = int(target * TOKENS) + states + 3 * 2048 + more
    return bend_views(given, 0, lambda view: dataclasses.replace(view, charge=charge), at=1)


def fixed_slope(asked: Deployment) -> Evidence:
    """Evidence in which nothing but ``c4_kv`` grows, as with an SWA pool that is capped."""
    given = evidence(plan(asked))
    state = given.observation.ranks[0].at[0].pool.components["c4_state"]

    def change(view: View) -> View:
        components = {**view.pool.components, "c4_state": state}
        return dataclasses.replace(view, pool=dataclasses.replace(view.pool, components=components))

    for at in (0, 1):
        given = bend_views(given, 0, change, at=at)
    return given


def test_held_where_the_draft_is_reserved_as_fixed() -> None:
    """Red when only the coefficient counts as reserve (V4.1: the SWA pool is capped)."""
    assert not list(judge(capped(fixed_slope(PLAIN))))


@pytest.mark.parametrize(
    ("more", "observed"),
    [
        # At most so much: the target's pages, ring and sentinel are taken for not charged …
        (-700, 2048 - 700 + 384),
        # … and at least so much, where they are taken for charged.
        (4000, 2048 - 2 * 512 - 256 + 4000),
    ],
)
def test_violated_where_the_draft_is_reserved_as_fixed(more: int, observed: int) -> None:
    """Red when a reserve is shown farther off than it is for certain."""
    (found,) = judge(capped(fixed_slope(PLAIN), more))
    assert found.expected == 2048 + 512
    assert found.observed == observed
    assert ("reserved page ±512; " in found.message) == (more < 0)


def test_not_applicable_without_a_draft() -> None:
    given = evidence(plan(deployment(4)))
    with pytest.raises(NotApplicable, match="nothing is reserved for a draft"):
        list(judge(given))


def test_not_judged_without_the_charge_where_it_is_fixed() -> None:
    given = bend_views(
        capped(fixed_slope(PLAIN)), 0, lambda view: dataclasses.replace(view, charge=None), at=1
    )
    with pytest.raises(NotJudged, match="rank 0 has no charge at 16640 tokens"):
        list(judge(given))


def test_not_judged_without_a_view() -> None:
    given = bend_rank(evidence(plan(PLAIN)), 0, lambda it: dataclasses.replace(it, at=it.at[:1]))
    with pytest.raises(NotJudged, match="rank 0 has no view at 16896 tokens"):
        list(judge(given))


def test_not_judged_when_an_untold_geometry_might_explain_it() -> None:
    """Red when a guard that cannot be told is taken for none."""

    def change(view: View) -> View:
        assert view.draft is not None
        twin = dataclasses.replace(view, pool=view.draft)
        return dataclasses.replace(view, draft=without_geometry(twin, "swa_kv").pool)

    with pytest.raises(NotJudged, match="does not tell what size swa_kv"):
        list(judge(bend_views(evidence(plan(PLAIN)), 0, change)))
