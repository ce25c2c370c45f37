"""One search of a clone: what is asked of which commits, the way through, what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from contracts.contract import Contract, Verdict
from contracts.deployment import Deployment
from contracts.examination import Finding
from contracts.hunt.bisect import Judge, Judged, Search, Side
from contracts.hunt.case import save
from contracts.hunt.revisions import Clone, Commit, History, exported

__all__ = [
    "BisectionError",
    "Entry",
    "Hunt",
    "Question",
    "Result",
    "Span",
    "UndecidedError",
    "Watch",
    "span_of",
]


class BisectionError(ValueError):
    """What was asked does not go together; the text says what."""


class UndecidedError(RuntimeError):
    """A commit that decides cannot be judged; the text says which and why."""


class Watch(Protocol):
    """Whoever shows how far a search is."""

    def say(self, line: str) -> None:
        """Something that stays to be read."""

    def doing(self, text: str) -> None:
        """What is done now."""

    def begin(self, total: int) -> None:
        """So many deployments are tried."""

    def advance(self) -> None:
        """One of them is done."""

    def left(self, search: Search) -> None:
        """So much of the history is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of every commit."""

    contract: Contract
    deployment: Deployment | None
    baseline: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The two ends, and what lies between. ``bases`` is where they have parted, if they have."""

    clone: Clone
    good: Commit
    bad: Commit
    history: History
    bases: tuple[Commit, ...]
    find_fix: bool

    @property
    def older(self) -> Commit:
        """The end that comes first."""
        return self.bad if self.find_fix else self.good

    def verdict_of(self, side: Side) -> Verdict:
        """What a commit's verdict is that is like the older or the newer end."""
        return Verdict.VIOLATED if (side is Side.OLDER) == self.find_fix else Verdict.HELD

    def side_of(self, verdict: Verdict) -> Side:
        """Which end a commit of this verdict is like."""
        known = {self.verdict_of(side): side for side in (Side.OLDER, Side.NEWER)}
        return known.get(verdict, Side.UNKNOWN)


def span_of(repo: Path, good: str, bad: str, *, find_fix: bool) -> Span:
    """What the options name, checked.

    Raises:
        RevisionError: there is no such clone or commit, or it has not all that is needed.
        BisectionError: what the options name does not go together.
    """
    clone = Clone(repo)
    ends = {"--good": clone.commit(good), "--bad": clone.commit(bad)}
    for option, commit in ends.items():
        if not clone.has_sglang(commit):
            raise BisectionError(
                f"{option} {commit.label}: {repo} is no clone of SGLang, or this commit is none: "
                "it has neither python/sglang/srt nor sglang/srt"
            )
    one, other = ends.values()
    older, newer = (other, one) if find_fix else (one, other)
    _check_order(older, newer, clone, find_fix=find_fix)
    bases = () if clone.is_ancestor(older, newer) else tuple(clone.bases(older, newer))
    return Span(
        clone=clone,
        good=one,
        bad=other,
        history=clone.history(newer, older),
        bases=bases,
        find_fix=find_fix,
    )


def _check_order(older: Commit, newer: Commit, clone: Clone, *, find_fix: bool) -> None:
    if older.sha == newer.sha:
        raise BisectionError(f"--good and --bad are the same commit, {older.label}")
    if clone.is_ancestor(newer, older):
        hint = (
            "leave --find-fix out to find the commit that broke the contract"
            if find_fix
            else "add --find-fix to find the commit that mended the contract"
        )
        first, second = ("--good", "--bad") if find_fix else ("--bad", "--good")
        raise BisectionError(f"{first} {newer.label} comes before {second} {older.label}; {hint}")
    if not clone.is_ancestor(older, newer):
        if clone.shallow:
            raise BisectionError(
                f"{older.label} does not come before {newer.label} in {clone.path}, which is a "
                "shallow clone; `git fetch --unshallow` brings what it lacks"
            )
        if not clone.bases(older, newer):
            raise BisectionError(f"{older.label} and {newer.label} have no history in common")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A commit that was judged, now or in an earlier run."""

    commit: Commit
    judged: Judged
    known: bool


@dataclass(slots=True)
class Hunt:
    """One run: what was judged, in this order."""

    judge: Judge
    span: Span
    watch: Watch
    log: dict[str, Entry] = field(default_factory=dict)

    def through(self, deployment: Deployment | None, profile: str, jobs: int) -> Search:
        """Find the deployment, check the ends and search to the end."""
        told = deployment is not None
        deployment = deployment or self._counterexample(profile, jobs)
        self._check_end("--bad", self.span.bad, Verdict.VIOLATED, deployment, told=told)
        self._check_end("--good", self.span.good, Verdict.HELD, deployment, told=told)
        self._check_bases(deployment)
        search = Search(self.span.history)
        while (sha := search.next()) is not None:
            self.watch.left(search)
            found = self._ask(self.span.clone.commit(sha), deployment)
            search.tell(sha, self.span.side_of(found.verdict))
        return search

    def _counterexample(self, profile: str, jobs: int) -> Deployment:
        bad = self.span.bad
        self.watch.doing(f"looking for a counterexample on {bad.label}")
        known = self.judge.known(bad, profile)
        found = known or self.judge.counterexample(
            bad, profile, jobs=jobs, started=self.watch.begin, progress=self.watch.advance
        )
        if found.verdict is Verdict.HELD:
            raise BisectionError(
                f"--bad {bad.label}: {self.judge.contract.id} holds there on all deployments of "
                f"the {profile} profile"
            )
        if found.finding is None:
            raise UndecidedError(f"--bad {bad.label} cannot be judged: {found.reason}")
        self._note(Entry(commit=bad, judged=found, known=known is not None))
        return found.finding.deployment

    def _ask(self, commit: Commit, deployment: Deployment) -> Judged:
        if commit.sha not in self.log:
            self.watch.doing(commit.label)
            known = self.judge.known(commit, deployment)
            found = known or self.judge.judge(commit, deployment)
            self._note(Entry(commit=commit, judged=found, known=known is not None))
        return self.log[commit.sha].judged

    def _note(self, entry: Entry) -> None:
        self.log[entry.commit.sha] = entry
        line = f"{entry.judged.verdict:<10}  {entry.commit.label}  {entry.commit.title}"
        line += f" — {entry.judged.reason}" if entry.judged.finding is None else ""
        self.watch.say(line.removesuffix(" — None") + "  (known)" * entry.known)

    def _check_end(
        self, option: str, commit: Commit, expected: Verdict, deployment: Deployment, *, told: bool
    ) -> None:
        found = self._ask(commit, deployment)
        if found.verdict is expected:
            return
        if found.verdict is Verdict.NOT_JUDGED:
            raise UndecidedError(f"{option} {commit.label} cannot be judged: {found.reason}")
        which = "the given deployment" if told else f"the counterexample of {self.span.bad.label}"
        what = "holds" if found.finding is None else "is violated"
        said = "" if found.finding is None else f": {found.finding.violation.message}"
        raise BisectionError(f"{option} {commit.label}: the contract {what} there on {which}{said}")

    def _check_bases(self, deployment: Deployment) -> None:
        """Where the ends have parted, what lies before counts for the older end."""
        expected = self.span.verdict_of(Side.OLDER)
        for base in self.span.bases:
            found = self._ask(base, deployment)
            parted = f"{self.span.good.label} and {self.span.bad.label} parted at {base.label}"
            if found.verdict is Verdict.NOT_JUDGED:
                raise UndecidedError(f"{parted}, which cannot be judged: {found.reason}")
            if found.verdict is not expected:
                raise BisectionError(
                    f"{parted}, where the contract is {found.verdict} already: what made the "
                    f"difference is on the side of {self.span.older.label}; name {base.label} "
                    "in its place, or search that side"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was found: the first commit, or those among which it is."""

    question: Question
    span: Span
    log: tuple[Entry, ...]
    first: Commit | None
    candidates: tuple[Commit, ...]
    finding: Finding
    subject: Path
    case: Path | None

    @classmethod
    def of(cls, hunt: Hunt, search: Search, question: Question) -> Self:
        """What a search that is over has found."""
        clone = hunt.span.clone
        candidates = tuple(map(clone.commit, search.candidates))
        # Judged last, so nearest to the change; the bad end at least is violated.
        shown, finding = [
            (entry.commit, entry.judged.finding)
            for entry in hunt.log.values()
            if entry.judged.finding is not None
        ][-1]
        subject = exported(clone.path, shown.sha)
        try:
            case = save(finding, subject=str(subject), baseline=question.baseline)
        except OSError as error:  # no reason to keep back what was found
            hunt.watch.say(f"the case cannot be saved: {error}")
            case = None
        return cls(
            question=question,
            span=hunt.span,
            log=tuple(hunt.log.values()),
            first=candidates[0] if len(candidates) == 1 else None,
            candidates=candidates,
            finding=finding,
            subject=subject,
            case=case,
        )
