"""x-kubernetes-* keywords but the rules."""

from __future__ import annotations

from typing import Any

from tests.definitions.build import (
    INTEGER,
    STRING,
    array,
    definition,
    field,
    kw,
    mapping,
    obj,
    version,
)

Json = dict[str, Any]
NAMED = obj({"name": STRING, "n": INTEGER}, required=["name"])
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]

CASES: dict[str, Json] = {
    # lists
    "list-type-unknown": field(array(STRING, x_list_type="bag")),
    "list-type-of-an-object": field(obj({"a": STRING}, x_list_type="set")),
    "list-type-without-type": field({"x-kubernetes-list-type": "set", "x-kubernetes-preserve-unknown-fields": True}),
    "good-list-set": field(array(STRING, x_list_type="set")),
    "good-list-atomic": field(array(obj({"a": STRING}), x_list_type="atomic")),
    "list-set-of-objects": field(array(obj({"a": STRING}), x_list_type="set")),
    "list-set-of-atomic-objects": field(array(obj({"a": STRING}, x_map_type="atomic"), x_list_type="set")),
    "list-set-of-granular-objects": field(array(obj({"a": STRING}, x_map_type="granular"), x_list_type="set")),
    "list-set-of-lists": field(array(array(STRING), x_list_type="set")),
    "list-set-of-sets": field(array(array(STRING, x_list_type="set"), x_list_type="set")),
    "list-set-of-nullable": field(array(kw(STRING, nullable=True), x_list_type="set")),
    "good-list-map": field(array(NAMED, x_list_type="map", x_list_map_keys=["name"])),
    "list-map-without-keys": field(array(NAMED, x_list_type="map")),
    "list-map-with-empty-keys": field(array(NAMED, x_list_type="map", x_list_map_keys=[])),
    "list-keys-without-type": field(array(NAMED, x_list_map_keys=["name"])),
    "list-keys-of-a-set": field(array(STRING, x_list_type="set", x_list_map_keys=["name"])),
    "list-keys-of-atomic": field(array(NAMED, x_list_type="atomic", x_list_map_keys=["name"])),
    "list-key-unknown": field(array(NAMED, x_list_type="map", x_list_map_keys=["nope"])),
    "list-key-twice": field(array(NAMED, x_list_type="map", x_list_map_keys=["name", "name"])),
    "list-key-neither-required-nor-default": field(
        array(obj({"name": STRING}), x_list_type="map", x_list_map_keys=["name"])
    ),
    "list-key-with-default": field(
        array(obj({"name": kw(STRING, default="a")}), x_list_type="map", x_list_map_keys=["name"])
    ),
    "list-key-one-of-two-required": field(
        array(
            obj({"port": INTEGER, "protocol": STRING}, required=["port"]),
            x_list_type="map",
            x_list_map_keys=["port", "protocol"],
        )
    ),
    "list-key-nullable": field(
        array(obj({"name": kw(STRING, nullable=True)}, required=["name"]), x_list_type="map", x_list_map_keys=["name"])
    ),
    "list-key-is-an-object": field(
        array(obj({"name": obj()}, required=["name"]), x_list_type="map", x_list_map_keys=["name"])
    ),
    "list-key-is-a-list": field(
        array(obj({"name": array(STRING)}, required=["name"]), x_list_type="map", x_list_map_keys=["name"])
    ),
    "list-map-of-strings": field(array(STRING, x_list_type="map", x_list_map_keys=["name"])),
    "list-map-of-nullable": field(array(kw(NAMED, nullable=True), x_list_type="map", x_list_map_keys=["name"])),
    "list-map-without-items": field(kw({"type": "array"}, x_list_type="map", x_list_map_keys=["name"])),
    "list-type-of-a-string": field(kw(STRING, x_list_type="set")),
    # maps
    "map-type-unknown": field(mapping(STRING, x_map_type="loose")),
    "map-type-of-a-list": field(array(STRING, x_map_type="atomic")),
    "map-type-without-type": field({"x-kubernetes-map-type": "atomic", "x-kubernetes-preserve-unknown-fields": True}),
    "good-map-atomic": field(mapping(STRING, x_map_type="atomic")),
    "good-map-granular": field(obj({"a": STRING}, x_map_type="granular")),
    # unknown fields
    "preserve-false": field(obj({"a": STRING}, x_preserve_unknown_fields=False)),
    "good-preserve": field(obj({"a": STRING}, x_preserve_unknown_fields=True)),
    "preserve-on-a-string": field(kw(STRING, x_preserve_unknown_fields=True)),
    "preserve-is-a-word": field(obj({"a": STRING}, x_preserve_unknown_fields="yes")),
    # int or string
    "good-int-or-string": field({"x-kubernetes-int-or-string": True}),
    "int-or-string-with-type": field(kw(STRING, x_int_or_string=True)),
    "int-or-string-with-any-of": field({"x-kubernetes-int-or-string": True, "anyOf": INT_OR_STRING}),
    "int-or-string-with-any-of-turned": field({"x-kubernetes-int-or-string": True, "anyOf": INT_OR_STRING[::-1]}),
    "int-or-string-with-all-of-any-of": field(
        {"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": INT_OR_STRING}, {"pattern": "^[0-9]+%?$"}]}
    ),
    "any-of-int-and-string-alone": field({"type": "string", "anyOf": INT_OR_STRING}),
    "int-or-string-keeps-unknown": field(
        {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True}
    ),
    "int-or-string-embedded": field(
        {"x-kubernetes-int-or-string": True, "x-kubernetes-embedded-resource": True, "type": "object"}
    ),
    "int-or-string-pattern": field({"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+%$"}),
    # embedded resources
    "good-embedded": field(obj(x_embedded_resource=True, x_preserve_unknown_fields=True)),
    "embedded-with-properties": field(obj({"spec": obj({"a": STRING})}, x_embedded_resource=True)),
    "embedded-without-properties": field(obj(x_embedded_resource=True)),
    "embedded-without-type": field({"x-kubernetes-embedded-resource": True, "properties": {"spec": obj()}}),
    "embedded-string": field(kw(STRING, x_embedded_resource=True)),
    "embedded-map": field(mapping(STRING, x_embedded_resource=True)),
    "embedded-metadata-labels": field(
        obj({"metadata": obj({"labels": mapping(STRING)}), "spec": obj()}, x_embedded_resource=True)
    ),
    "embedded-metadata-is-a-string": field(obj({"metadata": STRING, "spec": obj()}, x_embedded_resource=True)),
    "embedded-kind-is-a-number": field(obj({"kind": INTEGER, "spec": obj()}, x_embedded_resource=True)),
    "embedded-in-embedded-metadata": field(
        obj(
            {"metadata": obj({"x": obj(x_embedded_resource=True, x_preserve_unknown_fields=True)})},
            x_embedded_resource=True,
        )
    ),
    "embedded-default": field(
        obj(
            x_embedded_resource=True,
            x_preserve_unknown_fields=True,
            default={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}},
        )
    ),
    "embedded-default-without-kind": field(
        obj(x_embedded_resource=True, x_preserve_unknown_fields=True, default={"apiVersion": "v1"})
    ),
    "embedded-default-with-bad-name": field(
        obj(
            x_embedded_resource=True,
            x_preserve_unknown_fields=True,
            default={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "A_B"}},
        )
    ),
    "embedded-default-with-bad-labels": field(
        obj(
            x_embedded_resource=True,
            x_preserve_unknown_fields=True,
            default={"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}},
        )
    ),
    "root-embedded": definition(obj({"spec": obj()}, x_embedded_resource=True)),
    "root-preserves": definition(obj({"spec": obj()}, x_preserve_unknown_fields=True)),
    "root-preserves-beside-status": definition(
        versions=[version(obj({"spec": obj()}, x_preserve_unknown_fields=True), subresources={"status": {}})]
    ),
    "root-int-or-string": definition({"x-kubernetes-int-or-string": True}),
}
