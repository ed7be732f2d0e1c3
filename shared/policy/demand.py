"""What pods ask for of GPUs: counted by whoever sees all of them, for policies that judge nodes by it.

Taken over anew each time the number of pods has grown by a quarter, so that policies begin to judge anew ever more
rarely; and when nodes bring or take away GPUs of a model. Pure.

Source: Weng et al., "Beware of Fragmentation", ATC 2023, section 4.1: the most frequent requests until 95 % of the
pods are counted.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from shared.model.constraints import PodClass
from shared.model.gpu_shares import GpuShares
from shared.model.resources import CPU
from shared.policy.frag.fragmentation import TYPICAL_SHARE
from shared.policy.frag.view import GpuView, asked_of, model_codes, models_named
from shared.scheduling.state.node_table import NodeTable
from shared.wire.bounds import MAX_COUNT
from shared.wire.demand import MAX_TOLD_MODELS, MAX_TYPICAL, Demand, TypicalPod

GROWTH = 1.25
MOST_CHARS = 253
"""Of a model's name."""
MOST_KNOWN = 4096
"""Requests that are counted; beyond, the most frequent half of them stays."""

Key = tuple[int, int, int, tuple[str, ...]]


class DemandCount:
    """Of all pods so far."""

    def __init__(self) -> None:
        self._counts: Counter[Key] = Counter()
        self._next = 0.0
        self.pods = 0
        self._seen = -1, -1
        """The table's ``static_stamp`` and ``offered_stamp`` when GPUs were counted last."""
        self._devices: tuple[dict[str, int], int] = ({}, 0)
        """GPUs by model, and of others, as taken over."""

    def add(self, pod_class: PodClass, pods: int, shares: GpuShares) -> None:
        """So many more pods of a class."""
        amounts = (dict(pod_class.requests).get(CPU, 0), *asked_of(pod_class, shares))
        # one number or name beyond what the wire takes would have every offer refused
        cpu, devices, milli = (min(amount, MAX_COUNT) for amount in amounts)
        models = tuple(name[:MOST_CHARS] for name in models_named(pod_class)[:MAX_TOLD_MODELS])
        self._counts[cpu, devices, milli, models] += pods
        self.pods += pods
        if len(self._counts) > MOST_KNOWN:
            before = self.pods
            self._counts = Counter(dict(self._counts.most_common(MOST_KNOWN // 2)))
            self.pods = self._counts.total()
            self._next *= self.pods / before

    def due(self, table: NodeTable, shares: GpuShares) -> bool:
        """Whether it has grown so much, or the nodes' GPUs are so many others, that it is to be taken over."""
        if not self.pods:
            return False
        if self.pods >= self._next:
            return True
        if self._seen == (table.static_stamp, table.offered_stamp):
            return False
        self._seen = table.static_stamp, table.offered_stamp
        return devices_by_model(table, shares) != self._devices

    def take_over(self, table: NodeTable, shares: GpuShares) -> Demand:
        """As it is told from now on, with the GPUs that the nodes of the table have."""
        self._next = self.pods * GROWTH
        typical, covered = list[TypicalPod](), 0
        for (cpu, devices, milli, models), count in sorted(self._counts.items(), key=lambda one: (-one[1], one[0])):
            if covered >= TYPICAL_SHARE * self.pods or len(typical) == MAX_TYPICAL:
                break
            typical.append(TypicalPod(cpu, devices, milli, list(models), count))
            covered += count
        self._seen, self._devices = (table.static_stamp, table.offered_stamp), devices_by_model(table, shares)
        return Demand(typical, *self._devices)


def devices_by_model(table: NodeTable, shares: GpuShares) -> tuple[dict[str, int], int]:
    """How many GPUs its nodes have of each model, and of others than those that the wire takes."""
    (names, of_row), devices = model_codes(table), GpuView(table, shares).devices()
    rows = table.live_rows()
    devices_of = np.bincount(of_row[rows] + 1, devices[rows], len(names) + 1).astype(np.int64).tolist()
    told = {name[:MOST_CHARS]: devices_of[code + 1] for name, code in list(names.items())[:MAX_TOLD_MODELS]}
    return told, int(devices[rows].sum()) - sum(told.values())
