"""A definition's ``spec`` as a whole: group, scope, names, versions, and each version's schema, columns and paths.

What all versions share is judged once, at the top, where the server keeps it.
Source: apiextensions ``validateCustomResourceDefinitionSpec``, ``pkg/apis/apiextensions/v1/conversion.go``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import urlsplit

from twin.custom.definition.conversion import conversion_errors
from twin.custom.definition.defaults import default_errors
from twin.custom.definition.field_paths import BadPath, field_at
from twin.custom.definition.keywords import keyword_errors
from twin.custom.definition.rule_costs import RuleCosts
from twin.custom.definition.structure import structure_errors, unsupported
from twin.kinds.rules.names import dns_label_1035, dns_subdomain
from twin.registry.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
    too_many,
)

Json = dict[str, Any]

_SCOPES = ("Cluster", "Namespaced")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SELECTABLE = ("string", "boolean", "integer")
_MOST_SELECTABLE = 8
_APPROVED = "api-approved.kubernetes.io"
_SHARED = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_BESIDE_STATUS = frozenset(
    (
        "description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
        "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items",
        "properties", "externalDocs", "example", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations",
    )
)  # fmt: skip
"""Keywords of a root schema whose meaning stays when the status is judged by itself."""


def definition_errors(definition: Json, unchanged: Collection[str] = ()) -> list[FieldError]:
    """What is wrong with a definition (decoded, with its defaults).

    ``unchanged``: versions whose schema was taken before; a rule of theirs may cost what it does.
    """
    spec, meta = definition["spec"], definition["metadata"]
    found = _name(meta.get("name", ""), spec)
    found += _group(spec["group"])
    if not spec.get("scope"):
        found.append(required("spec.scope"))
    elif spec["scope"] not in _SCOPES:
        found.append(not_supported("spec.scope", spec["scope"], _SCOPES))
    versions: list[Json] = spec.get("versions") or []
    for index, version in enumerate(versions):
        if "openAPIV3Schema" not in (version.get("schema") or {}):
            found.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
    found += _versions(versions, spec.get("versions"))
    for where, part, of in _parts(versions):
        found += _part(where, part, of, versions, unchanged)
    found += [required(f"spec.names.{key}") for key in _NAMES if not spec["names"].get(key)]
    found += _names(spec["names"])
    found += conversion_errors(spec.get("conversion"), "spec.conversion")
    if spec.get("preserveUnknownFields"):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        found.append(invalid("spec.preserveUnknownFields", True, text))
    return found


def _name(name: str, spec: Json) -> list[FieldError]:
    if name == f"{spec['names']['plural']}.{spec['group']}":
        return []
    return [invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')]


def approval_errors(definition: Json) -> list[FieldError]:
    """Groups of Kubernetes itself want a word that its API reviewers gave, or that they did not."""
    group = definition["spec"]["group"]
    if not f".{group}".endswith((".k8s.io", ".kubernetes.io")):
        return []
    given = (definition["metadata"].get("annotations") or {}).get(_APPROVED, "")
    text = f'protected groups must have approval annotation "{_APPROVED}"'
    link = ", see https://github.com/kubernetes/enhancements/pull/1111"
    where = f"metadata.annotations[{_APPROVED}]"
    if not given:
        return [required(where, text + link)]
    if given.startswith("unapproved") or (urlsplit(given).scheme and urlsplit(given).netloc):
        return []
    return [invalid(where, given, f'{text} with either a URL or a reason starting with "unapproved"{link}')]


def _group(group: str) -> list[FieldError]:
    if not group:
        return [required("spec.group")]
    messages = dns_subdomain(group)
    if messages:
        return [invalid("spec.group", group, ",".join(messages))]
    if "." not in group:
        return [invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


_NAMES = ("plural", "singular", "kind", "listKind")


def _names(names: Json) -> list[FieldError]:
    found: list[FieldError] = []
    for key in _NAMES:
        value = names.get(key) or ""
        mixed = key in ("kind", "listKind")
        messages = dns_label_1035(value.lower() if mixed else value) if value else []
        if messages:
            text = ",".join(messages)
            text = f"may have mixed case, but should otherwise match: {text}" if mixed else text
            found.append(invalid(f"spec.names.{key}", value, text))
    for key in ("shortNames", "categories"):
        for index, value in enumerate(names.get(key) or ()):
            messages = dns_label_1035(value)
            if messages:
                found.append(invalid(f"spec.names.{key}[{index}]", value, ",".join(messages)))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        found.append(invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"))
    return found


# --- versions ---------------------------------------------------------------------------------------------------------


def _versions(versions: list[Json], given: Any) -> list[FieldError]:
    found: list[FieldError] = []
    shared = shared_parts(versions)
    for index, version in enumerate(versions):
        messages = dns_label_1035(version["name"])
        if messages:
            where = (
                ("spec.version", f"spec.versions[{index}].name") if index == 0 else (f"spec.versions[{index}].name",)
            )
            found += [invalid(at, version["name"], ",".join(messages)) for at in where]
        for text in _deprecation(bool(version.get("deprecated")), version.get("deprecationWarning")):
            where_told = f"spec.versions[{index}].deprecationWarning"
            found.append(invalid(where_told, version["deprecationWarning"], text))
    shown = None if given is None else [_internal(version, shared) for version in versions]
    names = [version["name"] for version in versions]
    if len(set(names)) != len(names):
        found.append(invalid("spec.versions", shown, "must contain unique version names"))
    if sum(bool(version["storage"]) for version in versions) != 1:
        found.append(invalid("spec.versions", shown, "must have exactly one version marked as storage version"))
    return found


def _deprecation(deprecated: bool, warning: str | None) -> list[str]:
    if warning is None:
        return []
    if not deprecated:
        return ["can only be set for deprecated versions"]
    found: list[str] = []
    if len(warning.encode()) > 256:
        found.append("must be <= 256 characters long")
    if not warning:
        found.append("must not be an empty string")
    odd = next((index for index, one in enumerate(warning) if not one.isprintable()), None)
    if odd is not None:
        at = len(warning[:odd].encode())
        text = f"must only contain printable UTF-8 characters; non-printable character found at index {at}"
        found.append(text)
    return found


def shared_parts(versions: list[Json]) -> set[str]:
    """What is the same in all versions, and so stands at the top where the server keeps it."""
    return {key for key in _SHARED if all(one.get(key) == versions[0].get(key) for one in versions)}


def _internal(version: Json, shared: set[str]) -> Json:
    """A version as Go prints the internal struct."""
    return {
        "Name": version["name"],
        "Served": version["served"],
        "Storage": version["storage"],
        "Deprecated": bool(version.get("deprecated")),
        "DeprecationWarning": version.get("deprecationWarning"),
        **{key[0].upper() + key[1:]: None if key in shared else version.get(key) for key in _SHARED},
    }


def _parts(versions: list[Json]) -> Iterator[tuple[str, str, Json]]:
    """(where, which part, the version it is of) of every part there is; what all share comes once."""
    shared = shared_parts(versions)
    for index, version in enumerate(versions):
        for key in _SHARED:
            if version.get(key) is None or (key in shared and index):
                continue
            name = "validation" if key == "schema" and key in shared else key
            yield (f"spec.{name}" if key in shared else f"spec.versions[{index}].{key}"), key, version


def _part(where: str, part: str, version: Json, versions: list[Json], unchanged: Collection[str]) -> list[FieldError]:
    match part:
        case "schema":
            schema = version["schema"].get("openAPIV3Schema")
            if schema is None:
                return []
            # what is shared is judged beside the status of any version
            beside = versions if where == "spec.validation" else [version]
            has_status = any("status" in (one.get("subresources") or {}) for one in beside)
            return _schema(schema, f"{where}.openAPIV3Schema", has_status, version["name"] in unchanged)
        case "subresources":
            return _scale(version[part].get("scale"), f"{where}.scale")
        case "additionalPrinterColumns":
            return [error for index, one in enumerate(version[part]) for error in _column(one, f"{where}[{index}]")]
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    return _selectable(version[part], schema, where)


def _schema(schema: Json, where: str, has_status: bool, unchanged: bool) -> list[FieldError]:
    found: list[FieldError] = []
    if has_status:
        found += _beside_status(schema, where)
    if schema.get("nullable"):
        found.append(forbidden_field(f"{where}.nullable", "nullable cannot be true at the root"))
    never = unsupported(schema)
    costs: RuleCosts | None = None
    if not never:
        judged = structure_errors(schema, where) or default_errors(schema, where)
        found += judged
        costs = None if judged else RuleCosts(unchanged=unchanged)
    found += keyword_errors(schema, where, costs)
    if costs is not None:
        found += costs.total_errors(where)
    if never and not found:
        found.append(invalid(where, "", never))
    return found


def _beside_status(schema: Json, where: str) -> list[FieldError]:
    if schema.get("type", "object") != "object":
        text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        return [invalid(f"{where}.type", schema["type"], text)]
    if not schema.keys() <= _BESIDE_STATUS:
        allowed = " ".join(key.removeprefix("x-kubernetes-") for key in sorted(_BESIDE_STATUS))
        text = f"only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
        return [invalid(where, schema, text)]
    return []


# --- paths ------------------------------------------------------------------------------------------------------------


def _scale(scale: Json | None, where: str) -> list[FieldError]:
    if scale is None:
        return []
    found: list[FieldError] = []
    for key, under, text in (
        ("specReplicasPath", (".spec.",), "should be a json path under .spec"),
        ("statusReplicasPath", (".status.",), "should be a json path under .status"),
        ("labelSelectorPath", (".spec.", ".status."), "should be a json path under either .spec or .status"),
    ):
        path = scale.get(key) or ""
        if not path:
            if key != "labelSelectorPath":
                found.append(required(f"{where}.{key}"))
        elif not path.startswith("."):
            found.append(invalid(f"{where}.{key}", path, "must be a simple json path starting with ."))
        elif not path.startswith(under):
            found.append(invalid(f"{where}.{key}", path, text))
    return found


def _column(column: Json, where: str) -> list[FieldError]:
    found: list[FieldError] = []
    kind, path, form = column.get("type") or "", column.get("jsonPath") or "", column.get("format") or ""
    if not column.get("name"):
        found.append(required(f"{where}.name"))
    text = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        found.append(required(f"{where}.type", text))
    elif kind not in _COLUMN_TYPES:
        found.append(invalid(f"{where}.type", kind, text))
    if form and form not in _COLUMN_FORMATS:
        found.append(invalid(f"{where}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}"))
    if not path:
        found.append(required(f"{where}.JSONPath"))
    elif not path.startswith("."):
        found.append(invalid(f"{where}.JSONPath", path, "must be a simple json path starting with ."))
    return found


def _selectable(fields: list[Json], schema: Json | None, where: str) -> list[FieldError]:
    if schema is None:
        return [invalid(where, "", "may only be set when `version.schema.openAPIV3Schema` is not included")]
    if unsupported(schema):
        return [invalid(where, "", unsupported(schema))]
    found: list[FieldError] = []
    seen: set[tuple[str, ...]] = set()
    for index, one in enumerate(fields):
        path, at = one.get("jsonPath") or "", f"{where}[{index}].jsonPath"
        if not path:
            found.append(required(at))
            continue
        try:
            names, there = field_at(schema, path, brackets=False)
        except BadPath as error:
            found.append(invalid(at, path, f"is an invalid path: {error}"))
            continue
        if names[:1] == ("metadata",):
            found.append(invalid(at, path, "must not point to fields in metadata"))
        if there.get("type") not in _SELECTABLE:
            text = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            found.append(invalid(at, path, text))
        if names in seen:
            found.append(duplicate(at, path))
        seen.add(names)
    if len(seen) > _MOST_SELECTABLE:
        found.append(too_many(where, len(seen), _MOST_SELECTABLE))
    return found
