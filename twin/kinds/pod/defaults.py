"""What the API server fills in to a pod, and to the pod template of a workload.

Source: ``pkg/apis/core/v1/defaults.go`` and its generated callers. Pods get a little more than templates: requests
from limits, ``enableServiceLinks``, pod-level requests. It does not validate, and leaves admission's values alone.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.pod.resources import aggregate, is_pod_level
from twin.kinds.rules.quantity import format_nanos

Json = dict[str, Any]

_LIFECYCLE_HOOKS = ("postStart", "preStop")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
DEFAULT_MODE = 0o644


def default_pod(obj: Json) -> None:
    """SetObjectDefaults_Pod."""
    spec = obj["spec"]
    default_pod_spec(spec)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            resources = container["resources"]
            limits = resources.get("limits")
            if limits:
                requests = resources.setdefault("requests", {})
                for name, amount in limits.items():
                    requests.setdefault(name, amount)
    spec.setdefault("enableServiceLinks", True)
    if spec.get("resources"):
        _default_pod_level(spec)
    status = obj.get("status")
    if status and status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]


def _default_pod_level(spec: Json) -> None:
    """defaultPodRequests: what containers request together, else the pod's limit."""
    resources = spec["resources"]
    totals = aggregate(spec, "requests")
    requests = dict(resources.get("requests") or {})
    for name, amount in totals.items():
        if name not in requests and is_pod_level(name):
            requests[name] = format_nanos(amount, "0" if name == "cpu" else "1Ki")
    for name, text in (resources.get("limits") or {}).items():
        if name not in requests and is_pod_level(name):
            requests[name] = text
    if requests:
        resources["requests"] = requests


def default_pod_spec(spec: Json) -> None:
    """SetObjectDefaults of a PodSpec: shared by pods and templates."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    host_network = spec.get("hostNetwork")
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            default_container(container)
            if host_network:
                for port in container.get("ports") or ():
                    port.setdefault("hostPort", port["containerPort"])
    for container in spec.get("ephemeralContainers") or ():
        default_container(container)


def default_container(container: Json) -> None:
    """SetDefaults_Container with ports, probes, hooks and environment."""
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if source:
            _default_field_ref(source)
            if "fileKeyRef" in source:
                source["fileKeyRef"].setdefault("optional", False)
    for name in _PROBES:
        if name in container:
            _default_probe(container[name])
    lifecycle = container.get("lifecycle")
    if lifecycle:
        for name in _LIFECYCLE_HOOKS:
            if name in lifecycle:
                _default_http_get(lifecycle[name])


def pull_policy(image: str) -> str:
    """Always for ``latest`` or no tag at all, else IfNotPresent."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_probe(probe: Json) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    _default_http_get(probe)
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _default_http_get(handler: Json) -> None:
    http = handler.get("httpGet")
    if http:
        http.setdefault("path", "/")
        http.setdefault("scheme", "HTTP")


def _default_field_ref(holder: Json) -> None:
    if "fieldRef" in holder:
        holder["fieldRef"].setdefault("apiVersion", "v1")


def _default_volume(volume: Json) -> None:
    if len(volume) == 1 and "name" in volume:
        volume["emptyDir"] = {}
        return
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        if name in volume:
            volume[name].setdefault("defaultMode", DEFAULT_MODE)
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _default_field_ref(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_field_ref(item)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if "ephemeral" in volume:
        template = volume["ephemeral"].get("volumeClaimTemplate")
        if template:
            template["spec"].setdefault("volumeMode", "Filesystem")
    if "image" in volume:
        volume["image"].setdefault("pullPolicy", pull_policy(volume["image"].get("reference", "")))
    default_volume_source(volume)


def default_volume_source(volume: Json) -> None:
    """Defaults of sources that pods and PersistentVolumes share."""
    if "iscsi" in volume:
        volume["iscsi"].setdefault("iscsiInterface", "default")
    if "rbd" in volume:
        for name, value in (("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")):
            volume["rbd"].setdefault(name, value)
    if "azureDisk" in volume:
        for name, plain in (("cachingMode", "ReadWrite"), ("fsType", "ext4"), ("readOnly", False), ("kind", "Shared")):
            volume["azureDisk"].setdefault(name, plain)
    if "scaleIO" in volume:
        volume["scaleIO"].setdefault("storageMode", "ThinProvisioned")
        volume["scaleIO"].setdefault("fsType", "xfs")
