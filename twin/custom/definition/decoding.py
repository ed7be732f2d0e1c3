"""A schema as Go's decoder would read it: typed, without unknown keywords and empty values.

Source: apiextensions ``pkg/apis/apiextensions/v1/types_jsonschema.go``.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.codec import Types

Json = dict[str, Any]

_SCHEMA = "v1.JSONSchemaProps"
_TYPES = Types({
    _SCHEMA: {
        **dict.fromkeys(("id", "$schema", "description", "type", "format", "title", "pattern"), "string ?"),
        **dict.fromkeys(("maximum", "minimum", "multipleOf"), "*float ?"),
        **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems"), "*int64 ?"),
        **dict.fromkeys(("maxProperties", "minProperties"), "*int64 ?"),
        **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "nullable"), "bool ?"),
        **dict.fromkeys(("allOf", "oneOf", "anyOf"), f"[]{_SCHEMA} ?"),
        **dict.fromkeys(("properties", "patternProperties", "definitions"), f"{{}}{_SCHEMA} ?"),
        "$ref": "*string ?",
        "default": "*raw ?",
        "example": "*raw ?",
        "enum": "[]raw ?",
        "required": "[]string ?",
        "items": f"*{_SCHEMA}|[]{_SCHEMA} ?",
        "not": f"*{_SCHEMA} ?",
        "additionalProperties": f"*{_SCHEMA}|bool ?",
        "dependencies": f"{{}}{_SCHEMA}|[]string ?",
        "additionalItems": f"*{_SCHEMA}|bool ?",
        "externalDocs": "*v1.ExternalDocumentation ?",
        "x-kubernetes-preserve-unknown-fields": "*bool ?",
        "x-kubernetes-embedded-resource": "bool ?",
        "x-kubernetes-int-or-string": "bool ?",
        "x-kubernetes-list-map-keys": "[]string ?",
        "x-kubernetes-list-type": "*string ?",
        "x-kubernetes-map-type": "*string ?",
        "x-kubernetes-validations": "[]v1.ValidationRule ?",
    },
    "v1.ExternalDocumentation": {"description": "string ?", "url": "string ?"},
    "v1.ValidationRule": {
        "rule": "string", "message": "string ?", "messageExpression": "string ?", "reason": "*string ?",
        "fieldPath": "string ?", "optionalOldSelf": "*bool ?",
    },
})  # fmt: skip


def decode_schema(schema: Any) -> tuple[Json, list[str]]:
    """(the schema, messages about unknown keywords by path from the schema). Raises ``DecodeError``."""
    return _TYPES.decode(_SCHEMA, schema)
