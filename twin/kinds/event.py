"""Events: one storage, two views (core v1 and events.k8s.io/v1) with rules of their own.

Source: ``pkg/apis/core/validation/events.go``, ``pkg/apis/events/v1/conversion.go``, ``pkg/registry/core/event``. The
stored form is core v1's.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.names import check, qualified_name
from twin.kinds.rules.printing import UNKNOWN, age_of
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, invalid, required, unprocessable
from twin.registry.strategy import KindInfo, RequestContext, TableColumn

Json = dict[str, Any]

_RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_SHOWN = {core: new for new, core in _RENAMED.items()}
_CORE_ALWAYS = ("reportingComponent", "reportingInstance")
_MAX_TEXT, _MAX_NOTE = 128, 1024
_IMMUTABLE = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reason", "type",
    "eventTime", "action", "related", "reportingController", "reportingInstance",
)  # fmt: skip
_COLUMNS = (
    TableColumn("Last Seen"),
    TableColumn("Type"),
    TableColumn("Reason"),
    TableColumn("Object"),
    TableColumn("Subobject", priority=1),
    TableColumn("Source", priority=1),
    TableColumn("Message"),
    TableColumn("First Seen", priority=1),
    TableColumn("Count", priority=1),
    TableColumn("Name", format="name", priority=1),
)
_OBJECT_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class CoreEventStrategy(TypedStrategy):
    """Core v1 Event: nearly anything goes."""

    info = KindInfo("", "v1", "Event", "events", "event", True, short_names=("ev",))
    go_type = "core/v1.Event"
    has_generation = False
    resets_status = False
    allow_create_on_update = True
    table_columns = _COLUMNS
    supported_fields = frozenset(
        (
            "metadata.name", "metadata.namespace", "reason", "reportingComponent", "source", "type",
            *(f"involvedObject.{name}" for name in _OBJECT_FIELDS),
        )
    )  # fmt: skip
    object_prefix = "involvedObject"
    controller_field = "reportingComponent"

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        return _check_core(obj, self.controller_field)

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        involved = obj["involvedObject"]
        fields = {f"{self.object_prefix}.{name}": involved.get(name, "") for name in _OBJECT_FIELDS}
        fields["reason"] = obj.get("reason", "")
        fields[self.controller_field] = obj.get("reportingComponent", "")
        fields["source"] = obj["source"].get("component", "") or obj.get("reportingComponent", "")
        fields["type"] = obj.get("type", "")
        return fields

    def table_cells(self, obj: Json, now_s: float) -> list[Any]:
        first = obj.get("firstTimestamp") or obj.get("eventTime")
        last = (obj.get("series") or {}).get("lastObservedTime") or obj.get("lastTimestamp") or first
        involved, source = obj["involvedObject"], obj["source"]
        component, host = source.get("component", "") or obj.get("reportingComponent", ""), source.get("host", "")
        count = (obj.get("series") or {}).get("count") or obj.get("count") or 1
        return [
            age_of(last, now_s) if last else UNKNOWN,
            obj.get("type", ""),
            obj.get("reason", ""),
            f"{involved.get('kind', '').lower()}/{involved.get('name', '')}",
            involved.get("fieldPath", ""),
            ", ".join(part for part in (component, host) if part),
            obj.get("message", "").strip(),
            age_of(first, now_s) if first else UNKNOWN,
            count,
            obj["metadata"]["name"],
        ]


class EventStrategy(CoreEventStrategy):
    """events.k8s.io/v1 Event: the new rules, on the stored core event."""

    info = KindInfo("events.k8s.io", "v1", "Event", "events", "event", True, short_names=("ev",), storage="events")
    go_type = "events/v1.Event"
    supported_fields = frozenset(
        (
            "metadata.name", "metadata.namespace", "reason", "reportingController", "type",
            *(f"regarding.{name}" for name in _OBJECT_FIELDS),
        )
    )  # fmt: skip
    object_prefix = "regarding"
    controller_field = "reportingController"

    def to_storage(self, obj: Json) -> Json:
        stored = {_RENAMED.get(key, key): value for key, value in obj.items()}
        for name in _CORE_ALWAYS:
            stored.setdefault(name, "")
        return stored

    def from_storage(self, obj: Json) -> Json:
        shown = {_SHOWN.get(key, key): value for key, value in obj.items()}
        for name in ("reportingController", "reportingInstance"):
            if not shown.get(name):
                shown.pop(name, None)
        return shown

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        found = _check_core(obj, self.controller_field) + _check_series(obj)
        if not obj.get("eventTime"):
            found.append(required("eventTime"))
        if obj.get("type") not in ("Normal", "Warning"):
            found.append(invalid("type", "", f"has invalid value: {obj.get('type', '')}"))
        for name, shown in (
            ("firstTimestamp", "deprecatedFirstTimestamp"),
            ("lastTimestamp", "deprecatedLastTimestamp"),
        ):
            if obj.get(name):
                found.append(invalid(shown, "", "needs to be unset"))
        if obj.get("count"):
            found.append(invalid("deprecatedCount", "", "needs to be unset"))
        if obj.get("source"):
            found.append(invalid("deprecatedSource", "", "needs to be unset"))
        return _refuse(obj, found)

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found = _check_core(obj, self.controller_field) + _check_series(obj)
        for name in _IMMUTABLE:
            stored = _RENAMED.get(name, name)
            if obj.get(stored) != old.get(stored):
                found.append(invalid(name, obj.get(stored), "field is immutable"))
        return _refuse(obj, found)


def _refuse(obj: Json, found: list[FieldError]) -> list[FieldError]:
    """The server names the internal (core) kind in the 422 of this group."""
    if found:
        raise unprocessable("Event", "", obj["metadata"].get("name", ""), found)
    return []


def _check_core(obj: Json, controller_field: str) -> list[FieldError]:
    """legacyValidateEvent; the new rules hold from the moment on that eventTime is set."""
    found: list[FieldError] = []
    namespace, involved = obj["metadata"].get("namespace", ""), obj["involvedObject"].get("namespace", "")
    if involved != namespace and (involved or namespace not in ("", "default")):
        found.append(invalid("involvedObject.namespace", involved, "does not match event.namespace"))
    if not obj.get("eventTime"):
        return found
    controller = obj.get("reportingComponent", "")
    if not controller:
        found.append(required(controller_field))
    found += check(controller_field, controller, qualified_name)
    for name in ("reportingInstance", "action", "reason"):
        value = obj.get(name, "")
        if not value:
            found.append(required(name))
        if len(value) > _MAX_TEXT:
            found.append(invalid(name, "", f"can have at most {_MAX_TEXT} characters"))
    if len(obj.get("message", "")) > _MAX_NOTE:
        found.append(invalid("message", "", f"can have at most {_MAX_NOTE} characters"))
    return found


def _check_series(obj: Json) -> list[FieldError]:
    series = obj.get("series")
    if series is None:
        return []
    found = []
    if series.get("count", 0) < 2:
        found.append(invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        found.append(required("series.lastObservedTime"))
    return found
