"""Where a plan's cluster comes from: the API server, a dump of objects as ``explain --batch`` reads, or a twin file."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from services.cli.explain.offline import UnlistedKind, list_kind, read_cluster
from shared.errors import ConfigError, KubeError, ObjectError
from shared.kube.convert import pod_from_api
from shared.kube.node_metrics import NodeMetric
from shared.kube.reservations import reserve_pod_from_api
from shared.kube.scheduling_kinds import RESERVATION_KIND
from shared.kube.standing_pods import STANDING_PODS, CapturedState, SourcedPod, StandingCluster
from shared.model.pod import Pod
from shared.ports import KubeApi
from shared.rebalance.planner import ClusterSituation
from shared.rebalance.residents import Resident, resident_from_api, seconds_of
from shared.scheduling.state.cluster_load import incoming_pod, load_cluster
from shared.scheduling.state.cluster_state import ClusterState

if TYPE_CHECKING:
    from collections.abc import Mapping

TWIN_FILE_SCHEMA = 1
MOST_BYTES = 1 << 30
GZIP = b"\x1f\x8b"


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
    return replace(_situation(state, raws, used, missing), reserved=reserved), raws


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


def read_file(file: Path) -> tuple[ClusterSituation, float]:
    """A cluster from a file, and the moment that it is of (seconds since 1970; of a dump the newest that it tells, 0
    where it tells none). ``ConfigError``:
    what is wrong with it."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--capture: {file}: {error.strerror}; give a file that can be read") from None
    if data.startswith(GZIP):
        return _twin_file(data, file)
    try:
        dump = msgspec.json.decode(data, type=StandingCluster)
        state = load_cluster(dump)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ObjectError) as error:
        raise ConfigError(
            f"--capture: {file}: {error}; give a file of 'conclave twin capture', or JSON with nodes, pods, pdbs, ..."
        ) from None
    if not dump.nodes:
        raise ConfigError(f"--capture: {file}: nodes: there are none; give the cluster's nodes and pods")
    stamps = [item.metadata.creation_timestamp or "" for item in (*dump.nodes, *(dump.pods or ()))]
    return _situation(state, dump.pods or (), {}, ()), max(map(seconds_of, stamps))


def _twin_file(data: bytes, file: Path) -> tuple[ClusterSituation, float]:
    try:
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        text = unpacker.decompress(data, MOST_BYTES)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise ConfigError(f"--capture: {file}: it is cut, or unpacks to more than {MOST_BYTES} bytes")
        found = msgspec.json.decode(text, type=CapturedState)
    except (zlib.error, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"--capture: {file}: {error}; give a file of 'conclave twin capture'") from None
    if found.schema != TWIN_FILE_SCHEMA:
        raise ConfigError(f"--capture: {file}: schema {found.schema} is not {TWIN_FILE_SCHEMA}; capture again")
    standing = [one.pod for one in found.pods if one.ended_s is None or one.ended_s > found.length_s]
    try:
        state = load_cluster(StandingCluster(nodes=found.nodes, pods=standing))
    except ObjectError as error:
        raise ConfigError(f"--capture: {file}: {error}; capture the cluster again") from None
    used: dict[str, tuple[float, float]] = {}
    for node, series in found.series.items():
        cpu, memory = (_last(series.get(part, ())) for part in ("cpu", "memory"))
        if cpu is not None and memory is not None:
            used[node] = (cpu, memory)
    notes = ("a twin file holds no budgets, no volumes' sources and no workloads: what they protect is not known",)
    return _situation(state, standing, used, notes), seconds_of(found.started_at) + found.length_s


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _situation(
    state: ClusterState,
    raws: Iterable[SourcedPod],
    used: Mapping[str, tuple[float, float]],
    missing: Sequence[str],
) -> ClusterSituation:
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
