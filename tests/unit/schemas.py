"""The schema files of docs/, and whether a document is as one of them says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

__all__ = ["FILES", "check", "schema"]

JSON = Any
DOCS = Path(__file__).parents[2] / "docs"
FILES = sorted(path.name for path in DOCS.glob("*.schema.json"))


def schema(name: str) -> dict[str, JSON]:
    document = json.loads((DOCS / name).read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


REGISTRY: Registry[Any] = Registry().with_resources(
    [(name, Resource.from_contents(schema(name))) for name in FILES]
)


def check(document: JSON, name: str) -> None:
    """Validate what a document looks like to a program that reads it."""
    text = json.dumps(document, allow_nan=False)
    Draft202012Validator(schema(f"{name}.schema.json"), registry=REGISTRY).validate(
        json.loads(text)
    )
