"""What the releases read while they size and allocate is what ``contracts.settings`` knows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from contracts.contract import Request
from contracts.deployment import Deployment, Speculation
from contracts.observation import Capabilities, Observation, Outcome, Refused
from contracts.settings import KNOWN, SETTINGS, Setting, Treatment
from contracts.subject.client import Client
from contracts.subject.overlay import ConsoleReport
from contracts.subject.reads import ARGUMENTS, IMPORT, MENTION, Read, Recording
from contracts.subject.releases import RELEASES
from contracts.subject.resolve import Subject, resolve
from contracts.units import GiB
from strategies.published import MODELS
from tests.releases import case, since

EAGLE = Speculation(algorithm="EAGLE", num_steps=3, eagle_topk=1, num_draft_tokens=4)
DSPARK = Speculation(algorithm="DSPARK")
RATIO = {"swa_full_tokens_ratio": 0.1}


@dataclass(frozen=True, slots=True)
class Case:
    """A deployment, and the names without which a subject cannot be asked for it."""

    deployment: Deployment
    needs: frozenset[str]

    def suits(self, subject: Capabilities) -> bool:
        names = (subject.algorithms, subject.arguments, subject.variables, subject.model_types)
        return self.needs <= frozenset().union(*names)


def of(
    needs: str = "",
    model: str = "deepseek-v4-flash",
    server_args: Mapping[str, Any] = RATIO,
    **fields: Any,
) -> Case:
    stated = Deployment(model=MODELS[model], budget=60 * GiB, server_args=server_args, **fields)
    return Case(stated, frozenset(needs.split()))


#: One for each branch of sizing that a deployment can be led into.
CASES = {
    "flash": of(),
    "pipeline": of(pp_size=2, partition=(20, 23)),
    "eagle": of(speculation=EAGLE),
    "adaptive": of(
        "speculative_adaptive",
        speculation=EAGLE,
        server_args={**RATIO, "speculative_adaptive": True},
    ),
    "dspark": of("DSPARK", model="deepseek-v4-flash-0731", speculation=DSPARK),
    "hisparse": of(server_args={**RATIO, "enable_hisparse": True, "disable_radix_cache": True}),
    "decode": of(speculation=EAGLE, server_args={**RATIO, "disaggregation_mode": "decode"}),
    "attention-dp": of(
        server_args={**RATIO, "tp_size": 2, "dp_size": 2, "enable_dp_attention": True}
    ),
    "pipeline-eagle": of(
        "SGLANG_ENABLE_PP_SPEC",
        pp_size=2,
        speculation=EAGLE,
        env={"SGLANG_ENABLE_PP_SPEC": "1"},
    ),
    "v4.1": of("deepseek_v41", model="deepseek-v4.1-flash", server_args={}),
    "v4.1-decode": of(
        "deepseek_v41",
        model="deepseek-v4.1-flash",
        server_args={"disaggregation_mode": "decode"},
    ),
    "v4.1-dspark": of(
        "deepseek_v41", model="deepseek-v4.1-flash", server_args={}, speculation=DSPARK
    ),
    "v4.1-replay": of(
        "deepseek_v41 enable_encoder_swa_bounded_replay",
        model="deepseek-v4.1-flash",
        server_args={"enable_encoder_swa_bounded_replay": True, "max_running_requests": 64},
    ),
    "v4.1-replay-dspark": of(
        "deepseek_v41 enable_encoder_swa_bounded_replay",
        model="deepseek-v4.1-flash",
        speculation=DSPARK,
        server_args={"enable_encoder_swa_bounded_replay": True, "max_running_requests": 64},
    ),
}
ONLINE = {
    "online": of(env={"SGLANG_OPT_USE_ONLINE_COMPRESS": "1"}),
    "online-eagle": of(
        "SGLANG_EXPERIMENTAL_ONLINE_C128_MTP",
        speculation=EAGLE,
        env={
            "SGLANG_OPT_USE_ONLINE_COMPRESS": "1",
            "SGLANG_EXPERIMENTAL_ONLINE_C128_MTP": "1",
        },
    ),
}


#: Online compression has a worker of its own, and reads nothing that the others do not: the last
#: release of each adapter will do.
WITH_ONLINE = ("0.5.15.post1", "0.5.20", "0.5.23")


def asked(deployment: Deployment, tokens: int = 25_600) -> Request:
    return Request(deployment=deployment, views=frozenset({"final", "transfers"}), tokens=(tokens,))


# -- what is recorded ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a subject reads: all of it, and case by case the first and the second time."""

    whole: Recording
    twice: Mapping[str, tuple[Recording, Recording]]


def record(subject: Subject, cases: Mapping[str, Case], *edits: Mapping[str, str]) -> Recorded:
    """Observe those cases that the subject can be asked for, with a recorder."""
    with Client(subject, record=True, edits=edits) as client:
        capabilities = client.info.capabilities
        twice = {
            name: (read_by(client, one.deployment, 25_600), read_by(client, one.deployment, 51_200))
            for name, one in cases.items()
            if one.suits(capabilities)
        }
    parts = [one for both in twice.values() for one in both]
    return Recorded(functools.reduce(Recording.__or__, parts), twice)


def read_by(client: Client, deployment: Deployment, tokens: int) -> Recording:
    outcome = client.observe(asked(deployment, tokens))
    assert isinstance(outcome, Observation), (str(deployment), outcome)
    return client.take_recording()


def subject(release: str) -> Subject:
    return resolve(release, report=ConsoleReport())


@functools.cache
def recorded(release: str) -> Recorded:
    """A release's recording, which its tests share."""
    return record(subject(release), CASES | ONLINE if release in WITH_ONLINE else CASES)


WORDS = {"env": "environment variable", "argument": "server argument", "context": "context leaf"}
ALL = [case(release) for release in RELEASES]


def span(setting: Setting) -> tuple[str, ...]:
    return since(setting.first, setting.last or RELEASES[-1])


def unknown(recording: Recording, release: str) -> dict[str, str]:
    """By name, what sizing reads that the table does not know of, and what is to be done."""
    return {
        read.name: said(read, release)
        for read in recording.sizing()
        if (read.kind, read.name) not in KNOWN or release not in span(KNOWN[read.kind, read.name])
    }


def said(read: Read, release: str) -> str:
    known = (read.kind, read.name) in KNOWN
    return (
        f"SGLang {release} reads the {WORDS[read.kind]} {read.name} "
        f"({read.step}, {read.place}), which contracts/settings.py "
        + (
            "puts outside of its span: correct the span"
            if known
            else "does not know: find out which sizes depend on it, and add what the suite does"
        )
        + "; then run: python -m contracts.report.settings > docs/settings.md"
    )


# -- tests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ALL)
def test_all_that_sizing_reads_is_known(release: str) -> None:
    """Red when a release reads a setting while it sizes or allocates that the table does not know,
    or that it puts into other releases alone."""
    found = unknown(recorded(release).whole, release)
    assert not found, "\n".join(found.values())


@pytest.mark.parametrize("release", ALL)
def test_no_row_is_stale(release: str) -> None:
    """Red when a row's first or last release does not read the setting: a row that no release
    reads has no place in the table."""
    recording = recorded(release).whole
    sizing = {(read.kind, read.name) for read in recording.sizing()}
    resolving = {(read.kind, read.name) for read in recording.reads if read.step == ARGUMENTS}
    for setting in SETTINGS:
        if release in (span(setting)[0], span(setting)[-1]):
            read = resolving - sizing if setting.resolved else sizing
            assert (setting.kind, setting.name) in read, (
                f"SGLang {release} does not read {setting.name}: correct the span of its row in "
                "contracts/settings.py, or take it out"
            )


@pytest.mark.parametrize("release", ALL)
def test_what_is_kept_is_there_at_the_start(release: str) -> None:
    """Red when SGLang keeps the value of a variable that is stated for one observation at a time:
    what one deployment states would go on for the next, or come too late."""
    found = recorded(release)
    at_import = {read.name for read in found.whole.reads if read.step == IMPORT}
    for first, again in found.twice.values():
        at_import |= read_anew(first) - read_anew(again)
    for setting in SETTINGS:
        if setting.kind == "env" and release in span(setting):
            # Of what is kept on another platform alone, this one shows nothing.
            shown = setting.treatment is not Treatment.PLATFORM
            kept = setting.name in at_import
            assert kept == setting.at_import or (setting.at_import and not shown), setting.name


def read_anew(recording: Recording) -> set[str]:
    """The variables that are read in the steps of sizing, whoever reads them."""
    return {
        read.name
        for read in recording.sizing()
        if read.kind == "env" and read.step not in (IMPORT, MENTION)
    }


#: For the variables that are stated for one observation: a value, and a case on which it shows.
SHOWS = {
    "SGLANG_DSV4_COMPRESS_STATE_DTYPE": ("bfloat16", "flash"),
    "SGLANG_SWA_EVICTION_INTERVAL": ("512", "v4.1"),
    "SGLANG_PP_LAYER_PARTITION": ("20,23", "pipeline"),
    "SGLANG_ENABLE_PP_SPEC": ("1", "pipeline-eagle"),
}


def final(outcome: Outcome) -> object:
    """What is compared of an answer."""
    if isinstance(outcome, Observation):
        return [(rank.start_layer, rank.end_layer, rank.final) for rank in outcome.ranks]
    assert isinstance(outcome, Refused), outcome
    return outcome.kind


@pytest.mark.parametrize("release", ALL)
def test_a_warm_worker_heeds_what_is_stated(release: str, clients: Callable[[str], Client]) -> None:
    """Red when a worker that has sized without a variable does not heed it, or goes on to heed it
    where it is stated no more."""
    client = clients(release)
    for name, (value, case_) in SHOWS.items():
        if release not in span(KNOWN["env", name]):
            continue
        plain = dataclasses.replace(CASES[case_].deployment, partition=None, env={})
        stated = dataclasses.replace(plain, env={name: value})
        without = final(client.observe(asked(plain)))
        assert final(client.observe(asked(stated))) != without, name
        assert final(client.observe(asked(plain, 51_200))) == without, name


@pytest.mark.parametrize("release", ALL)
def test_what_has_no_effect_has_none(release: str, clients: Callable[[str], Client]) -> None:
    """Red when a size depends on a setting of which the table says that none does."""
    client, plain = clients(release), CASES["flash"].deployment
    stated = dataclasses.replace(
        plain,
        server_args={**plain.server_args, "page_size": 128, "kv_cache_dtype": "fp8_e4m3"},
        env={"SGLANG_DEBUG_MEMORY_POOL": "1", "SGLANG_OPT_CACHE_SWA_TRANSLATION": "0"},
    )
    assert final(client.observe(asked(stated))) == final(client.observe(asked(plain)))


# -- seeded reads ----------------------------------------------------------------------------------

_CONFIGURATOR = "sglang.srt.model_executor.pool_configurator"
_POOL = "sglang.srt.mem_cache.deepseek_v4_memory_pool"


FLASH = {"flash": CASES["flash"]}


def before(module: str, line: str, read: str) -> dict[str, str]:
    """An edit that lets SGLang read something before a line of its source."""
    indent = line[: len(line) - len(line.lstrip())]
    return {"module": module, "find": line, "replace": f"{indent}{read}\n{line}"}


@pytest.mark.xdist_group("0.5.23")
def test_a_new_read_is_found() -> None:
    """Red when the recorder misses a variable that is read in a step or at import, a leaf, or a
    variable that only another platform would read; or when the message does not say where."""
    edits = [
        before(
            _CONFIGURATOR,
            "        stage = range(kvc.layer_info.start_layer, kvc.layer_info.end_layer)",
            "__import__('os').environ.get('SGLANG_OF_TOMORROW'); get_schedule().schedule_policy",
        ),
        before(
            _POOL,
            "ONLINE_C128 = not _is_hip and envs.SGLANG_OPT_USE_ONLINE_COMPRESS.get()",
            "__import__('os').getenv('SGLANG_AT_IMPORT')",
        ),
        before(
            _POOL,
            "        stage_layer_num = len(stage_ratios)",
            "_is_hip and __import__('os').getenv('SGLANG_ON_HIP')",
        ),
    ]
    found = unknown(record(subject("0.5.23"), FLASH, *edits).whole, "0.5.23")
    variables = {"SGLANG_OF_TOMORROW", "SGLANG_AT_IMPORT", "SGLANG_ON_HIP"}
    assert set(found) == variables | {"schedule.schedule_policy"}
    assert found["SGLANG_OF_TOMORROW"].startswith(
        "SGLang 0.5.23 reads the environment variable SGLANG_OF_TOMORROW "
        "(sizing, sglang/srt/model_executor/pool_configurator.py:"
    )


@pytest.mark.xdist_group("0.5.12")
def test_a_new_argument_is_found() -> None:
    """Red when the recorder misses a read of the server arguments themselves."""
    edit = before(
        _CONFIGURATOR,
        "        self.swa_ratio = mr.server_args.swa_full_tokens_ratio",
        "mr.server_args.watchdog_timeout",
    )
    found = unknown(record(subject("0.5.12"), FLASH, edit).whole, "0.5.12")
    assert set(found) == {"watchdog_timeout"}
