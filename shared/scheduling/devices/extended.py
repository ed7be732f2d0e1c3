"""Extended resources that a device class stands for: which class, and the claim that a node's share of them makes.

A class names one (``extendedResourceName``), and every class has ``deviceclass.resource.kubernetes.io/NAME``. On nodes
that offer the resource by a device plugin it is NodeResourcesFit's business, on the others the class's: there one claim
asks for all of them, a request ``container-I-request-J`` per container and resource. I counts init containers first, J
is the resource's rank among all requests of the container, by name. Init containers that end use what containers after
them hold, and the largest of them asks for the rest.

Source: kube-scheduler 1.36 ``plugins/dynamicresources/extendeddynamicresources.go``; KEP-5004.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Mapping
from hashlib import sha256

from shared.model.devices import ContainerAsk, DeviceAsk, DeviceClaim, DeviceClass, DevicePod, DeviceRequest, Mapped
from shared.model.resources import IMPLICIT_DEVICE_CLASS, is_extended

CLAIM_NAME = "<extended-resources>"
"""The claim's name while it exists nowhere but here; no name that the API server would take."""

NAME_BASE, SUFFIX = "-extended-resources-", 12
"""Between a pod's name and what tells its claim from those of its namesakes: so many characters of base 32."""

MOST_NAME = 63
"""Characters of a claim's name, as of one that the API server generates."""


def class_of(resource: str, classes: Mapping[str, DeviceClass]) -> DeviceClass | None:
    """The class that stands for a resource: of several the newest, of equally old ones the first by name."""
    if resource.startswith(IMPLICIT_DEVICE_CLASS):
        return classes.get(resource.removeprefix(IMPLICIT_DEVICE_CLASS))
    found = [one for one in classes.values() if one.extended_resource == resource]
    newest = max((one.created for one in found), default="")
    return min((one for one in found if one.created == newest), key=lambda one: one.name, default=None)


def backed(pod: DevicePod, classes: Mapping[str, DeviceClass]) -> dict[str, DeviceClass]:
    """The extended resources that the pod requests and a class stands for."""
    found = {}
    for resource, amount in pod.requests:
        if amount and is_extended(resource):
            class_ = class_of(resource, classes)
            if class_ is not None:
                found[resource] = class_
    return found


def claimed(pod: DevicePod, classes: Mapping[str, DeviceClass]) -> tuple[tuple[DeviceRequest, ...], tuple[Mapped, ...]]:
    """The requests of the claim that serves these ``classes`` by resource, and who is served by which."""
    requests: list[DeviceRequest] = []
    mapped: list[Mapped] = []
    for resource in sorted(classes):
        made, served = _of_resource(pod.containers, resource, classes[resource].name)
        requests += made
        mapped += served
    return tuple(sorted(requests, key=lambda one: one.name)), tuple(mapped)


def claim_name(pod_name: str, pod_uid: str) -> str:
    """What the claim of this very pod is called, whoever makes it and however often: kube-scheduler has the API server
    generate a name, and one that died before it was told leaves a claim behind. Of two that are sent one is refused."""
    suffix = b32encode(sha256(pod_uid.encode()).digest()).decode().lower()[:SUFFIX]
    return f"{pod_name}{NAME_BASE}"[: MOST_NAME - SUFFIX].rstrip(".") + suffix


def template(pod: DevicePod, requests: tuple[DeviceRequest, ...] = (), name: str = CLAIM_NAME) -> DeviceClaim:
    """The claim as it would be made for the pod."""
    return DeviceClaim(pod.namespace, name, requests=requests, owner=pod.uid, for_extended=True)


def _of_resource(
    containers: tuple[ContainerAsk, ...], resource: str, class_name: str
) -> tuple[list[DeviceRequest], list[Mapped]]:
    lasting: list[DeviceRequest | None] = [None] * len(containers)
    served: list[Mapped] = []
    for index, container in enumerate(containers):
        if not container.ends:
            lasting[index], names = _asked(index, container, resource, class_name, ())
            served += names
    largest: DeviceRequest | None = None
    ending: list[Mapped] = []
    own: set[str] = set()
    for index, container in enumerate(containers):
        if container.ends:
            later = tuple(one for one in lasting[index:] if one is not None)
            request, names = _asked(index, container, resource, class_name, later)
            ending += names
            if request is not None:
                own.add(request.name)
                if largest is None or _count(request) > _count(largest):
                    largest = request
    if largest is not None:
        ending = [one._replace(request=largest.name) if one.request in own else one for one in ending]
    requests = [one for one in (largest, *lasting) if one is not None]
    return requests, served + ending


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0


def _asked(
    index: int, container: ContainerAsk, resource: str, class_name: str, reusable: tuple[DeviceRequest, ...]
) -> tuple[DeviceRequest | None, list[Mapped]]:
    """What the container asks for beyond what it may reuse, and all that serves it."""
    amount = dict(container.requests).get(resource, 0)
    if not amount:
        return None, []
    served, have = [], 0
    for one in reusable:
        have += _count(one)
        served.append(Mapped(container.name, resource, one.name))
        if have >= amount:
            return None, served
    rank = sorted(name for name, _ in container.requests).index(resource)
    name = f"container-{index}-request-{rank}"
    served.append(Mapped(container.name, resource, name))
    return DeviceRequest(name, DeviceAsk(name, class_name, count=amount - have)), served
