"""Counting what was reached, on small sources; and the tables that come with the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coverage.judge import Result, judge, unknown_parts
from tests.coverage.reached import Branch, Reached
from tests.coverage.report import markdown, share, terminal
from tests.coverage.source import Source, Span
from tests.coverage.table import RELEASES, Entry, File, Reason, Table, TableError

#: Line by line, so that the numbers below can be read off.
SOURCE = """\
class Pool:
    def size(self, ratio):
        if (
            ratio > 4
            and not self.fp8
        ):
            return 0
        for layer in self.layers:
            if layer:
                self.add(layer)
            elif ratio:
                self.skip()
            else:
                self.fail()
        return 1

    @property
    def pages(self):
        while self.more:
            self.take()


def other(pool):
    if pool:
        return 1
    if not pool:
        return 2
    return 3
"""

OUTSIDE = Reason("hip", "On ROCm only.", reachable=False)
INSIDE = Reason("steps", "Taken one by one.", reachable=True)
POOL = File("srt/mem_cache/pool.py", ("Pool",))
WHOLE = File("srt/mem_cache/pool.py", None)

#: All branches of ``Pool.size``; of ``Pool.pages`` and of ``other``.
SIZE = {(3, 7), (3, 8), (8, 9), (8, 15), (9, 10), (9, 11), (11, 12), (11, 14)}
PAGES = {(19, 20), (19, -18)}
OTHER = {(24, 25), (24, 26), (26, 27), (26, 28)}

LINES = {1, 2, 3, 7, 8, 9, 10, 11, 12, 14, 15, 17, 18, 19, 20, 23, 24, 25, 26, 27, 28}


def reached(missing: set[Branch], missing_lines: set[int] | None = None) -> Reached:
    """Everything but this."""
    branches = SIZE | PAGES | OTHER
    gone = missing_lines or set()
    assert missing <= branches
    assert gone <= LINES
    return Reached(
        lines=frozenset(LINES - gone),
        missing_lines=frozenset(gone),
        branches=frozenset(branches - missing),
        missing_branches=frozenset(missing),
    )


def branch(head: str, arm: str = "then", reason: Reason = OUTSIDE, **more: object) -> Entry:
    fields: dict[str, object] = {"function": "Pool.size", "releases": ("0.5.23",), **more}
    return Entry(reason=reason, file="pool.py", head=head, arm=arm, **fields)  # type: ignore[arg-type]


def whole(name: str, reason: Reason = OUTSIDE) -> Entry:
    return Entry(reason, "pool.py", ("0.5.23",), name)


def judged(seen: Reached, *entries: Entry, file: File = POOL, release: str = "0.5.23") -> Result:
    reasons = {reason.name: reason for reason in (OUTSIDE, INSIDE)}
    return judge(release, file, SOURCE, seen, Table((file,), reasons, entries))


class TestSource:
    """Functions and statements that branch."""

    def test_parts_are_named_with_their_class(self) -> None:
        parts = Source(SOURCE).parts
        assert list(parts) == ["Pool", "Pool.size", "Pool.pages", "other"]
        assert parts["Pool.pages"] == Span(17, 20)

    def test_a_head_is_one_line_up_to_the_colon(self) -> None:
        forks = Source(SOURCE).forks
        heads = [forks[line].head for line in (3, 8, 9, 11, 19)]
        assert heads == [
            "if ( ratio > 4 and not self.fp8 ):",
            "for layer in self.layers:",
            "if layer:",
            "elif ratio:",
            "while self.more:",
        ]

    def test_a_colon_in_a_condition_does_not_end_the_head(self) -> None:
        (fork,) = Source("if rows[1:2] == {'ä': 1}:\n    pass\n").forks.values()
        assert fork.head == "if rows[1:2] == {'ä': 1}:"

    def test_an_arm_is_told_by_where_it_leads(self) -> None:
        fork = Source(SOURCE).forks[9]
        assert fork.arm(10) == "then"
        assert fork.arm(11) == "else"
        assert fork.arm(-2) == "else"

    def test_an_arm_takes_along_what_only_it_leads_to(self) -> None:
        forks = Source(SOURCE).forks
        assert forks[9].lines("then") == Span(10, 10)
        assert forks[9].lines("else") == Span(11, 14)
        assert forks[8].lines("else") is None

    def test_after_a_body_that_leaves_the_rest_of_the_block_is_the_other_arm(self) -> None:
        forks = Source(SOURCE).forks
        assert forks[3].lines("else") == Span(8, 15)
        assert forks[24].lines("else") == Span(26, 28)

    def test_statements_in_with_try_and_match_are_found(self) -> None:
        text = """\
with open(name):
    try:
        if a:
            pass
    except OSError:
        if b:
            pass
    finally:
        match c:
            case 1:
                while d:
                    pass
"""
        assert [fork.line for fork in Source(text).forks.values()] == [3, 6, 11]

    def test_a_decorator_belongs_to_its_function(self) -> None:
        text = "if a:\n    @b\n    def c(): ...\n"
        assert Source(text).forks[1].then == Span(2, 3)
        assert Source(text).parts["c"] == Span(2, 3)


class TestCounting:
    """What counts, and how much of it was reached."""

    def test_only_the_scope_counts(self) -> None:
        result = judged(reached(OTHER, {24, 25, 26, 27, 28}))
        assert (result.branches_reached, result.branches) == (10, 10)
        assert (result.lines_reached, result.lines) == (15, 15)
        assert not result.errors

    def test_without_parts_the_whole_file_counts(self) -> None:
        result = judged(reached(OTHER, {24, 25, 26, 27, 28}), file=WHOLE)
        assert (result.branches_reached, result.branches) == (10, 14)
        assert (result.lines_reached, result.lines) == (16, 21)

    def test_a_function_that_is_run_outside_the_scope_is_an_error(self) -> None:
        result = judged(reached(set()))
        assert result.errors == ("0.5.23: pool.py: other is run, but is not in the scope",)

    def test_a_branch_without_an_entry_is_unexplained(self) -> None:
        (missed,) = judged(reached({(9, 10), *OTHER}, {10})).unexplained
        assert (missed.line, missed.text) == (9, "Pool.size: if layer: never true")

    @pytest.mark.parametrize(
        ("missing", "said"),
        [
            ((9, 11), "if layer: never false"),
            ((8, 9), "for layer in self.layers: never entered"),
            ((8, 15), "for layer in self.layers: never exhausted"),
            ((19, -18), "while self.more: never false"),
        ],
    )
    def test_a_missed_branch_says_which_way(self, missing: Branch, said: str) -> None:
        (missed,) = judged(reached({missing})).unexplained
        assert missed.text.endswith(said)

    def test_parts_that_no_release_has_are_told(self) -> None:
        file = File("pool.py", ("Pool", "Pool.pages", "gone"))
        assert unknown_parts(file, [SOURCE, "class Pool: ...\n"]) == ["gone"]


class TestEntries:
    """Entries of the table, true and not."""

    def test_an_entry_takes_its_branch_out_of_the_count(self) -> None:
        result = judged(reached({(9, 10), *OTHER}, {10, 24, 25, 26, 27, 28}), branch("if layer:"))
        assert not result.errors
        assert not result.missed
        assert [missed.line for missed in result.outside] == [9]
        assert (result.branches_reached, result.branches) == (9, 9)
        assert (result.lines_reached, result.lines) == (14, 14)

    def test_what_is_reachable_stays_in_the_count(self) -> None:
        result = judged(reached({(9, 10)}, {10}), branch("if layer:", reason=INSIDE))
        assert not result.unexplained
        assert [missed.line for missed in result.missed] == [9]
        assert (result.branches_reached, result.branches) == (9, 10)
        assert (result.lines_reached, result.lines) == (14, 15)

    def test_an_arm_explains_what_only_it_leads_to(self) -> None:
        missing = {(9, 11), (11, 12), (11, 14)}
        result = judged(reached(missing, {11, 12, 14}), branch("if layer:", "else"))
        assert not result.missed
        assert len(result.outside) == 3

    def test_a_head_may_be_cut_short(self) -> None:
        result = judged(reached({(3, 7)}, {7}), branch("if ( ratio > 4 …"))
        assert not result.missed

    def test_a_function_explains_all_that_is_in_it(self) -> None:
        result = judged(reached(PAGES, {19, 20}), whole("Pool.pages"))
        assert not result.missed
        assert (result.branches, result.lines) == (8, 13)

    @pytest.mark.parametrize(
        ("entry", "wrong"),
        [
            (branch("if layer:"), "'if layer:', then: is reached (line 9)"),
            (branch("if layers:"), "'if layers:', then: is found 0 times"),
            (branch("if layer:", function="Pool.pages"), "is found 0 times"),
            (branch("if pool:", function="other"), "is found 0 times"),
            (branch("if layer:", number=2), "'if layer:' number 2, then: is found 1 times"),
            (whole("Pool.size"), "Pool.size: is reached (line 3)"),
            (whole("Pool.sizes"), "is no function of the scope"),
            (whole("other"), "is no function of the scope"),
        ],
    )
    def test_an_entry_that_is_not_true_is_an_error(self, entry: Entry, wrong: str) -> None:
        (error,) = judged(reached(OTHER, {24, 25, 26, 27, 28}), entry).errors
        assert error.endswith(wrong)

    def test_two_statements_that_read_alike_are_numbered(self) -> None:
        text = "def f(a):\n    if a:\n        g()\n    if a:\n        h()\n"
        seen = Reached(
            frozenset({1, 2, 3, 4}), frozenset({5}), frozenset({(2, 3), (2, 4), (4, -1)}),
            frozenset({(4, 5)}),
        )  # fmt: skip
        table = Table((WHOLE,), {}, (branch("if a:", function="f", number=2),))
        assert not judge("0.5.23", WHOLE, text, seen, table).missed
        table = Table((WHOLE,), {}, (branch("if a:", function="f"),))
        (error,) = judge("0.5.23", WHOLE, text, seen, table).errors
        assert error.endswith("is found 2 times")

    def test_what_is_explained_twice_is_an_error(self) -> None:
        missing = {(9, 11), (11, 12), (11, 14)}
        entries = branch("if layer:", "else"), branch("elif ratio:")
        seen = reached(missing | OTHER, {11, 12, 14, 24, 25, 26, 27, 28})
        (error,) = judged(seen, *entries).errors
        assert "'elif ratio:', then: is explained twice" in error

    def test_an_entry_of_another_release_says_nothing(self) -> None:
        result = judged(reached({(9, 10)}, {10}), branch("if layer:"), release="0.5.20")
        assert len(result.unexplained) == 1


class TestReport:
    """How results are shown."""

    def test_the_terminal_shows_what_is_missing(self) -> None:
        result = judged(reached({(9, 10), (11, 12)}, {10, 12}), branch("if layer:", reason=INSIDE))
        shown = terminal([result]).splitlines()
        assert shown[1].split() == ["0.5.23", "pool.py", "13/15", "8/10", "80.0", "%", "1", "1"]
        assert shown[-1] == "unexplained: 0.5.23: pool.py:11 Pool.size: elif ratio: never true"

    def test_the_document_lists_by_reason(self) -> None:
        entries = branch("if layer:", reason=INSIDE), whole("Pool.pages")
        result = judged(reached({(9, 10), *PAGES}, {10, 19, 20}), *entries)
        table = Table((POOL,), {"hip": OUTSIDE, "steps": INSIDE}, entries)
        text = markdown([result], table)
        assert "Taken one by one.\n\n* 0.5.23: `pool.py:9 Pool.size: if layer: never true`" in text
        assert "| On ROCm only. | 2 |" in text
        assert "nobody says why" not in text

    def test_the_share_is_of_all_files(self) -> None:
        one = judged(reached(set(SIZE)))
        assert share([one, judged(reached(set()))]) == 12 / 20


class TestTables:
    """The tables that come with the suite, and broken ones."""

    def test_the_tables_can_be_read(self) -> None:
        table = Table.load()
        assert {release for entry in table.entries for release in entry.releases} == set(RELEASES)
        said = [(str(entry), release) for entry in table.entries for release in entry.releases]
        assert len(set(said)) == len(said)

    @pytest.mark.parametrize(
        ("unreachable", "wrong"),
        [
            ("", "lacks 'reasons'"),
            ('[[functions]]\nreason = "b"\n', "lacks 'b'"),
            ('[[functions]]\nreason = "a"\nfile = "pool.py"\n', "lacks 'releases'"),
            ('[[functions]]\nreason = "a"\nfile = "x.py"\nreleases = []\n', "x.py is not in"),
            (
                '[[branches]]\nreason = "a"\nfile = "pool.py"\nreleases = []\n'
                'at = [["f", "if a:", "yes"]]\n',
                "'yes' is no arm",
            ),
            ("", "no entry has the reason a"),
        ],
    )
    def test_a_broken_table_is_told(self, tmp_path: Path, unreachable: str, wrong: str) -> None:
        scope = tmp_path / "scope.toml"
        scope.write_text('[[file]]\npath = "srt/pool.py"\n', encoding="utf-8")
        written = tmp_path / "unreachable.toml"
        reasons = "" if "'reasons'" in wrong else '[reasons.a]\ntext = ""\nreachable = true\n'
        written.write_text(reasons + unreachable, encoding="utf-8")
        with pytest.raises(TableError, match=wrong):
            Table.load(scope, written)
