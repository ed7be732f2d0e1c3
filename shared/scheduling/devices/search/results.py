"""What is written into a claim once its devices are chosen: results, configuration, and the nodes that can use them.

Source: kube-scheduler 1.36 ``structured/internal/incubating/allocator_incubating.go`` (Allocate, createNodeSelector).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shared.model.constraints import Requirement, SelectorTerm
from shared.model.devices import AllocatedDevice, Allocation, DeviceClaim, DeviceClass
from shared.scheduling.devices.pools import DevicePool, PoolDevice
from shared.scheduling.devices.search.outcomes import GivenDevice

Config = dict[str, Any]


def allocation_of(
    claim: DeviceClaim, given: Sequence[GivenDevice], chosen: Sequence[int], pools: Sequence[DevicePool],
    classes: Mapping[str, DeviceClass], node_name: str, new_share: Callable[[], str],
) -> Allocation:  # fmt: skip
    """The allocation of one claim. ``new_share`` makes the id of one more user of a shared device."""
    devices = [pools[one.pool].devices[one.device] for one in given]
    results = tuple(
        AllocatedDevice(
            one.request, *it.id,
            admin=True if one.ask.admin else None,
            tolerations=one.ask.tolerations,
            bound_on=it.device.bound_on or (),
            failed_on=it.device.failed_on,
            share=new_share() if it.device.shareable else "",
            consumed=one.consumed,
        )
        for one, it in zip(given, devices, strict=True)
    )  # fmt: skip
    return Allocation(results, node_terms(devices, node_name), config=tuple(_config(claim, chosen, classes)))


def node_terms(devices: Iterable[PoolDevice], node_name: str) -> tuple[SelectorTerm, ...] | None:
    """Which nodes can use all of the devices; None: every node. One node where a device is local to it or binds to it,
    else what the slices' selectors ask for together."""
    expressions: list[Requirement] = []
    fields: list[Requirement] = []
    for one in devices:
        reach = one.reach
        if reach.node_name or one.device.binds_to_node:
            return (SelectorTerm(fields=(Requirement("metadata.name", "In", (node_name,)),)),)
        for term in reach.terms or ():
            _add(expressions, term.expressions)
            _add(fields, term.fields)
    return (SelectorTerm(tuple(expressions), tuple(fields)),) if expressions or fields else None


def _add(to: list[Requirement], more: Iterable[Requirement]) -> None:
    for one in more:
        alike = (other for other in to if (other.key, other.operator) == (one.key, one.operator))
        if not any(set(other.values) == set(one.values) for other in alike):
            to.append(one)


def _config(claim: DeviceClaim, chosen: Sequence[int], classes: Mapping[str, DeviceClass]) -> list[Config]:
    """The entries of each class once, with all requests that use it; then the claim's own, which appear once for every
    request that they name."""
    found: list[Config] = []
    of_class: dict[str, list[Config]] = {}
    names = []
    for request, index in zip(claim.requests, chosen, strict=True):
        ask = request.asks[index]
        name = f"{request.name}/{ask.name}" if request.alternatives else request.name
        names.append((request.name, name))
        if ask.class_name in of_class:
            for entry in of_class[ask.class_name]:
                entry["requests"].append(name)
            continue
        class_ = classes.get(ask.class_name)
        entries = [{"source": "FromClass", "requests": [name], **one} for one in (class_.config if class_ else ())]
        of_class[ask.class_name] = entries
        found += entries
    for requests, one in claim.config:
        if not requests:
            found.append({"source": "FromClaim", **one})
            continue
        applies = [name for name in names if not {*name}.isdisjoint(requests)]
        found += [{"source": "FromClaim", "requests": list(requests), **one} for _ in applies]
    return found
