"""The node-local filters of this release, in kube-scheduler's order: the first that rejects a node is its reason."""

from __future__ import annotations

from shared.scheduling.filters.accounted import GpuDevices, NodePorts, ResourceFit
from shared.scheduling.filters.static import (
    DeclaredFeatures,
    LatencyLimit,
    NodeAffinity,
    NodeName,
    NodeUnschedulable,
    TaintToleration,
)
from shared.scheduling.framework import Filter

FILTERS: tuple[Filter, ...] = (
    NodeUnschedulable(),
    NodeName(),
    TaintToleration(),
    NodeAffinity(),
    LatencyLimit(),
    NodePorts(),
    ResourceFit(),
    GpuDevices(),
    DeclaredFeatures(),
)

LAST = DeclaredFeatures.name
"""kube-scheduler's last of all: where it rejects, a rule that needs the whole cluster speaks first."""
