"""A Hypothesis database in which machines share what they found: cases and records.

It is a folder, or a Redis server by its address; both are Hypothesis's own. A case that one shard
found is judged by the others too, in every later run, on every subject.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from contracts.deployment import Deployment, DeploymentError
from contracts.survey import Named

__all__ = ["Shared", "SharedError", "opened"]

JSON = Any

#: Seconds that a Redis server may take to answer.
_PATIENCE = 10

#: How long a server keeps what nobody has asked for.
_KEPT = datetime.timedelta(days=90)


class SharedError(RuntimeError):
    """A database cannot be used; the text says why."""


class Shared:
    """Cases by contract, for all runs, and the records of the run that is named."""

    def __init__(self, database: ExampleDatabase, run: str) -> None:
        self._database = database
        self._run = run

    def add_case(self, contract: str, deployment: Deployment) -> None:
        """Keep a deployment on which a contract is violated."""
        self._save(f"case/{contract}", deployment.key())

    def cases(self, contracts: Sequence[str]) -> list[Named]:
        """The kept deployments of these contracts, always in the same order."""
        texts = {text for name in contracts for text in self._fetch(f"case/{name}")}
        return [Named(deployment) for text in sorted(texts) if (deployment := _read(text))]

    def add_record(self, record: JSON) -> None:
        """Keep a record of the run."""
        self._save(f"record/{self._run}", json.dumps(record, sort_keys=True))

    def records(self) -> list[JSON]:
        """The kept records of the run, always in the same order."""
        return [json.loads(text) for text in sorted(self._fetch(f"record/{self._run}"))]

    def _save(self, key: str, text: str) -> None:
        with _errors():
            self._database.save(_key(key), text.encode())

    def _fetch(self, key: str) -> Iterator[str]:
        with _errors():
            yield from (value.decode() for value in self._database.fetch(_key(key)))


def _key(text: str) -> bytes:
    return f"sglang-pool-contracts/{text}".encode()


def _read(text: str) -> Deployment | None:
    """A kept deployment; one of another version of this suite may be none any more."""
    try:
        return Deployment.from_json(json.loads(text))
    except (DeploymentError, ValueError):
        return None


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """A server that is gone is told in one sentence."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.split(".")[0] != "redis":
            raise
        raise SharedError(f"the shared database does not answer: {error}") from None


def opened(place: str, run: str) -> Shared:
    """The database at a place: ``redis://host:port/0``, or a folder, which may be new.

    Raises:
        SharedError: the place is none, the server does not answer, or redis is not installed.
    """
    if "://" not in place:
        return Shared(DirectoryBasedExampleDatabase(place), run)
    if not place.startswith(("redis://", "rediss://", "unix://")):
        raise SharedError(f"{place}: a folder or a redis:// address is expected")
    try:
        from hypothesis.extra.redis import RedisExampleDatabase  # noqa: PLC0415 # optional
        from redis import Redis  # noqa: PLC0415 # optional
    except ImportError:
        raise SharedError("for a Redis server, install sglang-pool-contracts[redis]") from None
    with _errors():
        server = Redis.from_url(place, socket_timeout=_PATIENCE)
        server.ping()
    return Shared(RedisExampleDatabase(server, expire_after=_KEPT), run)
