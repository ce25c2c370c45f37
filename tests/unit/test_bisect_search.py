"""The search for the first commit, on histories that exist only as numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import law
from contracts.contract import Request, Verdict, Violation
from contracts.examination import Finding
from contracts.hunt import bisect
from contracts.hunt.bisect import Judged, Search, Side, Verdicts, judged
from contracts.hunt.revisions import ExportError, History
from contracts.observation import Failed, Outcome, Refused, Unreadable
from tests.unit import observations

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=300)


def line(count: int) -> History:
    """So many commits, one after the other."""
    return {f"c{n}": (f"c{n - 1}",) for n in range(count)}


def reach(history: History, sha: str) -> set[str]:
    """A commit and all that come before it."""
    found: set[str] = set()
    ahead = [sha]
    while ahead:
        one = ahead.pop()
        if one in history and one not in found:
            found.add(one)
            ahead += history[one]
    return found


def searched(
    history: History, first: str, skipped: Collection[str] = ()
) -> tuple[tuple[str, ...], list[str]]:
    """What a search for ``first`` ends in, and the commits that it looked at."""
    newer = {sha for sha in history if first in reach(history, sha)}
    search, looked = Search(history), []
    while (sha := search.next()) is not None:
        looked.append(sha)
        side = Side.NEWER if sha in newer else Side.OLDER
        search.tell(sha, Side.UNKNOWN if sha in skipped else side)
    return search.candidates, looked


# -- which commit next -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 60, 64, 65])
def test_a_line(count: int) -> None:
    """Red when the first is missed, or looked for in more steps than halving takes."""
    history = line(count)
    for first in history:
        found, looked = searched(history, first)
        assert found == (first,)
        assert len(looked) <= (count - 1).bit_length()


def test_sixty_commits_take_eight() -> None:
    """Red when more than 8 of 60 commits are judged, the two ends included: 59 lie after the good
    one, and the bad one is the last of them."""
    assert max(2 + len(searched(line(59), first)[1]) for first in line(59)) <= 8


def test_what_is_said_to_be_left_comes_true() -> None:
    """Red when the range or the number of steps that are shown is not what comes."""
    search = Search(line(60))
    assert (search.left, search.steps) == (60, 6)
    search.tell("c29", Side.OLDER)
    assert (search.left, search.steps) == (30, 5)
    search.tell("c44", Side.NEWER)
    assert (search.left, search.steps, search.candidates[-1]) == (15, 4, "c44")


@st.composite
def planted(draw: st.DrawFn) -> tuple[History, str, frozenset[str]]:
    """A history with merges of which the last commit is the newer end, the first commit that is
    like it, and commits that cannot be told."""
    count = draw(st.integers(1, 40))
    history: dict[str, tuple[str, ...]] = {}
    heads: set[str] = set()
    for n in range(count):
        near = st.integers(max(-1, n - 6), n - 1)
        parents = tuple(f"c{p}" for p in sorted(draw(st.sets(near, min_size=1, max_size=3))))
        history[f"c{n}"] = parents
        heads = heads.difference(parents) | {f"c{n}"}
    history["end"] = tuple(sorted(heads))
    shas = sorted(history)
    skipped = draw(st.frozensets(st.sampled_from(shas))) - {"end"}
    return history, draw(st.sampled_from(shas)), skipped


@FIXED
@given(planted())
def test_histories_with_merges(case: tuple[History, str, frozenset[str]]) -> None:
    """Red when a merge leads the search astray, it looks twice at a commit, or it gives one commit
    where others that could not be told are left."""
    history, first, skipped = case
    found, looked = searched(history, first)
    assert found == (first,)
    found, looked = searched(history, first, skipped)
    assert len(set(looked)) == len(looked)
    assert first in found
    assert set(found[:-1]) <= skipped
    assert found[-1] not in skipped


def test_a_side_branch_that_is_merged() -> None:
    """Red when what came in with a merge is not found on its side branch."""
    history: History = {
        "main1": ("good",),
        "side1": ("good",),
        "side2": ("side1",),
        "main2": ("main1",),
        "merge": ("main2", "side2"),
        "end": ("merge",),
    }
    for first in history:
        assert searched(history, first)[0] == (first,)
    search = Search(history)
    search.tell("main2", Side.NEWER)
    assert search.candidates == ("main1", "main2")


def test_a_run_that_cannot_be_told_is_jumped_over() -> None:
    """Red when the search walks through commits that all cannot be judged, one by one."""
    history = line(60)
    broken = {f"c{n}" for n in range(22, 38)}
    for n in (0, 10, 45, 59):
        found, looked = searched(history, f"c{n}", broken)
        assert found == (f"c{n}",)
        assert len(looked) <= 8
        assert len(broken.intersection(looked)) == 1


def test_only_commits_that_cannot_be_told_are_left() -> None:
    """Red when one commit is named where it might be another, or more are named than might."""
    found, _ = searched(line(60), "c30", {"c28", "c29", "c30", "c50"})
    assert found == ("c28", "c29", "c30", "c31")
    assert searched(line(3), "c1", {"c0", "c1"})[0] == ("c0", "c1", "c2")


def test_a_search_is_the_same_every_time() -> None:
    """Red when a second run looks at other commits, for which there are no verdicts yet."""
    broken = {f"c{n}" for n in range(0, 60, 3)}
    assert searched(line(60), "c33", broken) == searched(line(60), "c33", broken)


def test_a_long_history_is_quick() -> None:
    """Red when the search is of more than a few thousand commits in name only."""
    found, looked = searched_far(line(20_000), 12_345)
    assert (found, len(looked)) == (("c12345",), 14)


def searched_far(history: History, first: int) -> tuple[tuple[str, ...], list[str]]:
    """As ``searched``, of a line."""
    search, looked = Search(history), []
    while (sha := search.next()) is not None:
        looked.append(sha)
        search.tell(sha, Side.NEWER if int(sha[1:]) >= first else Side.OLDER)
    return search.candidates, looked


# -- what a verdict is -----------------------------------------------------------------------------

DEPLOYMENT = observations.deployment(0, 4, pp_size=2)
SAID = {"where": "sizing", "kind": "ValueError", "sentence": "I would rather not."}


class Told:
    """An observer that answers as it is told."""

    def __init__(self, outcome: Outcome | None = None) -> None:
        self._outcome = outcome

    def observe(self, request: Request) -> Outcome:
        return self._outcome or observations.observe(request)


def asked(outcome: Outcome | None = None, contract: str = "stage-slice") -> Judged:
    return judged(law.get(contract), DEPLOYMENT, Told(outcome))


def test_held() -> None:
    """Red when a contract that holds is not said to."""
    assert asked() == Judged(verdict=Verdict.HELD)


@pytest.mark.parametrize(
    ("outcome", "reason", "lasting"),
    [
        (Refused(**SAID), "SGLang refuses the deployment: ValueError: I would rather not.", True),
        (Failed(**SAID, traceback="…"), "sizing failed: ValueError: I would rather not.", True),
        (Unreadable(reason="sizing: KeyError: 3", traceback="…"), "sizing: KeyError: 3", True),
        (Unreadable(reason="import: SyntaxError: :"), "import: SyntaxError: :", True),
        (Unreadable(reason="the worker died by SIGKILL"), "the worker died by SIGKILL", False),
        (Unreadable(reason="the worker gave no answer"), "the worker gave no answer", False),
    ],
)
def test_not_judged(outcome: Outcome, reason: str, lasting: bool) -> None:
    """Red when what cannot be judged passes for held or violated, or when a passing trouble, such
    as a machine without memory, is kept as the commit's own."""
    assert asked(outcome) == Judged(verdict=Verdict.NOT_JUDGED, reason=reason, lasting=lasting)


def test_without_a_baseline_nothing_is_compared() -> None:
    """Red when a contract that compares holds where there is nothing to compare with."""
    assert asked(contract="pp1-unchanged").verdict is Verdict.NOT_JUDGED


def test_a_baseline_that_is_lost() -> None:
    """Red when the death of the baseline's worker is kept as the commit's verdict."""
    lost = Told(Unreadable(reason="the worker died by SIGKILL"))
    found = judged(law.get("pp1-unchanged"), DEPLOYMENT, Told(), lost)
    assert (found.verdict, found.lasting) == (Verdict.NOT_JUDGED, False)


# -- what is kept of it ----------------------------------------------------------------------------

SHA = "0123456789" * 4


def found(observed: object = 2, expected: object = 1) -> Judged:
    violation = Violation(
        contract="stage-slice",
        rank=1,
        component=None,
        observed=observed,
        expected=expected,
        factor=2.0,
        message="stage-slice: rank 1 of 2: …",
    )
    return Judged(
        verdict=Verdict.VIOLATED,
        finding=Finding(violation=violation, deployment=DEPLOYMENT, stages="[0,1)[1,2)"),
    )


@pytest.mark.parametrize(
    "one",
    [
        found(),
        found("(0, 4)", "(4,)"),
        Judged(verdict=Verdict.HELD),
        Judged(verdict=Verdict.NOT_JUDGED, reason="import: SyntaxError: …"),
    ],
    ids=["numbers", "texts", "held", "not judged"],
)
def test_a_verdict_goes_round(one: Judged, tmp_path: Path) -> None:
    """Red when what a later run reads is not what was judged, or something else is left behind."""
    Verdicts("stage-slice", "key", root=tmp_path).put(SHA, one)
    assert Verdicts("stage-slice", "key", root=tmp_path).get(SHA) == one
    assert [path.name for path in tmp_path.rglob("*.*")] == [f"{SHA}.json"]


def test_another_question_has_other_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red when a verdict answers for another contract, deployment, device, baseline or commit, for
    another environment, or for another version of this suite."""
    Verdicts("stage-slice", "key", "meta", None, root=tmp_path).put(SHA, found())

    def known(*asked: str | None, sha: str = SHA) -> bool:
        return Verdicts(*asked, root=tmp_path).get(sha) is not None

    assert known("stage-slice", "key", "meta", None)
    assert not known("stage-slice", "key", "meta", None, sha=SHA[::-1])
    assert not known("rank-sum", "key", "meta", None)
    assert not known("stage-slice", "other", "meta", None)
    assert not known("stage-slice", "key", "cuda", None)
    assert not known("stage-slice", "key", "meta", "0.5.12")
    with monkeypatch.context() as changed:
        changed.setenv("SGLANG_OPT_USE_SOMETHING", "1")
        assert not known("stage-slice", "key", "meta", None)
    with monkeypatch.context() as changed:
        changed.setattr(bisect, "_suite", lambda: {"suite": "another"})
        assert not known("stage-slice", "key", "meta", None)


def test_the_suite_is_all_of_its_code() -> None:
    """Red when a changed judge would not be noticed, or a run would not find its own verdicts."""
    said = bisect._suite()
    assert {"suite", "python", "torch", "hypothesis"} <= set(said)
    assert said == bisect._suite()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"verdict": "held"}', "\x00"])
def test_a_file_that_is_no_verdict(text: str, tmp_path: Path) -> None:
    """Red when what somebody else wrote, or half of a file, ends a run or counts as a verdict."""
    kept = Verdicts("stage-slice", "key", root=tmp_path)
    kept.put(SHA, found())
    (path,) = tmp_path.rglob("*.json")
    path.write_text(text, encoding="utf-8")
    assert kept.get(SHA) is None
    kept.put(SHA, found())
    assert json.loads(path.read_text(encoding="utf-8"))["verdict"] == "violated"


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red when a verdict that cannot be written is a traceback, or leaves half a file."""
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ExportError, match=r"a verdict cannot be written .*: No space left") as said:
        Verdicts("stage-slice", root=tmp_path).put(SHA, found())
    assert "SGLANG_POOL_CONTRACTS_CACHE names another" in str(said.value)
    assert not list(tmp_path.rglob("*.*"))


def full(*_: object) -> None:
    raise OSError(28, os.strerror(28))
