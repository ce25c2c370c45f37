"""A comparison as JUnit XML: a test case a contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, TestCase, TestSuite

from contracts.hunt.comparison import Comparison, Standing

__all__ = ["write"]


def write(comparisons: Sequence[Comparison], path: Path, *, candidate: str, baseline: str) -> None:
    """Write the file. What is not judged is an error, what else fails a failure.

    Raises:
        OSError: the file cannot be written.
    """
    suite = TestSuite(f"sglang-pool-contracts: {candidate} against {baseline}")
    suite.add_testcases([_case(comparison) for comparison in comparisons])
    document = JUnitXml()
    document.add_testsuite(suite)
    document.write(str(path), pretty=True)


def _case(comparison: Comparison) -> TestCase:
    case = TestCase(comparison.contract, classname="contracts")
    messages = [finding.violation.message for finding in comparison.shown]
    said = comparison.reason or next(iter(messages), str(comparison.standing))
    if comparison.standing is Standing.NOT_JUDGED:
        case.result = [Error(said, type_=str(comparison.standing))]
    elif comparison.fails:
        failure = Failure(said, type_=str(comparison.standing))
        failure.text = "\n".join(messages)
        case.result = [failure]
    else:
        case.system_out = "\n".join([str(comparison.standing), *messages])
    return case
