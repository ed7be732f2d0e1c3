"""Independent arithmetic for the audit: what a pod asks, what a node offers, and whether the one admits the other.

Why it exists beside ``shared.scheduling``: the audit judges the scheduler, so it shares no code with it. It works on
plain JSON as the API server accepted it, with exact fractions for quantities, and prefers plain to fast.
It does not rank: every answer is yes, or the first rule that says no.

Sources: kube-scheduler 1.36 (``component-helpers/resource``, ``nodeaffinity``, ``tainttoleration``, ``nodeports``).
A pod that is resized in place counts what it asks for, was allocated or has, whichever is most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

Json = dict[str, Any]
Amounts = dict[str, int]

GPU_MILLI = "conclave.io/gpu-milli"
GPU_DEVICES_ANNOTATION = "conclave.io/gpu-devices"
MILLI_PER_DEVICE = 1000

MAKING_ROOM = "conclave.io/making-room"
"""Key of the taint by which the mesh closes a node to other schedulers; to itself it is none."""

LATENCY, LATENCY_HARD = "conclave.io/latency-ms", "latencyHardConstraint"
LATENCY_LIMIT, LATENCY_TARGET = "conclave.io/latency-limit", "conclave.io/latency-target"

CORDON: Json = {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}
"""What ``spec.unschedulable`` amounts to."""

_SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}  # fmt: skip


@lru_cache(maxsize=8192)
def amount(resource: str, quantity: str) -> int:
    """Milli-cores for cpu, whole units otherwise, rounded up. ``ValueError``: no quantity."""
    number = quantity.rstrip("numkMGTPEi") if not quantity[-1:].isdigit() else quantity
    suffix = quantity[len(number) :]
    if suffix not in _SUFFIXES or "/" in number or "_" in number or number != number.strip():
        raise ValueError(f"{quantity!r} is not a quantity")
    value = Fraction(number) * _SUFFIXES[suffix]
    return math.ceil(value * 1000 if resource == "cpu" else value)


def amounts(quantities: Json | None) -> Amounts:
    """Amounts by resource name. ``ValueError``: one is no quantity."""
    return {name: amount(name, str(value)) for name, value in (quantities or {}).items()}


LENT = ("batch-cpu", "batch-memory")
KATALYST_LENT = (
    "resource.katalyst.kubewharf.io/reclaimed_millicpu", "resource.katalyst.kubewharf.io/reclaimed_memory",
)  # fmt: skip


def lends(resource: str) -> bool:
    """Whether nodes lend it: by the last part of its name, whose domain is the lender's; of Katalyst by all of it."""
    return ("/" in resource and resource.rpartition("/")[2] in LENT) or resource in KATALYST_LENT


def add(into: Amounts, what: Amounts, sign: int = 1) -> None:
    """Add ``what`` to ``into``, in place."""
    for name, value in what.items():
        into[name] = into.get(name, 0) + sign * value


def pod_requests(spec: Json, status: Json | None = None) -> Amounts:
    """What a pod of this spec counts on its node. ``ValueError``: a quantity that is none.

    The sum of containers and sidecars, or the largest moment of start-up if that is greater (an init container with
    the sidecars before it); then pod-level requests in place of that; then overhead. ``status``: of a pod on a node,
    where a resize in place may be under way.
    """
    resizing = _Resizing(status or {})
    running: Amounts = {}
    for container in spec.get("containers") or ():
        add(running, resizing.container(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        stays = container.get("restartPolicy") == "Always"
        moment = dict(sidecars)
        add(moment, resizing.container(container) if stays else _requested(container.get("resources")))
        if stays:
            sidecars = moment
        for name, value in moment.items():
            peak[name] = max(peak.get(name, 0), value)
    add(running, sidecars)
    requests = {name: max(running.get(name, 0), peak.get(name, 0)) for name in running.keys() | peak.keys()}
    requests.update(resizing.whole(spec.get("resources")))
    add(requests, amounts(spec.get("overhead")))
    return {name: value for name, value in requests.items() if value > 0}


class _Resizing:
    """What counts while spec, allocation and use of a pod differ: of a resize that cannot be, the spec does not."""

    def __init__(self, status: Json) -> None:
        pending = [one for one in status.get("conditions") or () if one.get("type") == "PodResizePending"]
        self._refused = bool(pending) and pending[0].get("reason") == "Infeasible"
        self._status = status
        self._containers = {
            one["name"]: one
            for part in ("containerStatuses", "initContainerStatuses")
            for one in status.get(part) or ()
        }

    def container(self, container: Json) -> Amounts:
        return self._most(_requested(container.get("resources")), self._containers.get(container.get("name") or ""))

    def whole(self, resources: Json | None) -> Amounts:
        asked = _requested(resources)
        most = self._most(asked, self._status)
        return {name: most.get(name, 0) for name in asked if name.startswith(("cpu", "memory", "hugepages-"))}

    def _most(self, asked: Amounts, shown: Json | None) -> Amounts:
        if shown is None or shown.get("resources") is None:
            return asked
        sources = [_requested(shown["resources"]), amounts(shown.get("allocatedResources"))]
        if not self._refused:
            sources.append(asked)
        return {name: max(one.get(name, 0) for one in sources) for one in sources for name in one}


def _requested(resources: Json | None) -> Amounts:
    return amounts((resources or {}).get("requests"))


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node as an audit line showed it. ``broken`` names a quantity that is none; it then offers nothing of it."""

    name: str
    labels: Json
    taints: tuple[Json, ...]
    allocatable: Amounts
    broken: str = ""
    declares: frozenset[str] = frozenset()
    latency_us: int = 0
    """To the users, as its annotation says; 0: it does not."""

    @property
    def devices(self) -> int:
        """Number of GPU devices."""
        return self.allocatable.get(GPU_MILLI, 0) // MILLI_PER_DEVICE


def node_facts(node: Json) -> NodeFacts:
    """Read a Node object."""
    spec, status, meta, broken = node.get("spec") or {}, node.get("status") or {}, node["metadata"], ""
    offered: Amounts = {}
    for name, quantity in (status.get("allocatable") or {}).items():
        try:
            offered[name] = amount(name, str(quantity))
        except ValueError as error:
            broken = str(error)
    taints = [
        t
        for t in spec.get("taints") or ()
        if t.get("effect") in ("NoSchedule", "NoExecute") and t.get("key") != MAKING_ROOM
    ]
    if spec.get("unschedulable"):
        taints.append(CORDON)
    declares = frozenset(status.get("declaredFeatures") or ())
    latency_us = _latency_us(meta.get("annotations"), LATENCY)
    return NodeFacts(meta["name"], meta.get("labels") or {}, tuple(taints), offered, broken, declares, latency_us)


@dataclass(frozen=True, slots=True)
class AuditedPodFacts:
    """What of a pod's spec decides where it may go. ``broken`` names a quantity that is none: it fits nowhere.
    ``by_claim``: resources that a claim serves, as its status tells, where the node offers none."""

    requests: Amounts
    spec: Json
    ports: tuple[tuple[str, str, int], ...]
    broken: str = ""
    by_claim: frozenset[str] = frozenset()
    bears_us: int | None = None
    """How far from the users its node may be at most; 0: it says so, and no number; None: it does not mind."""

    @property
    def gpu_milli(self) -> int:
        """Thousandths of a GPU asked for."""
        return self.requests.get(GPU_MILLI, 0)


def pod_facts(pod: Json) -> AuditedPodFacts:
    """Read a Pod object."""
    spec = pod.get("spec") or {}
    try:
        requests, broken = pod_requests(spec, status_on_node(pod)), ""
    except ValueError as error:
        requests, broken = {}, str(error)
    made = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    by_claim = frozenset(one.get("resourceName", "") for one in made.get("requestMappings") or ())
    return AuditedPodFacts(requests, spec, tuple(_host_ports(spec)), broken, by_claim, bears_us(pod))


def bears_us(pod: Json) -> int | None:
    """``AuditedPodFacts.bears_us``; annotations, unlike most of a spec, may change."""
    said = (pod.get("metadata") or {}).get("annotations") or {}
    if said.get(LATENCY_LIMIT) != "strict" or LATENCY_TARGET in said:
        return None
    return _latency_us(said, LATENCY_HARD)


def _latency_us(annotations: Json | None, name: str) -> int:
    """Microseconds of an annotation in milliseconds; 0 where it is none."""
    text = str((annotations or {}).get(name, "")).strip()
    digits = text.replace(".", "", 1)
    plain = digits.isascii() and digits.isdigit() and text[0] != "." and text[-1] != "."
    return max(1, round(Fraction(text) * 1000)) if plain else 0


def status_on_node(pod: Json) -> Json:
    """What a node says of a pod that is on one."""
    status: Json = (pod.get("status") or {}) if (pod.get("spec") or {}).get("nodeName") else {}
    return status


def _host_ports(spec: Json) -> Iterable[tuple[str, str, int]]:
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for container in [*(spec.get("containers") or ()), *sidecars]:
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                yield port.get("protocol") or "TCP", port.get("hostIP") or "0.0.0.0", port["hostPort"]  # noqa: S104


def refusal(pod: AuditedPodFacts, node: NodeFacts) -> str:
    """The rule by which ``node`` refuses ``pod`` however empty it is; empty when there is none."""
    if pod.broken:
        return f"its quantity {pod.broken}"
    missing = [feature for feature in features_needed(pod.spec) if feature not in node.declares]
    undeclared = f"it does not declare {missing[0]}" if missing else ""
    far = pod.bears_us is not None and not 0 < node.latency_us <= pod.bears_us
    beyond = f"its limit of latency, {(pod.bears_us or 0) / 1000:g} ms" if far else ""
    return taint_in_the_way(pod.spec, node) or selected_by(pod.spec, node) or undeclared or beyond


def features_needed(spec: Json) -> list[str]:
    """Features that a node must declare for a pod of this spec (NodeDeclaredFeatures of 1.36)."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    rules = [rule for container in containers for rule in container.get("restartPolicyRules") or ()]
    needed = []
    if any(rule.get("action") == "RestartAllContainers" for rule in rules):
        needed.append("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") is True and spec.get("hostUsers") is False:
        needed.append("UserNamespacesHostNetworkSupport")
    return needed


def beyond_us(spec: Json) -> str:
    """What of the spec decides where the pod may run and is not Conclave's to decide; empty when there is nothing."""
    group = spec.get("schedulingGroup")
    ours = group is None or (isinstance(group, dict) and set(group) == {"podGroupName"})
    return "" if ours else "schedulingGroup"


def waits_for_latency(pod: Json) -> bool:
    """Whether the pod waits for what agents measure to a target."""
    said = pod["metadata"].get("annotations") or {}
    return said.get(LATENCY_LIMIT) == "strict" and LATENCY_TARGET in said


def taint_in_the_way(spec: Json, node: NodeFacts, *, cordon: bool = True) -> str:
    """The first taint that a pod of this spec does not tolerate. ``cordon`` False: an unschedulable node is none."""
    for taint in node.taints:
        if not cordon and taint is CORDON:
            continue
        if not any(_tolerates(toleration, taint) for toleration in spec.get("tolerations") or ()):
            return f"taint {taint.get('key')}:{taint.get('effect')}"
    return ""


def selected_by(spec: Json, node: NodeFacts) -> str:
    """Why the spec's node selector or required node affinity leaves the node out; empty when it does not."""
    for key, value in (spec.get("nodeSelector") or {}).items():
        if node.labels.get(key) != value:
            return f"node selector {key}={value}"
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return "" if affinity is None or selector_holds(affinity, node) else "required node affinity"


def selector_holds(selector: Json, node: NodeFacts) -> bool:
    """Whether any term of a NodeSelector matches; one without terms matches nothing."""
    return any(_term_holds(term, node) for term in selector.get("nodeSelectorTerms") or ())


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    operator = toleration.get("operator") or "Equal"
    if not toleration.get("key"):
        return bool(operator == "Exists")
    if toleration["key"] != taint.get("key"):
        return False
    if operator == "Exists":
        return True
    return bool(operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or ""))


def _term_holds(term: Json, node: NodeFacts) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_requirement_holds(r, node.labels) for r in expressions) and all(
        _requirement_holds(r, {"metadata.name": node.name}) for r in fields
    )


def _requirement_holds(requirement: Json, values: Json) -> bool:
    operator, given, have = requirement.get("operator"), requirement.get("values") or [], values.get(requirement["key"])
    if operator == "In":
        return have in given
    if operator == "NotIn":
        return have not in given
    if operator == "Exists":
        return have is not None
    if operator == "DoesNotExist":
        return have is None
    if operator in ("Gt", "Lt") and have is not None and len(given) == 1:
        try:
            left, right = int(have), int(given[0])
        except ValueError:
            return False
        return left > right if operator == "Gt" else left < right
    return False


def ports_clash(mine: Iterable[tuple[str, str, int]], theirs: Iterable[tuple[str, str, int]]) -> bool:
    """Whether two pods want one host port; the address 0.0.0.0 stands for all."""
    any_ip = "0.0.0.0"  # noqa: S104
    taken = list(theirs)
    return any(a[0] == b[0] and a[2] == b[2] and (a[1] == b[1] or any_ip in (a[1], b[1])) for a in mine for b in taken)


def named_devices(annotation: str | None) -> tuple[int, ...] | None:
    """Device indices of the annotation, None where it is absent. ``ValueError``: not indices."""
    if annotation is None:
        return None
    devices = tuple(int(part) if part.isascii() and part.isdigit() else -1 for part in annotation.split(","))
    if -1 in devices or len(set(devices)) != len(devices):
        raise ValueError(f"{annotation[:64]!r} does not name different devices such as 0 or 2,5")
    return devices
