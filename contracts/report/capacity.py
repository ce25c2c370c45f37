"""The capacities of a matrix as plots: a line a pipeline size, a panel a card, by subject."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contracts.units import format_bytes

__all__ = ["FRAME", "models", "number"]

JSON = Any


def number(factor: float) -> str:
    """A factor that fits a cell. One that is not 1 never looks as if it were."""
    if factor != 1 and abs(factor - 1) < 0.0005:
        away, _, exponent = f"{abs(factor - 1):.0e}".partition("e")
        return f"1{'−' if factor < 1 else '+'}{away}e{int(exponent)}"
    if 0.9 < factor < 1.1:
        return f"{factor:.4g}"
    return re.sub(r"e([+-])0*", lambda found: f"e{found[1].strip('+')}", f"{factor:.3g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """The size of a plot and the edges of its inside, in its own units (pixels if not scaled).
    Beside it are the labels of the lines, below those of the subjects."""

    width: int = 580
    height: int = 260
    left: int = 44
    right: int = 454
    top: int = 12
    bottom: int = 198


FRAME = _Frame()
#: A label's height: nearer than this they would overlap.
_LINE = 15
#: More labels than this do not fit below a plot.
_MOST_LABELS = 24
_MILLION = 1_000_000
#: The scale's end is as many times its beginning, or more: there are always some lines to compare.
_LEAST_SPAN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The capacities of one pipeline size: paths between refusals, points, and a label."""

    shade: int
    paths: tuple[str, ...]
    points: tuple[tuple[float, float], ...]
    label: str
    label_y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One subject in a plot. ``refused`` is ``all``, ``some`` or empty."""

    x: float
    left: float
    width: float
    label: str
    tip: str
    refused: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    card: str
    columns: tuple[_Column, ...]
    ticks: tuple[tuple[float, str], ...]
    lines: tuple[_Line, ...]
    missing: str
    voids: tuple[float, ...]
    """The middles of wide stretches without any capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """The plots of a model, one a card, and the same as a table."""

    name: str
    panels: tuple[_Panel, ...]
    numbers: tuple[tuple[str, int, tuple[str, ...]], ...]
    refusals: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Capacities:
    """What is known of one model: an answer for each subject, card and pipeline size."""

    labels: tuple[str, ...]
    answers: Mapping[tuple[int, int, int], JSON]

    @property
    def cards(self) -> list[int]:
        return sorted({budget for _, budget, _ in self.answers})

    @property
    def pp_sizes(self) -> list[int]:
        return sorted({pp_size for _, _, pp_size in self.answers})

    def tokens(self, subject: int, card: int, pp_size: int) -> int | None:
        answer = self.answers.get((subject, card, pp_size))
        # 0 tokens would be no capacity and have no logarithm.
        return (answer and answer["tokens"]) or None

    def why_not(self, subject: int, card: int, pp_size: int) -> str:
        answer = self.answers.get((subject, card, pp_size))
        if answer is None:
            return "not asked"
        return " ".join((answer["reason"] or "no token count").split())


def models(records: Sequence[JSON]) -> list[_Model]:
    """The plots of each model that any record has a capacity of."""
    labels = tuple(record["subject"]["label"] for record in records)
    names = dict.fromkeys(one["model"] for record in records for one in record["capacities"])
    return [_model(name, _Capacities(labels, dict(_answers(name, records)))) for name in names]


def _answers(name: str, records: Sequence[JSON]) -> Iterator[tuple[tuple[int, int, int], JSON]]:
    for subject, record in enumerate(records):
        for one in record["capacities"]:
            if one["model"] == name:
                yield (subject, one["budget"], one["pp_size"]), one


def _model(name: str, found: _Capacities) -> _Model:
    known = [answer["tokens"] for answer in found.answers.values() if answer["tokens"]]
    low, high = float(min(known, default=_MILLION)), float(max(known, default=_MILLION))
    high *= 1.15
    low = min(low / 1.3, high / _LEAST_SPAN)
    return _Model(
        name=name,
        panels=tuple(_panel(found, card, low, high) for card in found.cards),
        numbers=tuple(
            (format_bytes(card), pp_size, tuple(_numbers(found, card, pp_size)))
            for card in found.cards
            for pp_size in found.pp_sizes
        ),
        refusals=tuple(_refusals(found)),
    )


def _numbers(found: _Capacities, card: int, pp_size: int) -> Iterator[str]:
    for subject, _ in enumerate(found.labels):
        tokens = found.tokens(subject, card, pp_size)
        yield "none" if tokens is None else f"{tokens:,}"


def _refusals(found: _Capacities) -> Iterator[tuple[str, str]]:
    """Each sentence by which there is no capacity, with where it was said."""
    said: dict[str, list[str]] = {}
    for subject, label in enumerate(found.labels):
        missing = {
            found.why_not(subject, card, pp_size): None
            for card in found.cards
            for pp_size in found.pp_sizes
            if found.tokens(subject, card, pp_size) is None
        }
        for sentence in missing:
            said.setdefault(sentence, []).append(label)
    for sentence, labels in said.items():
        yield _where(labels, found.labels), textwrap.shorten(sentence, 400, placeholder=" …")


def _where(labels: Sequence[str], among: Sequence[str]) -> str:
    start = among.index(labels[0])
    if len(labels) > 2 and list(among[start : start + len(labels)]) == list(labels):
        return f"{labels[0]} to {labels[-1]}"
    return ", ".join(labels)


def _panel(found: _Capacities, card: int, low: float, high: float) -> _Panel:
    def y(tokens: float) -> float:
        share = math.log(tokens / low) / math.log(high / low)
        return round(FRAME.bottom - share * (FRAME.bottom - FRAME.top), 1)

    step = (FRAME.right - FRAME.left) / max(1, len(found.labels))
    xs = [round(FRAME.left + step * (place + 0.5), 1) for place in range(len(found.labels))]
    lines = [
        _line(shade, pp_size, [found.tokens(at, card, pp_size) for at in range(len(xs))], xs, y)
        for shade, pp_size in enumerate(found.pp_sizes)
    ]
    columns = tuple(_columns(found, card, xs, step))
    return _Panel(
        card=format_bytes(card),
        columns=columns,
        ticks=tuple((y(tokens), text) for tokens, text in _ticks(low, high)),
        lines=tuple(_apart([line for line in lines if line is not None])),
        missing=_missing(found, card),
        voids=tuple(_voids(columns)),
    )


def _voids(columns: Sequence[_Column]) -> Iterator[float]:
    for refused, run in itertools.groupby(columns, lambda column: column.refused):
        places = [column.x for column in run]
        if refused == "all" and places[-1] - places[0] > 3 * _LINE:
            yield (places[0] + places[-1]) / 2


def _missing(found: _Capacities, card: int) -> str:
    """The pipeline sizes that have no capacity on the last subject, as a label."""
    last = len(found.labels) - 1
    sizes = [str(size) for size in found.pp_sizes if found.tokens(last, card, size) is None]
    return f"pp {', '.join(sizes)}  none" if sizes else ""


def _ticks(low: float, high: float) -> Iterator[tuple[float, str]]:
    for power in range(-10, 20):
        tokens = _MILLION * 2.0**power
        if low <= tokens <= high:
            yield tokens, f"{2.0**power:g} M"


def _columns(found: _Capacities, card: int, xs: Sequence[float], step: float) -> Iterator[_Column]:
    every = math.ceil(len(xs) / _MOST_LABELS)
    for subject, (x, label) in enumerate(zip(xs, found.labels, strict=True)):
        known = [found.tokens(subject, card, pp_size) for pp_size in found.pp_sizes]
        yield _Column(
            x=x,
            left=round(x - step / 2, 1),
            width=round(step, 1),
            label=textwrap.shorten(label, 14, placeholder="…") if subject % every == 0 else "",
            tip="\n".join([f"{label}, {format_bytes(card)}", *_tips(found, card, subject)]),
            refused="" if None not in known else "some" if any(known) else "all",
        )


def _tips(found: _Capacities, card: int, subject: int) -> Iterator[str]:
    """A pipeline size a line, the largest first as in the plot; alike refusals on one."""
    said: dict[str, list[str]] = {}
    for pp_size in reversed(found.pp_sizes):
        tokens = found.tokens(subject, card, pp_size)
        if tokens is None:
            sentence = found.why_not(subject, card, pp_size)
            said.setdefault(sentence, []).append(f"{pp_size}")
        else:
            yield f"pp {pp_size}: {_mega(tokens)} tokens{_change(found, card, subject, pp_size)}"
    for sentence, sizes in said.items():
        yield f"pp {', '.join(sizes)}: {textwrap.shorten(sentence, 240, placeholder=' …')}"


def _change(found: _Capacities, card: int, subject: int, pp_size: int) -> str:
    """How a capacity compares with the subject's before, where it is another."""
    before = found.tokens(subject - 1, card, pp_size) if subject else None
    now = found.tokens(subject, card, pp_size)
    if before is None or now is None or now == before:
        return ""
    return f", ×{number(now / before)} of {found.labels[subject - 1]}"


def _mega(tokens: int) -> str:
    return f"{tokens / _MILLION:.3g} M" if tokens < 100 * _MILLION else f"{tokens / _MILLION:.0f} M"


def _line(
    shade: int,
    pp_size: int,
    tokens: Sequence[int | None],
    xs: Sequence[float],
    y: Callable[[float], float],
) -> _Line | None:
    """A line, broken where there is no capacity; None where there is none at all."""
    places = [None if one is None else (x, y(one)) for x, one in zip(xs, tokens, strict=True)]
    points = [place for place in places if place is not None]
    if not points:
        return None
    runs = [
        list(run)
        for known, run in itertools.groupby(places, lambda place: place is not None)
        if known
    ]
    last = tokens[-1]
    return _Line(
        shade=shade % 4,
        paths=tuple("M" + "L".join(f"{x} {y}" for x, y in filter(None, run)) for run in runs),
        points=tuple(points),
        label=f"pp {pp_size}" + ("" if last is None else f"  {_mega(last)}"),
        label_y=points[-1][1],
    )


def _apart(lines: Sequence[_Line]) -> Iterator[_Line]:
    """The lines with labels that do not overlap, from the top down."""
    ordered = sorted(lines, key=lambda line: (line.label_y, -line.shade))
    places: list[float] = []
    for line in ordered:
        places.append(max(line.label_y, places[-1] + _LINE) if places else line.label_y)
    bottom: float = FRAME.bottom - _LINE  # the lowest place is that of what has no line
    for at in reversed(range(len(places))):
        places[at] = min(places[at], bottom)
        bottom = places[at] - _LINE
    moved = {id(line): place for line, place in zip(ordered, places, strict=True)}
    for line in lines:
        yield dataclasses.replace(line, label_y=round(moved[id(line)], 1))
