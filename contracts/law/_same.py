"""Two observations of one deployment at pp_size 1, compared in everything that can be observed."""

from __future__ import annotations

from collections.abc import Iterator

from contracts.contract import NotJudged, Violation
from contracts.law import _needs, _rounding
from contracts.law._say import ratio_lists, violation
from contracts.observation import Component, Configurator, Observation, Pool, View

__all__ = ["differences"]

_ONE_RANK = 1


def differences(
    contract: str, observed: Observation, expected: Observation, *, source: str
) -> Iterator[Violation]:
    """What differs: first the capacity, then what it was computed from, then the buffers.

    ``source`` names the expected side.

    Raises:
        NotJudged: nothing differs, but one side lacks a number that the other has.
    """
    for side in (observed, expected):
        if len(side.ranks) != _ONE_RANK:
            raise NotJudged(f"an observation at pp_size 1 has {len(side.ranks)} ranks")
    ours, theirs = observed.ranks[0], expected.ranks[0]
    views = (_needs.final(ours), _needs.final(theirs))
    both = _Both(contract, source)
    both.number("final tokens", observed.final_tokens, expected.final_tokens)
    _compare_sizes(both, *views)
    _compare_charges(both, ours.configurator, theirs.configurator)
    both.ratios("configurator", ours.configurator.ratios, theirs.configurator.ratios)
    both.ratios("pool", views[0].pool.stage_ratios, views[1].pool.stage_ratios)
    _compare_pools(both, "", views[0].pool, views[1].pool)
    _compare_drafts(both, *views)
    yield from both.found
    if both.undecided and not both.found:
        raise NotJudged(f"only one side has a number for: {', '.join(both.undecided)}")


class _Both:
    """Collects what differs, and what cannot be compared because one side lacks it."""

    def __init__(self, contract: str, source: str) -> None:
        self._contract = contract
        self._source = source
        self.found: list[Violation] = []
        self.undecided: list[str] = []

    def number(
        self, what: str, observed: int | None, expected: int | None, component: str | None = None
    ) -> None:
        if observed == expected:
            return
        if observed is None or expected is None:
            self.undecided.append(what)
        else:
            self.differs(what, observed, expected, component=component)

    def charge(self, what: str, observed: float, expected: float) -> None:
        # Two orders of the same additions may differ in the last digits, and mean the same.
        slack = _rounding.float_rounding(observed) + _rounding.float_rounding(expected)
        if abs(observed - expected) > slack:
            self.differs(what, observed, expected, details=(_rounding.say(slack),))

    def ratios(self, whose: str, observed: tuple[int, ...], expected: tuple[int, ...]) -> None:
        if observed != expected:
            shown, wanted, ratio = ratio_lists(observed, expected)
            self.differs(f"{whose}'s ratios", shown, wanted, ratio=ratio)

    def differs(
        self,
        what: str,
        observed: float | str,
        expected: float | str,
        *,
        component: str | None = None,
        ratio: float | None = None,
        details: tuple[str, ...] = (),
    ) -> None:
        self.found.append(
            violation(
                self._contract,
                rank=0,
                of=_ONE_RANK,
                what=what,
                observed=observed,
                expected=expected,
                source=self._source,
                component=component,
                ratio=ratio,
                details=details,
            )
        )


def _compare_sizes(both: _Both, ours: View, theirs: View) -> None:
    for name in {**theirs.sizes, **ours.sizes}:
        both.number(f"{name} size", ours.sizes.get(name), theirs.sizes.get(name))
    both.number("max_running_requests", ours.max_running_requests, theirs.max_running_requests)


def _compare_charges(both: _Both, ours: Configurator, theirs: Configurator) -> None:
    what = "bytes charged per full token"
    both.charge(what, ours.bytes_per_full_token, theirs.bytes_per_full_token)
    target = (ours.target_bytes_per_full_token, theirs.target_bytes_per_full_token)
    both.charge(f"{what} without the draft", *target)
    for kind in {**theirs.layers, **ours.layers}:
        both.number(f"{kind} layers charged", ours.layers.get(kind, 0), theirs.layers.get(kind, 0))


def _compare_pools(both: _Both, owner: str, ours: Pool, theirs: Pool) -> None:
    for name in {**theirs.components, **ours.components}:
        one, other = ours.components.get(name), theirs.components.get(name)
        _compare_components(both, owner + name, one, other)


def _compare_components(
    both: _Both, name: str, ours: Component | None, theirs: Component | None
) -> None:
    if ours is None or theirs is None:
        # A component of no buffers says no more than one that is not mentioned.
        if any(one is not None and one.buffers for one in (ours, theirs)):
            both.differs(name, _presence(ours), _presence(theirs), component=name)
        return
    for unit in ("bytes", "rows", "buffers"):
        observed, expected = getattr(ours, unit), getattr(theirs, unit)
        if observed != expected:
            # More layers or tokens change all three; the first says it.
            both.number(f"{name} {unit}", observed, expected, name)
            return


def _presence(component: Component | None) -> str:
    if component is None:
        return "absent"
    return f"{component.bytes} bytes in {component.buffers} buffers"


def _compare_drafts(both: _Both, ours: View, theirs: View) -> None:
    if ours.draft is None or theirs.draft is None:
        sides = [
            "absent" if view.draft is None else f"{view.draft.bytes} bytes"
            for view in (ours, theirs)
        ]
        if sides[0] != sides[1]:
            both.differs("draft pool", sides[0], sides[1], component="draft")
        return
    both.ratios("draft pool", ours.draft.stage_ratios, theirs.draft.stage_ratios)
    _compare_pools(both, "draft.", ours.draft, theirs.draft)
