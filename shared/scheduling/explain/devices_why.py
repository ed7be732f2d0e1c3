"""Which device refuses which request of a pod's claims, and why: what people ask when no node gives it any.

Devices are counted by what refuses them first, over all nodes; of each reason some are named. Constraints between
devices, counters and how much of a shared device is left are looked at by the search alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.model.devices import DeviceAsk, DeviceClaim
from shared.model.pod import Pod
from shared.scheduling.devices.cel.expressions import DeviceSelectorError
from shared.scheduling.devices.claimed import ClaimedDevices
from shared.scheduling.devices.pools import PoolDevice, reaches
from shared.scheduling.devices.taints import barred
from shared.scheduling.state.cluster_state import ClusterState

NAMED = 3
"""Devices that are named of each reason."""

MOST = 20_000
"""Devices looked at for one answer."""


def devices_why(state: ClusterState, pod: Pod) -> list[dict[str, Any]]:
    """Per request of each claim that has nothing yet: how many devices are free for it, and what refuses the others."""
    devices = state.devices
    if pod.asks is None or not isinstance(devices, ClaimedDevices):
        return []
    found, left = [], MOST
    for claim in devices.wanted(pod):
        for request, ask in _asks(claim):
            answer: dict[str, Any] = {"claim": claim.key, "request": request, "class": ask.class_name, "free": 0}
            refused: dict[str, list[str]] = {}
            for one in _seen(devices):
                left -= 1
                if left < 0:
                    break
                why = _refuses(devices, ask, one)
                if why:
                    refused.setdefault(why, []).append("/".join(one.id))
                else:
                    answer["free"] += 1
            answer["refused"] = [
                {"reason": why, "devices": len(ids), "for_example": sorted(ids)[:NAMED]}
                for why, ids in sorted(refused.items(), key=lambda item: (-len(item[1]), item[0]))
            ]
            found.append(answer)
    return found


def _asks(claim: DeviceClaim) -> Iterator[tuple[str, DeviceAsk]]:
    for request in claim.requests if claim.allocation is None else ():
        for ask in request.asks:
            yield f"{request.name}/{ask.name}" if request.alternatives else request.name, ask


def _seen(devices: ClaimedDevices) -> Iterator[PoolDevice]:
    """Every device that some node reaches, once."""
    told = set[tuple[str, str, str]]()
    nodes, _ = devices.nodes()
    for node in nodes:
        for pool in devices.inventory.of(node).pools:
            for one in pool.devices:
                if one.id not in told and (not one.slice.per_device or reaches(one.reach, node.name, node.labels)):
                    told.add(one.id)
                    yield one


def _refuses(devices: ClaimedDevices, ask: DeviceAsk, one: PoolDevice) -> str:
    """Why the request does not get the device, by what is looked at first; "" where it may."""
    class_ = devices.inventory.classes.get(ask.class_name)
    if class_ is None:
        return f"device class {ask.class_name} does not exist"
    selectors = [(f"class {class_.name}: selector #{i}", text) for i, text in enumerate(class_.selectors)]
    selectors += [(f"selector #{i}", text) for i, text in enumerate(ask.selectors)]
    for whose, text in selectors:
        try:
            if not devices.devices.selectors.matches(text, one.facts):
                return f"{whose} does not hold: {text}"
        except DeviceSelectorError as error:
            return f"{whose} fails: {error}"
    if barred(one.device, ask.tolerations):
        return "a taint that the request does not tolerate"
    usage = devices.inventory.usage
    if not ask.admin and (one.id in usage.exclusive or (one.id in usage.shares and not one.device.shareable)):
        return "in use"
    return ""
