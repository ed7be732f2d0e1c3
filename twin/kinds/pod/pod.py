"""Pods: the strategy that ties together defaulting, admission, validation, subresources and printing.

Source: ``pkg/registry/core/pod/strategy.go``. The rules themselves are in the ``pod_*`` files.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.pod.admission import admit_pod
from twin.kinds.pod.binding import bind_pod, with_condition
from twin.kinds.pod.defaults import default_pod
from twin.kinds.pod.eviction import evict_pod
from twin.kinds.pod.resize import check_resize, prepare_resize
from twin.kinds.pod.resources import qos_class
from twin.kinds.pod.table import POD_COLUMNS, completed_row, pod_cells
from twin.kinds.pod.update import check_ephemeral_update, check_pod_status_update, check_pod_update
from twin.kinds.pod.validation import check_pod_create
from twin.kinds.pod.warnings import pod_warnings
from twin.kinds.rules.typed import STATUS_VERBS, TypedStrategy
from twin.registry.status import FieldError
from twin.registry.strategy import KindInfo, KindStrategy, RequestContext, Subresource

Json = dict[str, Any]

_GATED = {
    "status": "False",
    "type": "PodScheduled",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_FINISHED = ("Succeeded", "Failed")


class PodStrategy(TypedStrategy):
    """Core v1 Pod."""

    info = KindInfo("", "v1", "Pod", "pods", "pod", True, short_names=("po",), categories=("all",))
    go_type = "core/v1.Pod"
    supported_fields = frozenset(
        (
            "metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
            "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs",
            "status.nominatedNodeName",
        )
    )  # fmt: skip
    table_columns = POD_COLUMNS
    returns_deleted = True

    def __init__(self) -> None:
        self.subresources = (
            self.status_subresource(),
            Subresource("binding", ("create",), kind="Binding", create=bind_pod),
            Subresource("eviction", ("create",), kind="Eviction", group="policy", version="v1", create=evict_pod),
            Subresource(
                "ephemeralcontainers",
                STATUS_VERBS,
                prepare=self._prepare_ephemeral,
                validate=_check_ephemeral,
                owns_dropped=True,
            ),
            Subresource(
                "resize",
                STATUS_VERBS,
                prepare=self._prepare_resize,
                validate=_check_resize,
                owns_dropped=True,
            ),
        )

    def default(self, obj: Json) -> None:
        default_pod(obj)

    def admit(self, obj: Json, old: Json | None, ctx: RequestContext) -> None:
        admit_pod(obj, old, ctx)

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        spec = obj["spec"]
        _select_by_label_keys(spec, obj["metadata"].get("labels") or {})
        status: Json = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            status["conditions"] = with_condition([], _GATED, ctx.now)
        obj["status"] = status

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        return check_pod_create(obj)

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return check_pod_update(obj, old)

    def prepare_for_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        status, before = obj.setdefault("status", {}), old["status"]
        if not status.get("qosClass") and before.get("qosClass"):
            status["qosClass"] = before["qosClass"]
        _keep_observed_generation(status, before)
        if not status.get("hostIPs") and before.get("hostIPs"):
            status["hostIPs"] = before["hostIPs"]
        owners = old["metadata"].get("ownerReferences")
        if owners:
            obj["metadata"]["ownerReferences"] = owners
        else:
            obj["metadata"].pop("ownerReferences", None)

    def validate_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return check_pod_status_update(obj, old)

    def warnings(self, obj: Json, old: Json | None, ctx: RequestContext) -> list[str]:
        return pod_warnings(obj) if old is None else []

    def generation_changed(self, obj: Json, old: Json) -> bool:
        return bool(obj["spec"] != old["spec"])

    def grace_period_for_delete(self, obj: Json, options: Json, ctx: RequestContext) -> int | None:
        if not obj["spec"].get("nodeName") or obj["status"].get("phase") in _FINISHED:
            return 0
        asked = options.get("gracePeriodSeconds")
        period = int(obj["spec"].get("terminationGracePeriodSeconds", 0) if asked is None else asked)
        return 1 if period < 0 else period

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        spec, status = obj["spec"], obj["status"]
        ips = status.get("podIPs") or []
        return {
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.restartPolicy": spec.get("restartPolicy", ""),
            "spec.schedulerName": spec.get("schedulerName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase", ""),
            "status.podIP": ips[0].get("ip", "") if ips else status.get("podIP", ""),
            "status.podIPs": ips[0].get("ip", "") if ips else "",
            "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        }

    def table_cells(self, obj: Json, now_s: float) -> list[Any]:
        return pod_cells(obj, now_s)

    def table_row_conditions(self, obj: Json) -> list[Json]:
        return completed_row(obj)

    def _keep_metadata(self, obj: Json, old: Json) -> None:
        """ResetObjectMetaForStatus: these subresources write a part of the spec and nothing else."""
        for name in ("labels", "annotations", "finalizers", "ownerReferences"):
            obj["metadata"].pop(name, None)
            if name in old["metadata"]:
                obj["metadata"][name] = old["metadata"][name]

    def _prepare_ephemeral(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        spec = {key: value for key, value in old["spec"].items() if key != "ephemeralContainers"}
        if obj["spec"].get("ephemeralContainers"):
            spec["ephemeralContainers"] = obj["spec"]["ephemeralContainers"]
        obj["spec"], obj["status"] = spec, old["status"]
        self._keep_metadata(obj, old)

    def _prepare_resize(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        if prepare_resize(obj, old):
            obj["status"] = old["status"]
            self._keep_metadata(obj, old)


def _keep_observed_generation(status: Json, before: Json) -> None:
    """preserveOldObservedGeneration: a writer that does not know the field does not clear it."""
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        status["observedGeneration"] = before["observedGeneration"]
    known: dict[str, list[int]] = {}
    for condition in before.get("conditions") or ():
        known.setdefault(condition["type"], []).append(condition.get("observedGeneration", 0))
    for condition in status.get("conditions") or ():
        older = known.get(condition["type"])
        generation = older.pop(0) if older else 0
        if generation and not condition.get("observedGeneration"):
            condition["observedGeneration"] = generation


def _check_ephemeral(obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
    return check_ephemeral_update(obj, old)


def _check_resize(obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
    return check_resize(obj, old)


def _select_by_label_keys(spec: Json, labels: Json) -> None:
    """matchLabelKeys of affinity and spread become requirements of the selector (mutatePodAffinity and its sister)."""
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(kind) or {}
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            _merge_keys(term, labels)
        for one in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            _merge_keys(one.get("podAffinityTerm") or {}, labels)
    for constraint in spec.get("topologySpreadConstraints") or ():
        _merge_keys(constraint, labels)


def _merge_keys(holder: Json, labels: Json) -> None:
    selector = holder.get("labelSelector")
    if selector is None:
        return
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in holder.get(field) or ():
            if key in labels:
                selector["matchExpressions"] = [
                    *(selector.get("matchExpressions") or ()),
                    {"key": key, "operator": operator, "values": [labels[key]]},
                ]


class BindingStrategy(KindStrategy):
    """Core v1 Binding: POST binds, nothing is stored."""

    info = KindInfo("", "v1", "Binding", "bindings", "binding", True, verbs=("create",))
    collection_create = staticmethod(bind_pod)
