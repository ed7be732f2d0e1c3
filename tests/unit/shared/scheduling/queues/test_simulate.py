"""When would it start, and whom would it displace: on a copy."""

from __future__ import annotations

from shared.scheduling.parts import in_one_go
from shared.scheduling.queues.simulate import StartQuestion, copied, simulate
from tests.unit.shared.scheduling.queues.queue_trees import World, queue


def test_what_fits_starts_at_once():
    world = World(queue("a"), cpu=10)
    answer = simulate(world.tree, StartQuestion("ns", "a", 0, (("cpu", 4),)), now=0.0, ends_at={})
    assert (answer.starts_in_s, answer.victims, answer.ahead) == (0.0, (), 0)


def test_it_waits_for_the_end_of_pods_and_for_those_before_it():
    world = World(queue("a"), queue("b"), cpu=10)
    first, second = world.run("a", 2, cpu=5)
    world.wait("b", cpu=5)
    answer = simulate(
        world.tree, StartQuestion("ns", "b", 0, (("cpu", 5),)), now=100.0, ends_at={first: 150.0, second: 180.0}
    )
    assert (answer.starts_in_s, answer.ahead) == (80.0, 1)


def test_where_no_end_is_known_the_answer_is_unknown():
    world = World(queue("a", maximum={"cpu": 4}), cpu=10)
    world.run("a", cpu=4)
    answer = simulate(world.tree, StartQuestion("ns", "a", 0, (("cpu", 1),)), now=0.0, ends_at={})
    assert answer.starts_in_s is None
    assert "is not known" in answer.reason
    assert answer.blocked.startswith("queue a: cpu")


def test_whom_it_would_displace():
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True, reclaim_after_s=30.0), queue("b"), cpu=10)
    world.run("b", 10, cpu=1)
    answer = simulate(world.tree, StartQuestion("ns", "a", 0, (("cpu", 3),)), now=0.0, ends_at={})
    assert answer.starts_in_s == 30.0
    assert len(answer.victims) == 3


def test_it_displaces_nobody_where_waiting_is_quicker():
    world = World(queue("a", guaranteed={"cpu": 6}, reclaim=True, reclaim_after_s=30.0), queue("b"), cpu=10)
    [pod, *_] = world.run("b", 10, cpu=1)
    answer = simulate(world.tree, StartQuestion("ns", "a", 0, (("cpu", 1),)), now=0.0, ends_at={pod: 10.0})
    assert (answer.starts_in_s, answer.victims) == (10.0, ())


def test_what_can_never_go_is_said():
    world = World(queue("a", maximum={"cpu": 4}), cpu=10)
    answer = simulate(world.tree, StartQuestion("ns", "a", 0, (("cpu", 5),)), now=0.0, ends_at={})
    assert (answer.starts_in_s, answer.never) == (None, True)
    assert "never fits" in answer.reason
    answer = simulate(world.tree, StartQuestion("ns", "", 0, (("cpu", 11),)), now=0.0, ends_at={})
    assert answer.reason == "the whole cluster has too little cpu"
    answer = simulate(world.tree, StartQuestion("ns", "typo", 0, (("cpu", 1),)), now=0.0, ends_at={})
    assert "there is no Queue of this name" in answer.reason


def test_the_state_itself_stays_as_it_is():
    world = World(queue("a", namespaces=("team",)), cpu=10)
    world.run("a", 2, cpu=2)
    world.wait("", namespace="team", cpu=1)
    before = in_one_go(copied(world.tree))
    simulate(world.tree, StartQuestion("team", "", 0, (("cpu", 8),)), now=0.0, ends_at={})
    assert world.tree.units.keys() == before.units.keys()
    assert world.tree.charges.keys() == before.charges.keys()
    assert list(world.tree.validate()) == []


def test_a_queue_that_was_deleted_while_used_counts_where_it_did() -> None:
    world = World(queue("top", maximum={"cpu": 4}), queue("old", "top"), queue("a", "top"), cpu=10)
    world.run("old", cpu=3)
    world.tree.drop_queue("old")
    copy = in_one_go(copied(world.tree))
    assert copy.structure.nodes["top"].used == world.tree.structure.nodes["top"].used == {"cpu": 3}
    answer = simulate(world.tree, StartQuestion("ns", "a", 0, (("cpu", 2),)), now=0.0, ends_at={"run-old-1": 60.0})
    assert answer.starts_in_s == 60.0
