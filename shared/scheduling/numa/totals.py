"""What a pod asks for as a whole: main containers and sidecars, or the largest init step if greater."""

from __future__ import annotations

from collections.abc import Callable

from shared.model.node_topology import Amounts, ContainerKind, ContainerNeeds, PodNeeds


def pod_totals(needs: PodNeeds) -> tuple[int, dict[str, int], dict[str, int]]:
    """(exclusive CPUs, memory by type, devices by resource). Memory that only init containers ask for is in none of
    the hints of a pod (``getPodRequestedResources``)."""
    cpus = _total(needs, lambda one: (("", one.cpus),)).get("", 0)
    memory = _total(needs, lambda one: one.memory)
    lasting = {name for one in needs.containers if one.kind is ContainerKind.MAIN for name, _ in one.memory}
    return cpus, {name: memory[name] for name in lasting}, _total(needs, lambda one: one.devices)


def _total(needs: PodNeeds, of: Callable[[ContainerNeeds], Amounts]) -> dict[str, int]:
    main: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    largest: dict[str, int] = {}
    for one in needs.containers:
        for name, amount in of(one):
            if one.kind is ContainerKind.INIT:
                largest[name] = max(largest.get(name, 0), sidecars.get(name, 0) + amount)
            else:
                into = sidecars if one.kind is ContainerKind.SIDECAR else main
                into[name] = into.get(name, 0) + amount
    names = main.keys() | sidecars.keys() | largest.keys()
    return {name: max(main.get(name, 0) + sidecars.get(name, 0), largest.get(name, 0)) for name in names}
