"""An observation: what a subject computed and allocated for one deployment, rank by rank.

Plain, frozen data that travels as JSON from the worker. Sizes of configured pools are in tokens
or rows as SGLang counts them, footprints in bytes read from tensor storages. A number that a
subject does not have is ``None``, never 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contracts.deployment import Deployment

__all__ = [
    "Capabilities",
    "Component",
    "Configurator",
    "Failed",
    "Observation",
    "Outcome",
    "Pool",
    "Rank",
    "Refused",
    "SubjectInfo",
    "Transfer",
    "Unreadable",
    "View",
]

JSON = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a subject has names for, so that it can be asked for it.

    ``algorithms`` are speculative algorithms for these models, ``arguments`` the server arguments,
    ``variables`` the environment variables that it reads, ``model_types`` the types of the
    DeepSeek-V4 family that a ``config.json`` may state. A name says nothing of what it goes
    together with: that is the subject's to refuse.
    """

    algorithms: frozenset[str] = frozenset()
    arguments: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    model_types: frozenset[str] = frozenset()

    @classmethod
    def from_json(cls, document: JSON) -> Capabilities:
        """Read what a worker says of its subject; what it does not say, it does not know."""
        names = (one.name for one in dataclasses.fields(cls))
        return cls(**{name: frozenset(document.get(name, ())) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectInfo:
    """Which SGLang was observed.

    ``label`` is what the user named, ``version`` what the subject says of itself, ``era`` the
    adapter that read it, ``capabilities`` what it can be asked for. ``definitions`` says where its
    ``configurator`` and its ``pool`` are defined: a path from the package's folder on, and a line.
    """

    label: str
    version: str
    era: str
    capabilities: Capabilities = Capabilities()
    placeholders: tuple[str, ...] = ()
    definitions: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, JSON]:
        """As the ``subject`` object of the JSON interfaces."""
        return {"label": self.label, "version": self.version, "era": self.era}


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """The footprint of one part of a pool.

    ``buffers`` counts distinct storages, ``rows`` the first dimensions of all of them, ``bytes``
    their sizes. ``kind`` is the kind of layer whose count the buffers follow (a key of
    ``Configurator.layers``), or None where they do not come one per layer.

    The geometry is that of each of the buffers, None where the subject does not tell: ``size`` is
    what was configured, in ``slots`` (tokens of a paged buffer, rows of a state buffer), ``page``
    the slots of one row, ``ring`` the rows of one ring, ``align`` what the rows are a multiple of,
    ``last_row`` the row of the last legal location that SGLang's own translation gives.
    """

    buffers: int
    rows: int
    bytes: int
    kind: str | None = None
    size: int | None = None
    page: int | None = None
    ring: int | None = None
    align: int | None = None
    last_row: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One entry of a transfer list."""

    component: str | None
    index: int | None
    bytes: int | None
    stated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One allocated pool: the ratios of the layers it was built for, and its components.

    ``reported`` are the bytes that the pool says it has (SGLang's ``mem_usage``). ``transfers``
    are its lists for PD disaggregation, by name: each entry is the component of a buffer, the
    buffer's place in that component, the true bytes of its storage and the bytes that the list
    states; an entry whose pointer is no buffer of the pool has no component.
    """

    stage_ratios: tuple[int, ...]
    components: Mapping[str, Component]
    reported: int | None = None
    transfers: Mapping[str, tuple[Transfer, ...]] | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all components together."""
        return sum(component.bytes for component in self.components.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Sizes and allocation of one rank at one token count.

    ``tokens`` are full tokens; ``sizes`` are the configured pool sizes by their short names
    (full, swa, c4, c128: tokens; c4_state, c128_state: rows). ``draft`` is None on a rank that
    owns no draft pool. ``charge`` is the least byte budget for which the rank's configurator gives
    this many tokens, None where it was not asked for.
    """

    tokens: int
    sizes: Mapping[str, int | None]
    max_running_requests: int | None
    pool: Pool
    draft: Pool | None
    charge: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of the target's and the draft's pool together."""
        return self.pool.bytes + (self.draft.bytes if self.draft else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurator:
    """What the configurator charges on one rank.

    ``ratios`` are the compress ratios that it counts, ``layers`` the layers that it charges by
    kind (``total`` and one key a compressed kind). ``bytes_per_full_token`` is its coefficient,
    with the draft's reserve in it; ``target_bytes_per_full_token`` is the same without that
    reserve. ``draft_layers`` is the reserve in units of what SGLang charges for a draft: an average
    layer of the stage (it scales the coefficient by (T+D)/T), or with encoder replay the draft's
    own layers; only then there are ``draft_fixed_bytes``, reserved at any size. ``charges`` splits
    the target's coefficient by component, found by asking the configurator about hypothetical
    stages; None where the parts do not add up.
    """

    ratios: tuple[int, ...]
    layers: Mapping[str, int]
    bytes_per_full_token: float
    target_bytes_per_full_token: float
    draft_layers: float
    draft_fixed_bytes: float | None = None
    charges: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One pipeline rank: its stage, what its configurator charges, and the requested views.

    ``final`` is the view after the minimum over the ranks (what a server allocates), ``own`` the
    rank's own capacity before it, ``at`` views at stated token counts.
    """

    rank: int
    start_layer: int
    end_layer: int
    configurator: Configurator
    final: View | None
    own: View | None
    at: tuple[View, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All ranks of one deployment. ``final_tokens`` is the token count all ranks agree on."""

    subject: SubjectInfo
    deployment: Deployment
    ranks: tuple[Rank, ...]
    final_tokens: int | None

    @classmethod
    def from_json(
        cls, document: JSON, *, subject: SubjectInfo, deployment: Deployment
    ) -> Observation:
        """Read the worker's answer."""
        return cls(
            subject=subject,
            deployment=deployment,
            ranks=tuple(_rank(rank) for rank in document["ranks"]),
            final_tokens=document["final_tokens"],
        )

    def to_json(self) -> dict[str, JSON]:
        """As the ``observe`` command writes it (docs/observe.schema.json)."""
        return {
            "schema": 1,
            "subject": self.subject.to_json(),
            "deployment": self.deployment.to_json(),
            "ranks": [_rank_json(rank) for rank in self.ranks],
            "final_tokens": self.final_tokens,
        }

    def stages(self) -> str:
        """The stages as half-open intervals: ``[0,21)[21,43)``."""
        return "".join(f"[{rank.start_layer},{rank.end_layer})" for rank in self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """SGLang itself refused the deployment; ``sentence`` is what it said, ``where`` the step."""

    where: str
    kind: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """SGLang raised something that is no refusal while it sized or allocated a legal deployment."""

    where: str
    kind: str
    sentence: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """The subject could not be observed: its API is unknown to the adapter, the worker died or
    hung, or a buffer could not be attributed. Nothing can be judged from it."""

    reason: str
    traceback: str = ""


Outcome = Observation | Refused | Failed | Unreadable
"""What asking a subject for an observation comes to."""


def _component(document: JSON) -> Component:
    return Component(**document)


def _pool(document: JSON) -> Pool | None:
    if document is None:
        return None
    transfers = document["transfers"]
    return Pool(
        stage_ratios=tuple(document["stage_ratios"]),
        components={name: _component(part) for name, part in document["components"].items()},
        reported=document["reported"],
        transfers=None
        if transfers is None
        else {name: tuple(Transfer(**one) for one in ones) for name, ones in transfers.items()},
    )


def _view(document: JSON) -> View | None:
    if document is None:
        return None
    pool = _pool(document["pool"])
    assert pool is not None
    return View(**{**document, "pool": pool, "draft": _pool(document["draft"])})


def _rank(document: JSON) -> Rank:
    configurator = {**document["configurator"], "ratios": tuple(document["configurator"]["ratios"])}
    at = tuple(_view(view) for view in document["at"])
    return Rank(
        rank=document["rank"],
        start_layer=document["start_layer"],
        end_layer=document["end_layer"],
        configurator=Configurator(**configurator),
        final=_view(document["final"]),
        own=_view(document["own"]),
        at=tuple(view for view in at if view is not None),
    )


def _pool_json(pool: Pool | None) -> JSON:
    if pool is None:
        return None
    return {
        "stage_ratios": list(pool.stage_ratios),
        "bytes": pool.bytes,
        "components": {
            name: dataclasses.asdict(component) for name, component in pool.components.items()
        },
        "reported": pool.reported,
    }


def _view_json(view: View | None) -> JSON:
    if view is None:
        return None
    return {
        "tokens": view.tokens,
        "sizes": dict(view.sizes),
        "max_running_requests": view.max_running_requests,
        "charge": view.charge,
        "pool": _pool_json(view.pool),
        "draft": _pool_json(view.draft),
    }


def _rank_json(rank: Rank) -> JSON:
    """One rank, with the final view's numbers where design.md puts them."""
    configurator = rank.configurator
    final = rank.final
    return {
        "rank": rank.rank,
        "start_layer": rank.start_layer,
        "end_layer": rank.end_layer,
        "configurator": {
            "ratios": list(configurator.ratios),
            "layers": dict(configurator.layers),
            "bytes_per_full_token": configurator.bytes_per_full_token,
            "target_bytes_per_full_token": configurator.target_bytes_per_full_token,
            "draft_layers": configurator.draft_layers,
            "charges": None if configurator.charges is None else dict(configurator.charges),
            "sizes": None if final is None else dict(final.sizes),
            "max_running_requests": None if final is None else final.max_running_requests,
        },
        "pool": None if final is None else _pool_json(final.pool),
        "draft": None if final is None else _pool_json(final.draft),
        "own": _view_json(rank.own),
        "at": [_view_json(view) for view in rank.at],
    }
