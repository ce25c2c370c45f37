"""The shape of a source file: its functions, and the statements in them that branch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Arm", "Fork", "Source", "Span"]

#: ``then`` is the body of an ``if`` or a loop; ``else`` is what runs where that is not entered
#: (any more).
Arm = Literal["then", "else"]

_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Forking = ast.If | ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True, slots=True)
class Span:
    """Lines of a file, both included."""

    first: int
    last: int

    def __contains__(self, line: object) -> bool:
        return isinstance(line, int) and self.first <= line <= self.last


@dataclass(frozen=True, slots=True)
class Fork:
    """A statement with two ways on: an ``if``, an ``elif`` or a loop.

    ``head`` is its source up to the colon, on one line. ``arms`` are the lines that only one way
    leads to; after ``if …: return`` these are also the rest of the block.
    """

    function: str
    line: int
    head: str
    then: Span
    otherwise: Span | None

    def arm(self, target: int) -> Arm:
        """The way on that leads to a line."""
        return "then" if target in self.then else "else"

    def lines(self, arm: Arm) -> Span | None:
        """The lines that only this way leads to, if there are any."""
        return self.then if arm == "then" else self.otherwise


class Source:
    """A parsed file.

    By qualified name: ``parts`` are the lines of its functions and classes, decorators included,
    ``bodies`` those of the bodies of its functions. ``forks`` are its branching statements by line.
    """

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)
        tree = ast.parse(text)
        self.parts: dict[str, Span] = {}
        self.bodies: dict[str, Span] = {}
        self._enter(tree.body, "")
        self.forks = {fork.line: fork for fork in self._forks(tree.body, "")}

    def _enter(self, block: Iterable[ast.AST], owner: str) -> None:
        for node in block:
            if isinstance(node, _Named):
                name = f"{owner}{node.name}"
                self.parts[name] = _span([node])
                if not isinstance(node, ast.ClassDef):
                    self.bodies[name] = _span(node.body)
                self._enter(ast.iter_child_nodes(node), f"{name}.")
            else:
                self._enter(ast.iter_child_nodes(node), owner)

    def _forks(self, block: Sequence[ast.stmt], owner: str) -> Iterator[Fork]:
        for place, node in enumerate(block):
            if isinstance(node, _Forking):
                yield self._fork(node, owner.removesuffix("."), block[place + 1 :])
            inside = f"{owner}{node.name}." if isinstance(node, _Named) else owner
            for inner in _blocks(node):
                yield from self._forks(inner, inside)

    def _fork(self, node: _Forking, owner: str, rest: Sequence[ast.stmt]) -> Fork:
        otherwise = node.orelse
        if isinstance(node, ast.If) and not otherwise and isinstance(node.body[-1], _LEAVING):
            otherwise = list(rest)
        return Fork(
            function=owner,
            line=node.lineno,
            head=self._head(node),
            then=_span(node.body),
            otherwise=_span(otherwise) if otherwise else None,
        )

    def _head(self, node: _Forking) -> str:
        condition = node.iter if isinstance(node, ast.For | ast.AsyncFor) else node.test
        assert condition.end_lineno is not None
        assert condition.end_col_offset is not None
        lines = self._lines[node.lineno - 1 : condition.end_lineno - 1]
        start, end = condition.end_lineno - 1, condition.end_col_offset
        last = self._lines[start].encode()
        lines.append(last[:end].decode())
        # Behind the condition nothing but closing parentheses comes before the colon.
        rest = last[end:].decode() + "".join(self._lines[start + 1 :])
        lines.append(rest[: rest.index(":") + 1])
        return " ".join("".join(lines).split())


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statement lists directly below a node."""
    for _name, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, ast.ExceptHandler | ast.match_case):
                    yield one.body


def _span(block: Sequence[ast.stmt]) -> Span:
    first, last = block[0], block[-1]
    decorators = first.decorator_list if isinstance(first, _Named) else []
    start = min([first.lineno, *(decorator.lineno for decorator in decorators)])
    assert last.end_lineno is not None
    return Span(start, last.end_lineno)
