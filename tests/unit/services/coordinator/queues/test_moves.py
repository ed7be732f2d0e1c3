"""Pods and pod groups that are moved between queues, and namespaces too: what counts where is always what is there.

A seed is a history of labels, namespaces, groups, queues and pods that come and go. After each turn the tree's own
checks hold; at rest each queue counts what the API server's objects say, and a new leader counts the same.
"""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from shared.model.cluster_events import ObjectChanged
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import QUEUE_LABEL, Queue
from shared.scheduling.places import Place
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.queues.queue_scenes import (
    KEY,
    add,
    bound,
    change_group,
    cpus,
    gang,
    place,
    put,
    scene_with,
    used,
)
from tests.unit.services.coordinator.scene import Scene

NAMES = ("a", "b", "c")
GROUPS = ("g0", "g1", "g2")


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.scene = Scene(seed=seed)
        self.made = 0
        self.queues: dict[str, Queue] = {}
        self.groups: dict[str, PodGroup] = {}
        for number in range(4):
            self.scene.add_node(make_node(f"n{number}").allocatable(cpu="8").node())
        for name in NAMES:
            self.put(Queue(name))
        self.scene.begin()
        self.scene.run()

    def put(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        put(self.scene, queue)

    def tell(self, group: PodGroup) -> None:
        self.groups[group.key] = group
        self.scene.inbox.append(ObjectChanged("podgroups", f"default/{group.name}", group))

    def labels(self) -> dict[str, str]:
        name = self.rng.choice(("", "", *NAMES))
        return {QUEUE_LABEL: name} if name else {}

    def step(self) -> None:
        rng, scene = self.rng, self.scene
        uids = sorted(scene.pods)
        match rng.randrange(9):
            case 0 | 1 | 2:
                self.made += 1
                group = rng.choice(("", *self.groups))
                pod = make_pod(f"p{self.made}").cpu(str(rng.randint(1, 3))).pod()
                namespace = "default" if group else rng.choice(("default", "team"))
                scene.add_pod(replace(pod, labels=self.labels(), group=group, namespace=namespace))
            case 3 if uids:
                scene.change_pod(rng.choice(uids), labels=self.labels())
            case 4 if uids:
                scene.delete_pod(rng.choice(uids))
            case 5:
                name = rng.choice(GROUPS)
                key = group_key(GroupSource.NATIVE, "default", name)
                self.tell(PodGroup(key, GroupSource.NATIVE, "default", name, gang=True, min_count=rng.randint(1, 3),
                                   labels=self.labels()))  # fmt: skip
            case 6:
                taken = rng.choice(NAMES)
                for name in NAMES:
                    spaces = ("team",) if name == taken else ()
                    limits = cpus(rng.randint(4, 20)) if rng.random() < 0.3 else {}
                    self.put(Queue(name, namespaces=spaces, maximum=limits))
            case 7 if self.groups:
                key = rng.choice(sorted(self.groups))
                self.tell(replace(self.groups[key], labels=self.labels()))
            case _:
                scene.run(batch=20, until_s=rng.choice((0.0, 1.0, 12.0)))
        for _ in range(rng.randrange(4)):
            scene.step(rng.randint(1, 4))
            self.check()

    def check(self) -> None:
        state = self.scene.core.state
        assert list(state.queues.validate()) == []
        assert list(state.queue.validate()) == []

    def expected(self) -> dict[str, int]:
        """By what the API server shows."""
        spaces = {space: queue.name for queue in self.queues.values() for space in queue.namespaces}
        found = dict.fromkeys(NAMES, 0)
        for pod in self.scene.pods.values():
            group = self.groups.get(pod.group)
            label = pod.labels.get(QUEUE_LABEL) or (group.labels.get(QUEUE_LABEL, "") if group is not None else "")
            name = label or spaces.get(pod.namespace, "")
            if pod.node_name and name:
                found[name] += dict(pod.pod_class.requests)["cpu"]
        return found


@pytest.mark.parametrize("seed", range(25))
def test_what_counts_where_is_what_the_labels_say_whatever_was_moved(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(120):
        walk.step()
    walk.scene.run(batch=20, until_s=30)
    walk.check()
    counted = {name: used(walk.scene, name) for name in NAMES}
    assert counted == walk.expected()
    walk.scene.replace_leader(set())
    events = [*(ObjectChanged("queues", name, queue) for name, queue in walk.queues.items()),
              *(ObjectChanged("podgroups", f"default/{g.name}", g) for g in walk.groups.values())]  # fmt: skip
    walk.scene.inbox.extendleft(events)
    walk.scene.run(batch=20, until_s=30)
    assert {name: used(walk.scene, name) for name in NAMES} == walk.expected()


def test_the_walk_places_and_moves_pods() -> None:
    walk = Walk(3)
    for _ in range(120):
        walk.step()
    assert len(walk.scene.bindings) > 20
    assert any(walk.expected().values())


def test_a_group_that_is_moved_takes_its_members_along() -> None:
    scene = scene_with(Queue("a", maximum=cpus(2)), Queue("b"), nodes=2)
    key = gang(scene, "g", 3, label="a")
    scene.run(batch=100, until_s=5)
    assert bound(scene) == []  # too many for a
    group = scene.core.state.cluster.pod_groups[key]
    scene.inbox.append(ObjectChanged("podgroups", "default/g", replace(group, labels={QUEUE_LABEL: "b"})))
    scene.run(batch=100, until_s=5)
    assert len(bound(scene)) == 3
    assert (used(scene, "a"), used(scene, "b")) == (0, 3000)
    scene.inbox.append(ObjectChanged("podgroups", "default/g", replace(group, labels={QUEUE_LABEL: "a"})))
    scene.run(batch=100)
    assert (used(scene, "a"), used(scene, "b")) == (3000, 0)


def test_a_group_alone_that_names_no_queue_that_is_there_waits_and_is_told() -> None:
    scene = scene_with(nodes=1)
    gang(scene, "g", 2, label="typo")
    add(scene, "", "p0")
    scene.run(batch=100, until_s=10)
    assert bound(scene) == ["p0"]
    assert "there is no Queue of this name" in scene.pods["uid-g-0"].condition[2]


def test_members_that_name_a_missing_queue_wait_though_their_group_comes_late() -> None:
    scene = scene_with(nodes=1)
    for number in range(2):
        scene.add_pod(replace(make_pod(f"g-{number}").cpu("1").pod(), group=KEY, labels={QUEUE_LABEL: "typo"}))
    scene.run(batch=100, until_s=10)
    change_group(scene, PodGroup(KEY, GroupSource.NATIVE, "default", "train", min_count=2, gang=True))
    scene.run(batch=100, until_s=10)
    assert bound(scene) == []
    assert "there is no Queue of this name" in scene.pods["uid-g-0"].condition[2]


def test_a_pod_that_no_node_took_waits_for_its_queue_when_the_last_queue_is_deleted() -> None:
    scene = scene_with(Queue("a"), nodes=1)
    add(scene, "a", "big", cpu="6")
    scene.run(batch=100, until_s=10)
    assert place(scene, "big") is Place.UNSCHEDULABLE
    scene.inbox.append(ObjectChanged("queues", "a", None))
    scene.run(batch=100, until_s=10)
    scene.add_node(make_node("large").allocatable(cpu="8").node())
    scene.run(batch=100, until_s=20)
    assert bound(scene) == []
    scene.delete_pod("uid-big")
    scene.run(batch=100, until_s=10)
    add(scene, "", "p0")
    scene.run(batch=100, until_s=10)
    assert bound(scene) == ["p0"]
    assert scene.core.state.queue.turns is None
