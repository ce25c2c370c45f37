"""Placeholders stand in where a module is missing, and for nothing that is used."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.subject import placeholders
from contracts.subject.placeholders import PLACEHOLDERS, PlaceholderCalled

NEXTN = "sglang.srt.models.deepseek_v4_nextn"


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that finds its modules in a folder of the test first, and forgets them after."""

    def forget() -> None:
        for name in [
            name for name in sys.modules if name.split(".")[0] in ("torchvision", "sglang")
        ]:
            del sys.modules[name]

    forget()
    monkeypatch.setattr(placeholders, "_used", set())
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    forget()


def write(root: Path, name: str, text: str) -> None:
    """A module of this name, in packages that are empty."""
    *packages, stem = name.split(".")
    folder = root
    for package in packages:
        folder = folder / package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    (folder / f"{stem}.py").write_text(text, encoding="utf-8")
    importlib.invalidate_caches()


def torchvision(root: Path) -> Any:
    """The placeholder, in place of a torchvision that does not load."""
    write(root, "torchvision", "raise RuntimeError('operator torchvision::nms does not exist')")
    placeholders.install()
    return importlib.import_module("torchvision")


def test_the_list_is_short() -> None:
    """Red when a placeholder is added: each hides a module from the judge."""
    assert set(PLACEHOLDERS) == {"torchvision", NEXTN}


def test_a_module_that_loads_is_left_alone(tmp_path: Path) -> None:
    """Red when a placeholder replaces a module that works."""
    write(tmp_path, "torchvision", "__version__ = '9'")
    placeholders.install()
    assert importlib.import_module("torchvision").__version__ == "9"
    assert placeholders.used() == []


def test_a_module_that_does_not_load_is_replaced(tmp_path: Path) -> None:
    """Red when a broken module stops the import of SGLang, or its replacement goes unreported."""
    module = torchvision(tmp_path)
    assert placeholders.used() == ["torchvision"]
    assert module.__version__ == "0"
    assert module.__doc__ == PLACEHOLDERS["torchvision"]


def test_what_importers_do_with_it(tmp_path: Path) -> None:
    """Red when a submodule, a name in it or a name in that cannot be imported or passed on."""
    torchvision(tmp_path)
    transforms = importlib.import_module("torchvision.transforms")
    functional = importlib.import_module("torchvision.transforms.v2.functional")
    assert transforms.InterpolationMode.NEAREST_EXACT is not None
    assert functional.pil_to_tensor is not None
    with pytest.raises(AttributeError):
        _ = transforms.__no_such_protocol__
    with pytest.raises(AttributeError):
        _ = transforms.InterpolationMode.__no_such_protocol__


def test_calling_raises(tmp_path: Path) -> None:
    """Red when something of a placeholder can be called: sizing would run on nothing."""
    functional = torchvision(tmp_path).io
    with pytest.raises(PlaceholderCalled, match=r"torchvision\.io\.decode_jpeg is a placeholder"):
        functional.decode_jpeg(b"")
    with pytest.raises(PlaceholderCalled, match="was called"):
        torchvision(tmp_path).nms()


def test_subclassing_raises(tmp_path: Path) -> None:
    """Red when a class of SGLang can be built on a placeholder."""
    base = torchvision(tmp_path).Transform
    with pytest.raises(PlaceholderCalled, match=r"torchvision\.Transform .* was subclassed"):

        class Ours(base):  # type: ignore[misc, valid-type]  # it is no class
            pass


def test_other_modules_are_still_missing(tmp_path: Path) -> None:
    """Red when a placeholder makes more importable than itself."""
    torchvision(tmp_path)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("torchvision_extra")


SOURCE = """
import no_such_kernels

COMPRESS_RATIO_NEXTN_LAYER = 7
NAMES = ("a", "b")
COMPUTED = no_such_kernels.x
if True:
    NESTED = 1


class Model(no_such_kernels.Base):
    INSIDE = 2
"""


def test_constants_come_from_the_subjects_source(tmp_path: Path) -> None:
    """Red when a draft pool is built with our idea of a constant and not the subject's own."""
    write(tmp_path, NEXTN, SOURCE)
    module: Any = placeholders.draft_module()
    assert module.COMPRESS_RATIO_NEXTN_LAYER == 7
    assert module.NAMES == ("a", "b")
    assert {name for name in vars(module) if name.isupper()} == {
        "COMPRESS_RATIO_NEXTN_LAYER",
        "NAMES",
    }
    assert placeholders.used() == [NEXTN]
    assert importlib.import_module(NEXTN) is module
    with pytest.raises(AttributeError):
        _ = module.Model


def test_a_draft_module_that_loads_is_left_alone(tmp_path: Path) -> None:
    """Red when the real draft module is replaced where it works."""
    write(tmp_path, NEXTN, "COMPRESS_RATIO_NEXTN_LAYER = 3\nMADE = len('xx')\n")
    module: Any = placeholders.draft_module()
    assert (module.COMPRESS_RATIO_NEXTN_LAYER, module.MADE) == (3, 2)
    assert placeholders.used() == []


def test_a_subject_without_the_draft_module(tmp_path: Path) -> None:
    """Red when a constant is made up for a subject that has no such source."""
    write(tmp_path, "sglang.srt.models.other", "")
    with pytest.raises(ModuleNotFoundError, match=f"the subject has no {NEXTN}"):
        placeholders.draft_module()
