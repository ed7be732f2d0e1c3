"""The whole mesh with claims of pod groups under random faults by seed: as ``test_mesh_claims_walk.py``, with groups
that come, go and come again under their names, members by template or by name, gangs and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from services.binder.core.state import BinderCoreSettings
from services.coordinator.cycle import unblocking
from shared.kube.scheduling_kinds import NATIVE_GROUPS
from shared.scheduling.devices.claimed import ClaimedDevices
from tests.sim.claims import add_group, add_member, control_claims, devices_of, group_of, leaked
from tests.sim.test_mesh_claims_walk import BesideAnother, ClaimWalk, checked
from tests.sim.test_mesh_random_walk import Violation, violation

SEEDS, STEPS = 20, 400
GROUPS = ("g0", "g1", "g2")
GANG = 2


class GroupWalk(ClaimWalk):
    """One seed's walk. The last group takes the claim ``shared`` by its name, which lone pods use too."""

    incomplete = False
    """Whether groups may wait for more members."""

    def actions(self) -> list[tuple[float, Callable[[], None]]]:
        return [*super().actions(), (0.6, self.create_group), (2.5, self.create_member), (0.3, self.drop_group)]

    def create_group(self) -> None:
        name = self.rng.choice(GROUPS)
        if f"default/{name}" not in self.kube.objects.get("podgroups", {}):
            minimum = self.rng.choice([0, GANG])
            add_group(self.kube, name, minimum=minimum, claim="shared" if name == GROUPS[-1] else "")
            self.reached["group"] += 1

    def create_member(self) -> None:
        group, name = self.rng.choice(GROUPS), f"p{len(self.names)}"
        self.names.append(name)
        claim = "shared" if group == GROUPS[-1] else ""
        add_member(self.kube, name, group, cpu=self.rng.choice(["500m", "1"]), claim=claim)

    def drop_group(self) -> None:
        """It is deleted, and its pods before it: the group's finalizer waits for those that have not ended."""
        groups = list(self.kube.objects.get("podgroups", {}))
        if groups:
            self._drop(self.rng.choice(groups).removeprefix("default/"))
            self.reached["group gone"] += 1

    def _drop(self, name: str) -> None:
        for pod in list(self.kube.pods.values()):
            if pod["spec"].get("schedulingGroup", {}).get("podGroupName") == name:
                self.kube.remove_pod(pod["metadata"]["name"])
        self.kube.drop_object(NATIVE_GROUPS, f"default/{name}")

    def unsettled(self) -> dict[str, list[str]]:
        left = super().unsettled()
        return {} if self.incomplete else left

    def rest(self) -> None:
        """As it is, a group that waits has nothing. Then whoever would wait for more members, or for a group, goes; and
        every group without pods."""
        self.incomplete = True
        super().rest()
        for _ in range(8):  # a free that was lost is made good by and by
            self.advance(self.world.now + 5.0)
            self.drain()
        self.incomplete = False
        if found := vain(self.kube):
            raise violation(self.world, found)
        for pod in list(self.kube.pods.values()):
            if "schedulingGroup" in pod["spec"] and not group_of(self.kube, pod)["metadata"]["uid"]:
                self.kube.remove_pod(pod["metadata"]["name"])
        for key, group in list(self.kube.objects.get("podgroups", {}).items()):
            name = key.removeprefix("default/")
            pods = [
                pod
                for pod in self.kube.pods.values()
                if pod["spec"].get("schedulingGroup", {}).get("podGroupName") == name
                and pod["status"].get("phase") not in ("Succeeded", "Failed")
            ]
            if len(pods) < group["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 1):
                self._drop(name)
        control_claims(self.kube)
        super().rest()


def vain(kube: Any) -> list[str]:
    """D8: what a group has of which pods wait, and none is on a node."""
    found = []
    for key, group in kube.objects.get("podgroups", {}).items():
        name, uid = key.removeprefix("default/"), group["metadata"]["uid"]
        pods = [
            pod
            for pod in kube.pods.values()
            if pod["spec"].get("schedulingGroup", {}).get("podGroupName") == name
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]
        if not pods or any(pod["spec"].get("nodeName") for pod in pods):
            continue
        found += [
            f"D8: {claim['metadata']['name']} keeps {devices_of(claim)} for {name}, which waits"
            for claim in kube.objects.get("resourceclaims", {}).values()
            if devices_of(claim) and [one["uid"] for one in claim["status"].get("reservedFor", ())] == [uid]
        ]
    return found


class GroupsBesideAnother(GroupWalk, BesideAnother):
    """And another scheduler takes devices."""


def walk(
    seed: int, steps: int = STEPS, *, settings: BinderCoreSettings | None = None, kind: type = GroupWalk
) -> GroupWalk:
    walked: GroupWalk = kind(seed, settings)
    for _ in range(steps):
        walked.step()
        checked(walked)
    walked.rest()
    checked(walked)
    if found := leaked(walked.kube):
        raise violation(walked.world, found)
    return walked


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_device_is_given_twice_and_no_claim_of_a_group_is_leaked_under_random_faults(seed: int) -> None:
    walk(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_beside_another_scheduler_no_member_is_bound_with_a_device_that_was_taken(seed: int) -> None:
    walk(seed, kind=GroupsBesideAnother)


def found_without(kind: type = GroupWalk, tried: int = 40) -> str:
    """What the checkers find first; "" for nothing."""
    for seed in range(tried):
        try:
            walk(seed, settings=BinderCoreSettings(), kind=kind)
        except (Violation, AssertionError) as violation:
            return str(violation)
    return ""


def test_ablation_a_coordinator_that_gives_back_what_members_use_takes_it_from_those_that_are_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unblocking, "_in_use", lambda *_: False)
    assert found_without().startswith("D2")


def test_ablation_who_does_not_look_again_takes_a_device_that_another_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClaimedDevices, "contested", lambda *_: "")
    assert found_without(GroupsBesideAnother).startswith("D1")
