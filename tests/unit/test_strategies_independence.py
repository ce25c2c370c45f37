"""The cases that are generated depend on the strategies, and on nothing else.

Hypothesis mixes integer constants of locally imported modules into what it draws, so strategies
that draw large integers generate other cases as soon as any other local module is imported: in
a run of a single test, say, or after an edit elsewhere. Two fresh processes generate the same
deployments here, one of which has imported a module full of constants.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

_SCRIPT = """
import hashlib, sys
sys.path[:0] = sys.argv[2:]
if len(sys.argv) > 2:
    import full_of_constants
from hypothesis import Phase, given, settings, strategies as st
from strategies.deployment import deployments

strategy = {
    "deployments": deployments(),
    "large integers": st.integers(0, 1 << 20),
}[sys.argv[1]]
drawn = hashlib.sha256()

@settings(
    derandomize=True, database=None, deadline=None, max_examples=150, phases=[Phase.generate]
)
@given(strategy)
def collect(case):
    drawn.update(repr(case).encode())

collect()
print(drawn.hexdigest())
"""


def _digest(of: str, *folders: Path) -> str:
    command = [sys.executable, "-c", _SCRIPT, of, *map(str, folders)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def _full_of_constants(folder: Path) -> Path:
    numbers = [*range(100, 300), *(1 << bits for bits in range(8, 50))]
    (folder / "full_of_constants.py").write_text(f"NUMBERS = {numbers}\n", encoding="utf-8")
    return folder


def test_deployments_do_not_depend_on_imported_constants(tmp_path: Path) -> None:
    folder = _full_of_constants(tmp_path)
    assert _digest("deployments") == _digest("deployments", folder)


def test_large_integers_would_depend_on_them(tmp_path: Path) -> None:
    folder = _full_of_constants(tmp_path)
    assert _digest("large integers") != _digest("large integers", folder)
