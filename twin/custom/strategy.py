"""The strategy that a CustomResourceDefinition's version makes of itself.

Source: apiextensions ``pkg/registry/customresource``: pruning and defaulting by schema, status and scale subresources
as declared, printer columns by JSON path. Conversion between versions changes apiVersion only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twin.custom import json_path
from twin.custom.rules import compile_rules, rule_errors
from twin.custom.scale import scale_subresource
from twin.custom.schema import UNCHECKED, blocks_rules, default, prune, validate
from twin.kinds.rules.codec import TYPES, DecodeError
from twin.kinds.rules.printing import AGE, NAME, age_of
from twin.registry.status import FieldError, bad_request, invalid
from twin.registry.strategy import KindInfo, KindStrategy, RequestContext, Subresource, TableColumn

Json = dict[str, Any]

VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_STATUS_VERBS = ("get", "patch", "update")
_META_TYPE = "meta/v1.ObjectMeta"


class CustomStrategy(KindStrategy):
    """One served version of one definition."""

    supports_strategic = False
    allow_unconditional_update = False

    def __init__(self, definition: Json, version: Json) -> None:
        spec = definition["spec"]
        names = spec["names"]
        self.info = KindInfo(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            singular=names.get("singular") or names["kind"].lower(),
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            verbs=VERBS,
        )
        self.schema: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        self._rules = compile_rules(self.schema)
        subresources = version.get("subresources") or {}
        self.resets_status = "status" in subresources
        self._scale: Json | None = subresources.get("scale")
        self.subresources = self._declared(subresources)
        self._selectable = [one["jsonPath"].lstrip(".") for one in version.get("selectableFields") or ()]
        self.supported_fields = frozenset(("metadata.name", "metadata.namespace", *self._selectable))
        self._printers = [(one["jsonPath"], one["type"]) for one in version.get("additionalPrinterColumns") or ()]
        self.table_columns = self._columns(version.get("additionalPrinterColumns") or ())

    def _declared(self, subresources: Json) -> tuple[Subresource, ...]:
        found: list[Subresource] = []
        if "status" in subresources:
            found.append(Subresource("status", _STATUS_VERBS))
        if self._scale is not None:
            found.append(scale_subresource(self.info, self._scale))
        return tuple(found)

    @staticmethod
    def _columns(declared: Any) -> tuple[TableColumn, ...]:
        if not declared:
            return (NAME, AGE)
        return (
            NAME,
            *(
                TableColumn(
                    one["name"],
                    type=one["type"],
                    format=one.get("format", ""),
                    description=one.get("description")
                    or f"Custom resource definition column (in JSONPath format): {one['jsonPath']}",
                    priority=one.get("priority", 0),
                )
                for one in declared
            ),
        )

    # --- writes ---------------------------------------------------------------------------------------------------

    def decode(self, obj: Json, ctx: RequestContext) -> None:
        try:
            obj["metadata"], _ = TYPES.decode(_META_TYPE, obj.get("metadata") or {})
        except DecodeError as error:
            kind = self.info.kind
            text = f'{kind} in version "{self.info.version}" cannot be handled as a {kind}: {error}'
            raise bad_request(text) from None
        dropped = prune(obj, self.schema, top=True)
        ctx.unknown_fields.extend(f'unknown field "{path}"' for path in dropped)

    def default(self, obj: Json) -> None:
        default(obj, self.schema)

    def keep_for_status(self, obj: Json, old: Json) -> None:
        super().keep_for_status(obj, old)
        obj["metadata"] = dict(old["metadata"])

    def generation_changed(self, obj: Json, old: Json) -> bool:
        uncounted = ("metadata", "status") if self.resets_status else ("metadata",)
        return any(obj.get(key) != old.get(key) for key in obj.keys() | old.keys() if key not in uncounted)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        return self._errors(obj, None)

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return self._errors(obj, old)

    def validate_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        # The status is validated by itself: the texts name fields from there.
        return [
            replace(error, message=error.message.replace(f"{error.field} in body", f"{error.field[7:]} in body"))
            if error.field.startswith("status.")
            else error
            for error in self._errors(obj, old)
        ]

    def _errors(self, obj: Json, old: Json | None) -> list[FieldError]:
        errors = validate(obj, self.schema)
        errors.extend(self._scale_errors(obj))
        if self._rules is not None:
            if blocks_rules(errors):
                errors.append(UNCHECKED)
            else:
                errors.extend(rule_errors(self._rules, obj, old))
        return errors

    def _scale_errors(self, obj: Json) -> list[FieldError]:
        if self._scale is None:
            return []
        errors: list[FieldError] = []
        for key in ("specReplicasPath", "statusReplicasPath"):
            path = self._scale.get(key, "")
            value = json_path.find(obj, path)
            if isinstance(value, int) and value < 0:
                errors.append(invalid(path, value, "should be a non-negative integer"))
        return errors

    # --- reads ----------------------------------------------------------------------------------------------------

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        return {path: json_path.text(json_path.find(obj, path)) for path in self._selectable}

    def table_cells(self, obj: Json, now_s: float) -> list[Any]:
        name = obj["metadata"].get("name", "")
        if not self._printers:
            return [name, age_of(obj["metadata"].get("creationTimestamp"), now_s)]
        return [name, *(_cell(json_path.find(obj, path), type_, now_s) for path, type_ in self._printers)]


def _cell(value: Any, type_: str, now_s: float) -> Any:
    """A cell as the column's type wants it; None where the path leads nowhere or to another type."""
    if value is None:
        return None
    if type_ == "date":
        return age_of(value, now_s) if isinstance(value, str) else None
    if type_ == "integer":
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    if type_ == "number":
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if type_ == "boolean":
        return value if isinstance(value, bool) else None
    return json_path.text(value)
