"""Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers, ControllerRevisions.

Sources: ``pkg/apis/apps/v1/defaults.go``, ``pkg/apis/apps/validation``, ``pkg/apis/core`` (ReplicationController),
``pkg/printers/internalversion``. What they do to pods is the work of controllers.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.names import selector_matches
from twin.kinds.rules.printing import NONE, printed
from twin.kinds.rules.typed import TypedStrategy
from twin.kinds.storage.volume_rules import default_claim
from twin.kinds.workload.scale import scale_subresource
from twin.kinds.workload.templates import (
    CONTAINER_CELLS,
    WorkloadStrategy,
    check_counts,
    check_rolling_update,
    ready_text,
    selector_cell,
)
from twin.registry.status import FieldError, forbidden_field, invalid, not_supported, required
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

_STATEFUL_MAY_CHANGE = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip
_STATEFUL_TEXT = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


class DeploymentStrategy(WorkloadStrategy):
    """apps/v1 Deployment."""

    info = KindInfo(
        "apps", "v1", "Deployment", "deployments", "deployment", True, short_names=("deploy",), categories=("all",)
    )
    subresources = (scale_subresource(info),)
    go_type = "apps/v1.Deployment"
    table = printed(
        "Name", ("Ready", ready_text), "Up-to-date=status.updatedReplicas|0", "Available=status.availableReplicas|0",
        "Age", wide=CONTAINER_CELLS,
    )  # fmt: skip

    def default(self, obj: Json) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found = check_counts(spec, "spec", "replicas")
        found += self.check_selector(spec) + self.check_workload_template(spec)
        strategy = spec["strategy"]
        kind, rolling = strategy["type"], strategy.get("rollingUpdate")
        if kind == "Recreate":
            if rolling is not None:
                text = "may not be specified when strategy `type` is 'Recreate'"
                found.append(forbidden_field("spec.strategy.rollingUpdate", text))
        elif kind == "RollingUpdate":
            found += check_rolling_update(rolling, "spec.strategy.rollingUpdate")
        else:
            found.append(not_supported("spec.strategy.type", kind, ("Recreate", "RollingUpdate")))
        found += check_counts(spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
        deadline = spec.get("progressDeadlineSeconds")
        if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
            found.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return self.validate(obj, ctx) + self.check_selector_kept(obj, old)

    def validate_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return _check_status_counts(obj["status"])


def _check_status_counts(status: Json) -> list[FieldError]:
    found = check_counts(
        status, "status", "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
        "unavailableReplicas",
    )  # fmt: skip
    total = status.get("replicas", 0)
    for name in ("updatedReplicas", "readyReplicas", "availableReplicas"):
        if status.get(name, 0) > total:
            found.append(invalid(f"status.{name}", status.get(name, 0), "cannot be greater than status.replicas"))
    if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        text = "cannot be greater than readyReplicas"
        found.append(invalid("status.availableReplicas", status.get("availableReplicas", 0), text))
    return found


class ReplicaSetStrategy(WorkloadStrategy):
    """apps/v1 ReplicaSet."""

    info = KindInfo(
        "apps", "v1", "ReplicaSet", "replicasets", "replicaset", True, short_names=("rs",), categories=("all",)
    )
    subresources = (scale_subresource(info),)
    go_type = "apps/v1.ReplicaSet"
    word = "replicaset"
    supported_fields = frozenset(("metadata.name", "metadata.namespace", "status.replicas"))
    table = printed(
        "Name", "Desired:integer=spec.replicas", "Current:integer=status.replicas",
        "Ready:integer=status.readyReplicas", "Age", wide=CONTAINER_CELLS,
    )  # fmt: skip

    def default(self, obj: Json) -> None:
        super().default(obj)
        obj["spec"].setdefault("replicas", 1)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found = check_counts(spec, "spec", "replicas", "minReadySeconds")
        return found + self.check_selector(spec) + self.check_workload_template(spec)

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return self.validate(obj, ctx) + self.check_selector_kept(obj, old)

    def selectable_fields(self, obj: Json) -> dict[str, str]:
        return {"status.replicas": str(obj["status"].get("replicas", 0))}


class ReplicationControllerStrategy(ReplicaSetStrategy):
    """Core v1 ReplicationController: its selector is a plain map, taken from the template when absent."""

    info = KindInfo(
        "", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller", True,
        short_names=("rc",), categories=("all",),
    )  # fmt: skip
    go_type = "core/v1.ReplicationController"
    default_propagation = "Orphan"

    def default(self, obj: Json) -> None:
        super().default(obj)
        labels = ((obj["spec"].get("template") or {}).get("metadata") or {}).get("labels")
        if labels:
            if not obj["spec"].get("selector"):
                obj["spec"]["selector"] = dict(labels)
            if not obj["metadata"].get("labels"):
                obj["metadata"]["labels"] = dict(labels)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found = check_counts(spec, "spec", "minReadySeconds")
        selector, template = spec.get("selector"), spec.get("template")
        if not selector:
            found.append(required("spec.selector"))
        found += check_counts(spec, "spec", "replicas")
        if template is None:
            return [*found, required("spec.template")]
        labels = (template.get("metadata") or {}).get("labels") or {}
        if selector and not selector_matches({"matchLabels": selector}, labels):
            text = "`selector` does not match template `labels`"
            found.append(invalid("spec.template.metadata.labels", labels, text))
        return found + self.check_workload_template({"template": template})

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return self.validate(obj, ctx)


class StatefulSetStrategy(WorkloadStrategy):
    """apps/v1 StatefulSet."""

    info = KindInfo(
        "apps", "v1", "StatefulSet", "statefulsets", "statefulset", True, short_names=("sts",), categories=("all",)
    )
    subresources = (scale_subresource(info),)
    go_type = "apps/v1.StatefulSet"
    word = "statefulset"
    checks_pod_spec = False
    """As on the real server: its mounts may name claim templates, which the pod's own validation does not know."""
    table = printed("Name", ("Ready", ready_text), "Age", wide=CONTAINER_CELLS[:2])

    def default(self, obj: Json) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        for claim in spec.get("volumeClaimTemplates") or ():
            claim.setdefault("kind", "PersistentVolumeClaim")
            claim.setdefault("apiVersion", "v1")
            default_claim(claim)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found: list[FieldError] = []
        policies = ("OrderedReady", "Parallel")
        if spec["podManagementPolicy"] not in policies:
            text = f"must be '{policies[0]}' or '{policies[1]}'"
            found.append(invalid("spec.podManagementPolicy", spec["podManagementPolicy"], text))
        kind = spec["updateStrategy"]["type"]
        if kind not in ("RollingUpdate", "OnDelete"):
            text = "must be 'RollingUpdate' or 'OnDelete'"
            found.append(invalid("spec.updateStrategy", spec["updateStrategy"], text))
        elif kind == "OnDelete" and spec["updateStrategy"].get("rollingUpdate") is not None:
            text = "only allowed for updateStrategy 'RollingUpdate'"
            found.append(invalid("spec.updateStrategy.rollingUpdate", spec["updateStrategy"]["rollingUpdate"], text))
        partition = (spec["updateStrategy"].get("rollingUpdate") or {}).get("partition")
        found += check_counts({"partition": partition}, "spec.updateStrategy.rollingUpdate", "partition")
        found += check_counts(spec, "spec", "replicas", "minReadySeconds")
        return found + self.check_selector(spec) + self.check_workload_template(spec)

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found = self.validate(obj, ctx)
        new, before = obj["spec"], old["spec"]
        changed = {name for name in new.keys() | before.keys() if new.get(name) != before.get(name)}
        if changed - set(_STATEFUL_MAY_CHANGE):
            found.append(forbidden_field("spec", _STATEFUL_TEXT))
        return found


class DaemonSetStrategy(WorkloadStrategy):
    """apps/v1 DaemonSet."""

    info = KindInfo(
        "apps", "v1", "DaemonSet", "daemonsets", "daemonset", True, short_names=("ds",), categories=("all",)
    )
    go_type = "apps/v1.DaemonSet"
    names_pods = False
    word = "daemonset"
    table = printed(
        "Name", "Desired:integer=status.desiredNumberScheduled", "Current:integer=status.currentNumberScheduled",
        "Ready:integer=status.numberReady", "Up-to-date:integer=status.updatedNumberScheduled",
        "Available:integer=status.numberAvailable",
        ("Node Selector", lambda obj: selector_cell(obj["spec"]["template"].get("spec", {}).get("nodeSelector"))),
        "Age", wide=CONTAINER_CELLS,
    )  # fmt: skip

    def default(self, obj: Json) -> None:
        super().default(obj)
        spec = obj["spec"]
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found = self.check_selector(spec) + self.check_workload_template(spec)
        found += check_counts(spec, "spec", "minReadySeconds", "revisionHistoryLimit")
        kind = spec["updateStrategy"]["type"]
        if kind not in ("RollingUpdate", "OnDelete"):
            found.append(not_supported("spec.updateStrategy", kind, ("RollingUpdate", "OnDelete")))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return self.validate(obj, ctx) + self.check_selector_kept(obj, old)


def _owner_text(obj: Json) -> str:
    owner = next((one for one in obj["metadata"].get("ownerReferences") or () if one.get("controller")), None)
    return f"{owner['kind'].lower()}.{owner['apiVersion'].partition('/')[0]}/{owner['name']}" if owner else NONE


class ControllerRevisionStrategy(TypedStrategy):
    """apps/v1 ControllerRevision: its data never changes."""

    info = KindInfo("apps", "v1", "ControllerRevision", "controllerrevisions", "controllerrevision", True)
    go_type = "apps/v1.ControllerRevision"
    has_generation = False
    resets_status = False
    table = printed("Name", ("Controller", _owner_text), "Revision=revision|0", "Age")

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        found = check_counts({"revision": obj.get("revision")}, "", "revision")
        if obj.get("data") is None:
            found.append(required("data", "data is mandatory"))
        return found

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        found = self.validate(obj, ctx)
        if obj.get("data") != old.get("data"):
            found.append(invalid("data", obj.get("data"), "field is immutable"))
        return found
