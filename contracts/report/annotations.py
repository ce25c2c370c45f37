"""GitHub annotations: what fails, on SGLang's own lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from contracts.hunt.comparison import Comparison, Standing

__all__ = ["workflow_commands"]

#: Contracts that speak of what the pool allocates, lists or reports; all others are about what the
#: configurator counts.
_POOL = frozenset({"paging", "state-rows", "reported-bytes", "transfer-buffers", "fixed-bytes"})

#: GitHub shows about so many of a step.
_MOST = 10


def workflow_commands(
    comparisons: Sequence[Comparison], lines: Mapping[str, tuple[str, int]]
) -> Iterator[str]:
    """Workflow commands for what fails, the gravest first; and a warning for an expected change.

    ``lines`` says where the candidate defines its ``configurator`` and its ``pool``: a path below
    the repository and a line.
    """
    order = list(Standing).index
    shown = [one for one in comparisons if one.fails or one.standing is Standing.EXPECTED]
    for comparison in sorted(shown, key=lambda one: order(one.standing))[:_MOST]:
        level = "error" if comparison.fails else "warning"
        path, line = lines["pool" if comparison.contract in _POOL else "configurator"]
        title = f"{comparison.contract}: {comparison.standing}"
        said = [finding.violation.message for finding in comparison.shown] or [
            comparison.reason or title
        ]
        place = f"file={_property(path)},line={line},title={_property(title)}"
        yield f"::{level} {place}::{_data(chr(10).join(said))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
