"""RuntimeClass, ComponentStatus: small kinds with one or two rules. Source: ``pkg/apis/node/validation``."""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.names import check, dns_label
from twin.kinds.rules.printing import printed
from twin.kinds.rules.resources import check_amount
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, invalid
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
