"""The kinds that the twin's API server serves: one strategy per kind, and the table of all of them."""

from __future__ import annotations

from services.twin.kinds.disruption_budget import PodDisruptionBudgetStrategy
from services.twin.kinds.lease import LeaseStrategy
from services.twin.kinds.limit_ranges import LimitRangeStrategy
from services.twin.kinds.node import NodeStrategy
from services.twin.kinds.pod import BindingStrategy, PodStrategy
from services.twin.kinds.priority_class import SYSTEM_CLASSES, PriorityClassStrategy
from services.twin.registry.strategy import Json, Strategy


def all_strategies() -> list[Strategy]:
    """One strategy per served (group, version, kind), core kinds first."""
    return [
        BindingStrategy(),
        LimitRangeStrategy(),
        NodeStrategy(),
        PodStrategy(),
        PodDisruptionBudgetStrategy(),
        LeaseStrategy(),
        PriorityClassStrategy(),
    ]


def bootstrap_objects() -> list[tuple[str, str, Json]]:
    """(resource, namespace, object) of what the server itself creates at its start."""
    return [("priorityclasses.scheduling.k8s.io", "", one) for one in SYSTEM_CLASSES]
