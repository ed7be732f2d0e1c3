"""Who leaves a node that is drained, who stays there, and who forbids it: kubectl drain's rules under its flags.

Source: ``k8s.io/kubectl/pkg/drain/filters.go`` of 1.36 (mirrorPodFilter, daemonSetFilter, unreplicatedFilter,
localStorageFilter). As there, one pod that needs a flag which is not given keeps everybody where they are. On top of
that a pod that the eviction API could never take is told before anybody is asked to leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from shared.kube.pods.convert import controller_of, owner_of, pod_from_api
from shared.kube.pods.standing_pods import SourcedPod
from shared.model.cluster_objects import DisruptionBudget
from shared.model.terms.relations import NO_RELATIONS
from shared.rebalance.residents import MIRROR_ANNOTATION
from shared.scheduling.preemption.budgets import covers

FINISHED = ("Succeeded", "Failed")
CAUTION = {
    "bare": "it has no controller, so nobody replaces it (--force evicts it)",
    "daemon": "it belongs to a DaemonSet (--ignore-daemonsets leaves it there)",
    "local": "what it keeps in an emptyDir would be lost (--delete-emptydir-data evicts it)",
}


class DrainFlags(Struct, frozen=True):
    """As kubectl drain's: ``--ignore-daemonsets``, ``--delete-emptydir-data``, ``--force``."""

    ignore_daemon_sets: bool = False
    delete_local_data: bool = False
    force: bool = False


class Leaver(Struct, frozen=True):
    """A pod that is to leave. ``owner``: (apiVersion, kind, name, uid) of its controller; ``copies``: pods of that one;
    ``replaced``: somebody makes another for which room is looked for, and has not done so yet; ``takes``: that one may
    take a reservation; ``budgets``: which cover it; ``named``: nodes are judged for it by their names, for its volumes
    or claims, for which no room is kept; ``ruled``: by their names too, for its required spread or affinity, which the
    room would be judged by beside the pod itself."""

    uid: str
    namespace: str
    name: str
    priority: int = 0
    owner: tuple[str, str, str, str] = ("", "", "", "")
    copies: int = 1
    replaced: bool = False
    takes: bool = True
    budgets: tuple[str, ...] = ()
    named: bool = False
    ruled: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def controller(self) -> str:
        """``kind/name``; "" for a pod of nobody."""
        return f"{self.owner[1]}/{self.owner[2]}" if self.owner[2] else ""


class NodeDepartures(Struct, frozen=True):
    """``leavers``: lowest priority first; ``stay``: by key why a pod is left there; ``forbidden``: by key why nobody
    may be evicted."""

    leavers: tuple[Leaver, ...]
    stay: dict[str, str]
    forbidden: dict[str, str]


def departures(
    raws: Iterable[SourcedPod], node: str, flags: DrainFlags, budgets: Sequence[DisruptionBudget]
) -> NodeDepartures:
    """What becomes of the pods on the node. ``raws``: all pods of the cluster."""
    everybody = list(raws)
    copies = Counter(_controller(raw)[3] for raw in everybody if _counts(raw))
    leavers, stay, forbidden = list[Leaver](), dict[str, str](), dict[str, str]()
    for raw in (one for one in everybody if one.spec.node_name == node):
        leaver = _leaver(raw, copies, budgets)
        if why := _stays(raw, flags):
            stay[leaver.key] = why
        elif why := _forbids(raw, flags) or _never(leaver):
            forbidden[leaver.key] = why
        else:
            leavers.append(leaver)
    leavers.sort(key=lambda one: (one.priority, one.key))
    return NodeDepartures(tuple(leavers), stay, forbidden)


def _leaver(raw: SourcedPod, copies: Counter[str], budgets: Sequence[DisruptionBudget]) -> Leaver:
    meta, owner = raw.metadata, _controller(raw)
    pod = pod_from_api(raw)
    rules = pod.relations or NO_RELATIONS
    return Leaver(
        uid=meta.uid, namespace=meta.namespace or "", name=meta.name, priority=pod.priority, owner=owner,
        copies=copies[owner[3]] if owner[3] else 1, replaced=bool(owner[3]) and _counts(raw), takes=not pod.group,
        budgets=tuple(one.name for one in budgets if covers(one, pod)) if _counts_in_budgets(raw) else (),
        named=bool(raw.spec.resource_claims)
        or any(one.persistent_volume_claim or one.ephemeral for one in raw.spec.volumes or ()),
        ruled=bool(rules.affinity or rules.anti_affinity or any(one.hard for one in rules.spread)),
    )  # fmt: skip


def _controller(raw: SourcedPod) -> tuple[str, str, str, str]:
    owner = controller_of(raw.metadata)
    return (owner.api_version, owner.kind, owner.name, owner.uid) if owner is not None else ("", "", "", "")


def _counts(raw: SourcedPod) -> bool:
    return raw.status.phase not in FINISHED and raw.metadata.deletion_timestamp is None


def _counts_in_budgets(raw: SourcedPod) -> bool:
    """The eviction API asks no budget for others (canIgnorePDB)."""
    return raw.status.phase not in (*FINISHED, "Pending") and raw.metadata.deletion_timestamp is None


def _stays(raw: SourcedPod, flags: DrainFlags) -> str:
    annotations, kind = raw.metadata.annotations or {}, owner_of(raw.metadata)[1]
    if MIRROR_ANNOTATION in annotations or kind == "Node":
        return "its kubelet makes it (mirror pod)"
    if kind == "DaemonSet" and flags.ignore_daemon_sets and raw.status.phase not in FINISHED:
        return "of a DaemonSet"
    return ""


def _forbids(raw: SourcedPod, flags: DrainFlags) -> str:
    """Which flag is missing; finished pods need none."""
    if raw.status.phase in FINISHED:
        return ""
    kind = owner_of(raw.metadata)[1]
    if kind == "DaemonSet":
        return CAUTION["daemon"]
    if not kind and not flags.force:
        return CAUTION["bare"]
    if not flags.delete_local_data and any(one.empty_dir is not None for one in raw.spec.volumes or ()):
        return CAUTION["local"]
    return ""


def _never(leaver: Leaver) -> str:
    if len(leaver.budgets) > 1:
        return (
            f"{len(leaver.budgets)} budgets cover it ({', '.join(leaver.budgets)}), and the eviction API takes no such"
        )
    return ""
