"""The cluster that moves are planned over, as the API server shows it now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from shared.errors import KubeError, ObjectError
from shared.kube.nodes.node_metrics import NodeMetric
from shared.kube.pods.convert import pod_from_api
from shared.kube.pods.standing_pods import STANDING_PODS, SourcedPod
from shared.kube.reservations import reserve_pod_from_api
from shared.kube.scheduling_kinds import RESERVATION_KIND
from shared.model.pod import Pod
from shared.ports import KubeApi
from shared.rebalance.planner import ClusterSituation
from shared.rebalance.residents import Resident, resident_from_api
from shared.runtime.kube.cluster_reads import UnlistedKind, list_kind, read_cluster
from shared.scheduling.state.cluster_load import incoming_pod
from shared.scheduling.state.cluster_state import ClusterState


class MeasuringApi(KubeApi, Protocol):
    """An API server whose metrics are asked too."""

    async def node_metrics(self, *, timeout_s: float = 5.0) -> Sequence[NodeMetric]:
        """What nodes use."""
        ...


async def read_live(api: MeasuringApi) -> tuple[ClusterSituation, list[SourcedPod]]:
    """The cluster as the API server shows it now, and its pods as told. ``ConfigError``: it cannot be read."""
    state, raws, missing = await read_cluster(api, STANDING_PODS)
    reserved, unknown = await _reserved(api, state)
    missing += unknown
    used: dict[str, tuple[float, float]] = {}
    try:
        for one in await api.node_metrics():
            used[one.node] = (float(one.cpu_millis), float(one.memory_bytes))
    except KubeError as error:
        missing = [*missing, f"what nodes use: the metrics API does not tell ({str(error)[:120]})"]
    return replace(situation_of(state, raws, used, missing), reserved=reserved), raws


async def _reserved(api: MeasuringApi, state: ClusterState) -> tuple[frozenset[str], list[str]]:
    """Put the room that Reservations keep into the state; on which nodes it is, and what could not be read."""
    found = await list_kind(api, RESERVATION_KIND, silent=True)
    if isinstance(found, UnlistedKind):
        return frozenset(), [str(found)]
    nodes = set[str]()
    for item in found.items:
        pod = reserve_pod_from_api(item)
        if pod.node_name and not pod.finished:
            state.observe(pod)
            nodes.add(pod.node_name)
    return frozenset(nodes), [f"Reservation {bad.namespace}/{bad.name} ({bad.error})" for bad in found.malformed]


def situation_of(
    state: ClusterState,
    raws: Iterable[SourcedPod],
    used: Mapping[str, tuple[float, float]],
    missing: Sequence[str],
) -> ClusterSituation:
    """What a planner is told of these pods in this state. ``missing``: what could not be read."""
    residents, waiting, notes = list[Resident](), list[Pod](), [f"not known: {one}" for one in missing]
    for raw in raws:
        if raw.status.phase in ("Succeeded", "Failed"):
            continue
        try:
            if raw.spec.node_name:
                residents.append(resident_from_api(raw))
            elif not (pod := pod_from_api(raw)).gates:
                waiting.append(pod if pod.uid else incoming_pod(raw))
        except ObjectError as error:
            notes.append(f"left where it is: pod {raw.metadata.namespace}/{raw.metadata.name} ({error})")
    return ClusterSituation(state, tuple(residents), tuple(waiting), dict(used), tuple(notes))
