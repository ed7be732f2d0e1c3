"""From a cluster dump to an ``Inventory``: the offline counterpart of watches of ``resource.k8s.io``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from shared.errors import ObjectError
from shared.kube import device_objects as kube
from shared.kube.cluster_objects import ClusterObjects
from shared.kube.objects import ObjectMeta
from shared.kube.pods import convert_devices as convert
from shared.scheduling.devices.inventory import Inventory
from shared.scheduling.state.releases import Release

Raw = TypeVar("Raw", kube.ResourceSlice, kube.KubeDeviceClass, kube.ResourceClaim, kube.DeviceTaintRule)
Model = TypeVar("Model")


def load_inventory(dump: ClusterObjects, release: Release = Release.V1_38) -> Inventory | None:
    """The devices that the dump describes; None: it says nothing of any. Raises ``ObjectError`` naming the object."""
    kinds = (dump.resource_slices, dump.device_classes, dump.resource_claims)
    if all(one is None for one in kinds):
        return None
    inventory = Inventory(release)
    for slice_ in _each("ResourceSlice", dump.resource_slices, convert.slice_from_api):
        inventory.put_slice(slice_)
    for class_ in _each("DeviceClass", dump.device_classes, convert.class_from_api):
        inventory.classes[class_.name] = class_
    for claim in _each("ResourceClaim", dump.resource_claims, convert.claim_from_api):
        inventory.put_claim(claim)
    for rule in _each("DeviceTaintRule", dump.device_taint_rules, convert.taint_rule_from_api):
        inventory.put_taint_rule(rule)
    return inventory


def _each(kind: str, items: Iterable[Raw] | None, to_model: Callable[[Raw], Model]) -> Iterable[Model]:
    for item in items or ():
        try:
            yield to_model(item)
        except ObjectError as error:
            raise ObjectError(str(error), field=f"{kind} {_title(item.metadata)}") from error


def _title(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
