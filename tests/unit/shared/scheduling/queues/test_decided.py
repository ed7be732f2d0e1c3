"""The queues as they will be: the sums of what is decided, and what limits will let go then."""

from __future__ import annotations

from random import Random

import pytest

from shared.scheduling.queues.nodes import Charge, WaitingUnit
from shared.scheduling.queues.outlook import QueueOutlook
from tests.unit.shared.scheduling.queues.queue_trees import World, queue

NAMES = ("a", "b", "c", "")


def tree_of(rng: Random) -> World:
    """Three levels with limits, and with what is kept and not lent."""
    queues = [
        queue("top", maximum={"cpu": rng.randint(20, 60)}, guaranteed={"cpu": rng.randint(0, 40)}),
        queue("a", "top", guaranteed={"cpu": 10}, lending={"cpu": rng.randint(0, 10)}),
        queue("b", "top", maximum={"cpu": rng.randint(5, 30)}, namespaces=("team",)),
        queue("c", guaranteed={"cpu": 10}, lending={"cpu": rng.randint(0, 10)}),
    ]
    return World(*queues, cpu=100)


def charge(rng: Random, uid: str) -> Charge:
    name = rng.choice(NAMES)
    return Charge(uid, rng.choice(("team", "ns")), name, (("cpu", rng.randint(1, 9)),), uid, since=0.0)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_leaving_and_coming_is_summed_up_whatever_happens_to_queues_and_pods(seed):
    rng = Random(seed)
    world = tree_of(rng)
    tree = world.tree
    for step in range(300):
        uid = f"p{rng.randrange(20)}"
        match rng.randrange(7):
            case 0 | 1:
                tree.charge(charge(rng, uid))
            case 2:
                tree.release(uid)
            case 3:
                tree.leave(uid, leaving=rng.random() < 0.7)
            case 4:
                tree.expect(uid, charge(rng, uid) if rng.random() < 0.7 else None)
            case 5:
                tree.put_queue(queue("b", "top", namespaces=("team",) if rng.random() < 0.5 else ()))
            case _ if step % 10 == 0:
                tree.drop_queue("c") if "c" in tree.queues else tree.put_queue(queue("c"))
        assert list(tree.validate()) == []
    leaving = {uid: pod for uid, pod in tree.charges.items() if pod.leaving}
    coming = {uid: pod for uid, pod in tree.decided.coming.items() if uid not in tree.charges}
    outlook, root = QueueOutlook(tree), tree.structure.root
    wanted = root.used.get("cpu", 0) + sum(dict(pod.amounts)["cpu"] for pod in coming.values())
    assert outlook.used(root, "cpu") == wanted - sum(dict(pod.amounts)["cpu"] for pod in leaving.values())


@pytest.mark.parametrize("seed", range(50))
def test_limits_will_let_go_what_they_let_go_once_it_has_happened(seed):
    """Asked of the sums, and of a tree in which the victims really went."""
    rng = Random(seed)
    world = tree_of(rng)
    tree = world.tree
    for number in range(40):
        tree.charge(charge(rng, f"p{number}"))
    unit = tree.stand_in(WaitingUnit("u", "ns", rng.choice(NAMES), 0, 1, (("cpu", rng.randint(1, 20)),)))
    outlook, gone = QueueOutlook(tree), []
    for uid in rng.sample(sorted(tree.charges), 25):
        pod = tree.charges[uid]
        outlook.shift(pod.line, dict(pod.amounts), 1)
        gone.append(pod)
        if rng.random() < 0.3:
            back = gone.pop(rng.randrange(len(gone)))
            outlook.shift(back.line, dict(back.amounts), -1)
        expected = {pod.uid for pod in gone}
        with_victims = outlook.admits(unit.line, unit.amounts)
        tree.release(*expected)
        assert with_victims == (tree.blocked(unit.line, unit.amounts) is None)
        tree.charge(*gone)


def test_a_pod_that_counts_is_not_expected_twice():
    world = World(queue("a"), cpu=10)
    [uid] = world.run("a", cpu=4)
    world.tree.expect(uid, Charge(uid, "ns", "a", (("cpu", 4),), uid))
    assert QueueOutlook(world.tree).free("cpu") == 6
    world.tree.release(uid)
    assert QueueOutlook(world.tree).free("cpu") == 6
    world.tree.expect(uid, None)
    assert QueueOutlook(world.tree).free("cpu") == 10


def test_a_pod_on_its_way_out_stays_so_when_it_is_moved_to_another_queue():
    world = World(queue("a"), queue("b"), cpu=10)
    [uid] = world.run("a", cpu=4)
    world.tree.leave(uid)
    world.tree.charge(Charge(uid, "ns", "b", (("cpu", 4),), uid, since=0.0))
    assert QueueOutlook(world.tree).used(world.tree.structure.nodes["b"], "cpu") == 0
    assert list(world.tree.validate()) == []


def test_a_label_that_names_the_queue_of_the_namespace_holds_when_that_changes():
    world = World(queue("a", namespaces=("team",)), queue("b"), cpu=10)
    [uid] = world.run("", namespace="team", cpu=4)
    world.tree.charge(Charge(uid, "team", "a", (("cpu", 4),), uid, since=0.0))
    world.tree.put_queue(queue("a"))
    world.tree.put_queue(queue("b", namespaces=("team",)))
    assert (world.used("a"), world.used("b")) == ({"cpu": 4}, {})


def test_the_check_sees_a_sum_that_is_wrong():
    world = World(queue("a"), cpu=10)
    [uid] = world.run("a", cpu=4)
    world.tree.charges[uid].leaving = True
    assert [line.partition(":")[0] for line in world.tree.validate()] == ["queue-decided"] * 2
