"""What an autoscaler reads beside its own objects: pods, workloads, HPAs, budgets, scales and metrics. Pure.

Structs of the few fields that it needs, as the API serves them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import field

from shared.errors import KubeUnknown, ObjectError
from shared.kube.cluster_objects import PodDisruptionBudget
from shared.kube.decoding import UNREADABLE, raw_items
from shared.kube.label_selectors import query_text
from shared.kube.objects import Json, KubeLabelSelector, ObjectMeta, PartialObject
from shared.kube.pods.convert_relations import selector_from_api
from shared.kube.resources import Resource
from shared.model.resources import parse_quantity


class ManagedFields(Json, frozen=True):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str = ""
    fields_v1: Any = field(name="fieldsV1", default=None)


class ScaledMeta(ObjectMeta, frozen=True):
    managed_fields: list[ManagedFields] | None = None


class RollingUpdate(Json, frozen=True):
    partition: int | None = None


class UpdateStrategy(Json, frozen=True):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class Ordinals(Json, frozen=True):
    start: int = 0


class ScaledSpec(Json, frozen=True):
    replicas: int | None = None
    selector: Any = None
    paused: bool = False
    update_strategy: UpdateStrategy | None = None
    ordinals: Ordinals | None = None


class ScaledStatus(Json, frozen=True):
    replicas: int = 0
    updated_replicas: int | None = None
    current_revision: str = ""
    update_revision: str = ""
    selector: str = ""


class ScaledObject(Json, frozen=True):
    """A Deployment, StatefulSet or ReplicaSet, or the Scale of anything else."""

    metadata: ScaledMeta = field(default_factory=ScaledMeta)
    spec: ScaledSpec = field(default_factory=ScaledSpec)
    status: ScaledStatus = field(default_factory=ScaledStatus)


class HpaRef(Json, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class ScaledHpaSpec(Json, frozen=True):
    scale_target_ref: HpaRef = field(default_factory=HpaRef)
    min_replicas: int | None = None
    max_replicas: int = 0


class Hpa(Json, frozen=True):
    metadata: ScaledMeta = field(default_factory=ScaledMeta)
    spec: ScaledHpaSpec = field(default_factory=ScaledHpaSpec)


DEPLOYMENTS = Resource("Deployment", "apps", "v1", "deployments", True, ScaledObject)
STATEFUL_SETS = Resource("StatefulSet", "apps", "v1", "statefulsets", True, ScaledObject)
REPLICA_SETS = Resource("ReplicaSet", "apps", "v1", "replicasets", True, ScaledObject)
OWNED_SETS = Resource("ReplicaSet", "apps", "v1", "replicasets", True, PartialObject)
HPAS = Resource("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers", True, Hpa)
BUDGETS = Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", True, PodDisruptionBudget)

WORKLOADS = {("apps/v1", one.kind): one for one in (DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS)}
"""Kinds that are read whole, so that a rollout shows; of any other the Scale alone is read."""


def selector_text(selector: Any) -> str:
    """A workload's selector as ``labelSelector`` takes it; "" where there is none, or none that can be said."""
    try:
        found = selector_from_api(msgspec.convert(selector, KubeLabelSelector | None), "spec.selector")
    except (msgspec.ValidationError, ObjectError):
        return ""
    return "" if found is None else query_text(found)


def last_writer(meta: ScaledMeta, *, but: str) -> str:
    """Who last wrote ``spec.replicas`` or an HPA's bounds, by managedFields; "" where it is ``but``, or unknown."""
    found = [
        one
        for one in meta.managed_fields or ()
        if isinstance(one.fields_v1, dict)
        and isinstance(one.fields_v1.get("f:spec"), dict)
        and {"f:replicas", "f:minReplicas", "f:maxReplicas"} & one.fields_v1["f:spec"].keys()
    ]
    last = max(found, key=lambda one: one.time, default=None)
    return "" if last is None or last.manager.startswith(but) else last.manager


def unix_s(text: str | None) -> float | None:
    """Seconds since 1970 of an RFC 3339 time; None where there is none."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


# --- metrics --------------------------------------------------------------------------------------------------------


class _MetricValue(msgspec.Struct):
    timestamp: str = ""
    value: str | int | float = ""


def decode_metric_values(body: bytes) -> list[tuple[float, float]]:
    """(value, at_s) of a MetricValueList or an ExternalMetricValueList. ``KubeUnknown``: one that cannot be read.

    A value may be negative; the reader's checks refuse it. What does not decode spoils the sum, so it spoils the list.
    """
    found = []
    for entry in raw_items(body, "list of metric values"):
        try:
            item = msgspec.json.decode(entry, type=_MetricValue)
            value = parse_quantity(str(item.value), milli=True) / 1000
        except (*UNREADABLE, ValueError, OverflowError) as error:
            raise KubeUnknown(f"a metric's value cannot be read ({error!s:.120})") from None
        at_s = unix_s(item.timestamp)
        if at_s is None:
            raise KubeUnknown("a metric's value has no timestamp")
        found.append((value, at_s))
    return found
