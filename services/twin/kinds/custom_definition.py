"""CustomResourceDefinitions themselves: defaults and validation.

What they define is served by ``services.twin.custom``.

Source: apiextensions-apiserver ``pkg/apis/apiextensions`` (v1 defaults, validation) and
``pkg/registry/customresourcedefinition``.
"""

from __future__ import annotations

from typing import Any

from services.twin.custom.rules import definition_errors
from services.twin.custom.schema import well_formed
from services.twin.kinds.rules.names import check, dns_label_1035, dns_subdomain
from services.twin.kinds.rules.printing import NAME
from services.twin.kinds.rules.typed import TypedStrategy
from services.twin.registry.status import FieldError, invalid, not_supported, required
from services.twin.registry.strategy import Column, KindInfo, RequestContext

Json = dict[str, Any]

_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_SCOPES = ("Cluster", "Namespaced")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_MAX_SCHEMA_DEPTH = 64


class CustomResourceDefinitionStrategy(TypedStrategy):
    """apiextensions.k8s.io/v1 CustomResourceDefinition."""

    info = KindInfo(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
        "customresourcedefinition", False, short_names=("crd", "crds"), categories=("api-extensions",),
    )  # fmt: skip
    go_type = "apiextensions/v1.CustomResourceDefinition"
    allow_unconditional_update = False
    table_columns = (NAME, Column("Created At", type="date"))

    def default(self, obj: Json) -> None:
        spec = obj["spec"]
        names = spec["names"]
        if not names.get("singular") and names.get("kind"):
            names["singular"] = names["kind"].lower()
        if not names.get("listKind") and names.get("kind"):
            names["listKind"] = f"{names['kind']}List"
        conversion = spec.get("conversion")
        if conversion is None:
            spec["conversion"] = {"strategy": "None"}
        elif not conversion.get("strategy"):
            conversion["strategy"] = "None"

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        stored = [one["name"] for one in obj["spec"].get("versions") or () if one["storage"]]
        obj["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}

    def prepare_for_update(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        stored = list((obj.get("status") or {}).get("storedVersions") or ())
        for version in obj["spec"].get("versions") or ():
            if version["storage"] and version["name"] not in stored:
                obj["status"] = {**(obj.get("status") or {}), "storedVersions": [*stored, version["name"]]}

    def before_delete(self, obj: Json, ctx: RequestContext) -> Json | None:
        """Its objects go first: a finalizer holds the definition until they are gone."""
        meta = obj["metadata"]
        finalizers = meta.get("finalizers") or []
        if meta.get("deletionTimestamp"):
            return obj if finalizers else None
        kept = finalizers if _CLEANUP in finalizers else [*finalizers, _CLEANUP]
        return {**obj, "metadata": {**meta, "deletionTimestamp": ctx.now, "finalizers": kept}}

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec, name = obj["spec"], obj["metadata"].get("name", "")
        found: list[FieldError] = []
        names = spec["names"]
        if name != f"{names['plural']}.{spec['group']}":
            found.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
        found += _check_group(spec)
        if not spec.get("scope"):
            found.append(required("spec.scope"))
        elif spec["scope"] not in _SCOPES:
            found.append(not_supported("spec.scope", spec["scope"], _SCOPES))
        versions = spec.get("versions") or []
        found += _check_versions(versions) or _check_rules(versions)
        found += _check_names(names)
        if not (obj.get("status") or {}).get("storedVersions"):
            found.append(invalid("status.storedVersions", None, "must have at least one stored version"))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found = self.validate(obj, ctx)
        found += [
            invalid(f"spec.{path}", new, "field is immutable")
            for path, new, before in (
                ("group", obj["spec"]["group"], old["spec"]["group"]),
                ("scope", obj["spec"]["scope"], old["spec"]["scope"]),
                ("names.kind", obj["spec"]["names"]["kind"], old["spec"]["names"]["kind"]),
                ("names.plural", obj["spec"]["names"]["plural"], old["spec"]["names"]["plural"]),
            )
            if new != before
        ]
        return found


def _check_group(spec: Json) -> list[FieldError]:
    group = spec["group"]
    if not group:
        return [required("spec.group")]
    messages = dns_subdomain(group)
    if messages:
        return [invalid("spec.group", group, ",".join(messages))]
    if "." not in group:
        return [invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _check_names(names: Json) -> list[FieldError]:
    found: list[FieldError] = []
    for field in ("plural", "singular", "kind", "listKind"):
        value = names.get(field, "")
        if not value:
            found.append(required(f"spec.names.{field}"))
        else:
            messages = dns_label_1035(value.lower())
            found += [invalid(f"spec.names.{field}", value, message) for message in messages]
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        found.append(invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"))
    for index, short in enumerate(names.get("shortNames") or ()):
        found += check(f"spec.names.shortNames[{index}]", short, dns_label_1035)
    return found


def _check_versions(versions: list[Json]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, version in enumerate(versions):
        here, name = f"spec.versions[{index}]", version["name"]
        found += check(f"{here}.name", name, dns_label_1035)
        if name in seen:
            text = "must contain unique version names"
            found.append(invalid("spec.versions", [_internal(one) for one in versions], text))
        seen.add(name)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            found.append(required(f"{here}.schema.openAPIV3Schema"))
        else:
            found += _check_schema(schema, f"{here}.schema.openAPIV3Schema", root=True)
    if sum(bool(version["storage"]) for version in versions) != 1:
        shown = [_internal(one) for one in versions]
        found.append(invalid("spec.versions", shown, "must have exactly one version marked as storage version"))
    return found


def _check_rules(versions: list[Json]) -> list[FieldError]:
    """Rules of schemas that are structural; one that all versions share is named once, as the server keeps it."""
    schemas = [version["schema"]["openAPIV3Schema"] for version in versions]
    if all(schema == schemas[0] for schema in schemas):
        return definition_errors(well_formed(schemas[0]), "spec.validation.openAPIV3Schema")
    return [
        error
        for index, schema in enumerate(schemas)
        for error in definition_errors(well_formed(schema), f"spec.versions[{index}].schema.openAPIV3Schema")
    ]


def _internal(version: Json) -> Json:
    """A version as Go prints the internal struct; schemas are moved to the top there when they are all the same."""
    return {
        "Name": version["name"],
        "Served": version["served"],
        "Storage": version["storage"],
        "Deprecated": bool(version.get("deprecated")),
        "DeprecationWarning": version.get("deprecationWarning"),
        "Schema": None,
        "Subresources": version.get("subresources"),
        "AdditionalPrinterColumns": version.get("additionalPrinterColumns"),
        "SelectableFields": version.get("selectableFields"),
    }


def _check_schema(schema: Any, field: str, *, root: bool = False, depth: int = 0) -> list[FieldError]:
    """The structural rules that definitions break most: every level has a type, the root is an object."""
    if not isinstance(schema, dict) or depth > _MAX_SCHEMA_DEPTH:
        return []
    found: list[FieldError] = []
    kind = schema.get("type")
    untyped = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not kind:
        if root:
            found.append(required(f"{field}.type", "must not be empty at the root"))
        elif not untyped:
            found.append(required(f"{field}.type", "must not be empty for specified object fields"))
    elif kind not in _TYPES:
        found.append(not_supported(f"{field}.type", kind, _TYPES))
    elif root and kind != "object":
        found.append(invalid(f"{field}.type", kind, "must be object at the root"))
    properties = schema.get("properties")
    for name, child in sorted(properties.items()) if isinstance(properties, dict) else ():
        found += _check_schema(child, f"{field}.properties[{name}]", depth=depth + 1)
    if isinstance(schema.get("items"), dict):
        found += _check_schema(schema["items"], f"{field}.items", depth=depth + 1)
    elif kind == "array" and "items" not in schema:
        found.append(required(f"{field}.items", "must be specified"))
    if isinstance(schema.get("additionalProperties"), dict):
        found += _check_schema(schema["additionalProperties"], f"{field}.additionalProperties", depth=depth + 1)
    return found
