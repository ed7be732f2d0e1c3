"""Warnings about valid pods and pod templates: deprecated or doubtful fields.

Source: ``pkg/api/pod/warnings.go`` (GetWarningsForPod) and ``pkg/api/node/util.go`` (deprecated labels).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.twin.kinds.names import dns_label
from services.twin.kinds.pod_containers import env_duplicates
from services.twin.kinds.quantity import parse

Json = dict[str, Any]

DEPRECATED_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}
_DEPRECATED_VOLUMES = {
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
}
_HOSTNAME_TEXT = (
    "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
)
_FRACTIONAL = ("memory", "ephemeral-storage")


def pod_warnings(obj: Json, old: Json | None) -> list[str]:
    """Warnings of a new pod, or of a change of its spec."""
    if old is not None and old["spec"] == obj["spec"]:
        return []
    found = list(template_warnings(obj["spec"], obj["metadata"], ""))
    if old is None and (messages := dns_label(obj["metadata"].get("name") or "a")):
        found.append(f"metadata.name: {_HOSTNAME_TEXT}: [{' '.join(messages)}]")
    return found


def template_warnings(spec: Json, meta: Json, prefix: str) -> Iterator[str]:
    """Warnings of a spec; ``prefix`` is the path of what holds it, with its dot."""
    base = f"{prefix}spec"
    for key in spec.get("nodeSelector") or ():
        if key in DEPRECATED_NODE_LABELS:
            yield f"{base}.nodeSelector[{key}]: {DEPRECATED_NODE_LABELS[key]}"
    if spec.get("affinity"):
        yield from _affinity(spec["affinity"], f"{base}.affinity")
    for index, one in enumerate(spec.get("topologySpreadConstraints") or ()):
        if one.get("topologyKey") in DEPRECATED_NODE_LABELS:
            text = DEPRECATED_NODE_LABELS[one["topologyKey"]]
            yield f"{base}.topologySpreadConstraints[{index}].topologyKey: {one['topologyKey']} is {text}"
        if one.get("labelSelector") is None:
            text = "a null labelSelector results in matching no pod"
            yield f"{base}.topologySpreadConstraints[{index}].labelSelector: {text}"
    for key, text in _DEPRECATED_ANNOTATIONS.items():
        if key in (meta.get("annotations") or ()):
            yield f"{prefix}metadata.annotations[{key}]: {text}"
    for index, volume in enumerate(spec.get("volumes") or ()):
        for kind, text in _DEPRECATED_VOLUMES.items():
            if kind in volume:
                yield f"{base}.volumes[{index}].{kind}: {text}"
    yield from _hosts(spec, base)
    for kind in ("initContainers", "containers"):
        for index, one in enumerate(spec.get(kind) or ()):
            yield from _container(one, f"{base}.{kind}[{index}]")
    for name, amount in (spec.get("overhead") or {}).items():
        yield from _fraction(name, amount, f"{base}.overhead")
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{base}.terminationGracePeriodSeconds: {text}"


def _hosts(spec: Json, base: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, one in enumerate(spec.get("imagePullSecrets") or ()):
        name = one.get("name", "")
        if not name:
            yield f'{base}.imagePullSecrets[{index}].name: invalid empty name ""'
        elif name in seen:
            yield f'{base}.imagePullSecrets[{index}].name: duplicate name "{name}"'
        seen.add(name)


def _affinity(affinity: Json, base: str) -> Iterator[str]:
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    node = affinity.get("nodeAffinity") or {}
    terms = [(t, f"{base}.nodeAffinity.{required}.nodeSelectorTerms[{i}]")
             for i, t in enumerate((node.get(required) or {}).get("nodeSelectorTerms") or ())]  # fmt: skip
    terms += [
        (one.get("preference") or {}, f"{base}.nodeAffinity.{preferred}[{i}].preference")
        for i, one in enumerate(node.get(preferred) or ())
    ]
    for term, path in terms:
        for index, one in enumerate(term.get("matchExpressions") or ()):
            if one.get("key") in DEPRECATED_NODE_LABELS:
                yield f"{path}.matchExpressions[{index}].key: {one['key']} is {DEPRECATED_NODE_LABELS[one['key']]}"


def _container(one: Json, path: str) -> Iterator[str]:
    for part in ("limits", "requests"):
        for name, amount in ((one.get("resources") or {}).get(part) or {}).items():
            yield from _fraction(name, amount, f"{path}.resources.{part}")
    for index, name in env_duplicates(one):
        yield f'{path}.env[{index}]: hides previous definition of "{name}", which may be dropped when using apply'


def _fraction(name: str, amount: str, path: str) -> Iterator[str]:
    if name in _FRACTIONAL and not parse(amount).is_integer:
        yield f'{path}[{name}]: fractional byte value "{amount}" is invalid, must be an integer'
