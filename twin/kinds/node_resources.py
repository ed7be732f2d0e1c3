"""RuntimeClass, ResourceClaim, ComponentStatus: small kinds with one or two rules.

Sources: ``pkg/apis/node/validation``, ``pkg/apis/resource``.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.claim_status import validate_claim_status
from twin.kinds.rules.names import check, dns_label
from twin.kinds.rules.printing import printed
from twin.kinds.rules.resources import check_amount
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, invalid, required
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]


class RuntimeClassStrategy(TypedStrategy):
    """node.k8s.io/v1 RuntimeClass."""

    info = KindInfo("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass", False)
    go_type = "node/v1.RuntimeClass"
    allow_create_on_update = True
    allow_unconditional_update = False
    has_generation = False
    resets_status = False
    table = printed("Name", "Handler=handler", "Age")

    def default(self, obj: Json) -> None:
        for toleration in (obj.get("scheduling") or {}).get("tolerations") or ():
            toleration.setdefault("operator", "Equal")

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        found = check("handler", obj.get("handler", ""), dns_label)
        for name, amount in ((obj.get("overhead") or {}).get("podFixed") or {}).items():
            found += check_amount(name, amount, f"overhead.podFixed[{name}]")
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found = self.validate(obj, ctx)
        if obj.get("handler") != old.get("handler"):
            found.append(invalid("handler", obj.get("handler", ""), "field is immutable"))
        return found


def _claim_state(obj: Json) -> str:
    parts = ["deleted"] if obj["metadata"].get("deletionTimestamp") else []
    parts += ["allocated"] if obj["status"].get("allocation") else []
    parts += ["reserved"] if obj["status"].get("reservedFor") else []
    return ",".join(parts) or "pending"


class ResourceClaimStrategy(TypedStrategy):
    """resource.k8s.io/v1 ResourceClaim: its spec never changes, a scheduler writes its status."""

    info = KindInfo("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", "resourceclaim", True)
    go_type = "resource/v1.ResourceClaim"
    has_generation = False
    table = printed("Name", ("State", _claim_state), "Age")

    def default(self, obj: Json) -> None:
        for request in obj["spec"]["devices"].get("requests") or ():
            for one in (request.get("exactly"), *(request.get("firstAvailable") or ())):
                if one is not None:
                    one.setdefault("allocationMode", "ExactCount")
                    if one["allocationMode"] == "ExactCount":
                        one.setdefault("count", 1)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        found: list[FieldError] = []
        for index, request in enumerate(obj["spec"]["devices"].get("requests") or ()):
            here = f"spec.devices.requests[{index}]"
            found += check(f"{here}.name", request.get("name", ""), dns_label)
            exactly = request.get("exactly")
            if exactly is not None and not exactly.get("deviceClassName"):
                found.append(required(f"{here}.exactly.deviceClassName"))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        if obj["spec"] != old["spec"]:
            return [invalid("spec", obj["spec"], "field is immutable")]
        return []

    def validate_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return validate_claim_status(obj, old)


class ComponentStatusStrategy(TypedStrategy):
    """Core v1 ComponentStatus: deprecated, read-only, and here always empty."""

    deprecation = "v1 ComponentStatus is deprecated in v1.19+"

    info = KindInfo(
        "", "v1", "ComponentStatus", "componentstatuses", "componentstatus", False, short_names=("cs",),
        verbs=("get", "list"),
    )  # fmt: skip
    go_type = "core/v1.ComponentStatus"
    has_generation = False
    resets_status = False
