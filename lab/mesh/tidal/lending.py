"""What the pool's lender sees and does: the metrics of each step, and what is lent of each node by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from lab.mesh.tidal.jobs import Worker
from lab.mesh.tidal.levels import Levels
from lab.mesh.world import MeshWorld
from shared.model.qos import lent_cpu, lent_memory
from shared.model.resources import CPU, MEMORY, Resources
from shared.scheduling.lending.rule import lent

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reading:
    """By node: cores used online, online replicas; the workers that run."""

    online: Floats
    replicas: Floats
    workers: Sequence[Worker]


class Lending:
    """In place of the coordinator's own."""

    def __init__(self, levels: Levels, world: MeshWorld, rows: Mapping[str, int]) -> None:
        self._levels = levels
        self._world = world
        self._rows = rows

    def read(self, reading: Reading) -> None:
        """Lend by it, and have leave what is held beyond."""
        levels, world = self._levels, self._world
        on: list[list[Worker]] = [[] for _ in self._rows]
        for worker in reading.workers:
            if not worker.leaving:
                on[worker.node].append(worker)
        for name, row in self._rows.items():
            node = world.nodes[name]
            cpu = lent(CPU, levels.cores * 1000, float(reading.online[row]) * 1000, levels.rule, age_s=0.0)
            used = float(reading.replicas[row]) * levels.replica_used_bytes
            memory = lent(MEMORY, levels.memory_bytes, used, levels.rule, age_s=0.0)
            world.change(
                replace(node, allocatable=Resources({**node.allocatable, lent_cpu(): cpu, lent_memory(): memory}))
            )
            held = sum(one.job.asked.cpu_millis for one in on[row])
            for worker in sorted(
                on[row], key=lambda one: (one.job.started and one.job._running() <= one.job.least, one.unsaved)
            ):
                if held <= cpu:
                    break
                held -= worker.job.asked.cpu_millis
                world.leave(worker.uid)
