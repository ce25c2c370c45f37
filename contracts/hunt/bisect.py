"""The first commit from which on a contract is violated, or holds again.

Three things that know little of each other: :class:`Search` says which commit of a history to look
at next, :class:`Judge` judges one commit of a clone on one deployment, and :class:`Verdicts` keeps
what was judged in the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from contracts.contract import (
    Contract,
    NotApplicable,
    NotJudged,
    Request,
    Verdict,
    Violation,
)
from contracts.deployment import Deployment, DeploymentError
from contracts.examination import Finding, Observer, Rejected, Stumbled, examine
from contracts.hunt.revisions import (
    Clone,
    Commit,
    ExportError,
    History,
    RevisionError,
    Trees,
)
from contracts.observation import Outcome, Unreadable
from contracts.profiles import PROFILES
from contracts.subject.client import Client, SubjectUnreadable
from contracts.subject.overlay import CACHE_VARIABLE, OverlayError, Report, cache_root
from contracts.subject.resolve import Subject, SubjectError, resolve
from contracts.trial import Workforce, run

__all__ = ["Judge", "Judged", "Search", "Side", "Verdicts", "judged", "tried"]

JSON = Any


# -- which commit next -----------------------------------------------------------------------------


class Side(enum.Enum):
    """What a commit is like: the older end, the newer one, or not to be told."""

    OLDER = "older"
    NEWER = "newer"
    UNKNOWN = "unknown"


class Search:
    """The search for the first commit that is like the newer end of a history.

    ``history`` are the commits of which nothing is known; its last one is the newer end, and all
    others come before it. It may have merges. Sets of commits are the bits of a whole number.
    """

    def __init__(self, history: History) -> None:
        self._order = tuple(history)
        self._place = {sha: place for place, sha in enumerate(self._order)}
        self._reach: list[int] = []  # of each commit: itself and all that come before it
        for sha, parents in history.items():
            reach = 1 << self._place[sha]
            for parent in parents:
                if parent in self._place:
                    reach |= self._reach[self._place[parent]]
            self._reach.append(reach)
        self._left = self._reach[-1]
        self._skipped = 0

    @property
    def candidates(self) -> tuple[str, ...]:
        """The commits that may be the first, in the order of the history: the last one is like the
        newer end. When there is no :meth:`next`, it is the first, or the others were not told."""
        return tuple(self._order[place] for place in _places(self._left))

    @property
    def left(self) -> int:
        """How many commits may be the first."""
        return self._left.bit_count()

    @property
    def steps(self) -> int:
        """About how many commits are still to be looked at, if each can be told."""
        return (self.left - 1).bit_length()

    def next(self) -> str | None:
        """The commit to look at next, None where no other one can be told.

        It halves what is left, as far from those that could not be told as helps: what keeps a
        commit from being judged mostly keeps its neighbours too.
        """
        places = list(_places(self._left))
        away = _distances([self._skipped >> place & 1 for place in places])
        best, best_worth = None, 0
        for place, distance in zip(places, away, strict=True):
            before = (self._reach[place] & self._left).bit_count()
            # Nothing for the last one, which is like the newer end, and for what was looked at.
            worth = min(before, len(places) - before, 2 * distance)
            if worth > best_worth:
                best, best_worth = self._order[place], worth
        return best

    def tell(self, sha: str, side: Side) -> None:
        """Say what a commit is like."""
        place = self._place[sha]
        if side is Side.UNKNOWN:
            self._skipped |= 1 << place
        elif side is Side.OLDER:
            self._left &= ~self._reach[place]
        else:
            self._left &= self._reach[place]


def _places(bits: int) -> Iterator[int]:
    """The places of the bits that are set, lowest first."""
    return (place for place, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")


def _distances(marked: Sequence[int]) -> list[int]:
    """How far each place is from the nearest marked one; its own is 0."""
    far = 2 * len(marked)
    distances = [far] * len(marked)
    for places in (range(len(marked)), range(len(marked) - 1, -1, -1)):
        last = far
        for place in places:
            last = 0 if marked[place] else last + 1
            distances[place] = min(distances[place], last)
    return distances


# -- what a commit's verdict is --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one deployment says of a contract on one SGLang.

    ``reason`` says why it is not judged. ``lasting`` is false where another time, another machine
    or a network might have let it be judged.
    """

    verdict: Verdict
    finding: Finding | None = None
    reason: str | None = None
    lasting: bool = True


def judged(
    contract: Contract, deployment: Deployment, subject: Observer, baseline: Observer | None = None
) -> Judged:
    """Judge one deployment; whatever keeps it from being judged is an answer, not an exception."""
    watched = _Watched(subject)
    other = None if baseline is None else _Watched(baseline)
    try:
        findings = examine(contract, deployment, watched, other)
    except Rejected as refusal:
        return _not_judged(f"SGLang refuses the deployment: {refusal}")
    except NotJudged as error:
        lost = watched.lost or (other is not None and other.lost)
        return _not_judged(str(error), lasting=not lost)
    except (NotApplicable, Stumbled) as error:
        return _not_judged(str(error))
    if findings:
        return Judged(verdict=Verdict.VIOLATED, finding=findings[0])
    return Judged(verdict=Verdict.HELD)


def _not_judged(reason: str, *, lasting: bool = True) -> Judged:
    return Judged(verdict=Verdict.NOT_JUDGED, reason=reason, lasting=lasting)


class _Watched:
    """An observer of which is remembered whether an answer was lost on its way."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.lost = False

    def observe(self, request: Request) -> Outcome:
        """The observer's answer."""
        outcome = self._observer.observe(request)
        # What a worker itself says of the SGLang that it has, it would say again: it has a
        # traceback, or the import failed. A worker that died or hung has said nothing.
        said = isinstance(outcome, Unreadable) and (
            bool(outcome.traceback) or outcome.reason.startswith("import: ")
        )
        self.lost |= isinstance(outcome, Unreadable) and not said
        return outcome


def tried(
    contract: Contract,
    client: Client,
    baseline: Client | None = None,
    *,
    profile: str,
    jobs: int = 1,
    started: Callable[[int], None] = lambda total: None,  # noqa: ARG005
    progress: Callable[[], None] = lambda: None,
) -> Judged:
    """Judge the deployments of a profile, as ``judge`` does; of many violations the simplest."""
    clients = client.alike(jobs)
    others = () if baseline is None else baseline.alike(jobs)
    try:
        (trial,) = run(
            [contract],
            Workforce(clients, others),
            profile=PROFILES[profile],
            started=started,
            progress=progress,
        )
    except SubjectUnreadable as error:
        return _not_judged(str(error), lasting=False)
    finally:
        for one in (*clients[1:], *others[1:]):
            one.close()
    return Judged(verdict=trial.verdict, finding=trial.finding, reason=trial.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judges commits of a clone by one contract, and keeps the verdicts.

    ``fresh`` judges again what is known from earlier runs. A baseline that is no release may change
    between two runs, so that nothing is kept then.
    """

    clone: Clone
    contract: Contract
    report: Report
    device: str = "meta"
    baseline: Client | None = None
    fresh: bool = False
    trees: Trees = dataclasses.field(default_factory=Trees)

    def known(self, commit: Commit, asked: Deployment | str) -> Judged | None:
        """What an earlier run has found on a deployment, or with a profile."""
        if self.fresh or not self._keeps:
            return None
        return self._verdicts(asked).get(commit.sha)

    @property
    def _keeps(self) -> bool:
        return self.baseline is None or self.baseline.subject.kind == "release"

    def judge(self, commit: Commit, deployment: Deployment) -> Judged:
        """Judge a commit on one deployment.

        Raises:
            ExportError: the cache cannot be written.
        """

        def ask(subject: Subject) -> Judged:
            with Client(subject, device=self.device) as client:
                return judged(self.contract, deployment, client, self.baseline)

        found = self._asked(commit, ask)
        self._keep(commit, deployment, found)
        return found

    def counterexample(self, commit: Commit, profile: str, **options: Any) -> Judged:
        """Judge a commit on the deployments of a profile; ``options`` are those of :func:`tried`.

        Raises:
            ExportError: the cache cannot be written.
        """

        def ask(subject: Subject) -> Judged:
            with Client(subject, device=self.device) as client:
                return tried(self.contract, client, self.baseline, profile=profile, **options)

        found = self._asked(commit, ask)
        if found.finding is not None:  # a profile that finds nothing may find something next time
            self._keep(commit, profile, found)
            self._keep(commit, found.finding.deployment, found)
        return found

    def _asked(self, commit: Commit, ask: Callable[[Subject], Judged]) -> Judged:
        """What is answered by a subject, or why there is none."""
        if not self.clone.has_sglang(commit):
            return _not_judged("it has neither python/sglang/srt nor sglang/srt")
        try:
            with self.trees.tree(self.clone, commit) as tree:
                try:
                    return ask(resolve(str(tree), report=self.report))
                except (SubjectError, OverlayError) as error:
                    said = str(error).replace(str(tree), commit.label)
                    return _not_judged(said, lasting=isinstance(error, SubjectError))
        except RevisionError as error:
            return _not_judged(str(error), lasting=False)

    def _keep(self, commit: Commit, asked: Deployment | str, found: Judged) -> None:
        """Keep a verdict for later runs, if it lasts."""
        if found.lasting and self._keeps:
            self._verdicts(asked).put(commit.sha, found)

    def _verdicts(self, asked: Deployment | str) -> Verdicts:
        key = asked.key() if isinstance(asked, Deployment) else f"profile {asked}"
        baseline = None if self.baseline is None else self.baseline.subject.label
        return Verdicts(self.contract.id, key, self.device, baseline)


# -- what is kept of it ----------------------------------------------------------------------------


class Verdicts:
    """The verdicts on commits, a file each, of one question.

    Everything that an answer depends on besides the commit is in the question: what the caller
    names, this suite's code, the modules that it runs with, and what SGLang and torch read from the
    environment. A file is written aside and renamed in, so that neither a second process nor a
    death leaves half a verdict.
    """

    def __init__(self, *asked: str | None, root: Path | None = None) -> None:
        question = json.dumps([asked, _circumstances()])
        key = hashlib.sha256(question.encode()).hexdigest()[:16]
        self._folder = (root or cache_root()) / "verdicts" / key

    def get(self, sha: str) -> Judged | None:
        """The verdict on a commit, or None."""
        try:
            document = json.loads((self._folder / f"{sha}.json").read_text(encoding="utf-8"))
            return _from_json(document)
        except (OSError, ValueError, KeyError, TypeError, DeploymentError):
            return None  # not there, or not ours

    def put(self, sha: str, found: Judged) -> None:
        """Write a verdict.

        Raises:
            ExportError: the cache cannot be written.
        """
        aside = self._folder / f".{sha}.{os.getpid()}.tmp"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            aside.write_text(json.dumps(_to_json(found), indent=1) + "\n", encoding="utf-8")
            aside.replace(self._folder / f"{sha}.json")
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
            raise ExportError(
                f"a verdict cannot be written in the cache directory {self._folder.parent.parent}: "
                f"{error.strerror or error}; {CACHE_VARIABLE} names another"
            ) from error


def _to_json(found: Judged) -> JSON:
    finding = found.finding
    return {
        "verdict": str(found.verdict),
        "reason": found.reason,
        "violation": None if finding is None else dataclasses.asdict(finding.violation),
        "deployment": None if finding is None else finding.deployment.to_json(),
        "stages": None if finding is None else finding.stages,
    }


def _from_json(document: JSON) -> Judged:
    finding = None
    if document["violation"] is not None:
        finding = Finding(
            violation=Violation(**document["violation"]),
            deployment=Deployment.from_json(document["deployment"]),
            stages=document["stages"],
        )
    return Judged(verdict=Verdict(document["verdict"]), finding=finding, reason=document["reason"])


#: Environment variables that SGLang and torch read begin so; a worker inherits them.
_READ = ("SGLANG_", "SGL_", "TORCH", "PYTORCH", "CUDA", "NVIDIA")


def _circumstances() -> Mapping[str, str]:
    read = {name: value for name, value in os.environ.items() if name.startswith(_READ)}
    read.pop(CACHE_VARIABLE, None)
    return {**_suite(), **dict(sorted(read.items()))}


@cache
def _suite() -> Mapping[str, str]:
    """This suite's code and what it runs with."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in ("contracts", "strategies"):
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".txt"):
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(path.read_bytes() + b"\0")
    return {
        "suite": digest.hexdigest(),
        "python": sys.version,
        **{name: importlib.metadata.version(name) for name in ("torch", "hypothesis")},
    }
