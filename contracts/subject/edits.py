"""Changes to a subject's source as it is loaded, never to a file on disk.

An edit names a module, a text in its source and what to put there instead. It must apply exactly
once: an edit that finds nothing, or two places, is an error and not a silent no-change.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["EditDoesNotApply", "install"]


class EditDoesNotApply(Exception):
    """The text that an edit looks for is not in the module exactly once."""


class _EditedLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, edits: Sequence[Mapping[str, str]]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> types.CodeType:
        """Compile the edited source; a cached compilation of the file is not it."""
        source = self.get_data(self.path).decode("utf-8")
        for edit in self._edits:
            found = source.count(edit["find"])
            if found != 1:
                raise EditDoesNotApply(f"{fullname}: {found} places for {edit['find']!r}")
            source = source.replace(edit["find"], edit["replace"])
        code = compile(source, self.path, "exec", dont_inherit=True)
        assert isinstance(code, types.CodeType)
        return code


class _EditedFinder(importlib.abc.MetaPathFinder):
    def __init__(self, edits: Sequence[Mapping[str, str]]) -> None:
        self._edits = edits

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        mine = [edit for edit in self._edits if edit["module"] == fullname]
        if not mine:
            return None
        spec: Any = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _EditedLoader(fullname, spec.origin, mine)
        return spec  # type: ignore[no-any-return]  # typeshed's optional spec, with a new loader


def install(edits: Sequence[Mapping[str, str]]) -> None:
    """Let the named modules be loaded edited. Call it before they are imported."""
    if edits:
        sys.meta_path.insert(0, _EditedFinder(edits))
