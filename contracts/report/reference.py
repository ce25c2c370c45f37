"""docs/contracts.md, written from what the contracts say of themselves.

python -m contracts.report.reference > docs/contracts.md
"""

from __future__ import annotations

import sys

from contracts import law
from contracts.contract import Contract

__all__ = ["reference"]

_HEAD = """# The contracts

Written by `python -m contracts.report.reference` from the modules in `contracts/law`; edit those.

An id never changes: messages, JSON documents and ledgers use it. P is `pp_size`. A contract is
*held*, *violated* or *not judged*; a violation carries a factor (observed / expected).
"""


def reference() -> str:
    """The whole page as Markdown."""
    return "\n".join([_HEAD, *map(_section, law.ALL.values())])


def _section(contract: Contract) -> str:
    lines = [f"## {contract.id}", "", contract.statement, "", contract.explanation.strip(), ""]
    if contract.needs_baseline:
        lines += ["Needs a second SGLang to compare with: `--baseline SUBJECT`.", ""]
    lines += [f"Try it: `python -m contracts judge --contract {contract.id}`", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(reference())
