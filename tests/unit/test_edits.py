"""Edits change a module as it is loaded, exactly once, and no file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from contracts.subject.edits import EditDoesNotApply, install

NAME = "module_of_the_edits_test"
SOURCE = "COUNT = 1\nTOTAL = COUNT + 1\n\n\ndef double(x):\n    return 2 * x\n"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module, in a process that has no edits and forgets the module after."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / f"{NAME}.py"
    path.write_text(SOURCE, encoding="utf-8")
    importlib.invalidate_caches()
    yield path
    sys.modules.pop(NAME, None)


def edit(find: str, replace: str, module: str = NAME) -> dict[str, str]:
    return {"module": module, "find": find, "replace": replace}


def load() -> ModuleType:
    sys.modules.pop(NAME, None)
    return importlib.import_module(NAME)


def test_an_edit_applies_and_the_file_stays(source: Path) -> None:
    """Red when a fault is not seeded, or is written into the subject on the disk."""
    install([edit("2 * x", "3 * x")])
    assert load().double(5) == 15
    assert source.read_text(encoding="utf-8") == SOURCE


def test_edits_apply_one_after_the_other(source: Path) -> None:
    """Red when only the first of several edits of a module applies."""
    install([edit("COUNT = 1", "COUNT = 10"), edit("COUNT + 1", "COUNT + 5")])
    module = load()
    assert (module.COUNT, module.TOTAL) == (10, 15)


def test_a_cached_compilation_is_not_used(source: Path) -> None:
    """Red when the .pyc of the unedited module is loaded, or that of the edited one is left."""
    assert load().double(5) == 10
    assert list(source.parent.glob("__pycache__/*.pyc")) or sys.dont_write_bytecode
    install([edit("2 * x", "3 * x")])
    assert load().double(5) == 15
    sys.meta_path.pop(0)
    assert load().double(5) == 10


@pytest.mark.parametrize(("find", "places"), [("no such text", 0), ("COUNT", 2)])
def test_an_edit_must_apply_exactly_once(find: str, places: int, source: Path) -> None:
    """Red when an edit that finds nothing, or too much, silently seeds nothing, or too much."""
    install([edit(find, "x")])
    with pytest.raises(EditDoesNotApply, match=f"{NAME}: {places} places for '{find}'"):
        load()


def test_an_edit_that_an_earlier_one_removed(source: Path) -> None:
    """Red when an edit counts in the source before the others."""
    install([edit("COUNT = 1", "COUNT = 9"), edit("COUNT = 1", "COUNT = 8")])
    with pytest.raises(EditDoesNotApply, match="0 places"):
        load()


def test_other_modules_are_not_touched(source: Path) -> None:
    """Red when an edit reaches a module that it does not name."""
    before = len(sys.meta_path)
    install([edit("2 * x", "3 * x", module="another")])
    assert load().double(5) == 10
    assert len(sys.meta_path) == before + 1
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("another")


def test_no_edits_leave_the_import_system_alone(source: Path) -> None:
    """Red when a subject without edits is loaded through our loader."""
    before = [*sys.meta_path]
    install([])
    assert sys.meta_path == before
