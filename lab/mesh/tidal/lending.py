"""The coordinator's own lender in the day: metrics in, what nodes lend out, every step.

As in service (``services/coordinator/io/loan_writes.py``): the ledger judges each node by what it and its pods were
measured to use, and what is due is written on the node. Who gives way where less is lent is the core's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace as replace_settings

from msgspec.structs import replace

from lab.mesh.tidal.levels import TidalLevels
from lab.mesh.world import MeshWorld
from services.coordinator.core.events import NodeSample, NodesMeasured
from services.coordinator.core.state import CoreSettings
from services.coordinator.lending.ledger import LoanLedger
from services.coordinator.lending.pod_uses import PodUses
from shared.kube.nodes.pod_metrics import PodMetric
from shared.model.resources import Resources

PLAIN = CoreSettings(gang_patience_s=0.0)
"""Else by default: where there is always more to do, nodes that are kept for one gang would stand idle."""


def giving_way(levels: TidalLevels) -> CoreSettings:
    """Where nodes lend."""
    return replace_settings(
        PLAIN, offline_eviction=True, offline_preemption=True, offline_margin=levels.offline_margin
    )  # fmt: skip


class Lending:
    """One term's."""

    def __init__(self, levels: TidalLevels, world: MeshWorld) -> None:
        self._world = world
        self._ledger = LoanLedger(levels.rule, on=True)
        self._uses = PodUses()

    def read(
        self, nodes: Sequence[tuple[str, float, float]], pods: Iterable[tuple[str, float, float]], at_s: float
    ) -> None:
        """(name, cores, bytes) that each node used at ``at_s``, and each pod by ``namespace/name``: judge all nodes
        by it."""
        world = self._world
        now = world.now
        told = {key: PodMetric(key, at_s, round(cores * 1000), round(memory)) for key, cores, memory in pods}
        for metric in told.values():
            self._uses.take(metric, wall_s=now, now_s=now)
        self._uses.keep(told)
        samples = tuple(
            NodeSample(name, now - at_s, round(cores * 1000), round(memory)) for name, cores, memory in nodes
        )
        world.tell(NodesMeasured(samples))
        world.rest()
        state, used = world.core.state, world.core.variants.used
        for name, _, _ in nodes:
            node = world.nodes[name]
            self._ledger.look(
                node, list(state.cluster.index.pods_on(name)), used.get(name), lambda key: self._uses.get(key, now), now
            )
            work = self._ledger.due(node, now)
            if work is None or work.amounts is None:
                continue
            self._ledger.started(name, now)
            amounts = dict(zip(self._ledger.names, work.amounts, strict=True))
            world.change(replace(node, allocatable=Resources({**node.allocatable, **amounts})))
            self._ledger.settled(name, now, ours=True)
