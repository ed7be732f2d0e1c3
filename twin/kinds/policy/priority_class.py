"""PriorityClasses: named pod priorities, two of them the system's own.

Source: ``pkg/registry/scheduling/priorityclass``, ``pkg/apis/scheduling`` (validation, helpers.go),
``plugin/pkg/admission/priority`` (one global default, no delete of the system's).
"""

from __future__ import annotations

from typing import Any

from twin.kinds.pod.validation import PREEMPTION_POLICIES
from twin.kinds.rules.printing import printed
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, forbidden, forbidden_field, invalid, not_supported, required
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

HIGHEST_USER_VALUE = 1_000_000_000
_RESOURCE = "priorityclasses.scheduling.k8s.io"
_RESERVED = "system-"
SYSTEM_CLASSES: tuple[Json, ...] = (
    {
        "metadata": {"name": "system-node-critical"},
        "value": 2 * HIGHEST_USER_VALUE + 1000,
        "description": "Used for system critical pods that must not be moved from their current node.",
        "preemptionPolicy": "PreemptLowerPriority",
    },
    {
        "metadata": {"name": "system-cluster-critical"},
        "value": 2 * HIGHEST_USER_VALUE,
        "description": (
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
        ),
        "preemptionPolicy": "PreemptLowerPriority",
    },
)
"""What the server creates at its start."""


class PriorityClassStrategy(TypedStrategy):
    """scheduling.k8s.io/v1 PriorityClass."""

    info = KindInfo(
        "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "priorityclass", False, short_names=("pc",)
    )
    go_type = "scheduling/v1.PriorityClass"
    resets_status = False
    table = printed(
        "Name",
        "Value:integer=value",
        "Global-Default:boolean=globalDefault",
        "Age",
        "PreemptionPolicy=preemptionPolicy",
    )

    def default(self, obj: Json) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def admit(self, obj: Json, old: Json | None, ctx: RequestContext) -> None:
        """One global default at most."""
        if not obj.get("globalDefault") or (old or {}).get("globalDefault"):
            return
        name = obj["metadata"].get("name", "")
        for one in ctx.reader.list(_RESOURCE):
            other = one["metadata"]["name"]
            if one.get("globalDefault") and other != name:
                text = f"PriorityClass {other} is already marked as default. Only one default can exist"
                raise forbidden(self.info.plural, self.info.group, name, text)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        name, value = obj["metadata"].get("name", ""), obj["value"]
        found: list[FieldError] = []
        if name.startswith(_RESERVED):
            problem = _system_problem(obj)
            if problem:
                text = f"priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
                found.append(forbidden_field("metadata.name", text))
        elif value > HIGHEST_USER_VALUE:
            text = f"maximum allowed value of a user defined priority is {HIGHEST_USER_VALUE}"
            found.append(forbidden_field("value", text))
        policy = obj.get("preemptionPolicy")
        if not policy:
            found.append(required("preemptionPolicy"))
        elif policy not in PREEMPTION_POLICIES:
            found.append(not_supported("preemptionPolicy", policy, PREEMPTION_POLICIES))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found: list[FieldError] = []
        if obj["value"] != old["value"]:
            found.append(forbidden_field("value", "may not be changed in an update."))
        if obj.get("preemptionPolicy") != old.get("preemptionPolicy"):
            found.append(invalid("preemptionPolicy", obj.get("preemptionPolicy"), "field is immutable"))
        return found

    def generation_changed(self, obj: Json, old: Json) -> bool:
        return False

    def admit_delete(self, obj: Json, ctx: RequestContext) -> None:
        name = obj["metadata"]["name"]
        if any(one["metadata"]["name"] == name for one in SYSTEM_CLASSES):
            text = "this is a system priority class and cannot be deleted"
            raise forbidden(self.info.plural, self.info.group, name, text)


def _system_problem(obj: Json) -> str:
    """IsKnownSystemPriorityClass: why this is not one of the system's classes, empty if it is."""
    name = obj["metadata"]["name"]
    for known in SYSTEM_CLASSES:
        if known["metadata"]["name"] != name:
            continue
        if known["value"] != obj["value"]:
            return f"value of {name} PriorityClass must be {known['value']}"
        if obj.get("globalDefault"):
            return f"globalDefault of {name} PriorityClass must be false"
        return ""
    return f"{name} is not a known system priority class"
