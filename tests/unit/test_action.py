"""The action, its reusable workflow, and what docs/adopting.md says of them.

The scripts run in bash as they are written: in git repositories made here, with stand-ins for the
actions of others, for Python and for the gate.
"""

from __future__ import annotations

import ast
import datetime
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from contracts import law, ledger
from contracts.commands.common import Exit
from contracts.commands.gate import gate
from contracts.contract import Verdict
from contracts.hunt.comparison import FAILING, Standing
from contracts.hunt.revisions import Clone, RevisionError

JSON = Any
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adopting.md").read_text(encoding="utf-8")
FILES = (ROOT / "action.yml", *sorted((ROOT / ".github" / "workflows").iterdir()))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
WORKFLOW_FILE = ROOT / ".github" / "workflows" / "pool-contracts.yml"
WORKFLOW = yaml.safe_load(WORKFLOW_FILE.read_text(encoding="utf-8"))
# YAML 1.1 takes the key `on` for true.
INPUTS = WORKFLOW[True]["workflow_call"]["inputs"]
JOB = WORKFLOW["jobs"]["gate"]
PATHS: list[str] = INPUTS["paths"]["default"].split()

POOL = "python/sglang/srt/mem_cache/deepseek_v4_memory_pool.py"
ELSEWHERE = "docs/readme.md"
LEDGER = ".github/known-pool-violations.toml"


def section(name: str) -> str:
    """What stands between the marks of this name on the page."""
    (found,) = re.findall(f"<!-- {name}: begin -->\n(.*?)<!-- {name}: end -->", PAGE, re.DOTALL)
    return str(found)


def block(name: str) -> str:
    """The code block between the marks of this name."""
    (found,) = re.findall(r"```\w+\n(.*?)```", section(name), re.DOTALL)
    return str(found)


def rows(name: str) -> list[list[str]]:
    """The cells of a table between the marks of this name, without its head."""
    lines = section(name).splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# What the files must be, whoever runs them.


def steps() -> Iterator[tuple[str, dict[str, JSON]]]:
    yield from (("action.yml", step) for step in ACTION["runs"]["steps"])
    yield from ((WORKFLOW_FILE.name, step) for step in JOB["steps"])


def test_actions_of_others_are_pinned() -> None:
    """Red when an action is taken by a tag, without its version, or at two commits."""
    pins: dict[str, set[str]] = {}
    for file in FILES:
        for line in re.findall(r"uses: (.*)", file.read_text(encoding="utf-8")):
            if line.startswith("./"):
                continue
            pin = re.fullmatch(r"(actions/[\w-]+)(?:/\w+)?(@[0-9a-f]{40} # v\d+\.\d+\.\d+)", line)
            assert pin, f"{file.name}: {line}"
            pins.setdefault(pin[1], set()).add(pin[2])
    assert {name for name, found in pins.items() if len(found) > 1} == set()
    assert set(pins) == {
        "actions/cache",
        "actions/checkout",
        "actions/setup-python",
        "actions/upload-artifact",
    }


def test_no_expression_is_pasted_into_a_script() -> None:
    """Red when an input or an event's text reaches a script otherwise than as a variable."""
    scripts = [(name, step["run"]) for name, step in steps() if "run" in step]
    assert scripts
    assert [name for name, script in scripts if "${{" in script] == []


def test_the_workflow_may_read_and_nothing_else() -> None:
    """Red when the job gets a right, keeps a credential, or runs on what a stranger controls."""
    assert set(WORKFLOW[True]) == {"workflow_call"}
    assert "secrets" not in WORKFLOW[True]["workflow_call"]
    assert WORKFLOW["permissions"] == {}
    assert set(WORKFLOW["jobs"]) == {"gate"}
    assert JOB["permissions"] == {"contents": "read"}
    checkouts = [step for step in JOB["steps"] if "actions/checkout" in step["uses"]]
    assert [step["with"]["persist-credentials"] for step in checkouts] == [False, False]
    assert "pull_request_target" not in WORKFLOW_FILE.read_text(encoding="utf-8")


def test_the_workflow_ends_and_makes_room() -> None:
    """Red when a run has no limit, or when an older run of a pull request goes on."""
    assert 0 < JOB["timeout-minutes"] <= 60
    assert WORKFLOW["concurrency"]["cancel-in-progress"] is True
    assert "pull_request.number" in WORKFLOW["concurrency"]["group"]


def test_the_job_always_runs() -> None:
    """Red when a required check could pass because its job was skipped."""
    assert "if" not in JOB
    assert "needs" not in JOB
    assert not any("if" in step for step in JOB["steps"])


def test_workflow_and_action_fit() -> None:
    """Red when the workflow passes what the action does not know, or an own default differs."""
    passed = JOB["steps"][-1]["with"]
    assert set(passed) <= set(ACTION["inputs"])
    for name, value in passed.items():
        if value == f"${{{{ inputs.{name} }}}}" and name != "paths":
            assert INPUTS[name]["default"] == ACTION["inputs"][name]["default"], name
    used = set(re.findall(r"inputs\.([\w-]+)", WORKFLOW_FILE.read_text(encoding="utf-8")))
    assert used == set(INPUTS)
    outputs = WORKFLOW[True]["workflow_call"]["outputs"]
    assert set(outputs) == set(JOB["outputs"]) <= set(ACTION["outputs"])


def test_the_label_is_for_what_can_be_expected() -> None:
    """Red when the label stands for a contract that the gate lets nobody expect."""
    (expected,) = re.findall(r"&& '([\w-]+)'", JOB["steps"][-1]["with"]["expect-change"])
    assert law.get(expected).needs_baseline
    assert expected in ACTION["inputs"]["expect-change"]["description"]


def test_python_and_torch_are_those_that_are_tested() -> None:
    """Red when the suite moves on to another torch or Python, and the action does not."""
    defaults = {name: stated["default"] for name, stated in ACTION["inputs"].items()}
    assert f"torch=={defaults['torch-version']}\n" in (ROOT / "tox.ini").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert defaults["python-version"] in SpecifierSet(project["requires-python"])


def test_every_name_is_that_of_something() -> None:
    """Red when a step asks for an output that no step has, or an input that there is not."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    ids = {step["id"] for step in ACTION["runs"]["steps"] if "id" in step}
    assert set(re.findall(r"steps\.(\w+)\.", text)) <= ids
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])


# The scripts, as a runner would run them.

#: A Python that makes environments and judges as it is told.
PYTHON = """#!/usr/bin/env bash
echo "$*" >>"$LOG"
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-P -m contracts gate "*)
    printf '%s\\n' "$@" >"$LOG.gate"
    while [[ $# -gt 0 ]]; do
      if [[ $1 == --json && -n $DOCUMENT ]]; then echo "$DOCUMENT" >"$2"; fi
      shift
    done
    exit "$CODE"
    ;;
esac
"""


@dataclass
class Runner:
    """Runs the action's own scripts in the order and under the conditions that it states."""

    repo: Path
    scratch: Path
    inputs: dict[str, str] = field(default_factory=dict)
    event: dict[str, str] = field(default_factory=dict)
    event_name: str = "pull_request"
    sha: str = ""
    code: int = 0
    document: str = "{}"
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    said: str = ""
    failed: bool = False

    def run(self) -> Runner:
        self.scratch.mkdir(exist_ok=True)
        python = self.scratch / "python"
        python.write_text(PYTHON, encoding="utf-8")
        python.chmod(0o755)
        self.outputs["python"] = {"python-path": str(python)}
        self.outputs["restore"] = {"cache-hit": "", "cache-primary-key": "key"}
        for step in ACTION["runs"]["steps"]:
            if not self.failed and self._true(step.get("if", "true")):
                self.ran.append(step["name"])
                if "run" in step:
                    self._script(step)
        return self

    def _script(self, step: Mapping[str, JSON]) -> None:
        assert step["shell"] == "bash"
        written = self.scratch / "output"
        written.write_text("", encoding="utf-8")
        runner = {
            "GITHUB_OUTPUT": written,
            "GITHUB_STEP_SUMMARY": self.scratch / "summary",
            "GITHUB_EVENT_NAME": self.event_name,
            "GITHUB_SHA": self.sha,
            "GITHUB_ACTION_PATH": ROOT,
            "RUNNER_TEMP": self.scratch,
            "LOG": self.scratch / "log",
            "CODE": self.code,
            "DOCUMENT": self.document,
        }
        env = {name: self._text(str(value)) for name, value in step.get("env", {}).items()}
        # As GitHub runs `shell: bash`. `CODE` is also a step's own name for what came of another.
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.repo,
            env={"PATH": os.environ["PATH"], **{k: str(v) for k, v in runner.items()}, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        self.said += ended.stdout
        self.failed = ended.returncode != 0
        told = dict(line.split("=", 1) for line in written.read_text("utf-8").splitlines())
        self.outputs[step.get("id", step["name"])] = told

    def _text(self, text: str) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: self._value(found[1]), text)

    def _value(self, expression: str) -> str:
        """An expression of alternatives, each a name."""
        for name in expression.split(" || "):
            if value := self._named(name):
                return value
        return ""

    def _named(self, name: str) -> str:
        kind, _, rest = name.partition(".")
        if kind == "inputs":
            return self.inputs.get(rest, str(ACTION["inputs"][rest]["default"]))
        if kind == "steps":
            step, _, output = rest.partition(".outputs.")
            return self.outputs.get(step, {}).get(output, "")
        assert kind == "github", name
        return self.event.get(rest.removeprefix("event."), "")

    def _true(self, condition: str) -> bool:
        """A condition of comparisons, all of which must hold."""
        if condition == "true":
            return True
        for one in condition.split(" && "):
            compared = re.fullmatch(r"(\S+) (==|!=) '(\w*)'", one)
            assert compared, condition
            if (self._named(compared[1]) == compared[3]) != (compared[2] == "=="):
                return False
        return True

    @property
    def outcome(self) -> str:
        return self.outputs.get("conclude", {}).get("outcome", "")

    @property
    def asked(self) -> list[str]:
        """What the gate was called with."""
        called = self.scratch / "log.gate"
        return called.read_text("utf-8").splitlines()[4:] if called.exists() else []

    @property
    def baseline(self) -> str:
        return self.asked[self.asked.index("--baseline") + 1]


def git(repo: Path, *arguments: str, given: str = "") -> str:
    plain = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    who = {
        f"GIT_{role}_{what}": "somebody@localhost"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    return subprocess.run(
        ["git", *arguments],
        cwd=repo,
        env={**plain, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
        input=given,
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout.strip()


def commit(repo: Path, *files: str) -> str:
    """A commit that changes these files."""
    for name in files:
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("changed\n")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", f"change {', '.join(files)}")
    return git(repo, "rev-parse", "HEAD")


@dataclass(frozen=True)
class Story:
    """A branch that left main at ``parting``, before main went on to ``target``; ``merge`` is what
    GitHub checks out."""

    repo: Path
    parting: str
    target: str
    head: str
    merge: str


def tell(folder: Path, *changed: str) -> Story:
    repo = folder / "sglang"
    repo.mkdir(parents=True)
    git(repo, "init", "--quiet", "--initial-branch=main")
    commit(repo, POOL, ELSEWHERE, LEDGER, "python/pyproject.toml")
    parting = git(repo, "rev-parse", "HEAD")
    git(repo, "switch", "--quiet", "--create", "branch")
    commit(repo, "elsewhere.md")
    head = commit(repo, *changed)
    git(repo, "switch", "--quiet", "main")
    target = commit(repo, "python/sglang/srt/mem_cache/another.py")
    git(repo, "switch", "--quiet", "--detach")
    git(repo, "merge", "--quiet", "--no-ff", "--message", "merge", "branch")
    return Story(repo, parting, target, head, git(repo, "rev-parse", "HEAD"))


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return tell(tmp_path, POOL)


def pull_request(story: Story, scratch: Path, **options: Any) -> Runner:
    """A run on a pull request; the event still has main as it was when the branch left it."""
    event = {"pull_request.base.sha": story.parting, "before": "0" * 40}
    return Runner(story.repo, scratch / "scratch", event=event, sha=story.merge, **options).run()


def test_a_pull_request_is_compared_with_what_it_is_merged_into(
    story: Story, tmp_path: Path
) -> None:
    """Red when what others merged meanwhile is taken for the pull request's."""
    runner = pull_request(story, tmp_path)
    assert runner.baseline == story.target
    assert (runner.outcome, runner.failed) == ("held", False)
    assert runner.ran == [step["name"] for step in ACTION["runs"]["steps"]]


def test_a_head_is_compared_with_where_it_left(story: Story, tmp_path: Path) -> None:
    """Red when a workflow that checks out the head itself, even one that is a merge, gets another
    baseline than the merge base."""
    git(story.repo, "switch", "--quiet", "branch")
    git(story.repo, "merge", "--quiet", "--no-ff", "--message", "catch up", story.target)
    event = {"pull_request.base.sha": story.target}
    runner = Runner(story.repo, tmp_path / "scratch", event=event, sha=story.merge).run()
    assert runner.baseline == story.target
    git(story.repo, "switch", "--quiet", "--detach", story.head)
    runner = Runner(story.repo, tmp_path / "scratch", event=event, sha=story.merge).run()
    assert runner.baseline == story.parting


@pytest.mark.parametrize(
    ("event_name", "key"), [("push", "before"), ("merge_group", "merge_group.base_sha")]
)
def test_a_push_is_compared_with_what_was_there(
    story: Story, tmp_path: Path, event_name: str, key: str
) -> None:
    """Red when a push or a merge queue is judged against nothing or something else."""
    event = {key: story.target}
    runner = Runner(
        story.repo, tmp_path / "scratch", event=event, event_name=event_name, sha=story.merge
    ).run()
    assert runner.baseline == story.target


def test_a_stated_baseline_is_taken(story: Story, tmp_path: Path) -> None:
    """Red when the input baseline is not what the gate gets; a release is none of git's."""
    inputs = {"baseline": "0.5.23", "paths": "\n".join(PATHS)}
    assert pull_request(story, tmp_path, inputs=inputs).baseline == "0.5.23"


def test_an_event_without_a_baseline_says_so(story: Story, tmp_path: Path) -> None:
    """Red when nothing tells the baseline and the job passes."""
    runner = Runner(story.repo, tmp_path / "scratch", event_name="workflow_dispatch").run()
    assert runner.failed
    assert "name it with the input baseline" in runner.said
    assert runner.asked == []


def test_a_clone_that_is_too_shallow_is_left_to_the_gate(story: Story, tmp_path: Path) -> None:
    """Red when a missing history is guessed at, or the gate has no sentence for it."""
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{story.repo}", str(shallow))
    inputs = {"paths": "\n".join(PATHS)}
    runner = pull_request(
        Story(shallow, story.parting, story.target, story.head, story.merge),
        tmp_path,
        inputs=inputs,
        code=2,
        document="",
    )
    assert runner.baseline == story.parting
    assert (runner.outcome, runner.failed) == ("usage", True)
    with pytest.raises(RevisionError, match=r"shallow clone.*--unshallow"):
        Clone(shallow).commit(story.parting)


@pytest.mark.parametrize(
    ("changed", "inputs", "affected"),
    [
        (POOL, {}, True),
        (ELSEWHERE, {}, False),
        (ELSEWHERE, {"paths": ""}, True),
        (LEDGER, {}, False),
        (LEDGER, {"ledger": LEDGER}, True),
        ("python/sglang/srt/server_args.py", {}, True),
        ("python/sglang/srt/mem_cache/storage/new/file.py", {}, True),
        ("python/sglang/srt/disaggregation/utils.py", {}, True),
        ("python/sglang/srt/disaggregation/mooncake/conn.py", {}, False),
        ("python/sglang/srt/models/llama.py", {}, False),
        ("other/python/sglang/srt/server_args.py", {}, False),
    ],
)
def test_only_what_concerns_the_pools_is_judged(
    tmp_path: Path, changed: str, inputs: dict[str, str], affected: bool
) -> None:
    """Red when the workflow's patterns let a change slip by, or judge one that concerns nothing;
    what others merged meanwhile does."""
    inputs = {"paths": INPUTS["paths"]["default"], "mode": "required", **inputs}
    runner = pull_request(tell(tmp_path, changed), tmp_path, inputs=inputs)
    assert bool(runner.asked) is affected
    assert runner.outcome == ("held" if affected else "unaffected")
    assert not runner.failed
    summary = runner.scratch / "summary"
    assert summary.exists() is not affected


def test_the_gate_is_called_as_it_wants_to_be(story: Story, tmp_path: Path) -> None:
    """Red when the action uses an option that the gate does not have."""
    inputs = {"ledger": LEDGER, "expect-change": " pp1-unchanged\n"}
    runner = pull_request(story, tmp_path, inputs=inputs)
    called = gate.make_context("gate", runner.asked).params
    assert called["candidate"] == "."
    assert called["ledger_file"] == Path(LEDGER)
    assert called["expected"] == ("pp1-unchanged",)
    reports = Path(runner.outputs["scope"]["reports"])
    assert called["junit_file"] == reports / "gate.xml"
    assert called["markdown_file"] == reports / "gate.md"
    assert called["json_file"] == str(reports / "gate.json")
    plain = gate.make_context("gate", pull_request(story, tmp_path).asked).params
    assert (plain["ledger_file"], plain["expected"]) == (None, ())


def test_torch_comes_from_where_it_is_said(story: Story, tmp_path: Path) -> None:
    """Red when the index is used for more than torch, or torch for less than what is stated."""
    inputs = {"torch-index-url": "somewhere", "torch-version": "2.9"}
    pull_request(story, tmp_path, inputs=inputs)
    log = (tmp_path / "scratch" / "log").read_text("utf-8").splitlines()
    installs = [line for line in log if line.startswith("-m pip install")]
    assert installs == [
        "-m pip install --quiet --index-url somewhere torch==2.9",
        f"-m pip install --quiet {ROOT}",
    ]


def test_the_cache_follows_what_is_required(story: Story, tmp_path: Path) -> None:
    """Red when a cache is kept although the candidate requires something else, or is not kept
    although it does not."""
    before = pull_request(story, tmp_path).outputs["install"]
    assert pull_request(story, tmp_path).outputs["install"] == before
    with (story.repo / "python" / "pyproject.toml").open("a", encoding="utf-8") as project:
        project.write("more\n")
    after = pull_request(story, tmp_path).outputs["install"]
    assert after["suite"] == before["suite"]
    assert after["required"] != before["required"]


def test_a_mode_that_there_is_not(story: Story, tmp_path: Path) -> None:
    """Red when a misspelt mode is taken for a lenient one."""
    runner = pull_request(story, tmp_path, inputs={"mode": "Required"})
    assert runner.failed
    assert "must be advisory or required" in runner.said


MEANINGS = {
    "held": Exit.HELD,
    "violated": Exit.VIOLATED,
    "usage": Exit.USAGE,
    "not judged": Exit.NOT_JUDGED,
}


def test_the_page_states_every_outcome() -> None:
    """Red when the gate has another exit code than the page says."""
    stated = {cells[0].split("`")[1]: cells[1] for cells in rows("outcomes")}
    assert stated == {
        "unaffected": "",
        **{name: str(int(code)) for name, code in MEANINGS.items()},
        "broken": "any other",
    }
    described = re.findall(r"`([^`]+)`", ACTION["outputs"]["outcome"]["description"])
    assert set(described) == set(stated)


@pytest.mark.parametrize("cells", rows("outcomes"), ids=lambda cells: cells[0].split("`")[1])
@pytest.mark.parametrize("mode", ["advisory", "required"])
def test_each_outcome_is_what_the_page_says(tmp_path: Path, cells: list[str], mode: str) -> None:
    """Red when advisory fails on more, or required on less, than the page says."""
    name, said = cells[0].split("`")[1], cells[2 if mode == "advisory" else 3]
    code = int(cells[1]) if cells[1].isdigit() else int(Exit.INTERRUPTED)
    inputs = {"mode": mode, "paths": INPUTS["paths"]["default"]}
    story = tell(tmp_path, ELSEWHERE if name == "unaffected" else POOL)
    runner = pull_request(story, tmp_path, inputs=inputs, code=code)
    assert runner.outcome == name
    assert ("fails" if runner.failed else "passes") == said.split(",")[0]
    assert ("::warning " in runner.said) is ("warning" in said)
    assert ("::error " in runner.said) is runner.failed


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("mode", ["advisory", "required"])
def test_a_verdict_comes_with_a_document(
    story: Story, tmp_path: Path, code: int, mode: str
) -> None:
    """Red when a gate that breaks off, as Python does with 1, is taken for one that judged; or
    when the document of an earlier run is taken for this one's."""
    pull_request(story, tmp_path, inputs={"mode": mode}, code=code)
    runner = pull_request(story, tmp_path, inputs={"mode": mode}, code=code, document="")
    assert (runner.outcome, runner.failed) == ("broken", True)


# What the filter must let through.


def used_of_sglang() -> set[str]:
    """The modules of SGLang that the suite itself imports."""
    found = set()
    for file in (ROOT / "contracts" / "subject").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang.srt"):
                # A name may be a module of a package; that it may is enough.
                found.add(str(node.module))
    return found


def test_what_the_suite_imports_is_not_filtered(tmp_path: Path) -> None:
    """Red when an adapter begins to use a part of SGLang whose changes would not be judged."""
    modules = used_of_sglang()
    assert "sglang.srt.model_executor.pool_configurator" in modules
    # Loads transformers' configurations, and is no part of sizing.
    modules -= {"sglang.srt.utils.hf_transformers", "sglang.srt.utils.common"}
    # A package that only leads to modules which are imported in their own right.
    modules -= {"sglang.srt", "sglang.srt.model_executor"}
    # A module is a file or, as a package, a folder.
    places = {
        module: {f"python/{module.replace('.', '/')}{end}" for end in (".py", "/a.py")}
        for module in modules
    }
    kept = matched(listed(tmp_path, set().union(*places.values())), PATHS)
    assert [module for module, files in places.items() if not files & kept] == []


def listed(folder: Path, files: Iterable[str]) -> Path:
    """A git repository that has files of these names."""
    git(folder, "init", "--quiet")
    empty = git(folder, "hash-object", "-w", "--stdin")
    git(
        folder,
        "update-index",
        "--index-info",
        given="".join(f"100644 {empty}\t{name}\n" for name in files),
    )
    return folder


def matched(repo: Path, patterns: Iterable[str]) -> set[str]:
    """The files that git matches with these patterns, as the action puts them."""
    found = git(repo, "ls-files", "--", *(f":(glob,top){pattern}" for pattern in patterns))
    return set(found.splitlines())


# What the page says.


def test_the_caller_of_the_page() -> None:
    """Red when the page's workflow does not fit the reusable one, or gets what it need not."""
    caller = yaml.safe_load(block("caller"))
    (job,) = caller["jobs"].values()
    owner, _, rest = job["uses"].partition("/sglang-pool-contracts/")
    assert (owner, rest) == ("OWNER", f"{WORKFLOW_FILE.relative_to(ROOT)}@COMMIT")
    assert set(job["with"]) <= set(INPUTS)
    assert job["with"]["mode"] == "advisory"
    assert caller["permissions"] == {}
    assert job["permissions"] == JOB["permissions"]
    assert "paths" not in json.dumps(caller[True])
    assert {"labeled", "unlabeled"} < set(caller[True]["pull_request"]["types"])
    (name,) = caller["jobs"]
    assert f"`{name} / {JOB['name']}`" in PAGE


def test_the_ledger_of_the_page(tmp_path: Path) -> None:
    """Red when the page's entry is none, or does not speak of a plain checkout."""
    file = tmp_path / "known.toml"
    file.write_text(block("ledger"), encoding="utf-8")
    known = ledger.load(file, today=datetime.date(2026, 10, 1))
    (entry,) = known.entries
    assert "0.0.0.dev0" in entry.subjects
    assert LEDGER in PAGE


def test_the_verdicts_of_the_page() -> None:
    """Red when there is another verdict than the page says."""
    assert [cells[0] for cells in rows("verdicts")] == [str(one) for one in Verdict]


def test_the_standings_of_the_page() -> None:
    """Red when there is another standing, or another one fails, than the page says."""
    stated = {cells[0]: cells[2] for cells in rows("standings")}
    assert list(stated) == [str(one) for one in Standing]
    assert {name for name, fails in stated.items() if fails == "yes"} == set(map(str, FAILING))
    assert set(stated.values()) == {"yes", "no"}


def test_the_settings_of_the_page() -> None:
    """Red when the page lacks an input, has one too many, or states another default."""
    stated = {cells[0].strip("`"): cells[1].strip("`") for cells in rows("inputs")}
    defaults = {name: INPUTS[name]["default"] for name in INPUTS}
    assert stated == {**defaults, "paths": "the files that size and allocate"}


def test_the_fields_that_the_page_reads() -> None:
    """Red when the page's one-liner asks for what the gate's document does not have."""
    (line,) = re.findall(r"python -c '(.*)'", PAGE)
    schema = json.loads((ROOT / "docs" / "gate.schema.json").read_text(encoding="utf-8"))
    comparison = schema["$defs"]["comparison"]["properties"]
    asked = set(re.findall(r'c\["(\w+)"\]', line))
    assert asked == {"id", "factor", "deployment", "fails"}
    assert asked <= set(comparison)


def test_the_one_liner_of_the_page(tmp_path: Path) -> None:
    """Red when the page's one-liner does not run."""
    (line,) = re.findall(r"python -c '(.*)'", PAGE)
    contracts = [
        {"id": "paging", "factor": None, "deployment": {"pp_size": 2}, "fails": True},
        {"id": "monotone", "factor": 2, "deployment": None, "fails": False},
    ]
    (tmp_path / "gate.json").write_text(json.dumps({"contracts": contracts}), encoding="utf-8")
    python = shutil.which("python3") or "python"
    said = subprocess.run(
        [python, "-c", line], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True
    ).stdout
    assert said == 'paging None {"pp_size": 2}\n'


def test_the_links_of_the_page() -> None:
    """Red when the page leads nowhere."""
    headings = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        if link.startswith("#"):
            assert link[1:] in headings
        elif not link.startswith("https://"):
            assert (ROOT / "docs" / link.partition("#")[0]).exists(), link
