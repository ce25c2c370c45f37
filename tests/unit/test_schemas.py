"""The schema files in docs/ say what is really written and read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator, ValidationError

from contracts import law
from contracts.contract import Request, Verdict, Violation
from contracts.deployment import Deployment, DeploymentError, Model, Speculation
from contracts.examination import Finding
from contracts.hunt.case import save
from contracts.hunt.matrix import Plan, records
from contracts.observation import Component, Observation, SubjectInfo
from contracts.report.components import Row
from contracts.report.document import judge_document
from contracts.subject.client import Client
from contracts.trial import Trial
from contracts.units import parse_bytes
from strategies.deployment import deployments
from strategies.published import DEPLOYMENTS
from tests.unit import fake_worker, observations
from tests.unit.schemas import FILES, check, schema

JSON = Any
FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=50)


def objects(part: JSON, path: str = "") -> Iterator[tuple[str, dict[str, JSON]]]:
    """Every record in a schema, with where it is."""
    if isinstance(part, list):
        for index, item in enumerate(part):
            yield from objects(item, f"{path}/{index}")
    if isinstance(part, dict):
        if "additionalProperties" in part and "properties" in part:
            yield path, part
        for key, item in part.items():
            yield from objects(item, f"{path}/{key}")


# -- the files -------------------------------------------------------------------------------------


def test_there_is_one_for_each_interface() -> None:
    """Red when a schema is missing; that of the ledger is test_ledger's to check."""
    interfaces = {"bisect", "case", "deployment", "gate", "judge", "matrix", "observe", "record"}
    assert {f"{name}.schema.json" for name in interfaces} <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_the_schema_is_one(name: str) -> None:
    """Red when a file is no schema of draft 2020-12."""
    assert schema(name)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("name", FILES)
def test_records_are_closed_and_described(name: str) -> None:
    """Red when a record admits unknown fields, or a field is not explained."""
    records = dict(objects(schema(name)))
    assert records
    for path, record in records.items():
        assert record["additionalProperties"] is False, path
        assert record["description"], path
        for field, said in record["properties"].items():
            assert said.get("description") or "$ref" in said, f"{path}/{field}"


@pytest.mark.parametrize("name", ["bisect", "case", "gate", "judge", "matrix", "observe", "record"])
def test_every_field_is_always_written(name: str) -> None:
    """Red when a reader cannot count on a field: what a subject does not have is null."""
    for path, record in objects(schema(f"{name}.schema.json")):
        assert set(record["required"]) == set(record["properties"]), path


# -- the fields of a deployment, which users write -------------------------------------------------

TYPES: Mapping[str, JSON] = {
    "int": "integer",
    "int | None": ["integer", "null"],
    "str": "string",
    "tuple[int, ...]": "array",
    "tuple[int, ...] | None": ["array", "null"],
    "Mapping[str, JSON]": "object",
    "Mapping[str, str]": "object",
}
#: Fields that another record or two forms describe.
COMPOSED = {"model", "speculation", "budget"}


@pytest.mark.parametrize(
    ("record", "place"), [(Deployment, None), (Model, "model"), (Speculation, "speculation")]
)
def test_the_fields_of_a_deployment(record: Any, place: str | None) -> None:
    """Red when a field is added, renamed or retyped, gets another default or becomes required, and
    the schema does not follow."""
    whole = schema("deployment.schema.json")
    described = whole if place is None else whole["$defs"][place]
    fields = {field.name: field for field in dataclasses.fields(record)}
    assert list(described["properties"]) == list(fields)
    required = []
    for name, field in fields.items():
        said = described["properties"][name]
        if name not in COMPOSED:
            assert said["type"] == TYPES[str(field.type)], name
        if field.default_factory is not dataclasses.MISSING:
            assert said["default"] == field.default_factory(), name
        elif field.default is not dataclasses.MISSING:
            assert said["default"] == field.default, name
        else:
            required.append(name)
            assert "default" not in said, name
    assert described["required"] == required


def test_the_fields_of_a_component() -> None:
    """Red when a footprint gets a field that the schema does not know."""
    described = schema("observe.schema.json")["$defs"]["component"]["properties"]
    assert list(described) == [field.name for field in dataclasses.fields(Component)]


def test_the_fields_of_a_row() -> None:
    """Red when a row of the component table gets a field that the schema does not know."""
    described = schema("record.schema.json")["$defs"]["row"]["properties"]
    assert list(described) == [field.name for field in dataclasses.fields(Row)]


@FIXED
@given(deployments())
def test_generated_deployments(deployment: Deployment) -> None:
    """Red when a deployment that is written is not one by the schema."""
    check(deployment.to_json(), "deployment")


@pytest.mark.parametrize("published", DEPLOYMENTS, ids=lambda published: published.name)
def test_published_deployments(published: Any) -> None:
    """Red when a published deployment is not one by the schema."""
    check(published.deployment.to_json(), "deployment")


LEAST: dict[str, JSON] = {
    "model": {"num_hidden_layers": 1, "compress_ratios": [0]},
    "budget": "60GiB",
}


def accepted_by_schema(document: JSON) -> bool:
    try:
        check(document, "deployment")
    except ValidationError:
        return False
    return True


def accepted_by_us(document: JSON) -> bool:
    try:
        Deployment.from_json(document)
    except DeploymentError:
        return False
    return True


@pytest.mark.parametrize(
    ("changed", "accepted"),
    [
        ({}, True),
        ({"partition": None, "speculation": None, "env": {}, "server_args": {}}, True),
        ({"partition": [1]}, True),
        ({"speculation": {"algorithm": "EAGLE", "num_steps": None}}, True),
        ({"server_args": {"page_size": 256, "x": [1, {"y": None}]}}, True),
        ({"budget": 1 << 40}, True),
        ({"budget": 0}, False),
        ({"budget": 1.5}, False),
        ({"budget": None}, False),
        ({"budget": "60GB?"}, False),
        ({"pp_size": 0}, False),
        ({"pp_size": "1"}, False),
        ({"pp_sise": 1}, False),
        ({"partition": "1"}, False),
        ({"partition": [1.5]}, False),
        ({"speculation": "EAGLE"}, False),
        ({"speculation": {}}, False),
        ({"speculation": {"algorithm": "EAGLE", "topk": 1}}, False),
        ({"server_args": {"pp_size": 1}}, False),
        ({"server_args": {"model_path": "x"}}, False),
        ({"env": {"A": 1}}, False),
        ({"model": {"num_hidden_layers": 0, "compress_ratios": [0]}}, False),
        ({"model": {"num_hidden_layers": 1, "compress_ratios": []}}, False),
        ({"model": {"num_hidden_layers": 1, "compress_ratios": [0], "layers": 1}}, False),
        ({"model": {"compress_ratios": [0]}}, False),
        ({"model": "deepseek-v4-flash"}, False),
    ],
    ids=str,
)
def test_the_schema_and_the_reader_agree(changed: dict[str, JSON], accepted: bool) -> None:
    """Red when an editor that knows the schema accepts what observe does not, or the reverse."""
    document = {**LEAST, **changed}
    assert accepted_by_schema(document) is accepted
    assert accepted_by_us(document) is accepted


@pytest.mark.parametrize(
    "text",
    ["60GiB", "1.5 TiB", " 7 b ", "12", "1kb", "0.5KiB", "60G", "GiB", "-1B", "1e9", "60GB?", ""],
)
def test_budgets_in_words(text: str) -> None:
    """Red when the schema's pattern and our reader take other texts for sizes."""
    try:
        parse_bytes(text)
    except ValueError:
        assert not accepted_by_schema({**LEAST, "budget": text})
    else:
        assert accepted_by_schema({**LEAST, "budget": text})


# -- what is written -------------------------------------------------------------------------------

SUBJECT = SubjectInfo(label="0.5.12", version="0.5.12", era="model-runner")
REPLAY = "python -m contracts replay .contracts/x.json"


def finding(**changed: Any) -> Finding:
    stated = {
        "contract": "rank-sum",
        "rank": 1,
        "component": "c4_kv",
        "observed": 2,
        "expected": 1,
        "factor": 2.0,
        "message": "rank-sum: …",
    }
    deployment = observations.deployment(0, 4, pp_size=2)
    return Finding(
        violation=Violation(**{**stated, **changed}), deployment=deployment, stages="[0,1)[1,2)"
    )


def trial(verdict: Verdict, **fields: Any) -> Trial:
    counts = {"deployments": 200, "rejected": 3}
    return Trial(contract="rank-sum", verdict=verdict, **{**counts, **fields})


TRIALS: dict[str, tuple[Trial, str | None]] = {
    "held": (trial(Verdict.HELD), None),
    "violated": (trial(Verdict.VIOLATED, finding=finding(), worst=finding()), REPLAY),
    "violated in words": (
        trial(
            Verdict.VIOLATED,
            finding=finding(
                rank=None, component=None, observed="(0, 4)", expected="(0,)", factor=None
            ),
            reason="the worker died by SIGKILL",
        ),
        REPLAY,
    ),
    "violated by an example": (
        trial(
            Verdict.VIOLATED,
            finding=dataclasses.replace(finding(), example="flash-pp2"),
            examples=(dataclasses.replace(finding(), example="flash-pp2"),),
            worst=finding(),
        ),
        REPLAY,
    ),
    "not judged": (trial(Verdict.NOT_JUDGED, deployments=0, reason="no baseline"), None),
}


@pytest.mark.parametrize("kind", TRIALS)
def test_judge(kind: str) -> None:
    """Red when a verdict is written in another form than the schema's."""
    check(judge_document(SUBJECT, "gate", [TRIALS[kind]]), "judge")


@pytest.mark.parametrize(
    "spoil",
    [
        {"verdict": "passed"},
        {"verdict": "violated"},
        {"verdict": "not judged"},
        {"deployments": None},
        {"surprise": 1},
    ],
    ids=str,
)
def test_judge_is_not_everything(spoil: dict[str, JSON]) -> None:
    """Red when the schema admits a fourth verdict, a violation without its evidence, a verdict
    without a reason, or an unknown field."""
    document = judge_document(SUBJECT, "gate", [TRIALS["held"]])
    document["contracts"][0].update(spoil)
    with pytest.raises(ValidationError):
        check(document, "judge")


class Unwatched:
    """Nobody looks how far a survey is."""

    def started(self, total: int, label: str) -> None: ...

    def advance(self) -> None: ...


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ("held", {}),
        ("violated", {"observe": "ignore stages"}),
        ("not judged", {"observe": "fail"}),
        ("not judged", {"hello": "exit"}),
    ],
    ids=["held", "violated", "failed", "unreadable"],
)
def test_matrix(verdict: str, told: dict[str, str], tmp_path: Path) -> None:
    """Red when the matrix, or the file of a record, is written in another form than the schema's,
    whatever a subject does."""
    plan = Plan(contracts=(law.get("stage-slice"),), profile="dev")
    subject = fake_worker.install(tmp_path / "fake", **told)
    made = list(records([subject], plan, tmp_path, watch=Unwatched()))
    assert [one["contracts"][0]["verdict"] for one in made] == [verdict]
    check({"schema": 1, "records": made}, "matrix")
    for path in tmp_path.glob("*.json"):
        check(json.loads(path.read_text(encoding="utf-8")), "record")


@pytest.mark.parametrize("speculation", [None, Speculation(algorithm="EAGLE")], ids=["no", "draft"])
@pytest.mark.parametrize("views", [frozenset(), frozenset({"final", "own"})], ids=["no", "views"])
def test_observe(views: frozenset[str], speculation: Speculation | None) -> None:
    """Red when an observation is written in another form than the schema's."""
    asked = observations.deployment(0, 4, 128, pp_size=2, speculation=speculation)
    observation = observations.observe(Request(deployment=asked, views=views, tokens=(512,)))
    check(observation.to_json(), "observe")


REAL = ["flash-pp4", "flash-eagle-3-1-4", "flash-0731-dspark", "flash-v4.1"]


@pytest.mark.xdist_group("0.5.23")
@pytest.mark.parametrize("name", REAL)
def test_observe_a_real_sglang(name: str, clients: Callable[[str], Client]) -> None:
    """Red when what a real SGLang is observed to do does not fit the schema."""
    deployment = next(one.deployment for one in DEPLOYMENTS if one.name == name)
    request = Request(deployment=deployment, views=frozenset({"final", "own"}), tokens=(8192,))
    observation = clients("0.5.23").observe(request)
    assert isinstance(observation, Observation)
    check(observation.to_json(), "observe")


@pytest.mark.parametrize("baseline", [None, "0.5.12"])
def test_case(baseline: str | None, tmp_path: Path) -> None:
    """Red when a failing case is saved in another form than the schema's."""
    path = save(finding(), subject="0.5.13", baseline=baseline, folder=tmp_path)
    check(json.loads(path.read_text(encoding="utf-8")), "case")
