"""Nodes: the not-ready taint of a new node, what an update may not change, one line of ``kubectl get nodes``.

Sources: ``pkg/registry/core/node/strategy.go``, ``pkg/apis/core/validation`` (ValidateNode, ValidateNodeUpdate),
``plugin/pkg/admission/nodetaint``, ``pkg/printers/internalversion`` (printNode). The API server never looks at
conditions to taint a node: that is a controller's work.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from twin.kinds.pod.scheduling_rules import TAINT_EFFECTS
from twin.kinds.rules.names import check, label_value, qualified_name
from twin.kinds.rules.printing import NONE, UNKNOWN, columns, object_age
from twin.kinds.rules.resources import check_amount
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, duplicate, forbidden_field, invalid, not_supported, required
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

_NOT_READY = "node.kubernetes.io/not-ready"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


class NodeStrategy(TypedStrategy):
    """Core v1 Node."""

    info = KindInfo("", "v1", "Node", "nodes", "node", False, short_names=("no",))
    go_type = "core/v1.Node"
    has_generation = False
    resets_status = False
    created_with_status = True  # a kubelet registers its node with it
    supported_fields = frozenset(("metadata.name", "spec.unschedulable"))
    table_columns = columns(
        "Name", "Status", "Roles", "Age", "Version",
        wide=("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
    )  # fmt: skip

    def __init__(self) -> None:
        self.subresources = (self.status_subresource(),)

    def default(self, obj: Json) -> None:
        spec, status = obj["spec"], obj["status"]
        if spec.get("podCIDR") and not spec.get("podCIDRs"):
            spec["podCIDRs"] = [spec["podCIDR"]]
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def admit(self, obj: Json, old: Json | None, ctx: RequestContext) -> None:
        """TaintNodesByCondition: nothing is scheduled before the kubelet's first word."""
        if old is not None or ctx.subresource:
            return
        taints = obj["spec"].get("taints") or []
        if not any(taint["key"] == _NOT_READY and taint["effect"] == "NoSchedule" for taint in taints):
            obj["spec"]["taints"] = [*taints, {"key": _NOT_READY, "effect": "NoSchedule"}]

    def prepare_for_update(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        obj["status"] = old["status"]

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        return _check_taints(spec.get("taints") or []) + _check_amounts(obj["status"]) + _check_ranges(spec)

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        spec, before = obj["spec"], old["spec"]
        found = _check_amounts(obj["status"]) + _check_addresses(obj["status"])
        if before.get("podCIDRs") and spec.get("podCIDRs") != before["podCIDRs"]:
            text = 'node updates may not change podCIDR except from "" to valid'
            found.append(forbidden_field("spec.podCIDRs", text))
        if before.get("providerID") and spec.get("providerID") != before["providerID"]:
            text = 'node updates may not change providerID except from "" to valid'
            found.append(forbidden_field("spec.providerID", text))
        found += _check_taints(spec.get("taints") or [])
        if spec.get("externalID") != before.get("externalID"):
            found.append(forbidden_field("spec.externalID", "may not be updated"))
        return found

    def validate_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return self.validate_update(obj, old, ctx)

    def warnings(self, obj: Json, old: Json | None, ctx: RequestContext) -> list[str]:
        found = []
        spec = obj["spec"]
        if spec.get("configSource") is not None:
            found.append("spec.configSource: the feature is no longer supported")
        if spec.get("externalID"):
            found.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
        return found

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        return {"spec.unschedulable": "true" if obj["spec"].get("unschedulable") else "false"}

    def table_cells(self, obj: Json, now_s: float) -> list[Any]:
        status = obj["status"]
        info = status["nodeInfo"]
        addresses = {one["type"]: one.get("address", "") for one in reversed(status.get("addresses") or ())}
        kernel = info.get("kernelVersion") or UNKNOWN
        if kernel != UNKNOWN and info.get("architecture"):
            kernel = f"{kernel} ({info['architecture']})"
        return [
            obj["metadata"]["name"],
            _status_text(obj),
            _roles(obj["metadata"].get("labels") or {}),
            object_age(obj, now_s),
            info.get("kubeletVersion", ""),
            addresses.get("InternalIP") or NONE,
            addresses.get("ExternalIP") or NONE,
            info.get("osImage") or UNKNOWN,
            kernel,
            info.get("containerRuntimeVersion") or UNKNOWN,
        ]


def _check_taints(taints: list[Json]) -> list[FieldError]:
    """validateNodeTaints; the real server reports them under ``metadata``, so clients see that."""
    found: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        here, key, effect = f"metadata.taints[{index}]", taint.get("key", ""), taint.get("effect", "")
        found += check(f"{here}.key", key, qualified_name)
        found += check(f"{here}.value", taint.get("value", ""), label_value)
        if not effect:
            found.append(required(f"{here}.effect"))
        elif effect not in TAINT_EFFECTS:
            found.append(not_supported(f"{here}.effect", effect, TAINT_EFFECTS))
        if (key, effect) in seen:
            value = {"Key": key, "Value": taint.get("value", ""), "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            repeated = duplicate(here, value)
            text = f"{repeated.message}: taints must be unique by key and effect pair"
            found.append(FieldError(repeated.reason, here, text))
        seen.add((key, effect))
    return found


def _check_amounts(status: Json) -> list[FieldError]:
    found: list[FieldError] = []
    for part in ("capacity", "allocatable"):
        for name, amount in (status.get(part) or {}).items():
            found += check_amount(name, amount, f"status.{part}.{name}")
    return found


def _check_addresses(status: Json) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(status.get("addresses") or ()):
        key = (address.get("type", ""), address.get("address", ""))
        if key in seen:
            value = {"Type": key[0], "Address": key[1]}
            found.append(duplicate(f"status.addresses[{index}]", value))
        seen.add(key)
    return found


def _check_ranges(spec: Json) -> list[FieldError]:
    """podCIDRs: networks, one per address family."""
    ranges = spec.get("podCIDRs") or []
    found: list[FieldError] = []
    families: list[int] = []
    for index, text in enumerate(ranges):
        try:
            families.append(ipaddress.ip_network(text, strict=False).version)
        except ValueError:
            found.append(invalid(f"spec.podCIDRs[{index}]", ranges, "must be valid CIDR"))
    if len(ranges) > 1 and (len(ranges) > 2 or len(set(families)) < len(families)):
        found.append(invalid("spec.podCIDRs", ranges, "may specify no more than one CIDR for each IP family"))
    return found


def _status_text(obj: Json) -> str:
    text = "Unknown"
    for condition in obj["status"].get("conditions") or ():
        if condition["type"] == "Ready":
            text = "Ready" if condition["status"] == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if obj["spec"].get("unschedulable") else text


def _roles(labels: Json) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)} - {""}
    if labels.get(_ROLE_LABEL):
        roles.add(labels[_ROLE_LABEL])
    return ",".join(sorted(roles)) or NONE
