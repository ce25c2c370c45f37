"""The list of contracts: found by listing the package, ordered, pure."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from contracts import law
from contracts.contract import Contract, Violation
from contracts.law import ALL, UnknownContractError, get

from .observations import deployment


def test_every_public_module_is_a_contract_and_no_helper_is() -> None:
    """Red when a contract's module is not found, or a helper is listed as one."""
    files = {path.stem for path in Path(law.__path__[0]).glob("[!_]*.py")}
    assert {name.replace("-", "_") for name in ALL} == files


def test_the_order_is_that_of_the_design() -> None:
    """Red when the contracts are listed alphabetically, or by the file system."""
    stated = [name for name in law._ORDER if name in ALL]
    assert list(ALL)[: len(stated)] == stated
    assert list(ALL)[:2] == ["stage-partition", "stage-slice"]


def test_a_contract_that_the_order_does_not_know_comes_last() -> None:
    """Red when a new contract needs an entry in the order to be listed."""
    assert law._place("aaa-new") > law._place("transfer-buffers")


@pytest.mark.parametrize("contract", ALL.values(), ids=list(ALL))
def test_a_contract_states_and_explains_itself(contract: Contract) -> None:
    """Red when a module's docstring is a statement only, or has no statement."""
    assert contract.statement.endswith(".")
    assert "\n" not in contract.statement
    assert len(contract.explanation.split("\n\n")) >= 2


@pytest.mark.parametrize("contract", ALL.values(), ids=list(ALL))
def test_a_plan_asks_for_something(contract: Contract) -> None:
    assert contract.plan(deployment(0, 4, pp_size=2))


def test_only_pp1_unchanged_needs_a_baseline() -> None:
    assert [name for name, contract in ALL.items() if contract.needs_baseline] == ["pp1-unchanged"]


def test_get_finds_by_id() -> None:
    assert get("rank-sum").id == "rank-sum"


def test_get_names_the_nearest_id() -> None:
    """Red when a typing error is answered without help, or in KeyError's quotes."""
    with pytest.raises(UnknownContractError) as raised:
        get("stage_slise")
    assert str(raised.value) == "no contract 'stage_slise'; did you mean 'stage-slice'?"
    assert isinstance(raised.value, KeyError)


def test_get_lists_the_ids_when_none_is_near() -> None:
    with pytest.raises(
        UnknownContractError, match=r"no contract 'xyzzy'; known: stage-partition, "
    ):
        get("xyzzy")


def test_the_laws_import_neither_sglang_nor_torch_nor_hypothesis() -> None:
    """Red when a law module or a helper imports one of them, directly or not."""
    code = (
        "import sys, contracts.law\n"
        "print(sorted({'sglang', 'torch', 'hypothesis', 'pytest'} & set(sys.modules)))"
    )
    root = Path(law.__path__[0]).parents[1]
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_messages_name_the_contract_by_its_id() -> None:
    """Red when a module's file is renamed and its id is not."""
    for found in pkgutil.iter_modules(law.__path__):
        if found.name[0] != "_":
            module = ALL[found.name.replace("_", "-")].module
            assert vars(module)["_ID"] == found.name.replace("_", "-")


def test_a_violation_is_data() -> None:
    """Red when a field is renamed that the JSON interface has."""
    assert list(Violation.__dataclass_fields__) == [
        "contract",
        "rank",
        "component",
        "observed",
        "expected",
        "factor",
        "message",
        "bytes",
    ]
