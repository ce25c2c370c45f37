"""The Hypothesis profiles: every field stated, so that no ambient profile leaks in.

A registered profile inherits what it does not state from the profile that is current when it is
registered, and Hypothesis loads one of its own under CI.
"""

from __future__ import annotations

from typing import Any

from hypothesis import Phase, Verbosity, settings

__all__ = ["DEFAULT", "PROFILES", "STATED", "register"]

DEFAULT = "gate"

_COMMON: dict[str, Any] = {
    # The worker has a time-out of its own; a deadline would make a slow machine a violation.
    "deadline": None,
    "verbosity": Verbosity.quiet,
    "stateful_step_count": 50,
    "report_multiple_bugs": False,
    "suppress_health_check": (),
    "print_blob": False,
    "backend": "hypothesis",
    # Failing cases are files that `replay` reads, not entries of a database.
    "database": None,
    "phases": (Phase.explicit, Phase.generate, Phase.shrink),
}

#: Every field of every profile; ``PROFILES`` are built from nothing else.
STATED: dict[str, dict[str, Any]] = {
    # Deterministic: the same deployments on every run, machine and subject. Hypothesis draws some
    # of them again; 240 make well over 200 different ones.
    "gate": {**_COMMON, "max_examples": 240, "derandomize": True},
    # For a nightly run: other deployments each time, many more of them.
    "thorough": {**_COMMON, "max_examples": 5000, "derandomize": False},
    # For work on the suite: a quick look, still deterministic.
    "dev": {**_COMMON, "max_examples": 20, "derandomize": True},
}

PROFILES: dict[str, settings] = {name: settings(**fields) for name, fields in STATED.items()}


def register() -> None:
    """Make the profiles loadable by name and load the default."""
    for name, profile in PROFILES.items():
        settings.register_profile(name, profile)
    settings.load_profile(DEFAULT)
