"""For scenarios under pressure: a stream of pods that does not slow down, the mesh's memory, and how long pods waited.

The stream is kept against the clock whatever the cluster does: a create that is slow holds up no other one. It refuses
to ask the mesh anything but its memory, and that the kernel.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.stand.proc import rss_mb
from lab.audit.log import LogEntry
from tests.scenarios.invariants import OURS, node_of
from tests.scenarios.world import World

FLAT_MB = 16.0
"""What a service may grow by for the code and the buffers that a fault is the first to need; beside the pods."""
POD_MB = 0.02
"""What a service may keep of one pod that it has seen; some 0.7 KB for a standing one, more while it waits."""


async def stream(cluster: World, prefix: str, *, per_s: float, for_s: float, **pod: Any) -> set[str]:
    """So many pods a second; their names when the API server has taken all of them, which may be later."""
    loop, names = asyncio.get_running_loop(), [f"{prefix}-{number:05}" for number in range(round(per_s * for_s))]
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            await asyncio.sleep(max(0.0, began + number / per_s - loop.time()))
            group.create_task(_add(cluster, name, pod))
    return set(names)


async def _add(cluster: World, name: str, pod: dict[str, Any]) -> None:
    await cluster.add_pod(name, **pod)


def all_bound(names: Iterable[str]) -> Callable[[World], bool]:
    """For ``until``, of thousands: asked again and again, it looks only at those that were not bound when it was."""
    left = sorted(names, reverse=True)

    def holds(cluster: World) -> bool:
        while left and cluster.bound(left[-1]):
            left.pop()
        return not left

    return holds


def memory_mb(cluster: World) -> dict[int, tuple[str, float]]:
    """Resident MB of each service that runs now, by pid."""
    running = [one for name, one in cluster.mesh.services.items() if name != "twin" and one.ready.is_set()]
    return {one.pid: (one.name, rss_mb(one.pid)) for one in running}


def grown(before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]], pods: int) -> list[str]:
    """Services whose memory did not stay flat while so many pods came; one that began anew is not compared."""
    most = FLAT_MB + pods * POD_MB
    return [
        f"{name} grew from {before[pid][1]:.0f} to {mb:.0f} MB over {pods} pods, more than {most:.0f}"
        for pid, (name, mb) in after.items()
        if pid in before and mb > before[pid][1] + most
    ]


def overdue(entries: Sequence[LogEntry], *, rate: float, slack_s: float) -> list[str]:
    """Pods that waited longer than backlog / rate: those that waited when the pod came (itself included), over ``rate``
    pods a second, and ``slack_s`` for a fault's own time and the way of a lone pod."""
    created: dict[str, float] = {}
    bound: dict[str, float] = {}
    for entry in entries:
        if entry.kind == "Pod" and entry.object["spec"].get("schedulerName") == OURS:
            created.setdefault(entry.uid, entry.time_s)
            if node_of(entry.object):
                bound.setdefault(entry.uid, entry.time_s)
    came, went = sorted(created.values()), sorted(bound.values())
    found = []
    for uid, at in created.items():
        backlog = bisect_right(came, at) - bisect_right(went, at)
        waited, most = bound.get(uid, entries[-1].time_s) - at, backlog / rate + slack_s
        if waited > most:
            found.append(
                f"{uid} waited {waited:.1f} s behind {backlog} pods; at {rate:g} a second {most:.1f} s at most"
            )
    return found
