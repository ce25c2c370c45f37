"""Overlays are fetched by the real pip, from tiny wheels on the disk instead of an index."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rich.console import Console

import contracts
from contracts.subject import overlay
from contracts.subject.overlay import RECIPE, Cache, ConsoleReport, OverlayError, Recipe

NO_PIP = ("/there/is/no/pip",)


class Recorded:
    """A report that keeps what it was told."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.open = 0

    def begin(self, step: str) -> None:
        self.steps.append(step)
        self.open += 1

    def detail(self, text: str) -> None:
        pass

    def end(self) -> None:
        self.open -= 1


def write_wheel(
    index: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> None:
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {line}" for line in requires]
    content = {
        **(files if files is not None else {f"{name}/__init__.py": f"v = {version!r}\n"}),
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    with zipfile.ZipFile(index / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**content, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)


@pytest.fixture(scope="module", autouse=True)
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All that pip can see: releases with different pins, and what goes under them."""
    index = tmp_path_factory.mktemp("index")
    write_wheel(index, "sglang", "1.0", requires=["transformers==5.0", "torch==9"])
    write_wheel(index, "sglang", "1.1", requires=["transformers==5.0"])
    write_wheel(index, "sglang", "2.0", requires=["transformers==6.0", "tokenizers==1.0"])
    write_wheel(index, "transformers", "5.0", requires=["tokenizers<2", "alpha"])
    write_wheel(index, "transformers", "6.0", requires=["tokenizers", "alpha", "gamma"])
    for name in ("alpha", "beta", "gamma", "tokenizers", "loner"):
        for version in ("1.0", "1.5", "2.0"):
            requires = {"alpha": ["beta"], "loner": ["torch"]}.get(name, [])
            write_wheel(index, name, version, requires=requires)
    write_wheel(index, "torch", "9")
    write_wheel(index, "triton", "3.9")
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            environment.delenv(name)
        environment.setenv("PIP_CONFIG_FILE", os.devnull)
        environment.setenv("PIP_NO_INDEX", "1")
        environment.setenv("PIP_FIND_LINKS", str(index))
        yield index


def write_recipe(directory: Path) -> Recipe:
    constraints = directory / "constraints.txt"
    constraints.write_text("alpha==1.5\nbeta==1.5\nloner==1.5\n")
    followed = ("transformers", "tokenizers")
    return Recipe(base=("alpha",), bare=("loner",), followed=followed, constraints=constraints)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return write_recipe(tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@dataclass(frozen=True)
class Fetched:
    """A cache into which three releases were fetched, one after the other."""

    root: Path
    recipe: Recipe
    paths: Mapping[str, tuple[Path, ...]]
    report: Recorded

    def again(self, version: str, *, recipe: Recipe | None = None) -> tuple[Path, ...]:
        """What the cache gives without any pip."""
        cache = Cache(self.root, recipe=recipe or self.recipe, pip=NO_PIP)
        return cache.release(version, report=Recorded()).paths


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Fetched:
    root = tmp_path_factory.mktemp("fetched")
    recipe, report = write_recipe(root), Recorded()
    cache = Cache(root, recipe=recipe)
    versions = ("1.0", "1.1", "2.0")
    paths = {version: cache.release(version, report=report).paths for version in versions}
    return Fetched(root, recipe, paths, report)


@pytest.fixture
def without_one(fetched: Fetched, root: Path) -> Path:
    """A cache of the test's own, that has everything but release 1.0."""
    shutil.copytree(fetched.root, root)
    shutil.rmtree(root / fetched.paths["1.0"][0].relative_to(fetched.root))
    return root


def distributions(path: Path) -> set[str]:
    """What lies in one overlay, as name-version."""
    return {found.name.removesuffix(".dist-info") for found in path.glob("*.dist-info")}


def hidden(root: Path) -> list[str]:
    """Whatever lies about that is neither an overlay nor a lock."""
    return [
        path.name
        for kind in root.glob("*/*")
        for path in kind.iterdir()
        if path.name.startswith(".") and not path.name.endswith(".lock")
    ]


# --- what is fetched ----------------------------------------------------------------------------


def test_a_release_comes_before_its_pins_and_those_before_the_base(fetched: Fetched) -> None:
    """Red if the order changes, or a distribution lands in another overlay (loner asks for torch,
    transformers 6 for a gamma that the base does not have)."""
    release, pins, base = fetched.paths["2.0"]
    assert distributions(release) == {"sglang-2.0"}
    assert distributions(pins) == {"transformers-6.0", "tokenizers-1.0", "gamma-2.0"}
    assert distributions(base) == {"alpha-1.5", "beta-1.5", "loner-1.5"}
    assert (release / "sglang" / "__init__.py").read_text() == "v = '2.0'\n"


def test_what_is_in_the_base_is_not_fetched_again_with_the_pins(fetched: Fetched) -> None:
    """Red if pins are installed with all their dependencies: alpha and beta would come twice."""
    assert distributions(fetched.paths["1.0"][1]) == {"transformers-5.0", "tokenizers-1.5"}


def test_releases_with_the_same_pins_share_them(fetched: Fetched) -> None:
    """Red if the key of the pins depends on the release, or that of the base on the pins."""
    first, second, third = fetched.paths.values()
    assert first[1:] == second[1:]
    assert first[1] != third[1]
    assert first[2] == third[2]
    assert len(fetched.report.steps) == 6
    assert fetched.report.open == 0


def test_what_is_there_is_taken_without_pip_and_without_a_word(fetched: Fetched) -> None:
    """Red if a whole overlay is fetched, locked or written again: offline use would break."""
    for lock in fetched.root.rglob("*.lock"):
        lock.unlink()
    before = sorted(fetched.root.rglob("*"))
    report = Recorded()
    cache = Cache(fetched.root, recipe=fetched.recipe, pip=NO_PIP)
    for version, paths in fetched.paths.items():
        assert cache.release(version, report=report).paths == paths
    assert report.steps == []
    assert sorted(fetched.root.rglob("*")) == before


def test_another_recipe_is_another_base(fetched: Fetched, recipe: Recipe) -> None:
    """Red if the key leaves out the requirement lines or the constraints: a base of an older
    version of this suite would be taken for that of the newer one."""
    same = write_recipe(recipe.constraints.parent)
    assert fetched.again("1.0", recipe=same) == fetched.paths["1.0"]
    for other in (replace(same, base=("alpha", "gamma")), replace(same, bare=())):
        with pytest.raises(OverlayError, match="the modules that SGLang imports"):
            fetched.again("1.0", recipe=other)
    same.constraints.write_text("alpha==2.0\n")
    with pytest.raises(OverlayError, match="the modules that SGLang imports"):
        fetched.again("1.0", recipe=same)


def test_overlays_are_compiled(fetched: Fetched) -> None:
    """Red if modules are left uncompiled: every start of a worker on a read-only cache would
    compile thousands of them."""
    sources = [source for path in fetched.paths["1.0"] for source in path.glob("*/__init__.py")]
    assert len(sources) == 6
    for source in sources:
        assert list(source.parent.glob("__pycache__/__init__.*.pyc")), source


def test_only_the_pins_that_apply_are_followed(
    index: Path, without_one: Path, recipe: Recipe
) -> None:
    """Red if markers or extras are ignored: the release would get another transformers."""
    requires = [
        'transformers==5.0; python_version >= "3"',
        'transformers==6.0; python_version < "3"',
        'transformers==6.0; extra == "all"',
    ]
    write_wheel(index, "sglang", "3.0", requires=requires)
    pins = Cache(without_one, recipe=recipe).release("3.0", report=Recorded()).paths[1]
    assert "transformers-5.0" in distributions(pins)


# --- the user's pip settings and ours -----------------------------------------------------------


def test_the_users_constraints_hold_beside_ours(
    tmp_path: Path, without_one: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red if our constraints take the place of the user's, or the user's that of ours."""
    users = tmp_path / "users.txt"
    users.write_text("beta<2\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(users))
    recipe = replace(recipe, bare=())
    recipe.constraints.write_text("alpha==1.5\n")
    base = Cache(without_one, recipe=recipe).release("1.1", report=Recorded()).paths[2]
    assert {"alpha-1.5", "beta-1.5"} <= distributions(base)


def test_the_users_constraints_win_over_ours(
    tmp_path: Path, without_one: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red if a conflict between the two ends the fetch, or breaks the user's."""
    users = tmp_path / "users.txt"
    users.write_text("beta<1.5\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(users))
    recipe = replace(recipe, bare=())
    base = Cache(without_one, recipe=recipe).release("1.1", report=Recorded()).paths[2]
    assert "beta-1.0" in distributions(base)


def test_settings_for_other_installations_are_no_obstacle(
    without_one: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red if these settings reach pip: the first two do not go with a target directory, the third
    leaves modules uncompiled."""
    for name in ("PIP_USER", "PIP_REQUIRE_VIRTUALENV", "PIP_NO_COMPILE"):
        monkeypatch.setenv(name, "1")
    release = Cache(without_one, recipe=recipe).release("1.0", report=Recorded()).paths[0]
    assert list(release.rglob("*.pyc"))


# --- failures -----------------------------------------------------------------------------------


def test_a_release_that_is_not_there_is_said_in_one_line(root: Path, recipe: Recipe) -> None:
    """Red if pip's list of all versions is passed on, the release or the advice is missing, or
    the failed fetch leaves something behind."""
    report = Recorded()
    with pytest.raises(OverlayError) as failure:
        Cache(root, recipe=recipe).release("7.0", report=report)
    said = str(failure.value)
    assert "fetching SGLang 7.0" in said
    assert "No matching distribution found for sglang==7.0" in said
    assert "no such release, or no wheel of it" in said
    assert "from versions" not in said
    assert "\n" not in said
    assert report.open == 0
    assert hidden(root) == []


def test_a_python_without_pip_is_named(root: Path, recipe: Recipe) -> None:
    """Red if the missing pip shows as anything else (-S hides the site packages)."""
    cache = Cache(root, recipe=recipe, pip=(sys.executable, "-I", "-S", "-m", "pip"))
    with pytest.raises(OverlayError, match=r"No module named pip — .*-m ensurepip"):
        cache.release("1.0", report=Recorded())


def test_an_index_that_does_not_answer_is_named(
    root: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red if a missing network is told as a missing release. (Port 9 refuses.)"""
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(OverlayError, match="a package index cannot be reached"):
        Cache(root, recipe=recipe).release("1.0", report=Recorded())


def test_a_torch_in_an_overlay_is_refused(root: Path, recipe: Recipe) -> None:
    """Red if a torch that pip brings along gets in front of the interpreter's own."""
    hungry = replace(recipe, base=("loner",), bare=())
    with pytest.raises(OverlayError, match=r"pip brought torch.* along"):
        Cache(root, recipe=hungry).release("1.0", report=Recorded())
    assert list(root.rglob("torch")) == []


def test_a_release_without_a_pin_is_refused(index: Path, root: Path, recipe: Recipe) -> None:
    """Red if a release that pins no transformers gets just any."""
    write_wheel(index, "sglang", "3.0")
    with pytest.raises(OverlayError, match=r"SGLang 3\.0 does not say which transformers"):
        Cache(root, recipe=recipe).release("3.0", report=Recorded())


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, recipe: Recipe) -> None:
    """Red if the operating system's error comes out bare, without the way out."""
    (tmp_path / "file").touch()
    with pytest.raises(OverlayError, match=r"cannot write in the cache.*SGLANG_POOL_CONTRACTS_CAC"):
        Cache(tmp_path / "file", recipe=recipe).release("1.0", report=Recorded())


# --- checkouts ----------------------------------------------------------------------------------


def write_checkout(root: Path, pyproject: str) -> Path:
    (root / "python" / "sglang" / "srt").mkdir(parents=True)
    (root / "python" / "pyproject.toml").write_text(pyproject)
    return root


@pytest.mark.parametrize("below", ["", "python"])
def test_a_checkout_stands_before_the_pins_of_its_own_pyproject(
    fetched: Fetched, tmp_path: Path, below: str
) -> None:
    """Red if the pins come from elsewhere, or differ from those of a release that pins the same."""
    dependencies = ["torch==9", "transformers==5.0"]
    checkout = write_checkout(tmp_path / "tree", f"[project]\ndependencies = {dependencies}\n")
    cache = Cache(fetched.root, recipe=fetched.recipe, pip=NO_PIP)
    paths = cache.checkout(checkout / below, report=Recorded()).paths
    assert paths == (checkout / "python", *fetched.paths["1.0"][1:])


@pytest.mark.parametrize(
    ("pyproject", "said"),
    [
        ("[project]\ndependencies = []\n", "does not say which transformers"),
        ("[project]\ndependencies = ['transformers ==== 5']\n", "which is no requirement"),
        ("[project]\nname = 'sglang'\n", "dependencies cannot be read"),
        ("[project\n", "dependencies cannot be read"),
    ],
)
def test_a_checkout_whose_pins_cannot_be_read_is_refused(
    tmp_path: Path, root: Path, recipe: Recipe, pyproject: str, said: str
) -> None:
    """Red if a broken pyproject.toml ends in a traceback, or in a guess."""
    checkout = write_checkout(tmp_path / "tree", pyproject)
    with pytest.raises(OverlayError, match=said):
        Cache(root, recipe=recipe, pip=NO_PIP).checkout(checkout, report=Recorded())


# --- what stops or meets a fetch ----------------------------------------------------------------

#: A pip that stops half-way through its first installation: it says so, with its process id, and
#: waits for a writer on the gate. Every run is logged.
STALLING_PIP = """
import os, shutil, sys
from pathlib import Path
gate, log = {gate!r}, {log!r}
with open(log, "a") as runs:
    print(sys.argv[-1], file=runs)
if os.path.exists(gate):
    target = next(one for one in sys.argv if one.startswith("--target=")).partition("=")[2]
    half = Path(target, "sglang")
    half.mkdir()
    (half / "half.py").touch()
    print("Collecting half of it, process", os.getpid(), flush=True)
    open(gate).close()
    shutil.rmtree(half)
os.execv(sys.executable, [sys.executable, "-m", "pip", *sys.argv[1:]])
"""

#: A process that fetches a release, and says how it goes on its standard output.
FETCH = """
import json, signal, sys
from pathlib import Path
from contracts.subject.overlay import Cache, Recipe

class Told:
    def begin(self, step): print("begin", step, flush=True)
    def detail(self, text): print("detail", text, flush=True)
    def end(self): pass

signal.signal(signal.SIGINT, signal.default_int_handler)
root, pip, recipe = json.loads(sys.argv[1])
recipe["constraints"] = Path(recipe["constraints"])
print(*Cache(Path(root), recipe=Recipe(**recipe), pip=pip).release("1.0", report=Told()).paths)
"""


class Fetching:
    """Other processes that fetch release 1.0 with the pip that stalls."""

    def __init__(self, directory: Path, root: Path, recipe: Recipe) -> None:
        self.gate, self.log = directory / "gate", directory / "log"
        os.mkfifo(self.gate)
        script = directory / "stalling_pip.py"
        script.write_text(STALLING_PIP.format(gate=str(self.gate), log=str(self.log)))
        recipe_json = {
            "base": recipe.base,
            "bare": recipe.bare,
            "followed": recipe.followed,
            "constraints": str(recipe.constraints),
        }
        self._argument = json.dumps([str(root), [sys.executable, str(script)], recipe_json])

    @contextmanager
    def process(self) -> Iterator[subprocess.Popen[str]]:
        source = Path(contracts.__file__).parents[1]
        with subprocess.Popen(
            [sys.executable, "-c", FETCH, self._argument],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:  # its pip too, which outlives it when it is killed
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def open_gate(self) -> None:
        with self.gate.open("w"):
            self.gate.unlink()


def await_line(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The first line of a process's output that matches; fails when the output ends before."""
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"the process ended without {pattern!r}: {process.stderr.read()}")


def test_a_fetch_that_was_killed_is_started_over(
    tmp_path: Path, without_one: Path, recipe: Recipe
) -> None:
    """Red if overlays are written in place, if what a dead fetch left is taken for whole or stays
    behind, or if its lock outlives it."""
    with Fetching(tmp_path, without_one, recipe).process() as process:
        await_line(process, r"half of it, process \d+")
        process.kill()
        process.wait()
        assert len(list(without_one.rglob("half.py"))) == 1, "the kill was not half-way"
        assert len(hidden(without_one)) == 1
        release = Cache(without_one, recipe=recipe).release("1.0", report=Recorded()).paths[0]
    assert (release / "sglang" / "__init__.py").read_text() == "v = '1.0'\n"
    assert list(without_one.rglob("half.py")) == []
    assert hidden(without_one) == []


def test_an_interrupt_ends_pip_and_leaves_nothing(
    tmp_path: Path, without_one: Path, recipe: Recipe
) -> None:
    """Red if pip runs on after Ctrl-C, or what it wrote stays, or the interrupt is swallowed."""
    with Fetching(tmp_path, without_one, recipe).process() as process:
        pip = int(await_line(process, r"half of it, process (\d+)")[1])
        process.send_signal(signal.SIGINT)
        process.wait()
        assert process.returncode == -signal.SIGINT
        with pytest.raises(ProcessLookupError):
            os.kill(pip, 0)
    assert hidden(without_one) == []
    assert list(without_one.rglob("half.py")) == []
    assert Cache(without_one, recipe=recipe).release("1.0", report=Recorded()).paths[0].is_dir()


def test_two_processes_that_want_the_same_fetch_it_once(
    tmp_path: Path, root: Path, recipe: Recipe
) -> None:
    """Red if the lock is missing or too narrow: pip would run twice, or for a torn overlay."""
    fetching = Fetching(tmp_path, root, recipe)
    with fetching.process() as first, fetching.process() as second:
        for process in (first, second):  # whoever is first stalls, the other one waits for it
            await_line(process, r"half of it|waiting for another process that is fetching SGLang")
        fetching.open_gate()
        paths = {await_line(process, r"^/.*")[0] for process in (first, second)}
    assert len(paths) == 1
    runs = fetching.log.read_text().split()
    assert sorted(runs) == ["alpha", "loner", "sglang==1.0", "tokenizers==1.5", "transformers==5.0"]


def test_a_directory_without_the_mark_of_a_whole_overlay_is_replaced(
    fetched: Fetched, without_one: Path, recipe: Recipe
) -> None:
    """Red if any directory of the right name is taken for an overlay."""
    torn = without_one / fetched.paths["1.0"][0].relative_to(fetched.root)
    torn.mkdir()
    (torn / "torn.py").touch()
    release = Cache(without_one, recipe=recipe).release("1.0", report=Recorded()).paths[0]
    assert release == torn
    assert distributions(release) == {"sglang-1.0"}
    assert not (release / "torn.py").exists()


# --- the shipped recipe -------------------------------------------------------------------------


def test_the_shipped_constraints_pin_all_but_what_others_decide() -> None:
    """Red if a module of the recipe is left to float, or the constraints pin what the release
    (transformers and its kin) or the interpreter (torch) decides."""
    lines = RECIPE.constraints.read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    pinned = {canonicalize_name(one.name) for one in requirements}
    assert all(str(one.specifier).startswith("==") for one in requirements)
    assert pinned >= {*RECIPE.base, *RECIPE.bare}
    assert pinned.isdisjoint({*RECIPE.followed, "torch", "torchvision"})


@pytest.mark.parametrize(
    ("requires", "brought"),
    [
        (None, False),
        (["sympy", "filelock"], False),
        (['triton==3.8.0; python_version >= "3"'], True),
        (['triton==3.8.0; python_version < "3"'], False),
        (['triton==3.8.0; extra == "all"'], False),
    ],
)
def test_a_cuda_torch_brings_its_triton(
    monkeypatch: pytest.MonkeyPatch, requires: list[str] | None, brought: bool
) -> None:
    """Red if torch's own words are misread."""
    monkeypatch.setattr("importlib.metadata.requires", {"torch": requires}.__getitem__)
    assert overlay._torch_brings_triton() is brought


@pytest.mark.parametrize("brought", [True, False])
def test_a_triton_that_torch_brings_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch, without_one: Path, recipe: Recipe, brought: bool
) -> None:
    """Red if the base puts its own triton in front of the one that a CUDA torch was built for, or
    leaves a CPU torch without any."""
    monkeypatch.setattr(overlay, "_torch_brings_triton", lambda: brought)
    recipe = replace(recipe, base=("alpha", "triton"), bare=())
    base = Cache(without_one, recipe=recipe).release("1.1", report=Recorded()).paths[2]
    assert ("triton-3.9" in distributions(base)) is not brought
    assert "alpha-1.5" in distributions(base)


def test_the_environment_names_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Red if the variable is ignored, or a relative path is left to the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(overlay.CACHE_VARIABLE, "elsewhere")
    with pytest.raises(OverlayError):
        overlay.fetch_release("7.0", report=Recorded())
    assert (tmp_path / "elsewhere").is_dir()


# --- progress -----------------------------------------------------------------------------------


def test_without_a_terminal_a_step_is_one_plain_line() -> None:
    """Red if details or control characters get into a log file."""
    out = io.StringIO()
    report = ConsoleReport(Console(file=out, width=40))
    report.begin("fetching transformers[torch]==5.0 with a text longer than the line")
    report.detail("Collecting alpha")
    report.end()
    assert out.getvalue() == "fetching transformers[torch]==5.0 with a text longer than the line\n"


def test_in_a_terminal_the_detail_is_live_and_goes_away() -> None:
    """Red if the live line is not shown, cannot take brackets, or stays after the step."""
    out = io.StringIO()
    report = ConsoleReport(Console(file=out, width=80, force_terminal=True, color_system=None))
    report.begin("fetching [it]")
    report.detail("Collecting alpha[all]")
    report.end()
    assert "fetching [it]" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")
