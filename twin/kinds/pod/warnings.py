"""Warnings about valid pods and pod templates: deprecated or doubtful fields.

Source: ``pkg/api/pod/warnings.go`` (GetWarningsForPod) and ``pkg/api/node/util.go`` (deprecated labels). Pods are
warned of at creation only. Nearly every pod has nothing to warn of, so each check looks for its field first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twin.kinds.rules.names import dns_label
from twin.kinds.rules.quantity import parse

Json = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
DEPRECATED_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}
_DEPRECATED_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_VOLUME_FIELDS = {"storageos": "storageOS"}
_DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_HOSTNAME_TEXT = (
    "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
)
_NULL_SELECTOR = "a null labelSelector results in matching no pod"
_FRACTIONAL = ("memory", "ephemeral-storage")


def pod_warnings(obj: Json) -> list[str]:
    """Warnings of a new pod."""
    found = []
    if messages := dns_label(obj["metadata"].get("name") or "a"):
        found.append(f"metadata.name: {_HOSTNAME_TEXT}: [{' '.join(messages)}]")
    return found + list(template_warnings(obj["spec"], obj["metadata"], ""))


def template_warnings(spec: Json, meta: Json, prefix: str) -> Iterator[str]:
    """Warnings of a spec; ``prefix`` is the path of what holds it, with its dot."""
    base = f"{prefix}spec"
    yield from _scheduling(spec, base)
    annotations = meta.get("annotations")
    if annotations:
        for key, text in _DEPRECATED_ANNOTATIONS.items():
            if key in annotations:
                yield f"{prefix}metadata.annotations[{key}]: {text}"
    for index, volume in enumerate(spec.get("volumes") or ()):
        for kind, text in _DEPRECATED_VOLUMES.items():
            if kind in volume:
                yield f"{base}.volumes[{index}].{_VOLUME_FIELDS.get(kind, kind)}: {text}"
    yield from _repeated(spec.get("hostAliases"), "ip", f"{base}.hostAliases")
    secrets = spec.get("imagePullSecrets")
    yield from _repeated(secrets, "name", f"{base}.imagePullSecrets")
    for index, one in enumerate(secrets or ()):
        if not one.get("name"):
            yield f'{base}.imagePullSecrets[{index}].name: invalid empty name ""'
    for name in _FRACTIONAL:
        yield from _fraction(spec.get("overhead"), name, f"{base}.overhead")
    containers = [
        (one, f"{base}.{kind}[{index}]")
        for kind in ("initContainers", "containers")
        for index, one in enumerate(spec.get(kind) or ())
    ]
    for one, path in containers:
        yield from _container(one, path)
    yield from _ports(containers)
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{base}.terminationGracePeriodSeconds: {text}"
    if spec.get("affinity"):
        yield from _pod_affinity(spec["affinity"], f"{base}.affinity")


def _scheduling(spec: Json, base: str) -> Iterator[str]:
    for key in spec.get("nodeSelector") or ():
        if key in DEPRECATED_NODE_LABELS:
            yield f"{base}.nodeSelector[{key}]: {DEPRECATED_NODE_LABELS[key]}"
    node = (spec.get("affinity") or {}).get("nodeAffinity")
    if node:
        yield from _node_affinity(node, f"{base}.affinity.nodeAffinity")
    for index, one in enumerate(spec.get("topologySpreadConstraints") or ()):
        here, key = f"{base}.topologySpreadConstraints[{index}]", one.get("topologyKey")
        if key in DEPRECATED_NODE_LABELS:
            yield f"{here}.topologyKey: {key} is {DEPRECATED_NODE_LABELS[key]}"
        if one.get("labelSelector") is None:
            yield f"{here}.labelSelector: {_NULL_SELECTOR}"


def _node_affinity(node: Json, path: str) -> Iterator[str]:
    terms = [
        (term, f"{path}.{_REQUIRED}.nodeSelectorTerms[{index}]")
        for index, term in enumerate((node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ())
    ]
    terms += [
        (one.get("preference") or {}, f"{path}.{_PREFERRED}[{index}].preference")
        for index, one in enumerate(node.get(_PREFERRED) or ())
    ]
    for term, here in terms:
        for index, one in enumerate(term.get("matchExpressions") or ()):
            if one.get("key") in DEPRECATED_NODE_LABELS:
                yield f"{here}.matchExpressions[{index}].key: {one['key']} is {DEPRECATED_NODE_LABELS[one['key']]}"


def _pod_affinity(affinity: Json, path: str) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        for index, term in enumerate(terms.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{path}.{kind}.{_REQUIRED}[{index}].labelSelector: {_NULL_SELECTOR}"
        for index, one in enumerate(terms.get(_PREFERRED) or ()):
            if (one.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{path}.{kind}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector: {_NULL_SELECTOR}"


def _repeated(items: list[Json] | None, key: str, path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, one in enumerate(items or ()):
        value = one.get(key, "")
        if value in seen:
            yield f'{path}[{index}].{key}: duplicate {key} "{value}"'
        seen.add(value)


def _container(one: Json, path: str) -> Iterator[str]:
    resources = one.get("resources")
    if resources:
        for name in _FRACTIONAL:
            for part in ("limits", "requests"):
                yield from _fraction(resources.get(part), name, f"{path}.resources.{part}")
    variables = one.get("env") or ()
    if len(variables) > 1:
        seen: set[str] = set()
        for index, variable in enumerate(variables):
            name, value = variable.get("name", ""), variable.get("value", "")
            own = f"$({name})"
            if name in seen and (variable.get("valueFrom") is not None or value == own or own not in value):
                text = f'hides previous definition of "{name}", which may be dropped when using apply'
                yield f"{path}.env[{index}]: {text}"
            seen.add(name)


def _ports(containers: list[tuple[Json, str]]) -> Iterator[str]:
    """The same port twice is nearly always a mistake, and an ambiguous host port is worse."""
    known: dict[tuple[int, str], list[tuple[str, str, int]]] = {}
    for one, path in containers:
        for index, port in enumerate(one.get("ports") or ()):
            here, ip, host = f"{path}.ports[{index}]", port.get("hostIP", ""), port.get("hostPort", 0)
            others = known.setdefault((port.get("containerPort", 0), port.get("protocol", "")), [])
            for other, other_ip, other_host in others:
                if (ip, host) == (other_ip, other_host):
                    yield f"{here}: duplicate port definition with {other}"
                elif not host or not other_host:
                    yield f"{here}: overlapping port definition with {other}"
                elif host == other_host and (not ip) != (not other_ip):
                    yield f"{here}: dangerously ambiguous port definition with {other}"
            others.append((here, ip, host))


def _fraction(amounts: Json | None, name: str, path: str) -> Iterator[str]:
    amount = (amounts or {}).get(name)
    if amount is not None and not parse(amount).is_integer:
        yield f'{path}[{name}]: fractional byte value "{amount}" is invalid, must be an integer'
