"""Reclaim against an exhaustive search, in small random worlds: whoever is owed a place and could have it gets it, by
as few as need to go; whoever is not costs nobody anything.

The search here shares nothing with the scheduler: it knows nodes, queues and pods as plain data and tries every set of
pods, each of which was owed when it went: every queue on its side, below the one that both have in common, uses more
than its guarantee of a resource that the pod frees, and every queue on ours stays within its own. Nobody is to go whose
going makes no room itself, but only brings our side within its guarantee so that another owes it then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from random import Random

import pytest
from msgspec.structs import replace

from services.coordinator.core.state import CoreSettings
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import QUEUE_LABEL, Queue
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.queues.queue_scenes import change_group, put
from tests.unit.services.coordinator.scene import Scene, check_bound_once, check_overcommit, check_places

GPU = "example.com/gpu"
NAMES = ("cpu", GPU)
SEEDS = range(120)


@dataclass(frozen=True)
class Asks:
    """A pod, or a gang of ``members`` such pods. Amounts of ``NAMES``, of each; cpu in thousandths."""

    name: str
    queue: str
    amounts: tuple[int, int]
    zone: str = ""
    port: int = 0
    tolerates: bool = False
    evictable: bool = True
    members: int = 1

    def in_all(self, index: int) -> int:
        return self.members * self.amounts[index]


@dataclass(frozen=True)
class Offers:
    """A node."""

    name: str
    amounts: tuple[int, int]
    zone: str
    tainted: bool


@dataclass
class Small:
    """A world: ``where`` each pod stands, by name."""

    nodes: dict[str, Offers]
    queues: dict[str, Queue]
    pods: dict[str, Asks]
    where: dict[str, str] = field(default_factory=dict)

    # --- the exhaustive search ----------------------------------------------------------------------------------

    def path(self, queue: str) -> list[str]:
        found = []
        while queue:
            found.append(queue)
            queue = self.queues[queue].parent
        return found

    def used(self, queue: str, index: int, gone: frozenset[str]) -> int:
        there = (self.pods[name] for name in self.where if name not in gone)
        return sum(pod.amounts[index] for pod in there if queue in self.path(pod.queue))

    def admitted(self, pod: Asks, gone: frozenset[str]) -> bool:
        return all(
            self.used(queue, index, gone) + pod.in_all(index) <= self.queues[queue].maximum.get(name, 10**9)
            for queue in self.path(pod.queue)
            for index, name in enumerate(NAMES)
            if pod.amounts[index]
        )

    def taken(self, pod: Asks, gone: frozenset[str]) -> bool:
        ways = combinations_with_replacement(self.nodes.values(), pod.members)
        return any(all(self.takes(node, pod, gone, way.count(node)) for node in way) for way in ways)

    def takes(self, node: Offers, pod: Asks, gone: frozenset[str], members: int) -> bool:
        if (pod.zone and pod.zone != node.zone) or (node.tainted and not pod.tolerates):
            return False
        there = [self.pods[name] for name, on in self.where.items() if on == node.name and name not in gone]
        if pod.port and (members > 1 or any(other.port == pod.port for other in there)):
            return False
        return all(
            sum(other.amounts[index] for other in there) + members * pod.amounts[index] <= node.amounts[index]
            for index in range(len(NAMES))
            if pod.amounts[index]
        )

    def runs(self, pod: Asks, gone: frozenset[str]) -> bool:
        return self.admitted(pod, gone) and self.taken(pod, gone)

    def owed(self, pod: Asks, victim: Asks, gone: frozenset[str]) -> bool:
        ours, theirs = self.path(pod.queue), self.path(victim.queue)
        if victim.queue == pod.queue or not victim.evictable:
            return False
        mine = [queue for queue in ours if queue not in theirs]
        others = [queue for queue in theirs if queue not in ours]
        for index, name in enumerate(NAMES):
            if not victim.amounts[index] or not pod.amounts[index]:
                continue
            if not any(name in self.queues[queue].guaranteed for queue in mine):
                continue
            within = all(
                self.used(queue, index, gone) + pod.in_all(index) <= self.queues[queue].guaranteed.get(name, 0)
                for queue in mine
            )
            beyond = all(self.used(queue, index, gone) > self.queues[queue].guaranteed.get(name, 0) for queue in others)
            if within and beyond:
                return True
        return False

    def sets(self, pod: Asks) -> Iterator[frozenset[str]]:
        """All that may go, each owed when it goes."""
        seen, border = {frozenset[str]()}, [frozenset[str]()]
        while border:
            gone = border.pop()
            yield gone
            for name in self.where.keys() - gone:
                more = gone | {name}
                if more not in seen and self.owed(pod, self.pods[name], gone):
                    seen.add(more)
                    border.append(more)

    def is_least(self, pod: Asks, gone: frozenset[str]) -> bool:
        """Whether nobody of these could have stayed."""
        return not any(self.runs(pod, gone - {name}) for name in gone)

    def is_owed(self, pod: Asks, gone: frozenset[str]) -> bool:
        """Whether each of these is owed in whichever order they go: even last."""
        return all(self.owed(pod, self.pods[name], gone - {name}) for name in gone)


def tree_of(rng: Random) -> dict[str, Queue]:
    """Two to four levels deep; ``a`` is the owner's."""

    def guarantee(most: int) -> dict[str, int]:
        return {name: rng.randint(0, most) * (1000 if name == "cpu" else 1) for name in NAMES if rng.random() < 0.7}

    parents, above = [""], ""
    for level in range(rng.randint(0, 3)):
        name = f"p{level}"
        parents.append(name)
    found: dict[str, Queue] = {}
    for name in parents[1:]:
        maximum = {one: rng.randint(2, 6) * (1000 if one == "cpu" else 1) for one in NAMES if rng.random() < 0.4}
        found[name] = Queue(name, above, guaranteed=guarantee(6) if rng.random() < 0.7 else {}, maximum=maximum)
        above = name
    owner = guarantee(4) or {"cpu": 3000}
    found["a"] = Queue("a", above, guaranteed=owner, reclaim=True)
    for name in ("b", "c", "d")[: rng.randint(1, 3)]:
        found[name] = Queue(name, rng.choice(parents), guaranteed=guarantee(2) if rng.random() < 0.4 else {})
    return found


def world_of(rng: Random) -> tuple[Small, Asks]:
    queues, nodes, pods = tree_of(rng), dict[str, Offers](), dict[str, Asks]()
    for number in range(rng.randint(1, 4)):
        amounts = rng.randint(1, 4) * 1000, rng.choice([0, 0, 1, 2])
        nodes[f"n{number}"] = Offers(f"n{number}", amounts, rng.choice("xy"), rng.random() < 0.2)
    ours = [name for name in queues if name != "a"]
    for number in range(rng.randint(2, 9)):
        amounts = rng.choice([500, 1000, 1000, 2000]), rng.choice([0, 0, 1])
        pods[f"b{number}"] = Asks(
            f"b{number}", rng.choice(ours if rng.random() < 0.9 else list(queues)), amounts,
            port=rng.choice([0, 0, 0, 80]), tolerates=rng.random() < 0.6, evictable=rng.random() < 0.9,
        )  # fmt: skip
    owner = Asks(
        "own", "a", (rng.choice([500, 1000, 2000]), rng.choice([0, 0, 1])), rng.choice(["", "", "x", "y"]),
        rng.choice([0, 0, 80]), rng.random() < 0.5, members=rng.choice([1, 1, 2]),
    )  # fmt: skip
    pods["own"] = owner
    return Small(nodes, queues, pods), owner


def add_pod(scene: Scene, asks: Asks, name: str = "", group: str = "") -> None:
    builder = make_pod(name or asks.name).cpu(f"{asks.amounts[0]}m")
    spec = builder.json["spec"]
    if asks.amounts[1]:
        spec["containers"][0]["resources"]["requests"][GPU] = str(asks.amounts[1])
    if asks.port:
        spec["containers"][0]["ports"] = [{"containerPort": asks.port, "hostPort": asks.port}]
    if asks.zone:
        spec["nodeSelector"] = {"zone": asks.zone}
    if asks.tolerates:
        spec["tolerations"] = [{"key": "t", "operator": "Exists"}]
    scene.add_pod(replace(builder.pod(), labels={QUEUE_LABEL: asks.queue}, preemptible=asks.evictable, group=group))


def add_owner(scene: Scene, asks: Asks) -> None:
    if asks.members == 1:
        add_pod(scene, asks, "own-0")
        return
    key = group_key(GroupSource.NATIVE, "default", "own")
    change_group(scene, PodGroup(key, GroupSource.NATIVE, "default", "own", min_count=asks.members, gang=True))
    for number in range(asks.members):
        add_pod(scene, asks, f"own-{number}", key)


def play(small: Small, seed: int) -> Scene:
    """The others come first; those that find no room are taken away. Then the owner comes."""
    scene = Scene(seed=seed, settings=CoreSettings(validate=True))
    for node in small.nodes.values():
        builder = make_node(node.name).allocatable(cpu=f"{node.amounts[0]}m", **{GPU: str(node.amounts[1])})
        builder = builder.label(zone=node.zone)
        scene.add_node((builder.taint("t", "NoSchedule") if node.tainted else builder).node())
    for queue in small.queues.values():
        put(scene, queue)
    scene.begin()
    scene.run()
    for pod in small.pods.values():
        if pod.name != "own":
            add_pod(scene, pod)
            scene.run(batch=100)
    scene.run(batch=100, until_s=8)
    evicted = {uid.removeprefix("uid-") for uid in scene.evicted}
    small.where = {uid.removeprefix("uid-"): node for uid, node in scene.bindings}
    small.where = {name: node for name, node in small.where.items() if name not in evicted}
    for name in small.pods.keys() - small.where.keys() - evicted - {"own"}:
        scene.delete_pod(f"uid-{name}")
    scene.run(batch=100, until_s=2)
    scene.evicted.clear()
    add_owner(scene, small.pods["own"])
    scene.run(batch=100, until_s=40)
    return scene


@pytest.mark.parametrize("seed", SEEDS)
def test_an_owner_gets_what_it_is_owed_and_no_more_go_than_must(seed: int) -> None:
    small, owner = world_of(Random(seed))
    scene = play(small, seed)
    gone = frozenset(uid.removeprefix("uid-") for uid in scene.evicted)
    ran = sum(uid.startswith("uid-own") for uid, _ in scene.bindings) == owner.members
    ways = [some for some in small.sets(owner) if small.runs(owner, some) and small.is_least(owner, some)]
    assert check_bound_once(scene) == check_overcommit(scene) == check_places(scene) == []
    if ran:
        assert gone in ways, (small, gone)
    else:
        assert not gone, (small, gone)
        assert not any(small.is_owed(owner, some) for some in ways), small
