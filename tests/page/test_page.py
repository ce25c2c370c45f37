"""The page of a matrix, as a text: what is in it, and what is not."""

from __future__ import annotations

import base64
import copy
import fnmatch
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from contracts import law
from contracts.contract import Violation
from contracts.examination import Finding
from contracts.hunt.case import load, save
from contracts.report.page import page
from tests.page import documents
from tests.page.documents import CHECKOUT, FACTORS, HOSTILE, LABELS, UNREADABLE

JSON = Any
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


class Parsed(HTMLParser):
    """The elements of a page, each with its attributes and the text directly in it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str], list[str]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}, []))

    def handle_data(self, data: str) -> None:
        if self.elements:
            self.elements[-1][2].append(data)

    def all(self, tag: str) -> Iterator[tuple[dict[str, str], str]]:
        for name, attributes, texts in self.elements:
            if name == tag:
                yield attributes, "".join(texts)

    @property
    def cells(self) -> dict[str, tuple[str, str]]:
        """What each cell shows and how it is coloured, by its name."""
        return {
            attributes["aria-label"]: (text.strip(), attributes["data-heat"])
            for attributes, text in self.all("button")
            if "data-contract" in attributes
        }

    @property
    def data(self) -> JSON:
        (text,) = (text for at, text in self.all("script") if at.get("id") == "data")
        return json.loads(text)


@pytest.fixture(scope="module")
def text() -> str:
    return page(documents.document())


@pytest.fixture(scope="module")
def parsed(text: str) -> Parsed:
    return Parsed(text)


def cell(contract: str, factor: float | None) -> tuple[str, str, str]:
    """What is said, shown and coloured of one factor."""
    record = documents.record("0.5.13", "0.5.12", {contract: factor})
    cells = Parsed(page({"schema": 1, "records": [record]})).cells
    (name,) = (name for name in cells if name.startswith(f"{contract} on "))
    return name.partition(": ")[2], *cells[name]


def test_the_sample_is_a_matrix() -> None:
    """Red when the sample is no document that matrix could have written."""
    files = {path.name: json.loads(path.read_text("utf-8")) for path in DOCS.glob("*.schema.json")}
    resources = [(name, Resource.from_contents(schema)) for name, schema in files.items()]
    registry: Registry[Any] = Registry().with_resources(resources)
    schema = files["matrix.schema.json"]
    Draft202012Validator(schema, registry=registry).validate(documents.document())


# -- what is in it ---------------------------------------------------------------------------------


def test_every_contract_on_every_subject_has_a_cell(parsed: Parsed) -> None:
    """Red when a record, a contract, or what was not tried, is left out, or is named otherwise."""
    names = [name.partition(": ")[0] for name in parsed.cells]
    assert names == [f"{contract} on {label}" for contract in law.ALL for label in LABELS]


def test_every_contract_is_in_a_group(text: str, parsed: Parsed) -> None:
    """Red when a new contract is not put where it belongs."""
    assert ">Others<" not in text
    linked = [attributes["href"] for attributes, _ in parsed.all("a") if "href" in attributes]
    assert linked == [f"#contract-{name}" for name in law.ALL]


def test_verdicts(parsed: Parsed) -> None:
    """Red when a verdict is said, shown or coloured as another."""
    cells = parsed.cells
    assert cells["stage-partition on 0.5.12: held"] == ("✓", "held")
    assert cells["refusal on 0.5.12: violated, without a factor"] == ("✗", "plain")
    assert cells["state-rows on 0.5.12: not judged"] == ("?", "unjudged")
    assert cells["pp1-unchanged on 0.5.12: not tried"] == ("–", "untried")
    assert cells["rank-sum on 0.5.12: violated, factor 32"] == ("×32", "over-5")
    assert all(cells[f"{name} on {UNREADABLE}: not judged"] for name in law.ALL)


def test_every_factor_is_shown(parsed: Parsed) -> None:
    """Red when a factor of the sample is missing."""
    found = [name for name in parsed.cells if ": violated" in name]
    assert len(found) == sum(map(len, FACTORS))


@pytest.mark.parametrize(
    ("factor", "said", "heat"),
    [
        (1.0, "1", "over-1"),
        (1.0000008, "1+8e-7", "over-1"),
        (0.9999, "1−1e-4", "under-1"),
        (1.0018479, "1.002", "over-1"),
        (0.9951827, "0.9952", "under-1"),
        (1.01, "1.01", "over-1"),
        (1.1, "1.1", "over-2"),
        (2.0, "2", "over-3"),
        (0.5, "0.5", "under-3"),
        (9.41, "9.41", "over-4"),
        (0.125, "0.125", "under-4"),
        (166.2049, "166", "over-5"),
        (1234567.0, "1.23e6", "over-5"),
        (1.036e-06, "1.04e-6", "under-5"),
        (0.0, "0", "under-5"),
        (-2.0, "-2", "under-5"),
    ],
)
def test_factors(factor: float, said: str, heat: str) -> None:
    """Red when a factor is rounded to another, looks like 1 and is not, or is not as dark as it is
    far from 1."""
    assert cell("rank-sum", factor) == (f"violated, factor {said}", f"×{said}", heat)


@pytest.mark.parametrize("factor", [1.005, 1.05, 1.5, 2.0, 10.0, 11.0, 1e9])
def test_up_and_down_alike(factor: float) -> None:
    """Red when half of what is expected is not as dark as twice of it."""
    up, down = cell("rank-sum", factor)[2], cell("rank-sum", 1 / factor)[2]
    assert (up.partition("-")[2], up[:4], down[:5]) == (down.partition("-")[2], "over", "under")


def test_the_head(text: str) -> None:
    """Red when the page does not say what was judged, how, and what a factor is."""
    for said in ("4, 0.5.12 to 0.5.14", "0.5.14: 18 not judged.", ">dev<", ">0.1.0<", ">meta<"):
        assert said in text
    assert "divided by what the contract expects" in " ".join(text.split())


def test_statements(text: str, parsed: Parsed) -> None:
    """Red when a contract's name does not lead to what it states."""
    places = {attributes.get("id") for attributes, _ in parsed.all("div")}
    assert {f"contract-{name}" for name in law.ALL} <= places
    assert "The stages tile <code>[0, num_hidden_layers)</code> in order" in text


def test_counts(parsed: Parsed) -> None:
    """Red when a cell does not tell on how many deployments it rests."""
    cells = parsed.data["cells"]
    judged, refused = "35 deployments judged; ", " SGLang refused 4 more."
    assert cells["rank-sum"][0]["counts"] == f"{judged}20 of them violate it.{refused}"
    assert cells["paging"][0]["counts"] == f"{judged}none violates it.{refused}"
    assert cells["paging"][3]["counts"] == "No deployment was judged."
    assert cells["pp1-unchanged"][0]["counts"] is None


def test_bytes(parsed: Parsed) -> None:
    """Red when a cell does not tell how many bytes disagree, or tells of some where none do."""
    cells = parsed.data["cells"]
    assert cells["rank-sum"][0]["worst"]["bytes"] == (
        "1.89 MiB (1,984,256 bytes) disagree on rank 1."
    )
    assert cells["refusal"][0]["worst"]["bytes"] == ""


def test_why_not(parsed: Parsed) -> None:
    """Red when what was not judged or not tried comes without a reason."""
    cells = parsed.data["cells"]
    assert cells["state-rows"][0]["reason"].startswith("no function that translates")
    assert "there is none" in cells["pp1-unchanged"][0]["reason"]
    assert cells["paging"][3]["reason"] == "the worker died by SIGKILL"


def test_a_missing_shard() -> None:
    """Red when a matrix of which a share is missing looks complete."""
    document = documents.document()
    record = document["records"][1]
    record["shards"] = {"of": 3, "have": [1, 3]}
    paging = next(one for one in record["contracts"] if one["id"] == "paging")
    paging["verdict"] = "not judged"
    text = page(document)
    assert "<dd>shards 2 of 3 are missing</dd>" in text
    told = Parsed(text).data["cells"]["paging"][1]["reason"]
    assert told == "Not all deployments were judged: shards 2 of 3 are missing."


def test_words(parsed: Parsed) -> None:
    """Red when the deployment is not told in words."""
    words = dict(parsed.data["cells"]["rank-sum"][0]["worst"]["words"])
    assert words == {
        "seen in the field": "flash-pp2",
        "model": "generated, 6 layers",
        "compress ratios": "0 (×2), 4 (×2), 128 (×2)",
        "pipeline": "2 ranks",
        "speculation": "speculative_algorithm EAGLE, speculative_num_steps 3",
        "server arguments": f"fake {HOSTILE}, swa_full_tokens_ratio 0.1",
        "budget of a rank": "1 GiB (1,073,741,824 bytes)",
    }


def test_other_contracts() -> None:
    """Red when a contract that this suite does not know breaks the page, or is dropped."""
    record = documents.record("0.5.13", "0.5.12", {})
    record["contracts"].append({**record["contracts"][0], "id": "of-tomorrow"})
    text = page({"schema": 1, "records": [record]})
    assert "of-tomorrow on 0.5.13: held" in Parsed(text).cells
    assert ">Others<" in text


# -- the cases -------------------------------------------------------------------------------------


def test_cases_can_be_replayed(parsed: Parsed, tmp_path: Path) -> None:
    """Red when what the page offers for download is not what a failing case is saved as."""
    for contract, cells in parsed.data["cells"].items():
        for told in (one for one in cells if one["worst"]):
            worst = told["worst"]
            offered = tmp_path / worst["file"]
            offered.write_text(json.dumps(worst["case"]), encoding="utf-8")
            case = load(offered)
            violation = Violation(
                contract=contract,
                rank=None,
                component=None,
                observed=2,
                expected=1,
                factor=None,
                message=case.message,
            )
            finding = Finding(violation=violation, deployment=case.deployment, stages="")
            folder = tmp_path / "saved"
            saved = save(finding, subject=case.subject, baseline=case.baseline, folder=folder)
            assert saved.name == worst["file"]
            assert json.loads(saved.read_text(encoding="utf-8")) == worst["case"]
            assert (case.contract, case.subject) == (contract, told["subject"])


def test_only_what_compares_has_a_baseline(parsed: Parsed) -> None:
    """Red when a replay would start a second SGLang for nothing, or not where it is needed."""
    cells = parsed.data["cells"]
    assert cells["marginal-bytes"][1]["worst"]["case"]["baseline"] is None
    assert cells["pp1-unchanged"][1]["worst"]["case"]["baseline"] == "0.5.12"


def test_commands(parsed: Parsed) -> None:
    """Red when a command line would not run as it is shown."""
    worst = parsed.data["cells"]["rank-sum"][0]["worst"]
    file = worst["file"]
    assert re.fullmatch(r"rank-sum-[0-9a-f]{10}\.json", file)
    assert worst["replay"] == f"python -m contracts replay {file}"
    assert worst["observe"] == f"python -m contracts observe --sglang 0.5.12 --deployment {file}"
    assert worst["unnamed"] == ""


def test_commands_for_a_checkout(parsed: Parsed) -> None:
    """Red when a label that names no SGLang is given as if it did."""
    worst = parsed.data["cells"]["rank-sum"][2]["worst"]
    assert worst["replay"].endswith(".json --sglang PATH")
    assert " --sglang PATH --deployment" in worst["observe"]
    assert worst["unnamed"] == CHECKOUT


# -- capacity --------------------------------------------------------------------------------------


def test_capacities_as_a_table(text: str, parsed: Parsed) -> None:
    """Red when a capacity of the plots is not in the tables too."""
    numbers = {text.strip() for _, text in parsed.all("td")}
    for record in documents.document()["records"]:
        for one in record["capacities"]:
            assert one["tokens"] is None or f"{one['tokens']:,}" in numbers
    assert "ValueError: no pipeline for this model" in text
    assert f"<strong>None on {UNREADABLE}:</strong> not asked" in text


def test_a_plot_for_each_model_and_card(parsed: Parsed) -> None:
    """Red when a model or a card has no plot, or the plot no name."""
    names = [at["aria-label"] for at, _ in parsed.all("svg") if at.get("class") == "plot"]
    assert len(set(names)) == 10
    assert names[0].startswith("deepseek-v4-flash, 80 GiB a rank: full tokens by release")


def test_a_line_is_broken_where_there_is_no_capacity() -> None:
    """Red when a line leads over a subject that gave no capacity."""
    records = [documents.record(label, None, {}) for label in ("0.5.13", "0.5.14", "0.5.15")]
    for one in records[1]["capacities"]:
        one |= {"tokens": None, "reason": "no"}
    text = page({"schema": 1, "records": records})
    whole = page({"schema": 1, "records": [records[0], records[2]]})
    assert text.count('<path class="line"') == 2 * whole.count('<path class="line"')
    assert text.count('class="none"') == 10


def test_what_hovering_a_plot_tells(parsed: Parsed) -> None:
    """Red when a release's capacities, or what they were before, are not told."""
    tips = [at["data-tip"] for at, _ in parsed.all("rect") if "data-tip" in at]
    first = documents.tokens("0.5.12", "deepseek-v4-flash", 80 << 30, 1)
    assert first is not None
    assert tips[0].splitlines()[:2] == ["0.5.12, 80 GiB", f"pp 8: {first / 1e6:.3g} M tokens"]
    assert tips[1].splitlines()[1] == f"pp 8: {8 * first / 1e6:.3g} M tokens, ×8 of 0.5.12"


def test_no_capacities() -> None:
    """Red when a matrix without capacities has no page."""
    text = page({"schema": 1, "records": [documents.unreadable("0.5.14", None)]})
    assert "No capacities were recorded." in text


# -- what is not in it -----------------------------------------------------------------------------


def test_no_network(text: str, parsed: Parsed) -> None:
    """Red when the page refers to anything outside itself."""
    for _, attributes, _ in parsed.elements:
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert re.match(r"#|data:|$", attributes.get("href", ""))
    ((style, _),) = [(text, at) for at, text in parsed.all("style")]
    assert "@import" not in style
    assert set(re.findall(r"url\(([^)]*)\)", style)) <= {"#hatch"}


def test_the_policy_forbids_network(text: str, parsed: Parsed) -> None:
    """Red when the policy comes too late, allows more than the page's own style and script, or not
    these."""
    policies = [at for at, _ in parsed.all("meta") if "http-equiv" in at]
    assert [at["http-equiv"] for at in policies] == ["Content-Security-Policy"]
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script>")
    policy = dict(part.split(maxsplit=1) for part in policies[0]["content"].split("; "))
    assert policy["default-src"] == "'none'"
    for tag in ("style", "script"):
        (own,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert policy[f"{tag}-src"] == _digest(own)
    assert set(policy) == {
        *("default-src", "style-src", "script-src", "img-src", "base-uri", "form-action")
    }


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_texts_are_never_markup(parsed: Parsed) -> None:
    """Red when a subject's text becomes an element, ends the script, or is altered."""
    tags = {tag for tag, _, _ in parsed.elements}
    assert "img" not in tags
    assert len(list(parsed.all("script"))) == 2
    told = parsed.data["cells"]
    assert HOSTILE in told["rank-sum"][0]["worst"]["case"]["message"]
    assert HOSTILE in told["state-rows"][0]["reason"]


def test_hostile_names() -> None:
    """Red when a label, a model, a component or a contract becomes markup."""
    document = copy.deepcopy(documents.document())
    record = document["records"][0]
    record["subject"]["label"] = record["profile"] = record["suite"] = HOSTILE
    record["contracts"][0]["id"] = HOSTILE
    record["capacities"][0]["model"] = HOSTILE
    parsed = Parsed(page(document))
    assert "img" not in {tag for tag, _, _ in parsed.elements}
    assert len(list(parsed.all("script"))) == 2
    assert f"rank-sum on {HOSTILE}: violated, factor 32" in parsed.cells


def test_the_same_every_time(text: str) -> None:
    """Red when the page of a document depends on anything else."""
    assert page(documents.document()) == text


def test_the_templates_are_packaged() -> None:
    """Red when an installed suite lacks a template."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = stated["tool"]["setuptools"]["package-data"]["contracts"]
    templates = list((ROOT / "contracts" / "report" / "templates").iterdir())
    assert templates
    for template in templates:
        path = template.relative_to(ROOT / "contracts").as_posix()
        assert any(fnmatch.fnmatch(path, pattern) for pattern in patterns), path
