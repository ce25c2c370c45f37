"""``python -m contracts bisect`` and ``bisect-run``: which commit broke or mended a contract."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from contracts import profiles
from contracts.commands.common import (
    CannotJudge,
    Exit,
    bad_input,
    baseline_of,
    baseline_option,
    chosen_contracts,
    client_of,
    console_for,
    device_option,
    jobs_option,
    json_option,
    write_json,
)
from contracts.contract import Contract, Verdict
from contracts.deployment import Deployment, DeploymentError
from contracts.examination import Finding
from contracts.hunt.bisect import Judge, Judged, Search, Side, judged, tried
from contracts.hunt.case import CaseError, load, save
from contracts.hunt.revisions import Clone, Commit, ExportError, History, RevisionError, exported
from contracts.inputs import read_deployment
from contracts.report import violation as violation_report

__all__ = ["SKIPPED", "bisect", "bisect_run"]

JSON = Any

#: What a command of `git bisect run` ends with where it has no verdict. git takes all other codes
#: from 1 to 127 for bad.
SKIPPED = 125

contract_option = click.option(
    "--contract",
    "name",
    metavar="ID",
    help="The contract that decides; see `python -m contracts list`. A saved case names its own.",
)
deployment_option = click.option(
    "--deployment",
    "file",
    metavar="FILE",
    help="The deployment that decides, as JSON: a saved case, or what observe takes.",
)
repo_option = click.option(
    "--repo",
    metavar="CLONE",
    type=click.Path(path_type=Path),
    default=Path(),
    help="The clone of SGLang.  [default: the current directory]",
)
profile_option = click.option(
    "--profile",
    type=click.Choice(list(profiles.PROFILES)),
    default=profiles.DEFAULT,
    show_default=True,
    help="How much to generate where no deployment is given.",
)
find_fix_option = click.option(
    "--find-fix",
    is_flag=True,
    help="The older end violates: find the first commit on which the contract holds again.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What is asked of every commit."""

    contract: Contract
    deployment: Deployment | None
    baseline: str | None


def _question(name: str | None, file: str | None, baseline: str | None) -> _Question:
    """What the options ask; a saved case fills in what they leave out."""
    deployment = None
    if file is not None:
        try:
            case = load(Path(file))
            name, baseline = name or case.contract, baseline or case.baseline
            deployment = case.deployment
        except CaseError:  # then it is a deployment, or bad input
            try:
                deployment = read_deployment(file)
            except DeploymentError as error:
                bad_input(error)
    if name is None:
        bad_input("--contract is missing: only a saved case names its own")
    (contract,) = chosen_contracts([name], baseline)
    return _Question(contract=contract, deployment=deployment, baseline=baseline)


# -- bisect ----------------------------------------------------------------------------------------


@click.command()
@click.option("--good", metavar="REV", required=True, help="A commit on which the contract holds.")
@click.option("--bad", metavar="REV", required=True, help="A commit on which it is violated.")
@repo_option
@contract_option
@deployment_option
@find_fix_option
@baseline_option
@profile_option
@click.option("--fresh", is_flag=True, help="Judge again what is known from earlier runs.")
@device_option
@jobs_option
@json_option
def bisect(
    *,
    good: str,
    bad: str,
    repo: Path,
    name: str | None,
    file: str | None,
    find_fix: bool,
    baseline: str | None,
    profile: str,
    fresh: bool,
    device: str,
    jobs: int,
    json_file: str | None,
) -> None:
    """Find the first commit of an SGLang clone that violates a contract.

    The clone's work tree, index and refs are left alone; what is committed is judged. Without
    --deployment, --bad is judged as judge does, and the simplest counterexample decides on all
    other commits. Commits that cannot be judged are stepped past. Verdicts are kept in the cache:
    after an interrupt the same command goes on.

    \b
    Examples:
      python -m contracts bisect --good v0.5.20 --bad v0.5.21 --repo ../sglang --contract paging
      python -m contracts bisect --good v0.5.12 --bad main --deployment .contracts/paging-1f.json
      python -m contracts bisect --bad v0.5.12 --good v0.5.13 --find-fix --contract rank-sum

    Exit codes: 0 found, 2 usage or bad input, 3 too little can be judged to tell.
    """
    question = _question(name, file, baseline)
    console = console_for(json_file)
    try:
        span = _span(repo, good, bad, find_fix=find_fix)
        with baseline_of(question.baseline, device) as other, _Bar() as bar:
            judge = Judge(
                clone=span.clone,
                contract=question.contract,
                report=_Steps(bar),
                device=device,
                baseline=other,
                fresh=fresh,
            )
            hunt = _Hunt(judge, span, bar)
            search = hunt.through(question.deployment, profile, jobs)
            result = _Result.of(hunt, search, question)
    except RevisionError as error:
        bad_input(error)
    except ExportError as error:
        raise CannotJudge(str(error)) from None
    except KeyboardInterrupt:
        click.echo("interrupted; what was judged is kept, the same command goes on", err=True)
        sys.exit(Exit.INTERRUPTED)
    console.print(result.text(), markup=False, highlight=False, soft_wrap=True)
    write_json(json_file, result.to_json())
    sys.exit(Exit.NOT_JUDGED if result.first is None else Exit.HELD)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
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


def _span(repo: Path, good: str, bad: str, *, find_fix: bool) -> _Span:
    """What the options name, checked.

    Raises:
        RevisionError: there is no such clone or commit, or it has not all that is needed.
    """
    clone = Clone(repo)
    ends = {"--good": clone.commit(good), "--bad": clone.commit(bad)}
    for option, commit in ends.items():
        if not clone.has_sglang(commit):
            bad_input(
                f"{option} {commit.label}: {repo} is no clone of SGLang, or this commit is none: "
                "it has neither python/sglang/srt nor sglang/srt"
            )
    one, other = ends.values()
    older, newer = (other, one) if find_fix else (one, other)
    _check_order(older, newer, clone, find_fix=find_fix)
    bases = () if clone.is_ancestor(older, newer) else tuple(clone.bases(older, newer))
    if clone.dirty:
        click.echo(f"{repo} has uncommitted changes; they are not judged", err=True)
    return _Span(
        clone=clone,
        good=one,
        bad=other,
        history=clone.history(newer, older),
        bases=bases,
        find_fix=find_fix,
    )


def _check_order(older: Commit, newer: Commit, clone: Clone, *, find_fix: bool) -> None:
    if older.sha == newer.sha:
        bad_input(f"--good and --bad are the same commit, {older.label}")
    if clone.is_ancestor(newer, older):
        hint = (
            "leave --find-fix out to find the commit that broke the contract"
            if find_fix
            else "add --find-fix to find the commit that mended the contract"
        )
        first, second = ("--good", "--bad") if find_fix else ("--bad", "--good")
        bad_input(f"{first} {newer.label} comes before {second} {older.label}; {hint}")
    if not clone.is_ancestor(older, newer):
        if clone.shallow:
            bad_input(
                f"{older.label} does not come before {newer.label} in {clone.path}, which is a "
                "shallow clone; `git fetch --unshallow` brings what it lacks"
            )
        if not clone.bases(older, newer):
            bad_input(f"{older.label} and {newer.label} have no history in common")


class _Bar:
    """What is left as a bar, and a line for each verdict, on standard error.

    A bar moves by halvings of the range, which take about equally long.
    """

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task("", total=None)
        self._halvings = 0.0
        self._range = ""

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """A line above the bar."""
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def doing(self, text: str) -> None:
        """What is done now, beside the bar."""
        self._progress.update(self._task, description=self._range + text)

    def begin(self, total: int) -> None:
        """So many deployments are tried."""
        self._progress.update(self._task, total=total)

    def advance(self) -> None:
        """One of them is done."""
        self._progress.advance(self._task)

    def left(self, search: Search) -> None:
        """Show the range that is left; where no bar is seen, as a line."""
        said = f"{search.left} commits, about {search.steps} to judge"
        if not self._progress.console.is_terminal:
            self.say(said)
        self._range = f"{said}: "
        halvings = math.log2(search.left)
        self._halvings = max(self._halvings, halvings)
        completed = self._halvings - halvings
        self._progress.update(self._task, total=self._halvings or 1.0, completed=completed)


class _Steps:
    """What is fetched is a line above the bar (see ``contracts.subject.overlay.Report``)."""

    def __init__(self, bar: _Bar) -> None:
        self._bar = bar

    def begin(self, step: str) -> None:
        """Say the step."""
        self._bar.say(step)

    def detail(self, text: str) -> None:
        """Keep it to oneself: there is a bar already."""

    def end(self) -> None:
        """Keep it to oneself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A commit that was judged, now or in an earlier run."""

    commit: Commit
    judged: Judged
    known: bool


@dataclass(slots=True)
class _Hunt:
    """One run: what was judged, in this order."""

    judge: Judge
    span: _Span
    bar: _Bar
    log: dict[str, _Entry] = field(default_factory=dict)

    def through(self, deployment: Deployment | None, profile: str, jobs: int) -> Search:
        """Find the deployment, check the ends and search to the end."""
        told = deployment is not None
        deployment = deployment or self._counterexample(profile, jobs)
        self._check_end("--bad", self.span.bad, Verdict.VIOLATED, deployment, told=told)
        self._check_end("--good", self.span.good, Verdict.HELD, deployment, told=told)
        self._check_bases(deployment)
        search = Search(self.span.history)
        while (sha := search.next()) is not None:
            self.bar.left(search)
            found = self._ask(self.span.clone.commit(sha), deployment)
            search.tell(sha, self.span.side_of(found.verdict))
        return search

    def _counterexample(self, profile: str, jobs: int) -> Deployment:
        bad = self.span.bad
        self.bar.doing(f"looking for a counterexample on {bad.label}")
        known = self.judge.known(bad, profile)
        found = known or self.judge.counterexample(
            bad, profile, jobs=jobs, started=self.bar.begin, progress=self.bar.advance
        )
        if found.verdict is Verdict.HELD:
            bad_input(
                f"--bad {bad.label}: {self.judge.contract.id} holds there on all deployments of "
                f"the {profile} profile"
            )
        if found.finding is None:
            raise CannotJudge(f"--bad {bad.label} cannot be judged: {found.reason}")
        self._note(_Entry(commit=bad, judged=found, known=known is not None))
        return found.finding.deployment

    def _ask(self, commit: Commit, deployment: Deployment) -> Judged:
        if commit.sha not in self.log:
            self.bar.doing(commit.label)
            known = self.judge.known(commit, deployment)
            found = known or self.judge.judge(commit, deployment)
            self._note(_Entry(commit=commit, judged=found, known=known is not None))
        return self.log[commit.sha].judged

    def _note(self, entry: _Entry) -> None:
        self.log[entry.commit.sha] = entry
        line = f"{entry.judged.verdict:<10}  {entry.commit.label}  {entry.commit.title}"
        line += f" — {entry.judged.reason}" if entry.judged.finding is None else ""
        self.bar.say(line.removesuffix(" — None") + "  (known)" * entry.known)

    def _check_end(
        self, option: str, commit: Commit, expected: Verdict, deployment: Deployment, *, told: bool
    ) -> None:
        found = self._ask(commit, deployment)
        if found.verdict is expected:
            return
        if found.verdict is Verdict.NOT_JUDGED:
            raise CannotJudge(f"{option} {commit.label} cannot be judged: {found.reason}")
        which = "the given deployment" if told else f"the counterexample of {self.span.bad.label}"
        what = "holds" if found.finding is None else "is violated"
        said = "" if found.finding is None else f": {found.finding.violation.message}"
        bad_input(f"{option} {commit.label}: the contract {what} there on {which}{said}")

    def _check_bases(self, deployment: Deployment) -> None:
        """Where the ends have parted, what lies before counts for the older end."""
        expected = self.span.verdict_of(Side.OLDER)
        for base in self.span.bases:
            found = self._ask(base, deployment)
            parted = f"{self.span.good.label} and {self.span.bad.label} parted at {base.label}"
            if found.verdict is Verdict.NOT_JUDGED:
                raise CannotJudge(f"{parted}, which cannot be judged: {found.reason}")
            if found.verdict is not expected:
                bad_input(
                    f"{parted}, where the contract is {found.verdict} already: what made the "
                    f"difference is on the side of {self.span.older.label}; name {base.label} "
                    "in its place, or search that side"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What was found: the first commit, or those among which it is."""

    question: _Question
    span: _Span
    log: tuple[_Entry, ...]
    first: Commit | None
    candidates: tuple[Commit, ...]
    finding: Finding
    subject: Path
    replay: str | None

    @classmethod
    def of(cls, hunt: _Hunt, search: Search, question: _Question) -> Self:
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
            replay = violation_report.replay_line(case)
        except OSError as error:  # no reason to keep back what was found
            hunt.bar.say(f"the case cannot be saved: {error}")
            replay = None
        return cls(
            question=question,
            span=hunt.span,
            log=tuple(hunt.log.values()),
            first=candidates[0] if len(candidates) == 1 else None,
            candidates=candidates,
            finding=finding,
            subject=subject,
            replay=replay,
        )

    def text(self) -> str:
        """What was found, for a reader."""
        lines = self._candidates() if self.first is None else self._first(self.first)
        shown = violation_report.text(
            self.finding, subject=self.subject.name, replay=self.replay or "not saved"
        )
        return "\n".join([*lines, f"  {self._counted()}", "", shown])

    def _first(self, first: Commit) -> list[str]:
        what = "bad commit"
        if self.span.find_fix:
            what = f"commit on which {self.question.contract.id} holds"
        return [
            f"first {what}: {first.sha}",
            f"  {first.title}",
            f"  {first.label}, author date {first.date}",
        ]

    def _candidates(self) -> list[str]:
        return [
            f"the first is one of these {len(self.candidates)} commits; all but the last one "
            "cannot be judged",
            *(f"  {commit.sha}  {commit.title}" for commit in self.candidates),
        ]

    def _counted(self) -> str:
        known = sum(entry.known for entry in self.log)
        past = sum(entry.judged.verdict is Verdict.NOT_JUDGED for entry in self.log)
        text = f"{len(self.log) - past} commits judged, {past} stepped past"
        return text + (f"; {known} of them known from earlier runs" if known else "")

    def _violation(self) -> JSON:
        fields = dataclasses.asdict(self.finding.violation)
        del fields["contract"]  # said above
        deployment = self.finding.deployment.to_json()
        return {**fields, "deployment": deployment, "replay": self.replay}

    def to_json(self) -> JSON:
        """What was found, for a program (docs/bisect.md)."""
        return {
            "schema": 1,
            "contract": self.question.contract.id,
            "find_fix": self.span.find_fix,
            "good": dataclasses.asdict(self.span.good),
            "bad": dataclasses.asdict(self.span.bad),
            "first": None if self.first is None else dataclasses.asdict(self.first),
            "candidates": [dataclasses.asdict(commit) for commit in self.candidates],
            "judged": [
                {
                    **dataclasses.asdict(entry.commit),
                    "verdict": str(entry.judged.verdict),
                    "reason": entry.judged.reason,
                    "known": entry.known,
                }
                for entry in self.log
            ],
            "violation": self._violation(),
        }


# -- bisect-run ------------------------------------------------------------------------------------


class _NeverBad(click.Command):
    """A command of ``git bisect run``: whatever goes wrong, it does not look like a verdict."""

    def make_context(self, *words: Any, **options: Any) -> click.Context:
        """Read the options."""
        with _skipping():
            return super().make_context(*words, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run."""
        with _skipping():
            return super().invoke(ctx)


class _Skipped(click.ClickException):
    """Nothing is known of the commit; the text says why."""

    exit_code = SKIPPED


@contextlib.contextmanager
def _skipping() -> Iterator[None]:
    try:
        yield
    except (click.exceptions.Exit, click.Abort):
        raise
    except click.ClickException as error:
        raise _Skipped(error.format_message()) from None
    except Exception as error:  # a traceback would end with 1, which says violated
        raise _Skipped(f"{type(error).__name__}: {error}") from error


@click.command("bisect-run", cls=_NeverBad)
@repo_option
@contract_option
@deployment_option
@find_fix_option
@baseline_option
@profile_option
@device_option
@jobs_option
def bisect_run(
    *,
    repo: Path,
    name: str | None,
    file: str | None,
    find_fix: bool,
    baseline: str | None,
    profile: str,
    device: str,
    jobs: int,
) -> None:
    """Judge what is checked out, for `git bisect run`.

    Try the whole command once by hand before git runs it: what Python ends with where it does not
    find this suite, git takes for bad.

    \b
    Examples:
      python -m contracts bisect-run --deployment case.json --repo ../sglang
      git bisect run python -m contracts bisect-run --contract paging --deployment case.json

    Exit codes: 0 the contract holds, 1 it is violated (with --find-fix the other way round),
    125 everything else, with which git skips the commit.
    """
    question = _question(name, file, baseline)
    contract = question.contract
    with (
        client_of(str(repo.absolute()), device) as client,
        baseline_of(question.baseline, device) as other,
    ):
        if question.deployment is None:
            found = tried(contract, client, other, profile=profile, jobs=jobs)
        else:
            found = judged(contract, question.deployment, client, other)
    said = found.reason if found.finding is None else found.finding.violation.message
    detail = f": {said.removeprefix(f'{contract.id}: ')}" if said else ""
    click.echo(f"{contract.id} {found.verdict}{detail}")
    codes = {Verdict.HELD: int(find_fix), Verdict.VIOLATED: int(not find_fix)}
    sys.exit(codes.get(found.verdict, SKIPPED))
