"""CustomResourceDefinitions themselves: defaults and validation.

What they define is served by ``twin.custom``.

Source: apiextensions-apiserver ``pkg/apis/apiextensions`` (v1 defaults, validation) and
``pkg/registry/customresourcedefinition``.
"""

from __future__ import annotations

import re
from typing import Any

from twin.custom.definition.decoding import decode_schema
from twin.custom.definition.spec import approval_errors, definition_errors
from twin.kinds.rules.codec import DecodeError
from twin.kinds.rules.printing import NAME
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, bad_request, invalid
from twin.registry.strategy import KindInfo, RequestContext, TableColumn

Json = dict[str, Any]

_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_HANDLED = 'CustomResourceDefinition in version "v1" cannot be handled as a CustomResourceDefinition:'


class CustomResourceDefinitionStrategy(TypedStrategy):
    """apiextensions.k8s.io/v1 CustomResourceDefinition."""

    info = KindInfo(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
        "customresourcedefinition", False, short_names=("crd", "crds"), categories=("api-extensions",),
    )  # fmt: skip
    go_type = "apiextensions/v1.CustomResourceDefinition"
    allow_unconditional_update = False
    table_columns = (NAME, TableColumn("Created At", type="date"))

    def default(self, obj: Json) -> None:
        spec = obj["spec"]
        names = spec["names"]
        if not names.get("singular") and names.get("kind"):
            names["singular"] = names["kind"].lower()
        if not names.get("listKind") and names.get("kind"):
            names["listKind"] = f"{names['kind']}List"
        if spec.get("conversion") is None:
            spec["conversion"] = {"strategy": "None"}

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        stored = [one["name"] for one in obj["spec"].get("versions") or () if one["storage"]][:1]
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

    def decode(self, obj: Json, ctx: RequestContext) -> None:
        super().decode(obj, ctx)
        for index, version in enumerate(obj["spec"].get("versions") or ()):
            schema = (version.get("schema") or {}).get("openAPIV3Schema")
            if schema is None:
                continue
            try:
                version["schema"]["openAPIV3Schema"], unknown = decode_schema(schema)
            except DecodeError as error:
                text = re.sub(r"(struct field \w+\.)", r"\1spec.versions.schema.openAPIV3Schema.", str(error), count=1)
                raise bad_request(f"{_HANDLED} {text}") from error
            where = f"spec.versions[{index}].schema.openAPIV3Schema."
            ctx.unknown_fields.extend(one.replace('"', f'"{where}', 1) for one in unknown)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        return [*definition_errors(obj), *_stored(obj), *approval_errors(obj)]

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        before = {one["name"]: one.get("schema") for one in old["spec"].get("versions") or ()}
        versions = obj["spec"].get("versions") or ()
        same = [one["name"] for one in versions if one["name"] in before and one.get("schema") == before[one["name"]]]
        found = [*definition_errors(obj, same), *_stored(obj)]
        conditions = (old.get("status") or {}).get("conditions") or ()
        established = any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
        spec, was = obj["spec"], old["spec"]
        found += [
            invalid(f"spec.{path}", new, "field is immutable")
            for path, new, given, always in (
                ("group", spec["group"], was["group"], True),
                ("scope", spec["scope"], was["scope"], False),
                ("names.kind", spec["names"]["kind"], was["names"]["kind"], False),
                ("names.plural", spec["names"]["plural"], was["names"]["plural"], True),
            )
            if new != given and (always or established)
        ]
        annotations = [one["metadata"].get("annotations") or {} for one in (obj, old)]
        return found if annotations[0] == annotations[1] else [*found, *approval_errors(obj)]


def _stored(definition: Json) -> list[FieldError]:
    """The versions that objects are stored in are versions of the definition."""
    stored = (definition.get("status") or {}).get("storedVersions") or None
    where = "status.storedVersions"
    if not stored:
        return [invalid(where, None, "must have at least one stored version")]
    versions = definition["spec"].get("versions") or ()
    found = [
        invalid(where, stored, f"must have the storage version {one['name']}")
        for one in versions
        if one["storage"] and one["name"] not in stored
    ]
    names = {one["name"] for one in versions}
    found += [
        invalid(
            f"{where}[{index}]",
            name,
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions "
            f"until a storage migration ensures no data remains persisted in {name} and removes {name} from "
            "status.storedVersions",
        )
        for index, name in enumerate(stored)
        if name not in names
    ]
    return found
