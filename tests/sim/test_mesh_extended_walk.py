"""The whole mesh under random faults by seed, with pods whose extended resources a device class stands for.

As ``test_mesh_claims_walk.py``, on nodes with devices and nodes with a device plugin, beside pods that claim the same
devices by template. The checkers read the API server's objects alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from services.binder.core.state import BinderCoreSettings
from services.binder.cycle.binding_cycle import BindingCycle
from shared.errors import KubeUnknown
from shared.runtime.kube import made_claims
from shared.scheduling.devices.claimed import ClaimedDevices
from tests.builders import make_node
from tests.sim.claims import RESOURCE, add_class, add_requesting, by_plugin, devices_of, requested
from tests.sim.test_mesh_claims_walk import SEEDS, TRIED, BesideAnother, ClaimWalk, checked, milli_of, walk
from tests.sim.test_mesh_random_walk import Violation

PLUGINS = ("plugin0", "plugin1")


class ExtendedWalk(ClaimWalk):
    """One seed's walk."""

    def __init__(self, seed: int, settings: BinderCoreSettings | None = None) -> None:
        super().__init__(seed, settings)
        self.mapped = True
        add_class(self.kube, resource=RESOURCE)
        for name in PLUGINS:
            self.kube.add_node(make_node(name).allocatable(cpu="4", **{RESOURCE: "2"}))

    def actions(self) -> list[tuple[float, Callable[[], None]]]:
        return [*super().actions(), (2.5, self.create_requesting), (0.3, self.remap)]

    def remap(self) -> None:
        """The class stands for the resource no more, or again."""
        self.mapped = not self.mapped
        add_class(self.kube, resource=RESOURCE if self.mapped else "")

    def rest(self) -> None:
        if not self.mapped:
            self.remap()
        super().rest()

    def create_requesting(self) -> None:
        name = f"p{len(self.names)}"
        self.names.append(name)
        add_requesting(self.kube, name, cpu=self.rng.choice(["500m", "1"]), count=self.rng.choice([1, 1, 2]))


class ExtendedBesideAnother(ExtendedWalk, BesideAnother):
    """Another scheduler takes devices too."""


def idle(kube: Any) -> list[str]:
    """D4: who waits though a node has what it requests, by our own count."""
    used = {d for claim in kube.objects["resourceclaims"].values() for d in devices_of(claim)}
    cpu, taken = Counter[str](), Counter[str]()
    for pod in kube.pods.values():
        node = pod["spec"].get("nodeName")
        if node and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            cpu[node] += milli_of(pod)
            taken[node] += requested(pod)[1]
    free = {name: by_plugin(kube, name) - taken[name] for name in PLUGINS}
    for item in kube.objects["resourceslices"].values():
        pool = item["spec"]["pool"]["name"]
        devices = [f"gpu.example.com/{pool}/{one['name']}" for one in item["spec"]["devices"]]
        free[item["spec"]["nodeName"]] = sum(one not in used for one in devices)
    return [
        f"D4: {pod['metadata']['name']} waits, {node} has {count} and room"
        for pod in kube.pods.values()
        for node, count in free.items()
        if not pod["spec"].get("nodeName") and 0 < requested(pod)[1] <= count and cpu[node] + milli_of(pod) <= 4000
    ]


def walked(
    seed: int, kind: type[ExtendedWalk] = ExtendedWalk, settings: BinderCoreSettings | None = None
) -> ExtendedWalk:
    found = walk(seed, settings=settings, kind=kind)
    assert isinstance(found, ExtendedWalk)
    assert idle(found.kube) == []
    checked(found)
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_device_is_given_twice_and_no_made_claim_is_left_under_random_faults(seed: int) -> None:
    walked(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nor_beside_another_scheduler(seed: int) -> None:
    walked(seed, ExtendedBesideAnother)


# --- each safeguard, switched off ------------------------------------------------------------------------------------


def found_without(kind: type[ExtendedWalk] = ExtendedWalk) -> str:
    """What the checkers find first; "" for nothing."""
    for seed in range(TRIED):
        try:
            walk(seed, settings=BinderCoreSettings(), kind=kind)
        except Violation as violation:
            return str(violation)
    return ""


def test_ablation_who_does_not_tell_the_pods_status_leaves_the_kubelet_without_a_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BindingCycle, "_telling", lambda _self, _binding, bind: bind)
    assert "D2" in found_without()


def test_ablation_who_does_not_look_again_takes_a_device_that_another_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClaimedDevices, "contested", lambda *_: "")
    assert found_without(ExtendedBesideAnother).startswith("D1")


def test_the_walk_reaches_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults that never happen prove nothing."""
    reached = Counter[str]()
    for name in ("make_claim", "delete_made", "tell_claim"):
        monkeypatch.setattr(made_claims, name, counted(getattr(made_claims, name), name, reached))
    wanted = {"make_claim", "make_claim cut", "delete_made", "tell_claim", "tell_claim cut", "inherited", "theirs"}
    for seed in range(40):
        found = walk(seed, kind=ExtendedBesideAnother)
        reached["inherited"] += found.world.binder.core.stats.intents_inherited
        reached += found.reached
        if wanted <= (+reached).keys():
            break
    assert wanted <= (+reached).keys()


def counted(call: Any, name: str, reached: Counter[str]) -> Any:
    async def carried_out(*args: Any, **more: Any) -> Any:
        try:
            found = await call(*args, **more)
        except KubeUnknown:
            reached[f"{name} cut"] += 1
            raise
        reached[name] += 1
        return found

    return carried_out
