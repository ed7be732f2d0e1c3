"""What a schema may be: types, junctors, and keywords that no schema may have."""

from __future__ import annotations

from typing import Any

from tests.definitions.build import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    array,
    definition,
    field,
    kw,
    mapping,
    obj,
    spec,
)

Json = dict[str, Any]
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]

CASES: dict[str, Json] = {
    # types
    "root-without-type": definition({"properties": {"spec": obj()}}),
    "root-of-strings": definition(STRING),
    "root-of-arrays": definition(array(STRING)),
    "root-keeps-unknown-without-type": definition({"x-kubernetes-preserve-unknown-fields": True}),
    "empty-root": definition({}),
    "field-without-type": field({"description": "no type"}),
    "items-without-type": field(array({"description": "no type"})),
    "values-without-type": field(mapping({"description": "no type"})),
    "field-keeps-unknown-without-type": field({"x-kubernetes-preserve-unknown-fields": True}),
    "unknown-type": field({"type": "text"}),
    "type-null": field({"type": "null"}),
    "type-is-a-list": field({"type": ["string", "null"]}),
    "array-without-items": field({"type": "array"}),
    "array-of-several-schemas": field(kw({"type": "array"}, items=[STRING, INTEGER])),
    "nested-array-without-items": field(array({"type": "array"})),
    "good-nested": field(array(obj({"a": mapping(array(INTEGER)), "b": NUMBER, "c": BOOLEAN}))),
    "nullable-at-the-root": definition({"type": "object", "nullable": True}),
    "nullable-field": field(kw(STRING, nullable=True)),
    # what no schema may have
    "unique-items": field(array(STRING, uniqueItems=True)),
    "unique-items-false": field(array(STRING, uniqueItems=False)),
    "reference": field({"type": "object", "$ref": "#/definitions/a"}),
    "definitions": field({"type": "object", "definitions": {"a": STRING}}),
    "dependencies": field({"type": "object", "dependencies": {"a": ["b"]}}),
    "pattern-properties": field({"type": "object", "patternProperties": {"^a": STRING}}),
    "additional-items": field(array(STRING, additionalItems=True)),
    "id": field(kw(STRING, id="x")),
    "good-title-example-and-documents": field(
        kw(STRING, title="t", example="e", description="d", externalDocs={"url": "https://x.example"})
    ),
    "properties-and-additional-schema": field(obj({"a": STRING}, additionalProperties=STRING)),
    "properties-and-additional-false": field(obj({"a": STRING}, additionalProperties=False)),
    "properties-and-additional-true": field(obj({"a": STRING}, additionalProperties=True)),
    "additional-false-alone": field(mapping(False)),
    "additional-at-the-root": definition(mapping(STRING)),
    "additional-true-at-the-root": definition(mapping(True)),
    "bad-pattern": field(kw(STRING, pattern="a(")),
    "lookahead-pattern": field(kw(STRING, pattern="^(?!x)a")),
    "good-pattern": field(kw(STRING, pattern="^[a-z]+$")),
    "pattern-of-go-only": field(kw(STRING, pattern=r"^\pL+\z")),
    "negative-min-length": field(kw(STRING, minLength=-1)),
    "unknown-keyword": field(kw(STRING, colour="red")),
    "min-length-above-max-length": field(kw(STRING, minLength=5, maxLength=1)),
    "zero-multiple": field(kw(INTEGER, multipleOf=0)),
    "enum-of-another-type": field(kw(STRING, enum=[1, 2])),
    "empty-enum": field(kw(STRING, enum=[])),
    "duplicate-enum": field(kw(STRING, enum=["a", "a"])),
    "unknown-format": field(kw(STRING, format="colour")),
    "required-twice": field(obj({"a": STRING}, required=["a", "a"])),
    "required-of-unknown-field": field(obj({"a": STRING}, required=["b"])),
    # junctors
    "good-any-of": field(obj({"a": STRING, "b": STRING}, anyOf=[{"required": ["a"]}, {"required": ["b"]}])),
    "good-one-of-nested": field(obj({"a": STRING}, oneOf=[{"properties": {"a": {"minLength": 3}}}])),
    "any-of-with-type": field(kw(STRING, anyOf=[{"type": "string"}])),
    "all-of-with-description": field(kw(STRING, allOf=[{"description": "x"}])),
    "one-of-with-default": field(kw(STRING, oneOf=[{"default": "x"}])),
    "not-with-title": field(kw(STRING, **{"not": {"title": "x"}})),
    "good-not": field(kw(STRING, **{"not": {"enum": ["x"]}})),
    "all-of-nullable": field(kw(STRING, allOf=[{"nullable": True}])),
    "all-of-with-list-type": field(array(STRING, allOf=[{"x-kubernetes-list-type": "set"}])),
    "all-of-with-list-map-keys": field(array(STRING, allOf=[{"x-kubernetes-list-map-keys": ["a"]}])),
    "all-of-with-map-type": field(obj({"a": STRING}, allOf=[{"x-kubernetes-map-type": "atomic"}])),
    "all-of-with-preserve": field(obj({"a": STRING}, allOf=[{"x-kubernetes-preserve-unknown-fields": True}])),
    "all-of-with-embedded": field(obj({"a": STRING}, allOf=[{"x-kubernetes-embedded-resource": True}])),
    "all-of-with-int-or-string": field(kw(STRING, allOf=[{"x-kubernetes-int-or-string": True}])),
    "all-of-with-rules": field(kw(STRING, allOf=[{"x-kubernetes-validations": [{"rule": "true"}]}])),
    "all-of-with-additional": field(obj({"a": STRING}, allOf=[{"additionalProperties": {"minLength": 1}}])),
    "any-of-names-unknown-field": field(obj({"a": STRING}, anyOf=[{"properties": {"b": {"minLength": 1}}}])),
    "any-of-with-items-of-no-array": field(obj({"a": STRING}, anyOf=[{"items": {"minLength": 1}}])),
    "any-of-items-of-array": field(array(STRING, anyOf=[{"items": {"minLength": 1}}])),
    "not-names-unknown-field": field(obj({"a": STRING}, **{"not": {"properties": {"z": {}}}})),
    "any-of-names-metadata": definition(obj({"spec": obj()}, anyOf=[{"properties": {"metadata": {}}}])),
    "nested-all-of-any-of-with-type": field(kw(STRING, allOf=[{"anyOf": [{"type": "string"}]}])),
    "junctor-with-bad-pattern": field(kw(STRING, anyOf=[{"pattern": "("}])),
    # the metadata of the object itself
    "metadata-labels": definition(
        obj({"metadata": obj({"labels": mapping(STRING)}), "spec": obj()}),
    ),
    "metadata-name-bounded": definition(obj({"metadata": obj({"name": kw(STRING, maxLength=10)}), "spec": obj()})),
    "metadata-name-and-generate-name": definition(
        obj({"metadata": obj({"name": STRING, "generateName": STRING}), "spec": obj()})
    ),
    "metadata-name-and-labels": definition(
        obj({"metadata": obj({"name": STRING, "labels": mapping(STRING)}), "spec": obj()})
    ),
    "metadata-required": definition(obj({"metadata": obj({"name": STRING}, required=["name"]), "spec": obj()})),
    "metadata-is-a-string": definition(obj({"metadata": STRING, "spec": obj()})),
    "metadata-with-description": definition(obj({"metadata": obj(description="x"), "spec": obj()})),
    "metadata-keeps-unknown": definition(
        obj({"metadata": obj(x_preserve_unknown_fields=True), "spec": obj()}),
    ),
    "kind-is-a-number": definition(obj({"kind": INTEGER, "spec": obj()})),
    "version-is-a-number": definition(obj({"apiVersion": INTEGER, "spec": obj()})),
    "default-of-kind": definition(obj({"kind": kw(STRING, default="x"), "spec": obj()})),
    "default-of-metadata": definition(obj({"metadata": obj(default={}), "spec": obj()})),
    "default-of-metadata-name": definition(obj({"metadata": obj({"name": kw(STRING, default="x")}), "spec": obj()})),
    # a root beside a status subresource
    "good-spec-and-status": spec({"a": INTEGER}),
}
