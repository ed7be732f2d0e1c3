"""From JSON to what one reconciliation sees: the scale, the pods, what the metrics APIs answered. Pure.

A field that cannot be used is refused by its name (``ObjectError``), since a value that is guessed decides replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shared.autoscaling.hpa import objects as api
from shared.autoscaling.hpa.convert_spec import object_ref
from shared.autoscaling.hpa.model import (
    CPU,
    NEVER_S,
    ContainerFacts,
    CustomSeries,
    ExternalSeries,
    MetricAnswers,
    PodFacts,
    PodUsage,
    ScaleSubresource,
)
from shared.autoscaling.hpa.values import duration_s, milli, milli_of, needed_seconds, seconds
from shared.errors import ObjectError
from shared.kube.objects import Container, KubePod, PodSpec
from shared.kube.pods.convert_requests import POD_LEVEL_RESOURCES, effective_requests

DEFAULT_WINDOW_S = 60.0
"""Over which a custom metric is taken to be averaged where it does not say."""


def scale_from_api(scale: api.CaseScale, field: str) -> ScaleSubresource:
    """Raises ``ObjectError`` for a number of replicas below 0."""
    for name, value in (("replicas", scale.replicas), ("statusReplicas", scale.status_replicas)):
        if value < 0:
            raise ObjectError(f"{value} is no number of replicas; give 0 or more", field=f"{field}.{name}")
    return ScaleSubresource(scale.replicas, scale.status_replicas, scale.selector, scale.error or "")


def pods_from_api(pods: Iterable[KubePod], namespace: str, field: str) -> tuple[PodFacts, ...]:
    """The pods of ``namespace``. Raises ``ObjectError``."""
    return tuple(
        pod_facts(pod, f"{field}[{index}]")
        for index, pod in enumerate(pods)
        if _here(pod.metadata.namespace, namespace)
    )


def _here(named: str | None, namespace: str) -> bool:
    return (named or namespace) == namespace


def pod_facts(pod: KubePod, field: str = "pod") -> PodFacts:
    """What of a pod the rule reads. Raises ``ObjectError``."""
    meta, status = pod.metadata, pod.status
    ready = next((one for one in status.conditions or () if one.type == "Ready"), None)
    since_s = None
    if ready is not None:
        since_s = seconds(ready.last_transition_time, f"{field}.status.conditions[Ready].lastTransitionTime")
    return PodFacts(
        name=meta.name,
        labels=meta.labels or {},
        phase=status.phase or "",
        deleting=meta.deletion_timestamp is not None,
        ready="" if ready is None else ready.status,
        ready_since_s=NEVER_S if since_s is None else since_s,
        start_s=seconds(status.start_time, f"{field}.status.startTime"),
        containers=tuple(_containers(pod.spec, f"{field}.spec")),
        pod_requests=_pod_requests(pod.spec, field),
    )


def requested(spec: PodSpec) -> dict[str, float]:
    """What a pod requests as the rule counts it, in cores and bytes; a resource that one of its containers does not
    request is left out, for there is no telling what the pod is to use. Raises ``ObjectError``."""
    own, containers = _pod_requests(spec, "pod"), tuple(_containers(spec, "pod.spec"))
    if own is not None:
        return {name: amount / 1000 for name, amount in own.items()}
    everywhere = set.intersection(*(set(one.requests) for one in containers)) if containers else set()
    return {name: sum(one.requests[name] for one in containers) / 1000 for name in sorted(everywhere)}


def _containers(spec: PodSpec, field: str) -> Iterable[ContainerFacts]:
    """Containers and sidecars; other init containers are over when the pod works."""
    for index, one in enumerate(spec.containers or ()):
        yield _container(one, f"{field}.containers[{index}]")
    for index, one in enumerate(spec.init_containers or ()):
        if one.restart_policy == "Always":
            yield _container(one, f"{field}.initContainers[{index}]")


def _container(one: Container, field: str) -> ContainerFacts:
    requests = None if one.resources is None else one.resources.requests
    return ContainerFacts(one.name, milli_of(requests, f"{field}.resources.requests"))


def _pod_requests(spec: PodSpec, field: str) -> Mapping[str, int] | None:
    """What the scheduler counts for a pod that has requests itself, overhead included; None for another pod."""
    asked = None if spec.resources is None else spec.resources.requests
    if not any(name.startswith(POD_LEVEL_RESOURCES) for name in asked or ()):
        return None
    try:
        counted = effective_requests(KubePod(spec=spec))
    except ObjectError as error:
        raise ObjectError(str(error), field=field) from error
    return {name: amount if name == CPU else amount * 1000 for name, amount in counted.items()}


def answers_from_api(metrics: api.CaseMetrics | None, namespace: str, field: str) -> MetricAnswers:
    """What the three APIs say about ``namespace``. Raises ``ObjectError``."""
    if metrics is None:
        return MetricAnswers()
    return MetricAnswers(
        resource=tuple(
            usage_from_api(one, f"{field}.resource[{index}]")
            for index, one in enumerate(metrics.resource or ())
            if _here(one.metadata.namespace, namespace)
        ),
        custom=tuple(
            custom_from_api(one, f"{field}.custom[{index}]") for index, one in enumerate(metrics.custom or ())
        ),
        external=tuple(
            external_from_api(one, f"{field}.external[{index}]") for index, one in enumerate(metrics.external or ())
        ),
        resource_error=metrics.resource_error or "",
        custom_error=metrics.custom_error or "",
        external_error=metrics.external_error or "",
    )


def usage_from_api(one: api.PodMetrics, field: str) -> PodUsage:
    """Raises ``ObjectError``."""
    return PodUsage(
        pod=one.metadata.name,
        labels=one.metadata.labels or {},
        at_s=needed_seconds(one.timestamp, f"{field}.timestamp"),
        window_s=duration_s(one.window, f"{field}.window"),
        containers=tuple(
            (container.name, milli_of(container.usage, f"{field}.containers[{index}].usage"))
            for index, container in enumerate(one.containers or ())
        ),
    )


def external_from_api(one: api.ExternalMetricValue, field: str) -> ExternalSeries:
    """Raises ``ObjectError``."""
    return ExternalSeries(one.metric_name, one.metric_labels or {}, milli(one.value, f"{field}.value"))


def custom_from_api(one: api.MetricValue, field: str) -> CustomSeries:
    """Its labels are those of its selector, which is how that API tells them. Raises ``ObjectError``."""
    selector = one.metric.selector
    return CustomSeries(
        described=object_ref(one.described_object),
        namespace=one.described_object.namespace or "",
        name=one.metric.name,
        labels=(selector.match_labels if selector is not None else None) or {},
        value=milli(one.value, f"{field}.value"),
        at_s=seconds(one.timestamp, f"{field}.timestamp") or 0.0,
        window_s=DEFAULT_WINDOW_S if one.window_seconds is None else float(one.window_seconds),
    )
