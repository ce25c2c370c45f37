"""How a candidate stands to its baseline, and how that is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from contracts import law
from contracts.contract import Violation
from contracts.deployment import Deployment
from contracts.examination import Finding
from contracts.hunt.comparison import FAILING, Comparison, Standing, compare
from contracts.observation import SubjectInfo
from contracts.report import junit
from contracts.report.annotations import workflow_commands
from contracts.report.comparison import document, markdown, sentence
from contracts.survey import Named, Tally
from tests.unit import observations
from tests.unit.schemas import check

ONE = observations.deployment(0, 4, pp_size=2)
OTHER = observations.deployment(0, 4, 4, pp_size=2)
SLICE, UNCHANGED = law.get("stage-slice"), law.get("pp1-unchanged")
CANDIDATE = SubjectInfo(
    label="candidate",
    version="2",
    era="test",
    definitions={"configurator": ("sglang/a.py", 7), "pool": ("sglang/b.py", 9)},
)
BASELINE = SubjectInfo(label="baseline", version="1", era="test")


def finding(deployment: Deployment, factor: float | None, contract: str = "stage-slice") -> Finding:
    violation = Violation(
        contract=contract,
        rank=0,
        component=None,
        observed=2,
        expected=1,
        factor=factor,
        message=f"{contract}: 100% | <of> it",
    )
    return Finding(violation=violation, deployment=deployment, stages="[0,1)[1,2)")


HELD = "held"
GONE = "gone"
KNOWN = "known"
TOLD: dict[str, Any] = {HELD: None, "twice": 2.0, "half": 0.5, "thrice": 3.0, "in words": None}


def tally(contract: str = "stage-slice", **kinds: str) -> Tally:
    """A tally of ``one`` and ``other``: what is said of each."""
    made = Tally(contract)
    for name, kind in kinds.items():
        deployment = {"one": ONE, "other": OTHER}[name]
        if kind == GONE:
            made.rejected[deployment.key()] = None
            continue
        made.judged[deployment.key()] = None
        if kind != HELD:
            found = finding(deployment, TOLD.get(kind, 2.0), contract)
            made.violated[deployment.key()] = found
            if kind != KNOWN:
                made.unknown[deployment.key()] = found
    return made


def compared(ours: Tally, theirs: Tally | None, **options: Any) -> Comparison:
    contract = law.get(ours.contract)
    return compare(contract, [Named(ONE, "an example"), Named(OTHER)], ours, theirs, **options)


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (HELD, HELD, Standing.HELD),
        (HELD, "twice", Standing.FIXED),
        (HELD, GONE, Standing.HELD),
        ("twice", HELD, Standing.NEW),
        ("twice", "twice", Standing.SAME),
        ("twice", "half", Standing.SAME),
        ("twice", "thrice", Standing.SAME),
        ("thrice", "twice", Standing.WORSE),
        ("thrice", "half", Standing.WORSE),
        ("in words", "in words", Standing.SAME),
        ("twice", "in words", Standing.WORSE),
        ("twice", GONE, Standing.UNEXPLAINED),
        (KNOWN, HELD, Standing.SAME),
        (GONE, HELD, Standing.NOT_COMPARABLE),
        (GONE, "twice", Standing.NOT_COMPARABLE),
    ],
)
def test_a_deployment(now: str, before: str, expected: Standing) -> None:
    """Red when a deployment on candidate and baseline gets another standing than it has."""
    found = compared(tally(one=now, other=HELD), tally(one=before, other=HELD))
    assert found.examples == {"an example": expected}
    assert found.counts[expected] >= 1


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (("twice", HELD), ("thrice", "twice"), Standing.NEW),
        (("thrice", "twice"), ("twice", "twice"), Standing.WORSE),
        ((HELD, "twice"), ("twice", "twice"), Standing.SAME),
        ((HELD, "twice"), (HELD, HELD), Standing.FIXED),
        ((GONE, HELD), (HELD, HELD), Standing.HELD),
        ((GONE, HELD), (GONE, HELD), Standing.NOT_JUDGED),
    ],
)
def test_the_gravest_stands(
    one: tuple[str, str], other: tuple[str, str], expected: Standing
) -> None:
    """Red when a graver standing is hidden by one that is less grave."""
    found = compared(tally(one=one[0], other=other[0]), tally(one=one[1], other=other[1]))
    assert found.standing is expected
    assert found.fails is (expected in FAILING)


def test_what_broke_is_not_judged() -> None:
    """Red when a candidate on which judging broke off passes; what was seen before it stands."""
    broken = tally(one=HELD, other=HELD)
    broken.reason = "the worker died"
    assert compared(broken, tally(one=HELD)).standing is Standing.NOT_JUDGED
    broken = tally(one="twice", other=HELD)
    broken.reason = "the worker died"
    assert compared(broken, tally(one=HELD)).standing is Standing.NEW


def test_a_baseline_that_broke_explains_nothing() -> None:
    """Red when a violation passes because the baseline was not judged, or nobody says why."""
    broken = Tally("stage-slice", reason="no such function")
    found = compared(tally(one="twice", other=HELD), broken)
    assert (found.standing, found.reason) == (Standing.UNEXPLAINED, "baseline: no such function")


@pytest.mark.parametrize(
    ("expected", "standing"),
    [((), Standing.UNEXPLAINED), (("pp1-unchanged",), Standing.EXPECTED)],
)
def test_a_change(expected: tuple[str, ...], standing: Standing) -> None:
    """Red when a change at pp_size 1 passes without being expected, or fails although it is."""
    alone = ONE.single_rank()
    made = Tally("pp1-unchanged")
    made.judged[alone.key()] = None
    made.violated[alone.key()] = made.unknown[alone.key()] = finding(alone, 2.0, "pp1-unchanged")
    found = compare(UNCHANGED, [Named(ONE)], made, None, expected=expected)
    assert found.standing is standing


# -- how it is told --------------------------------------------------------------------------------


def comparison(standing: Standing, **changed: Any) -> Comparison:
    stated = {
        "contract": "stage-slice",
        "standing": standing,
        "counts": {standing: 3},
        "examples": {"flash-pp2": standing},
        "shown": (finding(ONE, 2.0),),
        "before": finding(ONE, 1.5),
    }
    return Comparison(**{**stated, **changed})


ALL = [comparison(standing) for standing in Standing]


@pytest.mark.parametrize("standing", Standing)
def test_json(standing: Standing) -> None:
    """Red when a comparison is written in another form than the schema's."""
    for given in (comparison(standing), comparison(standing, shown=(), before=None, reason="why")):
        written = document([given], CANDIDATE, BASELINE, profile="gate")
        check(json.loads(json.dumps(written)), "gate")
        assert written["fails"] is (standing in FAILING)


def test_junit(tmp_path: Path) -> None:
    """Red when the cases of a test report do not fail where the gate does."""
    junit.write(ALL, tmp_path / "gate.xml", candidate="candidate", baseline="baseline")
    cases = ET.parse(tmp_path / "gate.xml").getroot().findall("testsuite/testcase")
    told = [next((child.tag for child in case if child.tag != "system-out"), "") for case in cases]
    expected = {
        Standing.NOT_JUDGED: "error",
        **dict.fromkeys(FAILING - {Standing.NOT_JUDGED}, "failure"),
    }
    assert told == [expected.get(standing, "") for standing in Standing]


def test_annotations() -> None:
    """Red when an annotation is not on SGLang's line, or its text breaks the command."""
    new, pool = comparison(Standing.NEW), comparison(Standing.WORSE, contract="paging")
    first, second, third = workflow_commands(
        [pool, new, comparison(Standing.SAME), comparison(Standing.EXPECTED)], CANDIDATE.definitions
    )
    assert first == (
        "::error file=sglang/a.py,line=7,title=stage-slice%3A new::stage-slice: 100%25 | <of> it"
    )
    assert second.startswith("::error file=sglang/b.py,line=9,title=paging%3A worse::")
    assert third.startswith("::warning ")


def test_at_most_ten_annotations() -> None:
    """Red when more annotations are written than GitHub shows, or grave ones give way."""
    many = [comparison(Standing.UNEXPLAINED)] * 12 + [comparison(Standing.NEW)]
    commands = list(workflow_commands(many, CANDIDATE.definitions))
    assert len(commands) == 10
    assert "new" in commands[0]


def test_markdown() -> None:
    """Red when the summary's table breaks at a bar, or what fails has no section of its own."""
    text = markdown(ALL, CANDIDATE, BASELINE)
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert {line.count("|") - line.count("\\|") for line in rows} == {6}
    for standing in Standing:
        told = f"### `stage-slice`: {standing}" in text
        assert told is (standing in FAILING or standing is Standing.EXPECTED)
    assert "before: stage-slice" in text


def test_sentence() -> None:
    """Red when the sentence does not say what fails and what is fixed."""
    fixed = comparison(Standing.FIXED, contract="rank-sum")
    assert sentence([fixed], "a", "b") == (
        "a against b: nothing new, worse or unexplained; fixes rank-sum"
    )
    assert sentence([fixed, comparison(Standing.NEW)], "a", "b") == (
        "a against b: stage-slice (new); fixes rank-sum"
    )
