"""Words that our own definitions know stay words in a snapshot whose names are hidden: else a Queue cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.kube.pseudonyms import Pseudonyms, known_fields

BASE = Path(__file__).parents[4] / "k8s" / "base"
KEPT = {"queues": "queues-crd.yaml", "reservations": "reservations-crd.yaml"}
"""Of our kinds those that a snapshot holds."""


def words_of(schema: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Field and word of every enum, wherever it stands."""
    if isinstance(schema, dict):
        yield from ((name, word) for word in schema.get("enum", ()) if isinstance(schema["enum"], list))
        for key, value in schema.items():
            yield from words_of(value, name if key in ("items", "properties") else key)
    elif isinstance(schema, list):
        for value in schema:
            yield from words_of(value, name)


@pytest.mark.parametrize("kind", KEPT)
def test_words_of_our_kinds_are_not_hidden(kind: str) -> None:
    words = set(words_of(yaml.safe_load((BASE / KEPT[kind]).read_text())))
    assert len(words) >= 5
    item: dict[str, Any] = {"metadata": {"name": "secret"}, "spec": {"owner": "payments"}}
    item["spec"] |= {f"list{at}": [{field: word}] for at, (field, word) in enumerate(sorted(words))}
    names = Pseudonyms()
    names.hide(kind, item)
    hidden = names.resolve()
    assert {"secret", "payments"} <= hidden.keys()
    assert {word for _, word in words} & hidden.keys() == set()


def fields_of(schema: Any) -> Iterator[str]:
    """Names of properties, wherever they stand."""
    if isinstance(schema, dict):
        if isinstance(properties := schema.get("properties"), dict):
            yield from properties
        for value in schema.values():
            yield from fields_of(value)


@pytest.mark.parametrize("kind", KEPT)
def test_fields_of_our_kinds_are_not_hidden(kind: str) -> None:
    (version,) = yaml.safe_load((BASE / KEPT[kind]).read_text())["spec"]["versions"]
    fields = set(fields_of(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))
    assert len(fields) >= 5
    assert fields <= known_fields(), "they would be read as absent"
