"""Stand-ins for modules that SGLang imports and sizing never uses.

The list is fixed and short. A placeholder is used only where the real module is missing or does
not import, is reported in the header of every run, and raises when anything of it is called.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["PLACEHOLDERS", "PlaceholderCalled", "install", "used"]

#: Why each one is needed, for the header and for docs/subjects.md.
PLACEHOLDERS = {
    "torchvision": "imported by sglang.srt.utils.common for images; no build matches a CPU torch",
    "sglang.srt.models.deepseek_v4_nextn": "imported for one constant while a draft pool is built; "
    "its kernels want a GPU toolchain; the constant is read from the subject's own source",
}

_used: set[str] = set()


class PlaceholderCalled(RuntimeError):
    """Something of a placeholder was called: sizing does use it after all."""


class _Name:
    """Any attribute of a placeholder module: it can be passed on and looked into, not called."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> _Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(f"{self._path}.{name}")

    def __call__(self, *_args: object, **_kwargs: object) -> Any:
        raise PlaceholderCalled(f"{self._path} is a placeholder and was called")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise PlaceholderCalled(f"{self._path} is a placeholder and was subclassed")


class _Placeholder(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the submodules of one placeholder package."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._package and not fullname.startswith(f"{self._package}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _Placeholder(spec.name, PLACEHOLDERS.get(spec.name))
        module.__version__ = "0"  # type: ignore[attr-defined]  # some importers compare versions
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run: a placeholder has no code."""


def install() -> None:
    """Make ``torchvision`` importable where the real one is missing or does not import."""
    try:
        importlib.import_module("torchvision")
    except Exception:  # a broken build fails in many ways; each asks for the placeholder
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        sys.meta_path.insert(0, _Finder("torchvision"))
        _used.add("torchvision")


def draft_module() -> types.ModuleType:
    """SGLang's draft model module, or a placeholder with the constants of its source.

    Building a draft pool imports this module for the ratio of a draft layer alone.
    """
    name = "sglang.srt.models.deepseek_v4_nextn"
    try:
        return importlib.import_module(name)
    except Exception:  # tilelang, cutlass, cuda …: whatever its kernels lack here
        module = types.ModuleType(name, PLACEHOLDERS[name])
        vars(module).update(_constants(name))
        sys.modules[name] = module
        _used.add(name)
        return module


def _constants(name: str) -> dict[str, Any]:
    """The literal module-level constants in the source of a module, without running it."""
    package, _, stem = name.rpartition(".")
    for folder in importlib.import_module(package).__path__:
        source = Path(folder, f"{stem}.py")
        if source.exists():
            return dict(_literals(ast.parse(source.read_text(encoding="utf-8"))))
    raise ModuleNotFoundError(f"the subject has no {name}", name=name)


def _literals(tree: ast.Module) -> list[tuple[str, Any]]:
    found = []
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        try:
            found.append((node.targets[0].id, ast.literal_eval(node.value)))
        except ValueError:
            continue
    return found


def used() -> list[str]:
    """The placeholders that stand in for a module of this process."""
    return sorted(_used)
