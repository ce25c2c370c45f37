"""Real releases, fetched by pip into the user's cache (and left there: the gate needs them)."""

import json
import os
import subprocess
import sys

import pytest

from contracts.subject.overlay import ConsoleReport, fetch_release
from contracts.subject.releases import NEWEST, OLDEST

#: What a worker sees of an overlay. xgrammar and compressed-tensors ask for torch, so whether
#: they can be found says that they were installed without their dependencies.
SEEN = """
import importlib.metadata, importlib.util, json
names = "sglang", "transformers", "triton", "torch", "xgrammar", "compressed_tensors", "msgspec"
import tokenizers, transformers, triton
requires = importlib.metadata.requires("sglang")
print(json.dumps({
    "places": {name: importlib.util.find_spec(name).origin for name in names},
    "version": importlib.metadata.version("sglang"),
    "transformers": transformers.__version__,
    "pinned": next(line for line in requires if line.startswith("transformers==")),
}))
"""


class Nothing:
    """A report that must not be told anything."""

    def begin(self, step: str) -> None:
        raise AssertionError(step)

    def detail(self, text: str) -> None:
        raise AssertionError(text)

    def end(self) -> None:
        raise AssertionError


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_a_real_release_can_be_fetched_and_found(version: str) -> None:
    """Red if pip cannot install a release without its CUDA dependencies, if a module is missing or
    comes from another overlay, if transformers is not the pinned one, if torch is not the
    interpreter's own, or if a second fetch does anything."""
    release, pins, base = fetch_release(version, report=ConsoleReport()).paths
    assert fetch_release(version, report=Nothing()).paths == (release, pins, base)
    path = os.pathsep.join(map(str, (release, pins, base)))
    answer = subprocess.run(
        [sys.executable, "-c", SEEN],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout
    seen = json.loads(answer)
    places = seen["places"]
    assert seen["version"] == version
    assert seen["pinned"] == f"transformers=={seen['transformers']}"
    assert places["sglang"].startswith(f"{release}{os.sep}")
    assert places["transformers"].startswith(f"{pins}{os.sep}")
    for name in ("xgrammar", "compressed_tensors", "msgspec"):
        assert places[name].startswith(f"{base}{os.sep}")
    assert not any(places["torch"].startswith(str(place)) for place in (release, pins, base))
