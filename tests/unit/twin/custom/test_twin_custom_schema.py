"""Schemas of custom resources."""

from __future__ import annotations

from typing import Any

import pytest

from twin.custom import json_path
from twin.custom.schema import default, prune, validate

SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1},
        "queue": {"type": "string", "default": "default", "pattern": "^[a-z]+$", "maxLength": 8},
        "mode": {"type": "string", "enum": ["A", "B"]},
        "maybe": {"type": "integer", "nullable": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "port": {"x-kubernetes-int-or-string": True},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "items": {"type": "array", "maxItems": 2, "items": {"type": "object", "properties": {"n": {"type": "number"}}}},
    },
}
SCHEMA = {"type": "object", "properties": {"spec": SPEC}}


def test_unknown_fields_are_pruned_and_named() -> None:
    obj: dict[str, Any] = {
        "metadata": {"name": "x"},
        "spec": {"size": 1, "odd": 1, "free": {"any": 1}, "tags": {"a": "b"}, "items": [{"n": 1, "m": 2}]},
        "more": 1,
    }
    assert sorted(prune(obj, SCHEMA, top=True)) == ["more", "spec.items[0].m", "spec.odd"]
    assert obj["spec"] == {"size": 1, "free": {"any": 1}, "tags": {"a": "b"}, "items": [{"n": 1}]}


def test_defaults_fill_and_forbidden_nulls_vanish() -> None:
    spec: dict[str, Any] = {"size": None, "maybe": None}
    default(spec, SPEC)
    assert spec == {"queue": "default", "maybe": None}


@pytest.mark.parametrize(
    ("spec", "reasons"),
    [
        ({"size": 1}, []),
        ({}, ["FieldValueRequired"]),
        ({"size": "1"}, ["FieldValueTypeInvalid"]),
        ({"size": 0}, ["FieldValueInvalid"]),
        ({"size": 1, "queue": "UP"}, ["FieldValueInvalid"]),
        ({"size": 1, "queue": "abcdefghi"}, ["FieldValueTooLong"]),
        ({"size": 1, "mode": "C"}, ["FieldValueNotSupported"]),
        ({"size": 1, "maybe": None}, []),
        ({"size": 1, "port": "http"}, []),
        ({"size": 1, "port": 1.5}, ["FieldValueTypeInvalid", "FieldValueInvalid", "FieldValueTypeInvalid"]),
        ({"size": 1, "tags": {"a": 1}}, ["FieldValueTypeInvalid"]),
        ({"size": 1, "items": [{}, {}, {}]}, ["FieldValueTooMany"]),
        ({"size": True}, ["FieldValueTypeInvalid"]),
    ],
)
def test_validation_reasons(spec: dict[str, Any], reasons: list[str]) -> None:
    assert [error.reason for error in validate({"spec": spec}, SCHEMA)] == reasons


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.n", 1),
        ("spec.list[1].x", 2),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".metadata.labels['a.b/c']", "v"),
        (".nope.deep", None),
        (".spec.list[9]", None),
        ("..odd", None),
    ],
)
def test_json_paths(path: str, found: Any) -> None:
    obj = {
        "metadata": {"labels": {"a.b/c": "v"}},
        "spec": {"n": 1, "list": [{}, {"x": 2}]},
        "status": {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]},
    }
    assert json_path.find(obj, path) == found


@pytest.mark.parametrize(
    ("value", "factor", "fits"),
    [
        (6, 3, True),
        (7, 3, False),
        (0.3, 0.1, True),
        (0.35, 0.1, False),
        (7.5, 2.5, True),
        (2**53 + 2, 3, False),
        (0, 0.1, True),
    ],
)
def test_multiples_are_judged_as_floats_divide(value: float, factor: float, fits: bool) -> None:
    assert (validate(value, {"type": "number", "multipleOf": factor}, "spec.n") == []) is fits


def test_members_of_a_set_are_told_apart_by_kind_and_value() -> None:
    schema = {"type": "array", "x-kubernetes-list-type": "set"}
    assert validate([1, True, "1", None, {"a": 1}], schema, "spec.s") == []
    found = validate(["a", "b", "a", {"x": 1, "y": 2}, {"y": 2, "x": 1}], schema, "spec.s")
    assert [(one.reason, one.field) for one in found] == [
        ("FieldValueDuplicate", "spec.s[2]"),
        ("FieldValueDuplicate", "spec.s[4]"),
    ]
