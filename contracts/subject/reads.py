"""Which settings a subject reads while it sizes and allocates, and where.

A worker that records lets every read of an environment variable, of a server argument and of a
leaf of SGLang's runtime contexts pass through a :class:`Recorder`, which notes those that SGLang's
own code makes. A worker that does not record never loads this module.

What a module of SGLang reads while it is imported is read once a process, whenever the import
comes; such a read has the step :data:`IMPORT`. Which of these concern sizing is known only
afterwards: those of the modules whose functions sizing really ran, which are noted too.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import CodeType, FrameType
from typing import Any

__all__ = ["ARGUMENTS", "IMPORT", "MENTION", "Read", "Recorder", "Recording"]

JSON = Any

#: The step of a read that a module makes while it is imported.
IMPORT = "import"

#: The step of a variable that code which ran has a name for. It need not have read it: on another
#: platform, or for another deployment, it would.
MENTION = "mention"

#: The step in which arguments are resolved and checked, and a model's config is made from them.
ARGUMENTS = "arguments"

#: The steps of an observation in which SGLang sizes and allocates.
SIZING = frozenset({"stages", "sizing", "allocation", "draft allocation", "charging"})


@dataclass(frozen=True, slots=True, order=True)
class Read:
    """One setting, read by one module of SGLang in one step.

    ``kind`` is ``env``, ``argument`` or ``context``. ``step`` is a step of the observation,
    :data:`IMPORT` or :data:`MENTION`. ``place`` is where in SGLang the read is, as
    ``sglang/srt/….py:123``.
    """

    kind: str
    name: str
    step: str
    module: str
    place: str


@dataclass(frozen=True, slots=True)
class Recording:
    """What was read, and the modules of SGLang whose functions ran while it sized."""

    reads: frozenset[Read] = frozenset()
    modules: frozenset[str] = frozenset()

    def __or__(self, other: Recording) -> Recording:
        return Recording(self.reads | other.reads, self.modules | other.modules)

    def sizing(self) -> list[Read]:
        """What sizing and allocation read, in order: in their steps, when the modules that ran in
        them were imported, and what the functions that ran mention."""
        return sorted(
            read
            for read in self.reads
            if read.step in SIZING
            or read.step == MENTION
            or (read.step == IMPORT and read.module in self.modules)
        )

    def to_json(self) -> JSON:
        """As it travels from the worker."""
        reads = [asdict(read) for read in sorted(self.reads)]
        return {"reads": reads, "modules": sorted(self.modules)}

    @classmethod
    def from_json(cls, document: JSON) -> Recording:
        """Read a worker's answer."""
        reads = frozenset(Read(**read) for read in document["reads"])
        return cls(reads, frozenset(document["modules"]))


class Recorder:
    """Notes reads in this process: of the environment from :meth:`watch_environment` on, of
    arguments and contexts from :meth:`watch_sglang` on.

    ``step`` says in which step of an observation the process is.
    """

    def __init__(self, step: Callable[[], str]) -> None:
        self._step = step
        self._reads: dict[tuple[str, str, str, str], Read] = {}
        self._ran: set[CodeType] = set()
        self._modules: set[str] = set()

    # -- what is watched -----------------------------------------------------------------------

    def watch_environment(self) -> None:
        """Watch the environment. Call it before SGLang is imported."""
        mapping: Any = type(os.environ)
        inherited = mapping.__getitem__

        def getitem(environ: Any, name: str) -> Any:
            self._note("env", name)
            return inherited(environ, name)

        # The mapping's other ways to read, and os.getenv, go through this one.
        mapping.__getitem__ = getitem

    def watch_sglang(self) -> None:
        """Watch the arguments and the contexts of the imported SGLang, as far as it has them."""
        arguments: Any = importlib.import_module("sglang.srt.server_args").ServerArgs
        fields = frozenset(arguments.__annotations__)
        for record in (arguments, *_views()):
            self._watch(record, "argument", lambda _, name: name if name in fields else None)
        context = sys.modules.get("sglang.srt.runtime_context")  # from 0.5.15 on
        for name, leaf in _LEAVES.items():
            if hasattr(context, name):
                self._watch(getattr(context, name), "context", leaf)

    def _watch(self, watched: Any, kind: str, setting: Callable[[Any, str], str | None]) -> None:
        """Note the reads of those attributes that ``setting`` has a name for."""
        inherited = watched.__getattribute__

        def getattribute(instance: Any, name: str) -> Any:
            said = None if name.startswith("__") else setting(instance, name)
            if said is not None:
                self._note(kind, said)
            return inherited(instance, name)

        watched.__getattribute__ = getattribute

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Notice which functions run while sizing, for as long as this lasts."""
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(None)

    # -- what is noted -------------------------------------------------------------------------

    def _note(self, kind: str, name: str) -> None:
        frame = sys._getframe(2)
        reader = _reader(frame)
        if reader is None:
            return
        step, by = self._circumstances(frame, reader)
        key = (kind, name, step, _module(by))
        if key not in self._reads:
            place = f"{_within(reader.f_code)}:{reader.f_lineno}"
            self._reads[key] = Read(kind, name, step, _module(by), place)

    def _circumstances(self, frame: FrameType, reader: FrameType) -> tuple[str, FrameType]:
        """The step that a read belongs to, and the frame whose module it is put down to."""
        step = self._step()
        for one in _outwards(frame):
            code = one.f_code
            if code.co_name == "<module>" and _is_sglang(code):
                return IMPORT, one
            if code.co_name == "from_server_args" and code.co_filename.endswith("/model_config.py"):
                # A draft's config is made where its pool is; that is no sizing.
                step = ARGUMENTS
        return step, reader

    def _called(self, frame: FrameType, _event: str, _: Any) -> None:
        """A function is called: note its module if it is SGLang's and sizing runs it."""
        code = frame.f_code
        if code in self._ran or not _is_sglang(code) or self._step() not in SIZING:
            return
        if _passes_on(code) or self._circumstances(frame, frame)[0] not in SIZING:
            return
        self._ran.add(code)
        module = _module(frame)
        self._modules.add(module)
        place = f"{_within(code)}:{code.co_firstlineno}"
        for name in _mentioned(code):
            read = Read("env", name, MENTION, module, place)
            self._reads.setdefault(("env", name, MENTION, module), read)

    def take(self) -> Recording:
        """What has been noted since it was last taken. The modules that ran stay noted."""
        taken = Recording(frozenset(self._reads.values()), frozenset(self._modules))
        self._reads.clear()
        return taken


# -- who reads -------------------------------------------------------------------------------------

#: Files whose functions only pass a read on: SGLang's registry of variables, its contexts and its
#: views of the arguments. Who called them is who reads.
_PASSING_ON = (
    "/sglang/srt/environ.py",
    "/sglang/srt/runtime_context.py",
    "/sglang/srt/arg_groups/overrides.py",
    "/sglang/srt/arg_groups/model_override_base.py",
    "/contracts/subject/reads.py",
)
_HELPER = re.compile(r"get_(\w+_)?env_var")
_VARIABLE = re.compile(r"SGL(ANG)?_[A-Z0-9_]+")

#: Ways to read a mapping as a whole: no setting is asked for.
_IN_BULK = frozenset({"copy", "items", "values", "__iter__"})


def _is_library(code: CodeType) -> bool:
    """Whether code is of the mapping that the environment is."""
    return code.co_filename in ("<frozen os>", "<frozen _collections_abc>", os.__file__)


def _passes_on(code: CodeType) -> bool:
    return (
        code.co_filename.endswith(_PASSING_ON)
        or _is_library(code)
        or _HELPER.fullmatch(code.co_name) is not None
    )


def _reader(frame: FrameType) -> FrameType | None:
    """The frame that asked for a setting, if it is one of SGLang's."""
    for one in _outwards(frame):
        code = one.f_code
        if _is_library(code) and code.co_name in _IN_BULK:
            return None
        if not _passes_on(code):
            return one if _is_sglang(code) else None
    return None


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_sglang(code: CodeType) -> bool:
    return "/sglang/" in code.co_filename


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _within(code: CodeType) -> str:
    return "sglang/" + code.co_filename.rpartition("/sglang/")[2]


def _mentioned(code: CodeType) -> Iterator[str]:
    """The variables of SGLang that a function has a name for, in whatever branch."""
    for name in (*code.co_names, *code.co_consts):
        if isinstance(name, CodeType):
            yield from _mentioned(name)
        elif isinstance(name, str) and _VARIABLE.fullmatch(name):
            yield name


# -- what is read ----------------------------------------------------------------------------------


def _views() -> list[Any]:
    """SGLang's views of arguments that are being resolved (from 0.5.15 on)."""
    modules = [sys.modules.get(f"sglang.srt.arg_groups.{name}") for name in _VIEW_MODULES]
    found = {getattr(module, name, None) for module in modules for name in _VIEWS}
    return [view for view in found if view is not None]


_VIEW_MODULES = ("overrides", "model_override_base")
_VIEWS = ("ResolvedView", "ResolvingConfig")


def _parallel_leaf(context: Any, name: str) -> str | None:
    if name.startswith("_") or callable(getattr(type(context), name, None)):
        return None
    return f"parallel.{name}"


def _bag_leaf(bag: Any, name: str) -> str | None:
    if name not in object.__getattribute__(bag, "_fields"):
        return None
    return f"{object.__getattribute__(bag, '_path')}.{name}"


def _flag_leaf(group: Any, name: str) -> str | None:
    kind = type(group).__name__
    if kind in ("Flags", "Resources") or callable(getattr(type(group), name, None)):
        return None  # groups of leaves, and handles, are no settings
    return f"flags.{kind.removesuffix('Flags').lower()}.{name}"


#: The classes of ``sglang.srt.runtime_context`` that have leaves, and the leaf of an attribute.
_LEAVES: dict[str, Callable[[Any, str], str | None]] = {
    "ParallelContext": _parallel_leaf,
    "_ConfigBag": _bag_leaf,
    "_FlagGroupBase": _flag_leaf,
}
