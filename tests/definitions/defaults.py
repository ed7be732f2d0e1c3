"""Defaults: pruned, held against the schema and against the rules, as they are written."""

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
    version,
)

Json = dict[str, Any]
UP = "self.a >= 1"

CASES: dict[str, Json] = {
    "default-of-the-wrong-type": field(kw(INTEGER, default="1")),
    "default-number-for-integer": field(kw(INTEGER, default=1.5)),
    "default-integer-for-number": field(kw(NUMBER, default=1)),
    "default-below-the-minimum": field(kw(INTEGER, minimum=1, default=0)),
    "default-outside-the-enum": field(kw(STRING, enum=["a"], default="b")),
    "default-that-no-pattern-matches": field(kw(STRING, pattern="^a$", default="b")),
    "default-too-long": field(kw(STRING, maxLength=1, default="ab")),
    "default-of-too-many": field(array(STRING, maxItems=1, default=["a", "b"])),
    "default-with-unknown-field": field(obj({"a": INTEGER}, default={"b": 1})),
    "default-with-unknown-field-kept": field(obj({"a": INTEGER}, x_preserve_unknown_fields=True, default={"b": 1})),
    "default-with-unknown-nested": field(obj({"a": obj({"c": INTEGER})}, default={"a": {"d": 1}})),
    "default-lacks-required": field(obj({"a": INTEGER}, required=["a"], default={})),
    "default-lacks-required-with-default": field(obj({"a": kw(INTEGER, default=1)}, required=["a"], default={})),
    "good-default-nested": field(obj({"a": kw(INTEGER, default=1)}, default={})),
    "default-null": field(kw(STRING, default=None)),
    "default-null-nullable": field(kw(STRING, nullable=True, default=None)),
    "default-in-map-values": field(mapping(obj({"a": kw(INTEGER, default=1)}))),
    "default-of-map-values": field(mapping(kw(INTEGER, default=1))),
    "default-in-items": field(array(obj({"a": kw(INTEGER, default=1)}))),
    "default-of-items": field(array(kw(INTEGER, default=1))),
    "default-duplicates-in-set": field(array(STRING, x_list_type="set", default=["a", "a"])),
    "default-duplicates-in-map": field(
        array(
            obj({"n": STRING}, required=["n"]),
            x_list_type="map",
            x_list_map_keys=["n"],
            default=[{"n": "a"}, {"n": "a"}],
        )
    ),
    "default-at-the-root": definition(obj({"spec": obj()}, default={})),
    "default-of-spec": definition(obj({"spec": obj({"a": INTEGER}, default={"a": 1})})),
    "default-boolean-text": field(kw(BOOLEAN, default="true")),
    "default-date-time": field(kw(STRING, format="date-time", default="2026-01-01T00:00:00Z")),
    "default-bad-date-time": field(kw(STRING, format="date-time", default="tomorrow")),
    "default-too-big-for-int32": field(kw(INTEGER, format="int32", default=3000000000)),
    "default-int-or-string": field({"x-kubernetes-int-or-string": True, "default": "25%"}),
    "default-int-or-string-boolean": field({"x-kubernetes-int-or-string": True, "default": True}),
    "default-not-of-any": field(kw(STRING, default="b", anyOf=[{"enum": ["a"]}])),
    "default-of-two-of-one": field(kw(INTEGER, default=5, oneOf=[{"minimum": 1}, {"minimum": 2}])),
    "default-that-not-forbids": field(kw(STRING, default="x", **{"not": {"enum": ["x"]}})),
    "default-that-all-of-forbids": field(kw(INTEGER, default=5, allOf=[{"maximum": 4}])),
    # against rules
    "default-empty-beside-a-rule": field(obj({"a": kw(INTEGER, default=1)}, default={}, rules=[UP])),
    "default-given-beside-a-rule": field(obj({"a": kw(INTEGER, default=1)}, default={"a": 1}, rules=[UP])),
    "default-that-a-rule-refuses": field(obj({"a": INTEGER}, default={"a": 0}, rules=[{"rule": UP, "message": "m"}])),
    "default-that-a-rule-refuses-by-expression": field(
        obj({"a": INTEGER}, default={"a": 0}, rules=[{"rule": UP, "messageExpression": "'a is ' + string(self.a)"}])
    ),
    "default-that-a-rule-refuses-with-reason": field(
        obj(
            {"a": INTEGER},
            default={"a": 0},
            rules=[{"rule": UP, "reason": "FieldValueForbidden", "fieldPath": ".a", "message": "no"}],
        )
    ),
    "default-of-a-child-beside-a-rule-above": field(
        obj({"b": obj({"a": INTEGER}, default={})}, rules=["self.b.a >= 1"])
    ),
    "default-scalar-refused": field(kw(INTEGER, default=0, rules=["self > 0"])),
    "default-scalar-taken": field(kw(INTEGER, default=1, rules=["self > 0"])),
    "default-with-nested-rule": field(obj({"b": kw(INTEGER, rules=["self > 0"])}, default={"b": 0})),
    "default-list-with-rule-on-items": field(array(kw(INTEGER, rules=["self > 0"]), default=[1, 0])),
    "default-transition-rule": field(kw(INTEGER, default=1, rules=["self > oldSelf"])),
    "default-transition-rule-that-holds": field(kw(INTEGER, default=1, rules=["self >= oldSelf"])),
    "default-optional-old-self": field(
        kw(
            INTEGER,
            default=1,
            rules=[{"rule": "oldSelf.hasValue() && self == oldSelf.value()", "optionalOldSelf": True}],
        )
    ),
    "default-optional-old-self-that-holds": field(
        kw(
            INTEGER,
            default=1,
            rules=[{"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": True}],
        )
    ),
    "default-guarded-by-has": field(
        obj({"a": kw(INTEGER, default=1)}, default={}, rules=["!has(self.a) || self.a >= 1"])
    ),
    "default-date-time-beside-a-rule": field(
        kw(
            STRING,
            format="date-time",
            default="2026-01-01T00:00:00Z",
            rules=["self < timestamp('2027-01-01T00:00:00Z')"],
        )
    ),
    "default-duration-beside-a-rule": field(
        kw(STRING, format="duration", default="5s", rules=["self <= duration('4s')"])
    ),
    "default-beside-a-rule-of-quantities": field(
        kw(STRING, maxLength=20, default="5Gi", rules=["quantity(self).isLessThan(quantity('4Gi'))"])
    ),
    "default-of-a-key-that-is-required": field(obj({"a": kw(INTEGER, default=1)}, required=["a"])),
    "two-bad-defaults": spec({"x": kw(INTEGER, default="1"), "y": kw(INTEGER, minimum=1, default=0)}),
    "bad-default-in-two-versions": definition(
        versions=[
            version(obj({"spec": obj({"a": kw(INTEGER, default="x")})}), "v1"),
            version(obj({"spec": obj({"a": kw(INTEGER, default="y")})}), "v2", storage=False),
        ]
    ),
    "bad-default-in-equal-versions": definition(
        versions=[
            version(obj({"spec": obj({"a": kw(INTEGER, default="x")})}), "v1"),
            version(obj({"spec": obj({"a": kw(INTEGER, default="x")})}), "v2", storage=False),
        ]
    ),
}
