"""The demo's workload of a tidal day: services whose demand rises and falls, and jobs on what they leave. Pure.

A day takes ``DAY_S`` virtual seconds. Each service has replicas of a fixed number, or as many as an HPA would have;
what they use follows a made-up day. Jobs are gangs (Indexed Jobs, at least half of their workers at once; with a GPU
all) that ask for ``kubernetes.io/batch-cpu`` and ``batch-memory`` and are all there at once. ``Tides`` tells from audit
entries alone what was used and lent, who had to leave, and whom that cost what. Same seed, same workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.audit.log import LogEntry
from lab.audit.rules import amount
from lab.traces.tidal import built_in
from lab.traces.workload import Arrival, node_json, pod_json
from shared.errors import ObjectError
from shared.model.qos import lent_cpu, lent_memory
from twin.model.usage import USAGE_ANNOTATION, UsageNow, UsageProfile, profile_from_json

Json = dict[str, Any]

DAY_S, PARTS = 1200.0, 48
"""Virtual seconds of a day, and in how many parts demand changes."""
NODES, GPU_NODES_SHARE, GPUS_EACH = 8, 3, 2
"""Every third node has GPUs."""
CORES, MEMORY_GIB = 16, 64
REQUESTS_SHARE, USES_SHARE, TARGET = 0.5, 0.12, 0.5
"""As in the suite ``tidal``: what services request of all cores at their peak, and use of that."""
REPLICA = {"cpu": "2", "memory": "1Gi"}
REPLICA_CORES = 2
PERCENT = 75.0
"""Of a node's CPU that is used at most."""
WINDOW_S, LEAST_WINDOW_S = 80.0, 4.0
"""How far back the lender looks, in virtual seconds and at least."""
LINE = 0.8
"""How busy a node may be before its services' requests count as violated (the suite's latency proxy)."""
JOB_S = (40.0, 160.0)
WORK, GPU_WORK = 0.9, 0.9
"""Of what could be lent over the day, and of all GPUs, so much is asked for."""
MIB = 1024 * 1024


def tidal_nodes(count: int) -> list[Json]:
    """The pool."""
    capacity = {"cpu": str(CORES), "memory": f"{MEMORY_GIB}Gi", "pods": "110"}
    with_gpus = {**capacity, "conclave.io/gpu-milli": str(1000 * GPUS_EACH)}
    return [
        node_json(f"node-{n:02d}", with_gpus if n % GPU_NODES_SHARE == GPU_NODES_SHARE - 1 else capacity)
        for n in range(count)
    ]


def mesh_flags(speed: float) -> tuple[str, ...]:
    """How the coordinator lends: by what a few readings tell, which come every 15 virtual seconds."""
    window_s = max(LEAST_WINDOW_S, WINDOW_S / speed)
    return (
        "--lend", "on", "--lend-cpu-percent", f"{PERCENT:g}", "--lend-window-s", f"{window_s:g}",
        "--lend-rewrite-s", f"{window_s:g}", "--offline-eviction", "on",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Service:
    name: str
    scaled: bool
    most: int
    demand: list[float]
    """Cores, by part of the day."""

    def replicas(self, part: int) -> int:
        """How many there are."""
        wanted = math.ceil(self.demand[part] / (TARGET * REPLICA_CORES))
        return max(2, min(self.most, wanted)) if self.scaled else self.most


def _services(seed: int, nodes: int) -> list[_Service]:
    tides = built_in().tides
    found = []
    for number, tide in enumerate(tides):
        alike = sum(one.of_use == tide.of_use for one in tides)
        asked = nodes * CORES * (USES_SHARE if tide.of_use else REQUESTS_SHARE) / alike
        most = max(2, round(asked / REPLICA_CORES))
        peak = most * REPLICA_CORES * (1.0 if tide.of_use else TARGET)
        parts = tide.day(seed).reshape(PARTS, -1).mean(axis=1)
        found.append(_Service(tide.name, not tide.of_use and number % 2 == 0, most, (parts * peak).tolist()))
    return found


def tidal_pods(seed: int, nodes: int) -> list[Arrival]:
    """The replicas of all services, in the order in which they come."""
    part_s = DAY_S / PARTS
    found: list[Arrival] = []
    for service in _services(seed, nodes):
        for replica in range(service.most):
            for began, ended in _stretches(service, replica):
                steps = tuple(
                    ((part - began) * part_s, _use(service.demand[part] / service.replicas(part)))
                    for part in range(began, ended)
                )
                used = UsageProfile(steps, (ended - began) * part_s).to_json()
                name = f"{service.name}-{replica:02d}-{began:02d}"
                pod = pod_json(
                    name, REPLICA, labels={"app": service.name}, annotations={USAGE_ANNOTATION: used}
                )  # fmt: skip
                found.append(Arrival(began * part_s, pod))
    return sorted(found, key=lambda one: one.at_s)


def _stretches(service: _Service, replica: int) -> Iterator[tuple[int, int]]:
    """(first part, part after the last) of each time in which the service has this replica."""
    began = None
    for part in range(PARTS + 1):
        there = part < PARTS and service.replicas(part) > replica
        if there and began is None:
            began = part
        elif not there and began is not None:
            yield began, part
            began = None


def _use(cores: float) -> UsageNow:
    return UsageNow(cpu_millis=round(min(cores, 2 * REPLICA_CORES) * 1000), memory_bytes=700 * MIB)


def tidal_jobs(seed: int, nodes: int) -> list[Json]:
    """Jobs that together ask for ``WORK`` of what could be lent, and for ``GPU_WORK`` of all GPUs."""
    rng = np.random.default_rng([seed, 29])
    online = sum(sum(service.demand) for service in _services(seed, nodes)) / PARTS
    cores = (PERCENT / 100 * nodes * CORES - online) * DAY_S * WORK
    gpus = nodes // GPU_NODES_SHARE * GPUS_EACH * DAY_S * GPU_WORK
    found: list[Json] = []
    while cores > 0:
        gpu = gpus > 0 and bool(rng.random() < 0.5)
        workers = int(rng.integers(1, 3 if gpu else 5))
        seconds, cpu = float(round(rng.uniform(*JOB_S))), int(rng.integers(1, 3)) + (0 if gpu else 1)
        cores -= cpu * workers * seconds
        gpus -= workers * seconds if gpu else 0.0
        found.append(_job(f"job-{len(found):03d}", workers, seconds, cpu, gpu=gpu))
    return found


def _job(name: str, workers: int, seconds: float, cores: int, *, gpu: bool) -> Json:
    asked = {lent_cpu(): str(cores * 1000), lent_memory(): str(2048 * MIB)}
    if gpu:
        asked["conclave.io/gpu-milli"] = "1000"
    used = UsageProfile(((0.0, UsageNow(cpu_millis=round(cores * 920), memory_bytes=1500 * MIB)),), seconds).to_json()
    pod = pod_json(name, asked, annotations={USAGE_ANNOTATION: used})
    least = workers if gpu else -(-workers // 2)
    gang = {
        "conclave.io/gang": "true", "conclave.io/gang-min-count": str(least), "conclave.io/gang-broken": "evict",
    }  # fmt: skip
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "annotations": gang},
        "spec": {
            "parallelism": workers, "completions": workers, "completionMode": "Indexed", "backoffLimit": 100,
            "template": {"metadata": {"annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]},
        },
    }  # fmt: skip


# --- what came of it --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """A pod's time at work on a node."""

    node: str
    offline: bool
    cores: float
    began_s: float
    profile: UsageProfile
    ended_s: float = math.inf
    kept: bool = False
    """Whether it ended by itself."""


class Tides:
    """Feed every audit entry in order. ``speed``: virtual seconds per second."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._runs: dict[str, _Run] = {}
        self._created: dict[str, float] = {}
        self._waits: list[float] = []
        self._cores: dict[str, float] = {}
        self._lent: list[tuple[float, str, float]] = []
        self._asked: set[str] = set()
        self._first_s = 0.0

    def feed(self, entry: LogEntry) -> None:
        """Take one accepted change into account."""
        if entry.kind == "Node" and not entry.gone:
            has = (entry.object.get("status") or {}).get("allocatable") or {}
            self._cores[entry.name] = amount("cpu", str(has.get("cpu", 0))) / 1000
            self._lent.append((entry.time_s, entry.name, amount(lent_cpu(), str(has.get(lent_cpu(), 0))) / 1000))
        elif entry.kind == "Pod":
            self._pod(entry)

    def _pod(self, entry: LogEntry) -> None:
        self._first_s = self._first_s or entry.time_s
        spec, status = entry.object["spec"], entry.object.get("status") or {}
        meta, phase, uid = entry.object["metadata"], status.get("phase"), entry.uid
        requests = [(one.get("resources") or {}).get("requests") or {} for one in spec["containers"]]
        offline = any(lent_cpu() in one for one in requests)
        if entry.verb == "create":
            self._created[uid] = entry.time_s
        elif entry.verb == "bind" and not offline and uid in self._created:
            self._waits.append(entry.time_s - self._created[uid])
        run = self._runs.get(uid)
        if run is None and phase == "Running" and (profile := _profile(meta)) is not None:
            name = lent_cpu() if offline else "cpu"
            cores = sum(amount(name, str(one.get(name, 0))) for one in requests) / 1000
            self._runs[uid] = _Run(spec["nodeName"], offline, cores, entry.time_s, profile)
        elif run is not None and math.isinf(run.ended_s) and (entry.gone or phase in ("Succeeded", "Failed")):
            run.ended_s, run.kept = entry.time_s, phase == "Succeeded"
        if offline and meta.get("deletionTimestamp") and phase == "Running":
            self._asked.add(uid)

    def course(self, columns: int = 120) -> dict[str, list[float]]:
        """Shares of all cores used online, used offline and lent, by equal parts of the day; ``violated`` and
        ``violated_alone``: of the demand, in cores, on nodes that are busier than the line, with and without jobs."""
        found: dict[str, list[float]] = {
            name: [] for name in ("hours", "online", "offline", "lent", "demand", "violated", "violated_alone")
        }
        whole = sum(self._cores.values()) or 1.0
        for column in range(columns):
            at_s = self._first_s + DAY_S / self._speed * (column + 0.5) / columns
            online, offline = dict.fromkeys(self._cores, 0.0), dict.fromkeys(self._cores, 0.0)
            for run in self._runs.values():
                if run.began_s <= at_s < run.ended_s and run.node in online:
                    used = run.profile.at((at_s - run.began_s) * self._speed).cpu_millis / 1000
                    (offline if run.offline else online)[run.node] += used
            lent = dict.fromkeys(self._cores, 0.0)
            for when_s, node, amount_lent in self._lent:
                if when_s <= at_s:
                    lent[node] = amount_lent
            busy = {node: (online[node] + offline[node]) / cores for node, cores in self._cores.items()}
            found["hours"].append(24 * (column + 0.5) / columns)
            found["online"].append(sum(online.values()) / whole)
            found["offline"].append(sum(offline.values()) / whole)
            found["lent"].append(sum(lent.values()) / whole)
            found["demand"].append(sum(online.values()))
            found["violated"].append(sum(online[node] for node in busy if busy[node] > LINE))
            found["violated_alone"].append(
                sum(online[n] for n, cores in self._cores.items() if online[n] > LINE * cores)
            )
        return found

    def figures(self) -> dict[str, Any]:
        """The day in numbers."""
        course = self.course()
        used = np.array(course["online"]) + np.array(course["offline"])
        online, demand = np.array(course["online"]), sum(course["demand"]) or 1.0
        hour = len(used) // 24
        peak = int(np.argmax(np.convolve(online, np.ones(hour), "valid")))
        asked = [run for uid, run in self._runs.items() if uid in self._asked and not run.kept]
        done = sum(_work(run) for run in self._runs.values() if run.offline and run.kept)
        lost = sum(_work(run) for run in asked)
        return {
            "cpu_day": round(float(used.mean()), 4),
            "cpu_peak": round(float(used[peak : peak + hour].mean()), 4),
            "online_cpu_day": round(float(online.mean()), 4),
            "violated": round(sum(course["violated"]) / demand, 5),
            "violated_alone": round(sum(course["violated_alone"]) / demand, 5),
            "evictions": len(self._asked),
            "lost": round(lost / (done + lost), 4) if done else 0.0,
            "longest_wait_s": round(max(self._waits, default=0.0), 3),
            "offline_pods": sum(run.offline for run in self._runs.values()),
        }


def _work(run: _Run) -> float:
    return (run.ended_s - run.began_s) * run.cores if math.isfinite(run.ended_s) else 0.0


def _profile(meta: Json) -> UsageProfile | None:
    try:
        return profile_from_json((meta.get("annotations") or {}).get(USAGE_ANNOTATION, "") or "{}")
    except ObjectError:
        return None


def idle(figures: Mapping[str, Any]) -> list[str]:
    """What keeps a run from showing that room is lent."""
    return ["tidal: no offline pod ran, so nothing was lent"] if figures and not figures["offline_pods"] else []


def tidal_rows(figures: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Rows of the final table."""
    asked, ran = figures["evictions"], figures["offline_pods"]
    return [
        ("CPU used over the day, at the peak", f"{figures['cpu_day']:.1%}, {figures['cpu_peak']:.1%}"),
        ("of that by services", f"{figures['online_cpu_day']:.1%} over the day"),
        ("requests beyond the line, services alone", f"{figures['violated']:.2%}, {figures['violated_alone']:.2%}"),
        ("workers asked to leave", f"{asked} of {ran}, {figures['lost']:.1%} of work lost"),
        ("longest wait of a service's pod", f"{figures['longest_wait_s']:.2f} s"),
    ]  # fmt: skip


def draw_tides(axes: Any, course: Mapping[str, list[float]]) -> None:
    """CPU used online and offline over the day, and what is lent."""
    hours = course["hours"]
    axes.stackplot(
        hours, [100 * value for value in course["online"]], [100 * value for value in course["offline"]],
        labels=["used by services", "used by jobs"], colors=["tab:blue", "tab:orange"], alpha=0.6,
    )  # fmt: skip
    total = [100 * (on + lent) for on, lent in zip(course["online"], course["lent"], strict=True)]
    axes.plot(hours, total, color="black", linewidth=1.0, linestyle="--", label="used by services, and lent")
    axes.set_xlim(0, 24)
    axes.set_xticks(range(0, 25, 3))
    axes.set_xlabel("hour of the day")
    axes.set_ylabel("CPU, percent of the pool")
    axes.set_ylim(0, 100)
    axes.legend(loc="upper left", fontsize="small", ncols=3)
