"""The contracts: one module each, named after its id, found by listing this package.

A module whose name starts with ``_`` helps the others and states nothing.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from contracts.contract import Contract
from contracts.law._say import contract_id

__all__ = ["ALL", "UnknownContractError", "get"]

#: From what everything else rests on to what follows from it. It only sorts: which contracts
#: there are, the modules say. One that is not named here comes last.
_ORDER = (
    "stage-partition",
    "stage-slice",
    "layer-counts",
    "marginal-bytes",
    "fixed-bytes",
    "rank-sum",
    "pp1-identity",
    "pp1-unchanged",
    "budget-fit",
    "budget-use",
    "draft-reserve",
    "state-rows",
    "paging",
    "capacity-agreement",
    "monotone",
    "refusal",
    "reported-bytes",
    "transfer-buffers",
)


class UnknownContractError(KeyError):
    """There is no contract of that id; the text names the nearest."""

    def __str__(self) -> str:
        # A KeyError would show the text in quotes.
        return str(self.args[0])


def get(name: str) -> Contract:
    """The contract with an id.

    Raises:
        UnknownContractError: there is none; the text names the nearest.
    """
    if name in ALL:
        return ALL[name]
    close = difflib.get_close_matches(name, ALL, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(ALL)}"
    raise UnknownContractError(f"no contract {name!r}; {hint}")


def _contract(module_name: str) -> Contract:
    module = importlib.import_module(f"{__name__}.{module_name}")
    return Contract(
        id=contract_id(module_name),
        module=module,
        plan=module.plan,
        judge=module.judge,
        needs_baseline=getattr(module, "NEEDS_BASELINE", False),
        single_rank=getattr(module, "SINGLE_RANK", False),
        judges_refusals=getattr(module, "JUDGES_REFUSALS", False),
    )


def _place(name: str) -> tuple[int, str]:
    return (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)


def _all() -> Mapping[str, Contract]:
    names = [found.name for found in pkgutil.iter_modules(__path__) if found.name[0] != "_"]
    contracts = sorted(map(_contract, names), key=lambda contract: _place(contract.id))
    return MappingProxyType({contract.id: contract for contract in contracts})


ALL: Mapping[str, Contract] = _all()
