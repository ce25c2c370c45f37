"""The ledger: violations that are known, how bad they are known to be, and until when.

An entry names a contract, the subjects (a version specifier) and a condition on the deployment.
It covers a violation whose factor stays within its bound; one beyond it is worse than known. Each
entry has one fixed deployment that must go on violating: when it no longer does, or the entry has
expired, the entry is stale, and the gate says so.
"""

from __future__ import annotations

import datetime
import difflib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import rule_engine
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from contracts import law
from contracts.contract import Violation
from contracts.deployment import Deployment, DeploymentError
from contracts.observation import SubjectInfo

__all__ = ["EMPTY", "FIELDS", "Entry", "Ledger", "LedgerError", "load", "shipped"]

JSON = Any


class LedgerError(ValueError):
    """A ledger cannot be used; the text names the file, the entry, and what is wrong with it."""


_NUMBER, _TEXT = rule_engine.DataType.FLOAT, rule_engine.DataType.STRING

#: The deployment's fields that a condition may speak of, with their types and meaning.
FIELDS: Mapping[str, tuple[Any, str]] = MappingProxyType(
    {
        "pp_size": (_NUMBER, "pipeline ranks"),
        "partitioned": (rule_engine.DataType.BOOLEAN, "whether a partition is stated"),
        "layers": (_NUMBER, "layers of the decoder"),
        "ratios": (rule_engine.DataType.ARRAY(_NUMBER), "compress ratios of the decoder's layers"),
        "extra_entries": (_NUMBER, "entries of compress_ratios beyond the decoder"),
        "model_type": (_TEXT, "the model's type, such as deepseek_v4"),
        "window": (_NUMBER, "sliding window, in tokens"),
        "speculation": (_TEXT, "the speculative algorithm, or null"),
        "swa_ratio": (_NUMBER, "stated swa_full_tokens_ratio, or null"),
        "max_running_requests": (_NUMBER, "stated limit, or null"),
        "max_total_tokens": (_NUMBER, "stated limit, or null"),
        "budget": (_NUMBER, "bytes a rank may spend"),
        "server_args": (
            rule_engine.DataType.MAPPING(_TEXT, rule_engine.DataType.UNDEFINED),
            "stated server arguments by SGLang's names",
        ),
        "env": (
            rule_engine.DataType.MAPPING(_TEXT, _TEXT),
            "stated environment variables",
        ),
    }
)

_CONTEXT = rule_engine.Context(
    type_resolver=rule_engine.type_resolver_from_dict(
        {name: kind for name, (kind, _meaning) in FIELDS.items()}
    )
)

_TEXTS = ("contract", "subjects", "condition", "reproduce", "reference")
_KEYS = ("contract", "subjects", "condition", "bound", "reproduce", "reference", "expires")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One known violation. ``bound`` is how far from 1 the factor may be, up or down; None for a
    violation that has no factor."""

    name: str
    contract: str
    subjects: SpecifierSet
    condition: rule_engine.Rule
    bound: float | None
    reproduce: Deployment
    reference: str
    expires: datetime.date

    def speaks_of(self, contract: str, deployment: Deployment, subject: SubjectInfo) -> bool:
        """Whether the entry is about this contract, deployment and subject."""
        return (
            contract == self.contract
            and _is_in(subject.version, self.subjects)
            and self.is_met(deployment)
        )

    def is_met(self, deployment: Deployment) -> bool:
        """Whether the condition holds on a deployment. One that cannot be told, such as that a
        number which is not stated is more than another, does not hold."""
        try:
            return bool(self.condition.matches(_facts(deployment)))
        except (rule_engine.EngineError, TypeError):  # TypeError: 'EAGLE' in null
            return False

    def bears(self, violation: Violation) -> bool:
        """Whether a violation is no worse than is known."""
        # 0 of something is no factor either: nothing is left that could get worse.
        if not violation.factor or self.bound is None:
            return not violation.factor and self.bound is None
        return 1 / self.bound <= violation.factor <= self.bound


@dataclass(frozen=True, slots=True)
class Ledger:
    """The entries of a ledger file, in its order."""

    entries: tuple[Entry, ...] = ()

    def covers(self, violation: Violation, deployment: Deployment, subject: SubjectInfo) -> bool:
        """Whether some entry knows a violation, and as bad as it is."""
        return any(
            entry.bears(violation)
            for entry in self.entries
            if entry.speaks_of(violation.contract, deployment, subject)
        )

    def nearest(
        self, violation: Violation, deployment: Deployment, subject: SubjectInfo
    ) -> Entry | None:
        """The entry that speaks of a violation with the widest bound, if any does."""
        speaking = [
            entry
            for entry in self.entries
            if entry.speaks_of(violation.contract, deployment, subject)
        ]
        return max(speaking, key=lambda entry: entry.bound or 0.0, default=None)

    def of(self, contract: str, subject: SubjectInfo) -> tuple[Entry, ...]:
        """The entries about a contract and a subject."""
        return tuple(
            entry
            for entry in self.entries
            if entry.contract == contract and _is_in(subject.version, entry.subjects)
        )


EMPTY = Ledger()


def shipped() -> Path:
    """The ledger that comes with the suite."""
    return Path(str(resources.files("contracts") / "known-violations.toml"))


def load(path: Path, *, today: datetime.date | None = None) -> Ledger:
    """Read a ledger.

    Raises:
        LedgerError: it cannot be read, or an entry is wrong or has expired; the text names it.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LedgerError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # of tomllib, or bytes that are no UTF-8
        raise LedgerError(f"{path}: no TOML: {error}") from None
    if document.get("schema") != 1:
        raise LedgerError(f"{path}: schema = 1 is expected, got {document.get('schema')!r}")
    unknown = set(document) - {"schema", "known"}
    if unknown:
        raise LedgerError(f"{path}: unknown key {sorted(unknown)[0]!r}; entries are [[known]]")
    tables = document.get("known", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise LedgerError(f"{path}: known: write each entry as a table that begins with [[known]]")
    entries = [
        _entry(table, number, path, today or datetime.datetime.now(datetime.UTC).date())
        for number, table in enumerate(tables, start=1)
    ]
    return Ledger(tuple(entries))


def _entry(table: Mapping[str, JSON], number: int, path: Path, today: datetime.date) -> Entry:
    name = f"entry {number} ({table.get('contract', 'no contract')})"
    try:
        entry = _checked(table, name)
        if entry.expires < today:
            raise ValueError(
                f"it expired on {entry.expires}: look whether it is still true, then renew or "
                "remove it"
            )
    except ValueError as error:
        raise LedgerError(f"{path}: {name}: {error}") from None
    return entry


def _checked(table: Mapping[str, JSON], name: str) -> Entry:
    for key in table:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_KEYS)}"
            raise ValueError(f"unknown key {key!r}; {hint}")
    missing = [key for key in _KEYS if key not in table]
    if missing:
        raise ValueError(f"{missing[0]!r} is missing; an entry has {', '.join(_KEYS)}")
    for key in _TEXTS:
        if not isinstance(table[key], str):
            raise ValueError(f"{key}: a text is expected, got {table[key]!r}")
    try:
        law.get(table["contract"])
    except law.UnknownContractError as error:
        raise ValueError(str(error)) from None
    expires = table["expires"]
    if not isinstance(expires, datetime.date) or isinstance(expires, datetime.datetime):
        raise ValueError(f"expires: a date such as 2027-06-30 is expected, got {expires!s}")
    entry = Entry(
        name=name,
        contract=table["contract"],
        subjects=_specifier(table["subjects"]),
        condition=_rule(table["condition"]),
        bound=_bound(table["bound"]),
        reproduce=_deployment(table["reproduce"]),
        reference=table["reference"],
        expires=expires,
    )
    if not entry.is_met(entry.reproduce):
        raise ValueError(
            f"condition {table['condition']!r}: it must hold on the entry's own deployment "
            "(reproduce), and does not; correct one of them"
        )
    return entry


def _deployment(text: str) -> Deployment:
    try:
        return Deployment.from_json(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"reproduce: no JSON: {error}") from None
    except DeploymentError as error:
        raise ValueError(f"reproduce: {error}") from None


def _specifier(text: str) -> SpecifierSet:
    try:
        return SpecifierSet(text, prereleases=True)
    except InvalidSpecifier:
        raise ValueError(
            f"subjects: {text!r} is no version specifier; write it as '>=0.5.13,<0.5.21'"
        ) from None


def _rule(text: str) -> rule_engine.Rule:
    try:
        return rule_engine.Rule(text, context=_CONTEXT)
    except rule_engine.SymbolResolutionError as error:
        hint = f"did you mean {error.suggestion!r}?" if error.suggestion else "see docs/ledger.md"
        raise ValueError(f"condition: no field {error.symbol_name!r}; {hint}") from None
    except rule_engine.EngineError as error:
        raise ValueError(
            f"condition {text!r}: {error.message}; fields and types: docs/ledger.md"
        ) from None


def _bound(stated: JSON) -> float | None:
    if stated == "no factor":
        return None
    is_number = isinstance(stated, int | float) and not isinstance(stated, bool)
    if not is_number or not 1 <= stated < math.inf:
        raise ValueError(
            f"bound: a factor of 1 or more, or 'no factor', is expected, got {stated!r}"
        )
    return float(stated)


def _is_in(version: str, subjects: SpecifierSet) -> bool:
    """A version that is no release's, such as a checkout's 0.0.0.dev0, is in none that does not
    name it: it says nothing of what the checkout has."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return False
    is_named = any(one.operator == "==" and "dev" in one.version for one in subjects)
    return parsed in subjects and (is_named or not parsed.is_devrelease)


def _facts(deployment: Deployment) -> dict[str, JSON]:
    model = deployment.model
    ratio = deployment.swa_ratio()
    return {
        "pp_size": deployment.pp_size,
        "partitioned": deployment.partition is not None,
        "layers": model.num_hidden_layers,
        "ratios": list(model.decoder_ratios),
        "extra_entries": len(model.compress_ratios) - model.num_hidden_layers,
        "model_type": model.model_type,
        "window": model.sliding_window,
        "speculation": deployment.speculation.algorithm if deployment.speculation else None,
        "swa_ratio": None if ratio is None else float(ratio),
        "max_running_requests": deployment.server_args.get("max_running_requests"),
        "max_total_tokens": deployment.server_args.get("max_total_tokens"),
        "budget": deployment.budget,
        "server_args": dict(deployment.server_args),
        "env": dict(deployment.env),
    }
