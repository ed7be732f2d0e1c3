"""All kinds that the twin serves, one strategy each, in the order of discovery."""

from __future__ import annotations

from twin.kinds.config import ConfigMapStrategy, SecretStrategy
from twin.kinds.custom_definition import CustomResourceDefinitionStrategy
from twin.kinds.devices.claims import DeviceClassStrategy, ResourceClaimStrategy, ResourceClaimTemplateStrategy
from twin.kinds.devices.slices import ResourceSliceStrategy
from twin.kinds.devices.taints import device_taint_rule_strategy
from twin.kinds.event import CoreEventStrategy, EventStrategy
from twin.kinds.lease import LeaseStrategy
from twin.kinds.namespace import NamespaceStrategy
from twin.kinds.node import NodeStrategy
from twin.kinds.node_resources import (
    ComponentStatusStrategy,
    RuntimeClassStrategy,
)
from twin.kinds.plain import plain_strategies
from twin.kinds.pod.pod import BindingStrategy, PodStrategy
from twin.kinds.policy.disruption_budget import PodDisruptionBudgetStrategy
from twin.kinds.policy.limit_ranges import LimitRangeStrategy
from twin.kinds.policy.priority_class import SYSTEM_CLASSES, PriorityClassStrategy
from twin.kinds.policy.quota import ResourceQuotaStrategy
from twin.kinds.service import ServiceStrategy
from twin.kinds.service_account import ServiceAccountStrategy
from twin.kinds.storage.storage import (
    CSINodeStrategy,
    PersistentVolumeClaimStrategy,
    PersistentVolumeStrategy,
    StorageClassStrategy,
)
from twin.kinds.workload.apps import (
    ControllerRevisionStrategy,
    DaemonSetStrategy,
    DeploymentStrategy,
    ReplicaSetStrategy,
    ReplicationControllerStrategy,
    StatefulSetStrategy,
)
from twin.kinds.workload.autoscaling import AutoscalerStrategy, AutoscalerV1Strategy
from twin.kinds.workload.batch import CronJobStrategy, JobStrategy
from twin.kinds.workload.pod_groups import pod_group_strategies
from twin.registry.strategy import Json, KindStrategy

_STRATEGIES: tuple[type[KindStrategy], ...] = (
    BindingStrategy,
    ComponentStatusStrategy,
    ConfigMapStrategy,
    CoreEventStrategy,
    LimitRangeStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PersistentVolumeClaimStrategy,
    PersistentVolumeStrategy,
    PodStrategy,
    ReplicationControllerStrategy,
    ResourceQuotaStrategy,
    SecretStrategy,
    ServiceAccountStrategy,
    ServiceStrategy,
    ControllerRevisionStrategy,
    DaemonSetStrategy,
    DeploymentStrategy,
    ReplicaSetStrategy,
    StatefulSetStrategy,
    EventStrategy,
    AutoscalerStrategy,
    AutoscalerV1Strategy,
    CronJobStrategy,
    JobStrategy,
    LeaseStrategy,
    PodDisruptionBudgetStrategy,
    PriorityClassStrategy,
    RuntimeClassStrategy,
    DeviceClassStrategy,
    ResourceClaimStrategy,
    ResourceClaimTemplateStrategy,
    ResourceSliceStrategy,
    CSINodeStrategy,
    StorageClassStrategy,
    CustomResourceDefinitionStrategy,
)


KUBERNETES = ("1.36", "1.37")
"""The releases that are answered for; they differ in the versions that have pod groups and taint rules of devices."""


def all_strategies(kubernetes: str = KUBERNETES[0]) -> list[KindStrategy]:
    """One strategy per served (group, version, kind), the core group first."""
    every = [*(strategy() for strategy in _STRATEGIES), *plain_strategies()]
    return [*every, *pod_group_strategies(kubernetes), device_taint_rule_strategy(kubernetes)]


def bootstrap_objects() -> list[tuple[str, str, Json]]:
    """(resource, namespace, object) of what the server itself creates at its start, beside the system namespaces."""
    return [("priorityclasses.scheduling.k8s.io", "", one) for one in SYSTEM_CLASSES]
