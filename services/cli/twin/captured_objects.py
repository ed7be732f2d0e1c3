"""Pods and nodes with the times and addresses that a capture needs beside what a scheduler reads."""

from __future__ import annotations

from datetime import datetime

from msgspec import field
from msgspec.structs import replace

from shared.kube import objects as api
from shared.kube.resources import Resource
from shared.twin.capture import CapturedPod, trimmed


class Terminated(api.Json, frozen=True):
    finished_at: str | None = None


class ContainerState(api.Json, frozen=True):
    terminated: Terminated | None = None


class TimedContainer(api.Json, frozen=True):
    state: ContainerState | None = None


class TimedPodStatus(api.Json, frozen=True):
    phase: str | None = None
    start_time: str | None = None
    container_statuses: list[TimedContainer] | None = None


class TimedPod(api.Json, frozen=True):
    """A pod's object with the moments of its life."""

    metadata: api.ObjectMeta = field(default_factory=api.ObjectMeta)
    spec: api.PodSpec = field(default_factory=api.PodSpec)
    status: TimedPodStatus = field(default_factory=TimedPodStatus)


class Address(api.Json, frozen=True):
    type: str = ""
    address: str = ""


class AddressedStatus(api.Json, frozen=True):
    allocatable: api.Quantities | None = None
    addresses: list[Address] | None = None
    conditions: list[api.NodeCondition] | None = None
    declared_features: list[str] | None = None


class AddressedNode(api.Json, frozen=True):
    """A node's object with its addresses."""

    metadata: api.ObjectMeta = field(default_factory=api.ObjectMeta)
    spec: api.NodeSpec = field(default_factory=api.NodeSpec)
    status: AddressedStatus = field(default_factory=AddressedStatus)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every address and host name it has."""
        return tuple(one.address for one in self.status.addresses or ())


TIMED_PODS = Resource("Pod", "", "v1", "pods", True, TimedPod)
ADDRESSED_NODES = Resource("Node", "", "v1", "nodes", False, AddressedNode)

FINISHED = ("Succeeded", "Failed")


def captured_node(node: AddressedNode) -> api.Node:
    """What the file keeps of a node: no addresses, no images, no foreign annotations."""
    status = api.NodeStatus(
        allocatable=node.status.allocatable,
        conditions=node.status.conditions,
        declared_features=node.status.declared_features,
    )
    return api.Node(trimmed(node.metadata), node.spec, status)


def captured_pod(pod: TimedPod, *, start_s: float, seen_s: float, gone: bool = False) -> CapturedPod:
    """The pod relative to the capture's start. ``seen_s``: when this state was seen; ends that are not told take it.

    Both in unix seconds. The API tells whole seconds, so a start may lie before the creation by less than one: it is
    moved there.
    """
    created = _unix(pod.metadata.creation_timestamp)
    arrived = (created if created is not None else seen_s) - start_s
    started = _unix(pod.status.start_time)
    began = None if started is None else max(started - start_s, arrived)
    ended = None
    if gone or pod.status.phase in FINISHED:
        last = max((at for at in map(_finished, pod.status.container_statuses or ()) if at is not None), default=None)
        ended = max((seen_s if last is None else last) - start_s, arrived, began if began is not None else arrived)
    # what needs objects that the file does not keep is left out: claims for volumes and devices, pod groups
    spec = replace(pod.spec, volumes=None, resource_claims=None, scheduling_group=None)
    kept = api.Pod(trimmed(pod.metadata), spec)
    return CapturedPod(kept, round(arrived, 3), _rounded(began), _rounded(ended))


def _finished(container: TimedContainer) -> float | None:
    state = container.state
    return None if state is None or state.terminated is None else _unix(state.terminated.finished_at)


def _rounded(moment: float | None) -> float | None:
    return None if moment is None else round(moment, 3)


def _unix(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
