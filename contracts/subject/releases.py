"""The SGLang releases that have the DeepSeek-V4 pool."""

from __future__ import annotations

import difflib
import re

from packaging.version import InvalidVersion, Version

__all__ = ["NEWEST", "OLDEST", "RELEASES", "nearest"]

#: Every supported release, oldest first.
RELEASES: tuple[str, ...] = (
    "0.5.12",
    "0.5.12.post1",
    "0.5.13",
    "0.5.13.post1",
    "0.5.14",
    "0.5.15",
    "0.5.15.post1",
    "0.5.16",
    "0.5.17",
    "0.5.18",
    "0.5.19",
    "0.5.20",
    "0.5.21",
    "0.5.22",
    "0.5.23",
)

OLDEST = RELEASES[0]
NEWEST = RELEASES[-1]


def nearest(text: str) -> tuple[str, ...]:
    """The supported releases nearest to a text, at most two, oldest first.

    For a version these are its neighbours in the order of releases (one, if it is that release or
    lies beyond an end); for a text that only starts like one, those of its start; for any other,
    the releases that look most like it.
    """
    written = "".join(text.split())
    try:
        version = Version(written)
    except InvalidVersion:
        start = re.match(r"v?\d+(\.\d+)+", written)
        if start is not None:
            return nearest(start[0])
        alike = difflib.get_close_matches(written, RELEASES, n=2)
        return tuple(sorted(alike, key=RELEASES.index))
    same = [known for known in RELEASES if Version(known) == version]
    older = [known for known in RELEASES if Version(known) < version]
    newer = [known for known in RELEASES if Version(known) > version]
    return tuple(same) or (*older[-1:], *newer[:1])
