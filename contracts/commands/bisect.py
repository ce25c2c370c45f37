"""``python -m contracts bisect`` and ``bisect-run``: which commit broke or mended a contract."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
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
from contracts.contract import Verdict
from contracts.deployment import DeploymentError
from contracts.hunt.bisect import Judge, Search, judged, tried
from contracts.hunt.bisection import (
    BisectionError,
    Hunt,
    Question,
    Result,
    UndecidedError,
    span_of,
)
from contracts.hunt.case import CaseError, load
from contracts.hunt.revisions import ExportError, RevisionError
from contracts.inputs import read_deployment
from contracts.report import bisection as report

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


def _question(name: str | None, file: str | None, baseline: str | None) -> Question:
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
    return Question(contract=contract, deployment=deployment, baseline=baseline)


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
        span = span_of(repo, good, bad, find_fix=find_fix)
        if span.clone.dirty:
            click.echo(f"{repo} has uncommitted changes; they are not judged", err=True)
        with baseline_of(question.baseline, device) as other, _Bar() as bar:
            judge = Judge(
                clone=span.clone,
                contract=question.contract,
                report=_Steps(bar),
                device=device,
                baseline=other,
                fresh=fresh,
            )
            hunt = Hunt(judge, span, bar)
            search = hunt.through(question.deployment, profile, jobs)
            result = Result.of(hunt, search, question)
    except (RevisionError, BisectionError) as error:
        bad_input(error)
    except (ExportError, UndecidedError) as error:
        raise CannotJudge(str(error)) from None
    except KeyboardInterrupt:
        click.echo("interrupted; what was judged is kept, the same command goes on", err=True)
        sys.exit(Exit.INTERRUPTED)
    console.print(report.text(result), markup=False, highlight=False, soft_wrap=True)
    write_json(json_file, report.document(result))
    sys.exit(Exit.NOT_JUDGED if result.first is None else Exit.HELD)


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
