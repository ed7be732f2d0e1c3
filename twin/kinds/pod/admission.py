"""The admission plugins of pods: LimitRanger, Priority, DefaultTolerationSeconds, RuntimeClass, ResourceQuota,
PodTopologyLabels.

Sources: ``plugin/pkg/admission/{limitranger,priority,defaulttolerationseconds,runtimeclass,podtopologylabels}``. Each
takes the pod and the cluster's objects through the context's reader. It does not validate what a pod may be in
itself.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.pod.binding import topology_labels
from twin.kinds.policy.limit_ranges import admit_limits
from twin.kinds.policy.quota import admit_quota
from twin.registry.status import ApiError, forbidden
from twin.registry.strategy import RequestContext

Json = dict[str, Any]

_PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
_RUNTIME_CLASSES = "runtimeclasses.node.k8s.io"
_DEFAULT_TOLERATION_S = 300
_DEFAULT_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def admit_pod(obj: Json, old: Json | None, ctx: RequestContext) -> None:
    """The plugins in the real order."""
    if ctx.subresource:
        return
    spec = obj["spec"]
    if old is None:
        admit_limits(obj, ctx)
        _admit_priority(obj, spec, ctx)
        _add_default_tolerations(spec)
        _admit_runtime_class(obj, spec, ctx)
        admit_quota(obj, ctx)
        _admit_topology_labels(obj, spec, ctx)
        return
    for name in ("priority", "preemptionPolicy"):
        if name not in spec and name in old["spec"]:
            spec[name] = old["spec"][name]
    _add_default_tolerations(spec)


def _admit_topology_labels(obj: Json, spec: Json, ctx: RequestContext) -> None:
    """A pod that is created on a node is told where that is."""
    labels = topology_labels(ctx, spec["nodeName"]) if spec.get("nodeName") else {}
    if labels:
        obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **labels}


def pod_forbidden(obj: Json, message: str) -> ApiError:
    """403 ``pods "x" is forbidden: message``."""
    meta = obj["metadata"]
    return forbidden("pods", "", meta.get("name") or meta.get("generateName") or "", message)


def _admit_priority(obj: Json, spec: Json, ctx: RequestContext) -> None:
    name = spec.get("priorityClassName", "")
    chosen: Json | None
    if name:
        chosen = ctx.reader.get(_PRIORITY_CLASSES, "", name)
        if chosen is None:
            raise pod_forbidden(obj, f"no PriorityClass with name {name} was found")
    else:
        chosen = _default_class(ctx)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    value: int = chosen["value"] if chosen else 0
    policy: str = (chosen or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    given = spec.get("priority")
    if given is not None and given != value:
        raise pod_forbidden(
            obj,
            f"the integer value of priority ({given}) must not be provided in pod spec; priority admission controller "
            f"computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    wanted = spec.get("preemptionPolicy")
    if wanted is not None and wanted != policy:
        raise pod_forbidden(
            obj,
            f"the string value of PreemptionPolicy ({wanted}) must not be provided in pod spec; priority admission "
            f"controller computed {policy} from the given PriorityClass name",
        )
    spec["preemptionPolicy"] = policy


def _default_class(ctx: RequestContext) -> Json | None:
    """The global default; of several the one with the lowest value."""
    defaults = [one for one in ctx.reader.list(_PRIORITY_CLASSES) if one.get("globalDefault")]
    return min(defaults, key=lambda one: one["value"]) if defaults else None


def _add_default_tolerations(spec: Json) -> None:
    tolerations = spec.get("tolerations") or []
    missing = [key for key in _DEFAULT_TOLERATED if not any(_covers(one, key) for one in tolerations)]
    if missing:
        spec["tolerations"] = [*tolerations, *(_default_toleration(key) for key in missing)]


def _covers(toleration: Json, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def _default_toleration(key: str) -> Json:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _DEFAULT_TOLERATION_S}


def _admit_runtime_class(obj: Json, spec: Json, ctx: RequestContext) -> None:
    name = spec.get("runtimeClassName")
    chosen = ctx.reader.get(_RUNTIME_CLASSES, "", name) if name else None
    if name and chosen is None:
        raise pod_forbidden(obj, f'pod rejected: RuntimeClass "{name}" not found')
    overhead = ((chosen or {}).get("overhead") or {}).get("podFixed")
    given = spec.get("overhead")
    if overhead:
        if given and given != overhead:
            text = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            raise pod_forbidden(obj, text)
        spec["overhead"] = dict(overhead)
    elif given:
        raise pod_forbidden(obj, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    scheduling = (chosen or {}).get("scheduling") or {}
    selector = spec.get("nodeSelector") or {}
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.get(key, value) != value:
            text = (
                f"pod rejected: conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise pod_forbidden(obj, text)
        selector = {**selector, key: value}
    if selector:
        spec["nodeSelector"] = selector
    for toleration in scheduling.get("tolerations") or ():
        if toleration not in (spec.get("tolerations") or ()):
            spec["tolerations"] = [*(spec.get("tolerations") or ()), dict(toleration)]
