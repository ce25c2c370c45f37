"""docs/settings.md, written from the table in ``contracts.settings``.

python -m contracts.report.settings > docs/settings.md
"""

from __future__ import annotations

import sys

from contracts.settings import SETTINGS, Setting, Treatment

__all__ = ["page"]

_HEAD = """# Settings that sizing reads

Written by `python -m contracts.report.settings` from `contracts/settings.py`; edit that.

What SGLang's code for the DSV4 pools reads while it sizes and allocates: environment variables
(`env`), server arguments (`argument`) and leaves of the runtime contexts (`context`), which are
published from the arguments and since 0.5.17 bit by bit take their place. Every release is observed
with a recorder (`contracts/subject/reads.py`), and `tests/release/test_settings.py` fails when one
reads a setting that is not in this table, or none reads a setting that is.

What the suite does about a setting:
"""

_TABLE = """
*At import*: SGLang keeps the value that it found when the process started, so that a deployment
which states another one is observed in a worker of its own; all other variables of this table are
stated for one observation at a time. *By resolution*: not sizing reads it but the resolution of
the arguments, and what sizing reads of it has another name.

| setting | kind | read | what the suite does | why |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page as Markdown."""
    meanings = [f"- *{treatment}*: {treatment.meaning}." for treatment in Treatment]
    return _HEAD + "\n" + "\n".join(meanings) + "\n" + _TABLE + "".join(map(_row, SETTINGS))


def _row(setting: Setting) -> str:
    cells = [f"`{setting.name}`", setting.kind, _read(setting), setting.treatment, setting.why]
    return f"| {' | '.join(cells)} |\n"


def _read(setting: Setting) -> str:
    if setting.last is None:
        span = f"since {setting.first}"
    elif setting.last == setting.first:
        span = setting.first
    else:
        span = f"{setting.first} – {setting.last}"
    how = {"at import": setting.at_import, "by resolution": setting.resolved}
    return ", ".join([span, *(name for name, true in how.items() if true)])


if __name__ == "__main__":
    sys.stdout.write(page())
