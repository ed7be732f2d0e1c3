"""``resource.k8s.io/v1``: typed structs of slices, classes, claims and taint rules.

Fields as in ``objects``: camelCase on the wire, unknown ones skipped, quantities as strings.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from shared.kube.objects import Json, KubeToleration, NodeSelector, ObjectMeta, Quantities


class AttributeValue(Json, frozen=True):
    int_value: int | None = field(name="int", default=None)
    bool_value: bool | None = field(name="bool", default=None)
    string_value: str | None = field(name="string", default=None)
    version_value: str | None = field(name="version", default=None)
    int_values: list[int] | None = field(name="ints", default=None)
    bool_values: list[bool] | None = field(name="bools", default=None)
    string_values: list[str] | None = field(name="strings", default=None)
    version_values: list[str] | None = field(name="versions", default=None)


class ValidRange(Json, frozen=True):
    min: str | int | float | None = None
    max: str | int | float | None = None
    step: str | int | float | None = None


class CapacityPolicy(Json, frozen=True):
    default: str | int | float | None = None
    valid_values: list[str | int | float] | None = None
    valid_range: ValidRange | None = None


class CapacityValue(Json, frozen=True):
    value: str | int | float = "0"
    request_policy: CapacityPolicy | None = None


class CounterSet(Json, frozen=True):
    """``name`` of one that is offered, ``counter_set`` of one that is consumed."""

    name: str = ""
    counter_set: str = ""
    counters: dict[str, CapacityValue] | None = None


class KubeDeviceTaint(Json, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str = ""


class KubeDevice(Json, frozen=True):
    name: str = ""
    attributes: dict[str, AttributeValue] | None = None
    capacity: dict[str, CapacityValue] | None = None
    consumes_counters: list[CounterSet] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[KubeDeviceTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None


class KubeDevicePool(Json, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(Json, frozen=True):
    driver: str = ""
    pool: KubeDevicePool = field(default_factory=KubeDevicePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[KubeDevice] | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: SliceSpec = field(default_factory=SliceSpec)


class CelSelector(Json, frozen=True):
    expression: str = ""


class DeviceSelector(Json, frozen=True):
    cel: CelSelector | None = None


class Config(Json, frozen=True):
    opaque: dict[str, Any] | None = None
    requests: list[str] | None = None


class ClassSpec(Json, frozen=True):
    selectors: list[DeviceSelector] | None = None
    config: list[Config] | None = None
    extended_resource_name: str | None = None


class KubeDeviceClass(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ClassSpec = field(default_factory=ClassSpec)


class RuleSelector(Json, frozen=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class TaintRuleSpec(Json, frozen=True):
    device_selector: RuleSelector | None = None
    taint: KubeDeviceTaint = field(default_factory=KubeDeviceTaint)


class DeviceTaintRule(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: TaintRuleSpec = field(default_factory=TaintRuleSpec)


class CapacityRequests(Json, frozen=True):
    requests: Quantities | None = None


class KubeDeviceAsk(Json, frozen=True):
    """``exactly``, or an entry of ``firstAvailable``, which has a name of its own."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] | None = None
    allocation_mode: str = "ExactCount"
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[KubeToleration] | None = None
    capacity: CapacityRequests | None = None


class KubeDeviceRequest(Json, frozen=True):
    name: str = ""
    exactly: KubeDeviceAsk | None = None
    first_available: list[KubeDeviceAsk] | None = None


class DeviceConstraint(Json, frozen=True):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceRequests(Json, frozen=True):
    requests: list[KubeDeviceRequest] | None = None
    constraints: list[DeviceConstraint] | None = None
    config: list[Config] | None = None


class DeviceClaimSpec(Json, frozen=True):
    devices: DeviceRequests = field(default_factory=DeviceRequests)


class DeviceResult(Json, frozen=True):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: list[KubeToleration] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None
    share_id: str | None = field(name="shareID", default=None)
    consumed_capacity: Quantities | None = None


class DeviceResults(Json, frozen=True):
    results: list[DeviceResult] | None = None
    config: list[dict[str, Any]] | None = None


class AllocationResult(Json, frozen=True):
    devices: DeviceResults = field(default_factory=DeviceResults)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ClaimConsumer(Json, frozen=True):
    uid: str = ""


class ClaimMeta(ObjectMeta, frozen=True):
    finalizers: list[str] | None = None


class ConditionOf(Json, frozen=True):
    type: str = ""
    status: str = ""


class DeviceStatus(Json, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: list[ConditionOf] | None = None


class ClaimStatus(Json, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: list[ClaimConsumer] | None = None
    devices: list[DeviceStatus] | None = None


class ResourceClaim(Json, frozen=True):
    metadata: ClaimMeta = field(default_factory=ClaimMeta)
    spec: DeviceClaimSpec = field(default_factory=DeviceClaimSpec)
    status: ClaimStatus = field(default_factory=ClaimStatus)
