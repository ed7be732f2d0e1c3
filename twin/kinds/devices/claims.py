"""DeviceClass, ResourceClaim and ResourceClaimTemplate: what is asked for, and by which name a kind of device goes.

Specs of claims and templates never change. Source: ``pkg/apis/resource/validation``, ``pkg/registry/resource``.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.devices.access import check_writer
from twin.kinds.devices.claim_status import keep_device_status, validate_claim_status
from twin.kinds.devices.names import check_each
from twin.kinds.devices.requests import (
    MOST_CONFIG,
    check_admin_access,
    check_admin_namespace,
    check_claim_spec,
    check_config,
    check_selectors,
    default_requests,
)
from twin.kinds.devices.taints import default_tolerations
from twin.kinds.rules.names import check_annotations, check_labels
from twin.kinds.rules.printing import printed
from twin.kinds.rules.resources import is_extended
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, invalid
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

GROUP = "resource.k8s.io"
_IMMUTABLE = "field is immutable"


class DeviceClassStrategy(TypedStrategy):
    """resource.k8s.io/v1 DeviceClass. Selectors and configuration that stay as they are are not judged again."""

    info = KindInfo(GROUP, "v1", "DeviceClass", "deviceclasses", "deviceclass", False)
    go_type = "resource/v1.DeviceClass"
    resets_status = False
    table = printed("Name", "Age")

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        return _check_class(obj["spec"], {})

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return _check_class(obj["spec"], old["spec"])


def _check_class(spec: Json, old: Json) -> list[FieldError]:
    found: list[FieldError] = []
    if not old or spec.get("selectors") != old.get("selectors"):
        found += check_selectors(spec.get("selectors"), "spec.selectors")
    stored = bool(old) and spec.get("config") == old.get("config")
    found += check_each(
        spec.get("config") or (), MOST_CONFIG, lambda one, where: check_config(one, where, stored=stored), "spec.config"
    )
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended(name):
        found.append(invalid("spec.extendedResourceName", name, "must be a valid extended resource name"))
    return found


class ResourceClaimTemplateStrategy(TypedStrategy):
    """resource.k8s.io/v1 ResourceClaimTemplate."""

    info = KindInfo(GROUP, "v1", "ResourceClaimTemplate", "resourceclaimtemplates", "resourceclaimtemplate", True)
    go_type = "resource/v1.ResourceClaimTemplate"
    has_generation = False
    resets_status = False
    table = printed("Name", "Age")

    def default(self, obj: Json) -> None:
        default_requests(obj["spec"]["spec"])

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        requests = obj["spec"]["spec"]["devices"].get("requests") or []
        return check_admin_access(requests, ctx.namespace, ctx.reader) + _check_template(obj)

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found = _check_template(obj)
        if obj["spec"] != old["spec"]:
            found.append(invalid("spec", obj["spec"], _IMMUTABLE))
        return found


def _check_template(obj: Json) -> list[FieldError]:
    meta = obj["spec"].get("metadata") or {}
    found = check_labels(meta.get("labels"), "spec.metadata.labels")
    found += check_annotations(meta.get("annotations"), "spec.metadata.annotations")
    return found + check_claim_spec(obj["spec"]["spec"], "spec.spec")


def _claim_state(obj: Json) -> str:
    parts = ["deleted"] if obj["metadata"].get("deletionTimestamp") else []
    parts += ["allocated"] if obj["status"].get("allocation") else []
    parts += ["reserved"] if obj["status"].get("reservedFor") else []
    return ",".join(parts) or "pending"


class ResourceClaimStrategy(TypedStrategy):
    """resource.k8s.io/v1 ResourceClaim: a scheduler writes its status."""

    info = KindInfo(GROUP, "v1", "ResourceClaim", "resourceclaims", "resourceclaim", True)
    go_type = "resource/v1.ResourceClaim"
    has_generation = False
    table = printed("Name", ("State", _claim_state), "Age")

    def default(self, obj: Json) -> None:
        default_requests(obj["spec"])
        allocation = (obj.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            default_tolerations(result.get("tolerations"))

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        requests = obj["spec"]["devices"].get("requests") or []
        return check_admin_access(requests, ctx.namespace, ctx.reader) + check_claim_spec(obj["spec"], "spec")

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return [invalid("spec", obj["spec"], _IMMUTABLE)] if obj["spec"] != old["spec"] else []

    def prepare_for_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        keep_device_status(obj, old)

    def validate_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return _check_admin_results(obj, old, ctx) + check_writer(obj, old, ctx) + validate_claim_status(obj, old)


def _check_admin_results(obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
    if _admin_result(old) is not None or (index := _admin_result(obj)) is None:
        return []
    where = f"status.allocation.devices.results[{index}].adminAccess"
    return check_admin_namespace(where, ctx.namespace, ctx.reader)


def _admin_result(obj: Json) -> int | None:
    allocation = (obj.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return next((index for index, one in enumerate(results) if one.get("adminAccess")), None)
