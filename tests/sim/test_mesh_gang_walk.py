"""The whole mesh under random faults with gangs among its pods: at every step none of a gang, or at least its minimum.

I5 is checked twice: in etcd and the API server by the binder's checks, and in what the coordinator plans. When the
faults end, a gang that waits is one that no placement of its members would let run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from services.binder.core.state import BinderCoreSettings
from services.coordinator.cycle.placing import Placer
from shared.kube.pod_groups import GROUP_LABEL
from shared.kube.pods.convert import pod_from_api
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.scheduling.parts import in_one_go
from shared.scheduling.pod_groups import GroupStanding, PodGroups
from tests.builders import make_pod
from tests.sim.test_mesh_random_walk import Violation, Walk, violation
from tests.unit.services.binder.binder_checks import check_all

STEPS = 400


class GangWalk(Walk):
    """Pods come in gangs, whose members may come late, go, and be made anew; and a few alone."""

    def __init__(self, seed: int, settings: BinderCoreSettings | None = None) -> None:
        super().__init__(seed, settings)
        self.wanted: list[tuple[str, str]] = []

    def create(self) -> None:
        if self.rng.random() < 0.3:
            super().create()
            return
        if not self.wanted or self.rng.random() < 0.2:
            name = f"g{len(self.world.groups)}"
            minimum = self.rng.randint(2, 4)
            key = group_key(GroupSource.PLUGINS, "default", name)
            self.world.tell_group(PodGroup(key, GroupSource.PLUGINS, "default", name, gang=True, min_count=minimum))
            cpu = self.rng.choice(["500m", "1"])
            self.wanted += [(name, cpu)] * (minimum + self.rng.choice([0, 0, 1]))
        name, cpu = self.wanted.pop(0)
        pod = f"{name}-{len(self.names)}"
        self.names.append(pod)
        self.world.kube.add_pod(make_pod(pod).set(labels={GROUP_LABEL: name}).cpu(cpu))

    def remove(self) -> None:
        """A member that goes is made anew, as its controller would."""
        before = set(self.world.kube.pods)
        super().remove()
        for key in before - set(self.world.kube.pods):
            name = key.partition("/")[2].partition("-")[0]
            if name.startswith("g") and self.rng.random() < 0.8:
                self.wanted.append((name, "500m"))

    def rest(self) -> None:
        while self.wanted:
            self.create()
        super().rest()

    def unsettled(self) -> dict[str, list[str]]:
        """As for lone pods; of a gang that waits: that it could run, or that a member has not been told why not."""
        core, left = self.world.coordinator.core, {}
        lone = {uid: pod for uid, pod in self._pending().items() if not pod.group}
        by_name = {pod.name for pod in lone.values()}
        left = {name: why for name, why in super().unsettled().items() if name in by_name}
        for uid, pod in self._pending().items():
            if not pod.group:
                continue
            places, told = core.place_of(uid), pod.condition[0] == "False" and bool(pod.condition[2])
            if not told or places not in (["unschedulable"], ["gated"]):
                left[pod.name] = [*places, *pod.condition]
            group = core.state.groups.group(pod.group)
            standing = core.state.groups.standing(pod.group)[0]
            if group is not None and standing is GroupStanding.TOGETHER:
                members = list(core.state.groups.members[pod.group].pending.values())
                if in_one_go(core.state.domains.attempting(group, members)).reached:
                    left[pod.name] = [*places, "its gang would fit"]
        return left

    def _pending(self) -> dict[str, Pod]:
        pods = (pod_from_api(self.world.kube.get_pod(*key.split("/"))) for key in self.world.kube.pods)
        return {pod.uid: pod for pod in pods if not pod.node_name}


def walk(seed: int, steps: int = STEPS) -> GangWalk:
    in_parts = 2 if seed % 3 else 500
    settings = BinderCoreSettings(validate=True, max_value_pods=2 if seed % 2 else 512, units_per_turn=in_parts)
    walked = GangWalk(seed, settings)
    for _ in range(steps):
        walked.step()
        if problems := [*check_all(walked.world, broken=True), *walked.world.disobeyed]:
            raise violation(walked.world, problems)
    walked.rest()
    if problems := [*check_all(walked.world, broken=True), *walked.world.disobeyed]:
        raise violation(walked.world, problems)
    return walked


@pytest.mark.parametrize("seed", range(30))
def test_a_gang_is_bound_to_its_minimum_or_not_at_all_under_random_faults(
    seed: int, walk_once: Callable[[int], GangWalk]
) -> None:
    walk_once(seed)


def test_the_walk_reaches_what_it_is_for(walk_once: Callable[[int], GangWalk]) -> None:
    totals: Counter[str] = Counter()
    for seed in range(8):
        world = walk_once(seed).world
        stats = world.coordinator.core.state.stats
        totals["placed"] += stats.gangs_placed
        totals["refused"] += stats.gangs_refused
        totals["intents"] += len(world.gangs)
        totals["inherited"] += world.binder.core.stats.intents_inherited
    assert all(totals.values()), totals


def first_problem() -> str:
    for seed in range(20):
        try:
            walk(seed)
        except (Violation, AssertionError) as error:
            return str(error)
    return ""


def test_ablation_without_the_minimum_half_a_gang_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking, taken = PodGroups.lacking, Placer._take_together

    def without(self: Placer, *arguments: object) -> Iterator[int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PodGroups, "lacking", lambda groups, key: min(1, lacking(groups, key)))
            yield from taken(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Placer, "_take_together", without)
    assert "I5" in first_problem()
