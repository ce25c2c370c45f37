"""docs/findings.md, from the ledger, the measurements and what there is to say about them.

    python -m contracts.report.findings       write docs/findings.md and docs/cases/

The text of each finding is in ``templates/findings.md``; the entries of the ledger that refer to
its heading give its table. Numbers come from docs/measurements.json, none are typed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from contracts.deployment import Deployment
from contracts.hunt.case import Case, file_name, written
from contracts.hunt.measure import CARDS, FILE, SERVED, factors_of, releases_of
from contracts.ledger import Entry, Ledger, load, shipped
from contracts.subject.releases import NEWEST

__all__ = ["CASES", "PAGE", "cases", "page"]

JSON = Any

_DOCS = FILE.parent
PAGE = _DOCS / "findings.md"
CASES = _DOCS / "cases"

#: The contracts whose worst case is told of each release.
_BUDGETS = ("budget-fit", "budget-use")


def page(ledger: Ledger, measurements: Mapping[str, JSON], template: str) -> str:
    """The page. What is in the newest release comes first, then what is history."""
    intro, *sections = re.split(r"^(?=## )", template, flags=re.MULTILINE)
    entries = {_anchor(section): _of(ledger, _anchor(section)) for section in sections}
    newest, history, general = [], [], []
    for section in sections:
        mine = entries[_anchor(section)]
        text = _filled(section, mine, measurements)
        if not mine:
            general.append(text)
        elif any(NEWEST in entry.subjects for entry in mine):
            newest.append(text)
        else:
            history.append(text)
    parts = [
        _filled(intro, (), measurements),
        "# In the newest release\n\n",
        *newest,
        "# History\n\n",
        *history,
        *general,
    ]
    return "".join(parts).rstrip() + "\n"


def _anchor(section: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    heading = section.splitlines()[0].removeprefix("## ").lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def _of(ledger: Ledger, anchor: str) -> tuple[Entry, ...]:
    reference = f"docs/findings.md#{anchor}"
    return tuple(entry for entry in ledger.entries if entry.reference == reference)


def _filled(text: str, entries: Sequence[Entry], measurements: Mapping[str, JSON]) -> str:
    text = text.replace("{{cards}}", "; ".join(f"{card.name}: {card.source}" for card in CARDS))
    text = text.replace("{{budgets}}", _budgets(measurements))
    text = text.replace("{{marginal}}", _marginal(measurements))
    return text.replace("{{entries}}", _table(entries, measurements))


def _table(entries: Sequence[Entry], measurements: Mapping[str, JSON]) -> str:
    heads = ["contract", "releases", "on deployments with", "worst factor"]
    heads += [f"on {card.name}" for card in CARDS]
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|---:|---|---|"]
    lines += [_row(entry, measurements) for entry in entries]
    lines += ["", "Seen again by:", ""]
    lines += [f"    {_replay(entry)}" for entry in entries]
    return "\n".join(lines)


def _row(entry: Entry, measurements: Mapping[str, JSON]) -> str:
    releases = releases_of(entry)
    factors = [one for one in factors_of(entry, measurements) if one is not None]
    last = measurements[releases[-1]]
    cells = [
        f"`{entry.contract}`",
        releases[0] if len(releases) == 1 else f"{releases[0]} to {releases[-1]}",
        f"`{entry.condition.text}`",
        _farthest(factors),
        *(_cost(entry, card.name, last) for card in CARDS),
    ]
    return f"| {' | '.join(cells)} |"


def _farthest(factors: Sequence[float]) -> str:
    """The factor farthest from 1; a factor of 0 is none that could be compared."""
    if not factors:
        return "no factor"
    far = max(factors, key=lambda factor: max(factor, 1 / factor) if factor else float("inf"))
    return f"×{far:.4g}"


def _cost(entry: Entry, card: str, measured: JSON) -> str:
    """Of the served models that an entry speaks of, the one on which most bytes are in question."""
    mine = [
        cost
        for cost in measured["cards"]
        if (cost["contract"], cost["card"]) == (entry.contract, card)
        and entry.is_met(SERVED[cost["served"]])
        and (not cost["factor"]) == (entry.bound is None)
    ]
    if not mine:
        return "–"
    most = max(mine, key=lambda cost: (cost["bytes"] or 0, cost["factor"] or 0))
    numbers = [] if most["bytes"] is None else [f"{most['bytes'] / 1e6:,.1f} MB"]
    numbers += [] if most["factor"] is None else [f"×{most['factor']:.4g}"]
    return f"{most['served']}: {', '.join(numbers)}" if numbers else str(most["served"])


def _replay(entry: Entry) -> str:
    name = file_name(entry.contract, entry.reproduce)
    return f"python -m contracts replay docs/cases/{name} --sglang {releases_of(entry)[-1]}"


def _budgets(measurements: Mapping[str, JSON]) -> str:
    heads = "| release | contract | violated | worst factor | deployment |"
    lines = [heads, "|---|---|---:|---:|---|"]
    for release, measured in measurements.items():
        for contract in _BUDGETS:
            told = measured["contracts"][contract]
            worst = told["worst"]
            count = f"{told['violated']} of {told['deployments']}"
            factor = f"×{worst['factor']:.4g}" if worst else "–"
            shown = str(Deployment.from_json(worst["deployment"])) if worst else ""
            lines.append(f"| {release} | `{contract}` | {count} | {factor} | {shown} |")
    return "\n".join(lines)


def _marginal(measurements: Mapping[str, JSON]) -> str:
    lines = ["| release | charged | allocated | factor | where |", "|---|---:|---:|---:|---|"]
    for release, measured in measurements.items():
        charged, allocated, parts = measured["marginal"].values()
        told = [f"{name} {one:.2f} → {other:.2f}" for name, (one, other) in parts.items()]
        numbers = f"{charged:.2f} | {allocated:.2f} | {charged / allocated:.4f}"
        lines.append(f"| {release} | {numbers} | {', '.join(told) or 'exact'} |")
    return "\n".join(lines)


def cases(ledger: Ledger) -> Iterator[tuple[str, str]]:
    """The case files that the page's lines replay: name and content."""
    for entry in ledger.entries:
        case = Case(
            contract=entry.contract,
            subject=releases_of(entry)[-1],
            baseline=None,
            deployment=entry.reproduce,
            message=f"known: {entry.reference}",
        )
        yield file_name(entry.contract, entry.reproduce), written(case)


def template() -> str:
    """What there is to say about the findings."""
    folder = resources.files("contracts.report") / "templates"
    return (folder / "findings.md").read_text(encoding="utf-8")


def main() -> None:
    """Write the page and its cases."""
    ledger = load(shipped())
    measurements = json.loads(FILE.read_text(encoding="utf-8"))
    PAGE.write_text(page(ledger, measurements, template()), encoding="utf-8")
    CASES.mkdir(exist_ok=True)
    kept = dict(cases(ledger))
    for old in set(CASES.glob("*.json")) - {CASES / name for name in kept}:
        old.unlink()
    for name, content in kept.items():
        (CASES / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
