"""The ``resize`` subresource of pods: cpu and memory of containers and of the whole pod, and nothing else.

Source: ``pkg/registry/core/pod/strategy.go`` (dropNonResizeUpdates), ``pkg/apis/core/validation/validation.go``
(ValidatePodResize).
"""

from __future__ import annotations

from typing import Any

from twin.kinds.pod.resources import qos_class
from twin.kinds.pod.update import MIRROR
from twin.kinds.pod.validation import check_pod_only
from twin.registry.status import FieldError, forbidden_field, invalid

Json = dict[str, Any]

_RESIZABLE = ("cpu", "memory")
_CONTAINERS = ("containers", "initContainers")
_IMMUTABLE_RESOURCES = "only cpu and memory resources are mutable"


def prepare_resize(obj: Json, old: Json) -> bool:
    """Only resources and resize policies are taken from ``obj``; other containers are left for validation to refuse.

    False: containers were added or removed, and nothing is dropped (``dropNonResizeUpdates``).
    """
    wanted, before = obj["spec"], old["spec"]
    if any(len(wanted.get(kind) or ()) != len(before.get(kind) or ()) for kind in _CONTAINERS):
        return False
    spec = {key: value for key, value in before.items() if key != "resources"}
    if "resources" in wanted:
        spec["resources"] = wanted["resources"]
    for kind in _CONTAINERS:
        new, known = wanted.get(kind) or [], before.get(kind) or []
        if [one["name"] for one in new] != [one["name"] for one in known]:
            spec[kind] = new
        elif known:
            spec[kind] = [_resized(one, change) for one, change in zip(known, new, strict=True)]
    obj["spec"] = spec
    return True


def _resized(one: Json, change: Json) -> Json:
    resized = {**one, "resources": change.get("resources") or {}}
    resized.pop("resizePolicy", None)
    if change.get("resizePolicy"):
        resized["resizePolicy"] = change["resizePolicy"]
    return resized


def check_resize(obj: Json, old: Json) -> list[FieldError]:
    """ValidatePodResize: valid resources, the same QoS class, nothing removed, cpu and memory only."""
    found = check_pod_only(obj)
    spec, before = obj["spec"], old["spec"]
    if MIRROR in (old["metadata"].get("annotations") or ()):
        return [forbidden_field("[]", "static pods cannot be resized")]
    if (before.get("os") or {}).get("name") == "windows":
        return [forbidden_field("[]", "windows pods cannot be resized")]
    if qos_class(spec) != qos_class(before):
        qos = old["status"].get("qosClass", "")
        found.append(invalid("spec", qos, "Pod QOS Class may not change as a result of resizing"))
    running = [one for one in old["status"].get("containerStatuses") or () if (one.get("state") or {}).get("running")]
    if running and running[0].get("resources") is None:
        found.append(forbidden_field("spec", "Pod running on node without support for resize"))
    munged = dict(spec)
    if _has_resources(before) or _has_resources(spec):
        found += _check_pod_level(munged, spec.get("resources"), before.get("resources"))
    order = [error for kind in _CONTAINERS for error in _check_order(spec, before, kind)]
    if order:
        return found + order
    for kind in reversed(_CONTAINERS):
        for index, (one, earlier) in enumerate(zip(spec.get(kind) or [], before.get(kind) or [], strict=True)):
            found += _check_nothing_removed(one, earlier, f"spec.{kind}[{index}].resources")
    for kind in _CONTAINERS:
        if before.get(kind):
            pairs = list(zip(spec[kind], before[kind], strict=True))
            munged[kind] = [_unresized(one, earlier) for one, earlier in pairs]
            for index, (one, (changed, earlier)) in enumerate(zip(munged[kind], pairs, strict=True)):
                found += _check_rest(one, changed, earlier, kind, index)
    if not found and munged != before:
        found.append(forbidden_field("spec", _IMMUTABLE_RESOURCES))
    return found


def _has_resources(spec: Json) -> bool:
    resources = spec.get("resources") or {}
    return bool(resources.get("requests") or resources.get("limits"))


def _check_pod_level(munged: Json, resources: Json | None, earlier: Json | None) -> list[FieldError]:
    """validatePodLevelResourcesResize; ``munged`` gets the resources with cpu and memory put back."""
    if earlier is not None and resources is None:
        return [forbidden_field("spec.resources", "pod-level resources cannot be removed")]
    found = [
        forbidden_field(f"spec.resources.{part}", f"pod-level resource {part} cannot be removed")
        for part in ("requests", "limits")
        if ((earlier or {}).get(part) or {}).keys() - ((resources or {}).get(part) or {}).keys()
    ]
    kept = _put_back(resources or {}, earlier or {})
    if kept or earlier is not None:
        munged["resources"] = kept
    else:
        munged.pop("resources", None)
    if munged.get("resources") != earlier:
        found.append(forbidden_field("spec", f"{_IMMUTABLE_RESOURCES} at pod-level"))
    return found


def _check_order(spec: Json, before: Json, kind: str) -> list[FieldError]:
    """validatePodResizeContainerOrdering."""
    new, known = spec.get(kind) or [], before.get(kind) or []
    if len(new) != len(known):
        return [forbidden_field(f"spec.{kind}", f"{kind} may not be added or removed on resize")]
    return [
        forbidden_field(f"spec.{kind}[{index}].name", f"{kind} may not be renamed or reordered on resize")
        for index, (one, earlier) in enumerate(zip(new, known, strict=True))
        if one["name"] != earlier["name"]
    ]


def _check_nothing_removed(one: Json, earlier: Json, field: str) -> list[FieldError]:
    return [
        forbidden_field(f"{field}.{part}", f"resource {part} cannot be removed")
        for part in ("requests", "limits")
        if (earlier["resources"].get(part) or {}).keys() - (one["resources"].get(part) or {}).keys()
    ]


def _check_rest(munged: Json, changed: Json, earlier: Json, kind: str, index: int) -> list[FieldError]:
    """What is left of a container without cpu and memory must be what was."""
    if kind == "containers":
        return [] if munged == earlier else [forbidden_field("spec", _IMMUTABLE_RESOURCES)]
    field = f"spec.{kind}[{index}]"
    found = []
    if munged != earlier:
        text = "only cpu and memory resources for init or sidecar containers are mutable"
        found.append(forbidden_field(field, text))
    sidecar = changed.get("restartPolicy") == "Always"
    policies = [one.get("restartPolicy") for one in changed.get("resizePolicy") or ()]
    if changed != earlier and not sidecar and "RestartContainer" in policies:
        text = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
        found.extend(forbidden_field(field, text) for one in policies if one == "RestartContainer")
    return found


def _unresized(one: Json, earlier: Json) -> Json:
    """The container with cpu and memory put back; the resize policy may not change either."""
    return {**one, "resources": _put_back(one["resources"], earlier["resources"])}


def _put_back(resources: Json, earlier: Json) -> Json:
    """Resources with the cpu and memory they had before."""
    kept = dict(resources)
    for part in ("limits", "requests"):
        was = earlier.get(part) or {}
        now = {key: value for key, value in (resources.get(part) or {}).items() if key not in _RESIZABLE}
        now |= {key: was[key] for key in _RESIZABLE if key in was}
        kept.pop(part, None)
        if now:
            kept[part] = now
    return kept
