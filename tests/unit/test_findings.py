"""docs/findings.md and the bounds of the ledger follow from the measurements."""

from __future__ import annotations

import json
import re

import pytest

from contracts.hunt import bounds
from contracts.hunt.measure import FILE
from contracts.ledger import Entry, load, shipped
from contracts.report import findings
from contracts.subject.releases import NEWEST, RELEASES
from tests.by_hand import Line, lines, value

LEDGER = load(shipped())
MEASURED = json.loads(FILE.read_text(encoding="utf-8"))
AGAIN = "run: python -m contracts.report.findings"


def test_the_page_is_current() -> None:
    """Red when the ledger, the measurements or the text changes and docs/findings.md does not."""
    page = findings.page(LEDGER, MEASURED, findings.template())
    assert findings.PAGE.read_text(encoding="utf-8") == page, AGAIN
    assert "{{" not in page


def test_the_cases_are_current() -> None:
    """Red when a replay line of the page names a file that is not there, or another case."""
    kept = {path.name: path.read_text(encoding="utf-8") for path in findings.CASES.glob("*")}
    assert kept == dict(findings.cases(LEDGER)), AGAIN
    named = re.findall(r"docs/cases/(\S+)", findings.PAGE.read_text(encoding="utf-8"))
    assert set(named) == set(kept)


def test_all_releases_are_measured() -> None:
    """Red when a release is missing."""
    assert list(MEASURED) == list(RELEASES)


@pytest.mark.parametrize("entry", LEDGER.entries, ids=lambda entry: entry.name)
def test_an_entry_is_explained(entry: Entry) -> None:
    """Red when an entry's reference is no finding of the page."""
    page = findings.PAGE.read_text(encoding="utf-8")
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^## (.*)$", page, re.MULTILINE)
    }
    assert entry.reference.removeprefix("docs/findings.md#") in anchors


@pytest.mark.parametrize("entry", LEDGER.entries, ids=lambda entry: entry.name)
def test_an_entry_was_seen_on_each_of_its_releases(entry: Entry) -> None:
    """Red when an entry speaks of a release on which nothing was measured, or one without a factor
    of violations that have one."""
    for release in (name for name in RELEASES if name in entry.subjects):
        told = MEASURED[release]["contracts"][entry.contract]["entries"]
        mine = next(one for one in told if one["entry"] == entry.name)
        assert mine["findings"] > 0, release
        assert bool(mine["factor"]) == (entry.bound is not None), release


def test_no_bound_is_wider_than_measured() -> None:
    """Red when an entry bears more, or less, than was measured on its releases."""
    text = shipped().read_text(encoding="utf-8")
    assert bounds.tightened(text, LEDGER, MEASURED) == text, "run: python -m contracts.hunt.bounds"


def test_bounds_are_written_where_they_stand() -> None:
    """Red when a bound is not replaced, or another entry's is."""
    text = shipped().read_text(encoding="utf-8")
    wide = re.sub(r"^bound = [\d.]+$", "bound = 999.5", text, flags=re.MULTILINE)
    assert wide != text
    assert bounds.tightened(wide, LEDGER, MEASURED) == text


@pytest.mark.parametrize(
    ("factor", "bound"),
    [
        (2.0, 2.0),
        (1.44089, 1.4409),
        (433.48001, 433.4801),
        (1.0048021, 1.00481),
        (1.000000703, 1.00000071),
        (1.0, 1.0),
        # What rounding has moved by a hair must be borne too.
        (1.4409000000000003, 1.441),
    ],
)
def test_a_bound_is_rounded_up(factor: float, bound: float) -> None:
    """Red when a bound does not bear what was measured, or near 1 much more."""
    assert bounds.rounded_up(factor) == bound >= factor


@pytest.mark.parametrize("line", list(lines(findings.template())), ids=lambda line: line.name)
def test_what_is_worked_out_by_hand(line: Line) -> None:
    """Red when a sum of the page is wrong."""
    assert f"{float(value(line.formula)):,.{line.decimals}f}" == line.result


def test_the_worst_budget_by_hand() -> None:
    """Red when what the page works out of the newest release's worst budget is another's."""
    worst = MEASURED[NEWEST]["contracts"]["budget-fit"]["worst"]
    (line,) = [one for one in lines(findings.template()) if one.name == "SWA KV of the layer"]
    assert f"; swa_kv {line.result.replace(',', '')}; " in worst["message"]
    assert worst["deployment"]["server_args"]["swa_full_tokens_ratio"] == 0.77


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_is_unknown(release: str) -> None:
    """Red when a release violates a contract otherwise than the ledger knows, or one is not
    judged there: the gate would be red."""
    told = MEASURED[release]["contracts"]
    assert {name: one["unknown"] for name, one in told.items() if one["unknown"]} == {}
    assert {name: one["reason"] for name, one in told.items() if one["reason"]} == {}
