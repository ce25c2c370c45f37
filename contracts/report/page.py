"""The matrix as a page: one file for a browser, without network.

What is shown is computed here; the templates only place it. Texts come from subjects, and none of
them is ever taken for markup: Jinja escapes, and the script sets texts alone.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from packaging.version import InvalidVersion, Version

from contracts import law
from contracts.contract import Verdict
from contracts.deployment import Deployment
from contracts.hunt.case import Case, file_name, written
from contracts.report.capacity import FRAME, models, number
from contracts.report.violation import replay_line
from contracts.survey import distance
from contracts.units import format_bytes

__all__ = ["page"]

JSON = Any


def page(document: JSON) -> str:
    """The page of a matrix (docs/matrix.schema.json)."""
    records = document["records"]
    rows = [_row(name, records) for name in _contracts(records)]
    cells = {row.contract: [cell.detail for cell in row.cells] for row in rows}
    environment = _environment()
    style = environment.get_template("page.css").render(columns=len(records))
    script = environment.get_template("page.js").render()
    return environment.get_template("page.html").render(
        style=Markup(style),  # noqa: S704 - ours, and without anything of a subject
        script=Markup(script),  # noqa: S704
        policy=f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        labels=[record["subject"]["label"] for record in records],
        facts=_facts(records),
        newest=_newest(records),
        groups=_grouped(rows),
        tallies=[_tally(record) for record in records],
        statements={row.contract: law.ALL.get(row.contract) for row in rows},
        models=models(records),
        scale=_SCALE,
        frame=FRAME,
        data={"cells": cells},
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("contracts.report"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # A reader of a downloaded case expects its fields in the order of any other case.
    environment.policies["json.dumps_kwargs"] = {
        "sort_keys": False,
        "allow_nan": False,
        "separators": (",", ":"),
    }
    environment.filters["code"] = _code
    environment.filters["breakable"] = _breakable
    return environment


def _digest(text: str) -> str:
    """What a content security policy calls a script or style that stands in the page."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _code(text: str) -> Markup:
    """A text with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


def _breakable(label: str) -> Markup:
    """A label that may go on in a second line where its second part begins."""
    return Markup(re.sub(r"(?=\.post|@)", "<wbr>", str(escape(label))))  # noqa: S704 - escaped


# -- the head --------------------------------------------------------------------------------------


def _facts(records: Sequence[JSON]) -> list[tuple[str, str]]:
    labels = [record["subject"]["label"] for record in records]
    contracts = [contract for record in records for contract in record["contracts"]]
    tried = max((one["deployments"] + one["rejected"] for one in contracts), default=0)
    missing = dict.fromkeys(filter(None, map(_missing_shards, records)))
    facts = [
        ("subjects", _span(labels)),
        ("contracts", str(len(_contracts(records)))),
        ("deployments a cell", f"up to {tried:,}"),
        ("judgements", f"{sum(one['deployments'] for one in contracts):,}"),
        ("profile", _stated("profile", records)),
        ("device", _stated("device", records)),
        ("suite", _stated("suite", records)),
    ]
    return [*facts, ("not all is in", ", ".join(missing))] if missing else facts


def _stated(field: str, records: Sequence[JSON]) -> str:
    return ", ".join(dict.fromkeys(record[field] for record in records))


def _missing_shards(record: JSON) -> str:
    """Which shares of the deployments nobody has judged yet, in words."""
    of, have = record["shards"]["of"], record["shards"]["have"]
    missing = [str(index) for index in range(1, of + 1) if index not in have]
    return f"shards {', '.join(missing)} of {of} are missing" if missing else ""


def _span(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) < 3 else f"{len(labels)}, {labels[0]} to {labels[-1]}"


def _newest(records: Sequence[JSON]) -> str:
    """The last subject's verdicts in a sentence."""
    if not records:
        return "There are no records."
    tally = _tally(records[-1])
    counts = [f"{count} {kind}" for kind, count in tally.items() if count]
    return f"{records[-1]['subject']['label']}: {', '.join(counts)}."


def _tally(record: JSON) -> dict[str, int]:
    verdicts = [contract["verdict"] for contract in record["contracts"]]
    return {str(kind): verdicts.count(kind) for kind in Verdict}


# -- the heat map ----------------------------------------------------------------------------------

#: Contracts by what they speak of; their order is that of contracts.law.
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Stages and layers": ("stage-partition", "stage-slice", "layer-counts"),
    "What a token is charged": ("marginal-bytes", "fixed-bytes", "rank-sum"),
    "Without a pipeline": ("pp1-identity", "pp1-unchanged"),
    "The budget": ("budget-fit", "budget-use", "draft-reserve"),
    "Rows and pages": ("state-rows", "paging"),
    "Capacity": ("capacity-agreement", "monotone", "refusal"),
    "What others are told": ("reported-bytes", "transfer-buffers"),
}

#: The upper ends of the scale's steps, as factors; reciprocals are as far from 1. No end beyond.
_ENDS = (1.01, 1.1, 2.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """A contract on a subject: what is shown and said of it, and what the dialog tells."""

    name: str
    said: str
    shown: str
    heat: str
    detail: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    contract: str
    cells: tuple[_Cell, ...]


def _contracts(records: Sequence[JSON]) -> list[str]:
    """All that were tried on any subject, in the order of the law."""
    tried = {contract["id"]: None for record in records for contract in record["contracts"]}
    known = [name for name in law.ALL if name in tried]
    return [*known, *(name for name in tried if name not in law.ALL)]


def _grouped(rows: Sequence[_Row]) -> list[tuple[str, list[_Row]]]:
    of = {name: title for title, names in _GROUPS.items() for name in names}
    titles = [*_GROUPS, "Others"]
    grouped = [
        (title, [row for row in rows if of.get(row.contract, "Others") == title])
        for title in titles
    ]
    return [(title, found) for title, found in grouped if found]


def _row(name: str, records: Sequence[JSON]) -> _Row:
    cells = (_cell(name, record) for record in records)
    return _Row(contract=name, cells=tuple(cells))


def _cell(name: str, record: JSON) -> _Cell:
    found = next((one for one in record["contracts"] if one["id"] == name), None)
    said, shown, heat = _look(found)
    label = record["subject"]["label"]
    detail = {
        "name": f"{name} on {label}",
        "contract": name,
        "subject": label,
        "said": said,
        "shown": shown,
        "heat": heat,
        **(_untried(name, record) if found is None else _found(record, found)),
    }
    return _Cell(name=detail["name"], said=said, shown=shown, heat=heat, detail=detail)


def _look(found: JSON | None) -> tuple[str, str, str]:
    """What is said and shown of a contract's verdict, and the name of its colour."""
    if found is None:
        return "not tried", "–", "untried"
    verdict = Verdict(found["verdict"])
    if verdict is Verdict.HELD:
        return str(verdict), "✓", "held"
    if verdict is Verdict.NOT_JUDGED:
        return str(verdict), "?", "unjudged"
    factor = found["worst"] and found["worst"]["factor"]
    if factor is None:
        return f"{verdict}, without a factor", "✗", "plain"
    return f"{verdict}, factor {number(factor)}", f"×{number(factor)}", _heat(factor)


def _heat(factor: float) -> str:
    """Which side of 1 a factor is on, and how far."""
    away = distance(factor)
    step = sum(away > math.log(end) * (1 + 1e-12) for end in _ENDS)
    return f"{'under' if factor < 1 else 'over'}-{step + 1}"


def _scale() -> list[tuple[str, str, str]]:
    """The legend: colours from far below 1 to far above, with what stands for the step."""
    texts = [f"×{number(end)}" for end in _ENDS]
    below = [f"×{1 / end:.2g}" for end in _ENDS]
    over = [("over-1", "×1", texts[0]), *_steps("over", texts), ("over-5", texts[-1], "more")]
    under = [("under-1", below[0], "×1"), *_steps("under", below), ("under-5", "×0", below[-1])]
    return [*reversed(under), *over]


def _steps(side: str, texts: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    for step, (near, far) in enumerate(itertools.pairwise(texts), start=2):
        yield (f"{side}-{step}", *((near, far) if side == "over" else (far, near)))


_SCALE = _scale()


# -- what a cell opens -----------------------------------------------------------------------------


def _untried(name: str, record: JSON) -> JSON:
    contract = law.ALL.get(name)
    compares = contract is not None and contract.needs_baseline and record["baseline"] is None
    reason = (
        "It compares with the subject before, and there is none."
        if compares
        else "It was not asked for."
    )
    return {"reason": reason, "counts": None, "worst": None}


def _found(record: JSON, found: JSON) -> JSON:
    worst = found["worst"] and _worst(record, found["id"], found["worst"])
    reason = found["reason"]
    if reason is None and found["verdict"] == Verdict.NOT_JUDGED and _missing_shards(record):
        reason = f"Not all deployments were judged: {_missing_shards(record)}."
    return {"reason": reason, "counts": _counted(found), "worst": worst}


def _counted(found: JSON) -> str:
    judged, violated, rejected = found["deployments"], found["violated"], found["rejected"]
    said = f"{judged:,} deployments judged" if judged else "No deployment was judged"
    if judged:
        said += f"; {violated:,} of them violate it" if violated else "; none violates it"
    return f"{said}. SGLang refused {rejected:,} more." if rejected else f"{said}."


def _worst(record: JSON, contract: str, worst: JSON) -> JSON:
    compares = contract in law.ALL and law.ALL[contract].needs_baseline
    case = Case(
        contract=contract,
        subject=record["subject"]["label"],
        baseline=record["baseline"] if compares else None,
        deployment=Deployment.from_json(worst["deployment"]),
        message=worst["message"],
    )
    return {
        "rank": worst["rank"],
        "bytes": _disagreeing(worst["bytes"], worst["rank"]),
        "words": _words(case.deployment, worst["example"]),
        "stages": worst["stages"],
        "rows": worst["rows"] and [_shown(row) for row in worst["rows"]],
        "case": json.loads(written(case)),
        **_commands(case),
    }


def _disagreeing(count: int | None, rank: int | None) -> str:
    if count is None:
        return ""
    exact = f" ({count:,} bytes)" if abs(count) >= 1024 else ""
    where = "" if rank is None else f" on rank {rank}"
    return f"{format_bytes(count)}{exact} disagree{where}."


def _commands(case: Case) -> JSON:
    """The case's file and the lines that show it again. A label that names no SGLang leaves its
    path to the reader."""
    file = file_name(case.contract, case.deployment)
    replay = replay_line(Path(file))
    if not _names(case.subject):
        replay += " --sglang PATH"
    if case.baseline is not None and not _names(case.baseline):
        replay += " --baseline PATH"
    named = shlex.quote(case.subject) if _names(case.subject) else "PATH"
    unnamed = [label for label in (case.subject, case.baseline) if label and not _names(label)]
    return {
        "file": file,
        "replay": replay,
        "observe": f"python -m contracts observe --sglang {named} --deployment {file}",
        "unnamed": " and of ".join(unnamed),
    }


def _names(label: str) -> bool:
    """Whether a label can be given as --sglang: that of a checkout only describes it."""
    try:
        Version(label)
    except InvalidVersion:
        return "/" in label
    return True


def _words(deployment: Deployment, example: str | None) -> list[tuple[str, str]]:
    """A deployment as terms and texts; what is as always is left out."""
    model, speculation = deployment.model, deployment.speculation
    counts = Counter(model.decoder_ratios)
    stated = speculation.server_args() if speculation else {}
    words = {
        "seen in the field": example,
        "model": f"{model.name}, {model.num_hidden_layers} layers",
        "compress ratios": ", ".join(f"{ratio} (×{counts[ratio]})" for ratio in sorted(counts)),
        "sliding window": str(model.sliding_window) if model.sliding_window != 128 else None,
        "pipeline": f"{deployment.pp_size} ranks" if deployment.pp_size > 1 else "1 rank",
        "partition": deployment.partition and ", ".join(map(str, deployment.partition)),
        "speculation": _listed(stated),
        "server arguments": _listed(deployment.server_args),
        "environment": _listed(deployment.env),
        "budget of a rank": f"{format_bytes(deployment.budget)} ({deployment.budget:,} bytes)",
    }
    return [(term, text) for term, text in words.items() if text]


def _listed(mapping: Mapping[str, JSON]) -> str:
    return ", ".join(f"{name} {value}" for name, value in mapping.items())


def _shown(row: JSON) -> JSON:
    factor = row["factor"]
    exact = factor is None or factor == 1
    return {
        **row,
        "shown": "" if factor is None else f"×{number(factor)}",
        "heat": "exact" if exact else _heat(factor),
    }
