"""The table of settings: that it is whole, and what it says of workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.settings import KNOWN, SETTINGS, Setting, Treatment, at_start
from contracts.subject.reads import IMPORT, MENTION, Read, Recording
from contracts.subject.releases import RELEASES

ROOT = Path(__file__).parents[2]


def test_every_setting_is_there_once() -> None:
    """Red when a setting has two rows, of which one would be forgotten."""
    assert len(KNOWN) == len(SETTINGS)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_row_makes_sense(setting: Setting) -> None:
    """Red when a row speaks of a release that there is not, ends before it begins, gives no
    reason, or puts what no process is started with into a worker's environment."""
    last = RELEASES[-1] if setting.last is None else setting.last
    assert RELEASES.index(setting.first) <= RELEASES.index(last)
    assert setting.why
    assert "|" not in setting.why
    assert setting.kind == "env" or not setting.at_import
    assert not (setting.at_import and setting.resolved)
    assert setting.treatment.meaning


def test_every_treatment_is_in_use() -> None:
    """Red when the page explains a word that the table does not use."""
    assert {setting.treatment for setting in SETTINGS} == set(Treatment)


def test_which_variables_a_worker_starts_with() -> None:
    """Red when a variable that SGLang reads at import, or that nobody knows, is stated too late,
    or one that it reads anew costs a worker."""
    anew = {"SGLANG_DSV4_COMPRESS_STATE_DTYPE": "bfloat16", "SGLANG_ENABLE_PP_SPEC": "1"}
    early = {"SGLANG_OPT_USE_ONLINE_COMPRESS": "1", "SGLANG_OF_TOMORROW": "1", "PATH": "/bin"}
    assert at_start({**anew, **early}) == early


def test_what_is_generated_is_named_where_deployments_come_from() -> None:
    """Red when the table says that a setting is drawn and the strategies have no name for it."""
    sources = [*ROOT.glob("strategies/*.py"), ROOT / "contracts" / "deployment.py"]
    written = "".join(source.read_text(encoding="utf-8") for source in sources)
    for setting in SETTINGS:
        argument = setting.name.rpartition(".")[2]
        derived = setting.kind == "context" and argument not in setting.why
        if setting.treatment is Treatment.GENERATED and not derived:
            assert argument in written, setting.name


def read(name: str, step: str, module: str = "pools") -> Read:
    return Read("env", name, step, module, f"sglang/srt/{module}.py:1")


def test_what_counts_as_read_by_sizing() -> None:
    """Red when a read of another step counts, when one at import counts or not though its module
    did not run or did, or when a recording changes on its way."""
    counting = [
        read("A", "allocation"),
        read("B", IMPORT),
        read("C", MENTION),
        read("D", "stages"),
    ]
    others = [read("E", "arguments"), read("F", IMPORT, "elsewhere"), read("G", "start")]
    recording = Recording(frozenset(counting + others), frozenset({"pools"}))
    assert recording.sizing() == counting
    assert Recording.from_json(recording.to_json()) == recording
    later = Recording(modules=frozenset({"elsewhere"}))
    assert read("F", IMPORT, "elsewhere") in (recording | later).sizing()
