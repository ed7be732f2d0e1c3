"""The node-local filters of this release, in kube-scheduler's order: the first that rejects a node is its reason.

The last one is kube-scheduler's last of all: where it rejects, a rule that needs the whole cluster speaks first.
"""

from __future__ import annotations

from shared.scheduling.cycle.framework import Filter
from shared.scheduling.filters.declared_features import DeclaredFeatures
from shared.scheduling.filters.gpu_devices import GpuDevices
from shared.scheduling.filters.node_affinity import NodeAffinity
from shared.scheduling.filters.node_name import NodeName
from shared.scheduling.filters.node_ports import NodePorts
from shared.scheduling.filters.node_unschedulable import NodeUnschedulable
from shared.scheduling.filters.resource_fit import ResourceFit
from shared.scheduling.filters.taint_toleration import TaintToleration

FILTERS: tuple[Filter, ...] = (
    NodeUnschedulable(),
    NodeName(),
    TaintToleration(),
    NodeAffinity(),
    NodePorts(),
    ResourceFit(),
    GpuDevices(),
    DeclaredFeatures(),
)
