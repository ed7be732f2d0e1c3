"""The demo's workload of users: pods that serve one of two groups, whose way to each node changes twice. Pure.

Agents on their nodes try both groups (LatencyTarget objects); the mesh places by what they measured. ``Served`` tells
from audit entries, the true delays and what the leader knew when, how many pods came to a node within their soft
limit: of all, and of those that were created and bound while the leader knew and all agents answered it in time. Same
seed, same workload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from lab.audit.log import LogEntry
from lab.traces.workload import Arrival, node_json, pod_json
from shared.model.pod import LATENCY_HARD_ANNOTATION, LATENCY_SOFT_ANNOTATION, LATENCY_TARGET_ANNOTATION
from twin.model.usage import USAGE_ANNOTATION, UsageNow, UsageProfile

Json = dict[str, Any]
Delays = Mapping[str, Mapping[str, float]]
"""Milliseconds by node, by group of users."""

GROUPS = ("users-north", "users-south")
NODES, MOST_NODES = 4, 16
NODE = {"cpu": "4", "memory": "8Gi", "pods": "110"}
SOFT_MS, HARD_MS = 60.0, 120.0
NEAR_MS, FAR_MS = (10.0, 30.0), (200.0, 400.0)
"""Clear of the limits by more than a busy machine adds to a round trip of its loopback."""
PHASES = 3
PODS = 90
GAP_S, RUN_S = 6.0, 60.0
"""Virtual seconds."""
LATENCY_TARGET_KIND: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "latencytargets.conclave.io"},
    "spec": {
        "group": "conclave.io",
        "scope": "Cluster",
        "names": {
            "kind": "LatencyTarget", "listKind": "LatencyTargetList",
            "plural": "latencytargets", "singular": "latencytarget",
        },
        "versions": [{
            "name": "v1alpha1", "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }],
    },
}  # fmt: skip
"""The kind alone; what a cluster gets (k8s/base/latency-targets-crd.yaml) checks the fields as well."""


@dataclass(frozen=True, slots=True)
class LatencyPhase:
    """From ``at_s`` on (virtual seconds after the first pod) delays are so."""

    at_s: float
    delays: Delays


def node_names(count: int) -> list[str]:
    """Each node has an agent of its name on it."""
    return [f"agent-{number}" for number in range(count)]


def phases(rng: Random, nodes: list[str]) -> list[LatencyPhase]:
    """In each half of the nodes, at least one, are near a group; in the next one others are."""
    order = {group: rng.sample(nodes, len(nodes)) for group in GROUPS}
    near = max(1, len(nodes) // 2)
    found = []
    for number in range(PHASES):
        delays: dict[str, dict[str, float]] = {name: {} for name in nodes}
        for group in GROUPS:
            first = number * near % len(nodes)
            here = {order[group][(first + step) % len(nodes)] for step in range(near)}
            for name in nodes:
                delays[name][group] = round(rng.uniform(*(NEAR_MS if name in here else FAR_MS)), 1)
        found.append(LatencyPhase(number * PODS // PHASES * GAP_S, delays))
    return found


def latency_nodes(names: list[str]) -> list[Json]:
    """One for each agent."""
    return [node_json(name, NODE) for name in names]


def latency_pods() -> list[Arrival]:
    """Each serves one of the groups in turn, and runs for a minute."""
    used = UsageProfile(((0, UsageNow(cpu_millis=100, memory_bytes=2**26)),), RUN_S).to_json()
    found = []
    for number in range(PODS):
        group = GROUPS[number % len(GROUPS)]
        annotations = {
            USAGE_ANNOTATION: used, LATENCY_TARGET_ANNOTATION: group,
            LATENCY_SOFT_ANNOTATION: f"{SOFT_MS:g}", LATENCY_HARD_ANNOTATION: f"{HARD_MS:g}",
        }  # fmt: skip
        pod = pod_json(f"{group}-{number:03d}", {"cpu": "100m", "memory": "64Mi"}, annotations=annotations)
        found.append(Arrival(number * GAP_S, pod))
    return found


def target_json(name: str, port: int) -> Json:
    """A group of users, who answer on this machine."""
    spec = {"host": "127.0.0.1", "port": port, "everySeconds": 1}
    return {"apiVersion": "conclave.io/v1alpha1", "kind": "LatencyTarget", "metadata": {"name": name}, "spec": spec}


def knows(measured: Mapping[str, Mapping[str, float]], delays: Delays) -> bool:
    """Whether what the leader has of every node is on the right side of the soft limit."""
    return all(
        (told := measured.get(node, {}).get(group, -1.0)) >= 0 and (told <= SOFT_MS) == (true <= SOFT_MS)
        for node, groups in delays.items()
        for group, true in groups.items()
    )


@dataclass(slots=True)
class _Pod:
    group: str
    created_s: float
    bound_s: float = 0.0
    node: str = ""


class Served:
    """What became of the pods. Moments are seconds of the wall clock, as audit entries have them."""

    def __init__(self) -> None:
        self._changes: list[tuple[float, Delays]] = []
        self._looks: list[tuple[float, bool]] = []
        """When the leader was asked, and whether it knew."""
        self._silences = -1
        self._pods: dict[str, _Pod] = {}

    def changed(self, at_s: float, delays: Delays) -> None:
        """Delays are so from now on."""
        self._changes.append((at_s, delays))

    def looked(
        self, at_s: float, measured: Mapping[str, Mapping[str, float]], *, silences: int = 0, waiting: bool = False
    ) -> None:
        """What the leader has measured, by node and group, in ms. ``silences``: how often agents did not answer it in
        time, ``waiting``: whether it does without one now: then it decides by the others alone."""
        heard, self._silences = silences == self._silences, silences
        if self._changes:
            self._looks.append((at_s, heard and not waiting and knows(measured, self._changes[-1][1])))

    @property
    def known(self) -> bool:
        """Whether the leader knew when it was asked last."""
        return bool(self._looks) and self._looks[-1][1]

    def feed(self, entry: LogEntry) -> None:
        """Take one accepted change into account."""
        if entry.kind != "Pod":
            return
        group = (entry.object["metadata"].get("annotations") or {}).get(LATENCY_TARGET_ANNOTATION, "")
        if group in GROUPS and entry.verb == "create":
            self._pods.setdefault(entry.uid, _Pod(group, entry.time_s))
        elif entry.verb == "bind" and (pod := self._pods.get(entry.uid)) is not None and not pod.node:
            pod.bound_s, pod.node = entry.time_s, entry.object.get("spec", {}).get("nodeName", "")

    def figures(self) -> dict[str, Any]:
        """Shares of pods within their soft limit, and what came of each change."""
        bound = sorted((pod for pod in self._pods.values() if pod.node), key=lambda pod: pod.created_s)
        known = [pod for pod in bound if self._was_known(pod)]
        return {
            "decided": len(bound),
            "within_soft": _share(sum(map(self._within, bound)), len(bound)),
            "decided_knowing": len(known),
            "within_soft_knowing": _share(sum(map(self._within, known)), len(known)),
            "changes": [self._change(place, bound) for place in range(1, len(self._changes))],
        }

    def _within(self, pod: _Pod) -> bool:
        """By the true delay when it was bound."""
        delays = next((delays for at_s, delays in reversed(self._changes) if at_s <= pod.bound_s), self._changes[0][1])
        return delays[pod.node][pod.group] <= SOFT_MS

    def _was_known(self, pod: _Pod) -> bool:
        """The last look before its creation, the first after its binding, and all between found that the leader knew,
        and nothing changed meanwhile."""
        began_s = max((at_s for at_s, _ in self._looks if at_s <= pod.created_s), default=None)
        ended_s = min((at_s for at_s, _ in self._looks if at_s > pod.bound_s), default=None)
        if began_s is None or ended_s is None:
            return False
        knew = all(knew for at_s, knew in self._looks if began_s <= at_s <= ended_s)
        return knew and not any(began_s < at_s <= pod.bound_s for at_s, _ in self._changes)

    def _change(self, place: int, bound: list[_Pod]) -> dict[str, Any]:
        """``known_after_s``: until the leader knew; ``decisions_until_moved``: of pods created after that, the first to
        come within its limit; None where there was none."""
        at_s = self._changes[place][0]
        ends_s = self._changes[place + 1][0] if place + 1 < len(self._changes) else float("inf")
        knew_s = next((look_s for look_s, knew in self._looks if knew and at_s < look_s < ends_s), None)
        later = [pod for pod in bound if knew_s is not None and knew_s < pod.created_s and pod.bound_s < ends_s]
        moved = next((number for number, pod in enumerate(later, 1) if self._within(pod)), None)
        return {
            "known_after_s": None if knew_s is None else round(knew_s - at_s, 2),
            "decisions_until_moved": moved,
        }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def unserved(figures: Mapping[str, Any], policy: str) -> list[str]:
    """What keeps a run from showing what ``el`` is for; of other policies nothing is promised."""
    if not figures or policy != "el":
        return []
    if not figures["decided_knowing"]:
        return ["latency: no pod was placed while the leader knew the delays"]
    if figures["within_soft_knowing"] < 1.0:
        share = figures["within_soft_knowing"]
        return [f"latency: {share:.1%} of pods within their soft limit while the delays were known, must be all"]
    return []


def latency_rows(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Rows of the final table."""
    rows = [
        ("within the soft limit", f"{figures['within_soft']:.1%} of {figures['decided']} pods"),
        (
            "… while the leader knew, all answering",
            f"{figures['within_soft_knowing']:.1%} of {figures['decided_knowing']} pods",
        ),
    ]
    for number, change in enumerate(figures["changes"], 1):
        after, moved = change["known_after_s"], change["decisions_until_moved"]
        told = "never known" if after is None else f"known after {after:.1f} s"
        rows.append(
            (f"delays' change {number}", f"{told}, " + (f"moved at decision {moved}" if moved else "not moved"))
        )
    return rows
