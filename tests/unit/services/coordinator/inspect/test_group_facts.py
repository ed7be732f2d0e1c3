"""What a leader knows of pod groups and queues, out of a whole coordinator: members in every state, and queues."""

from __future__ import annotations

from fractions import Fraction

from msgspec.structs import replace

from services.coordinator.inspect.group_facts import find_group, group_facts, group_keys, lone_units, phases
from services.coordinator.inspect.queue_facts import (
    QueuePlaces,
    queue_facts,
    queue_names,
    queue_of,
    queue_totals,
    simulated,
    tree_of,
)
from services.coordinator.inspect.queues import whole as queue_whole
from services.coordinator.inspect.simulation import SimulatedJob
from services.coordinator.inspect.units import UnitCounts, phase_of, shown, whole, why
from shared.model.cluster_events import ObjectChanged
from shared.model.units.pod_group import GroupSource, GroupTopology, PodGroup, group_key
from shared.model.units.queue import QUEUE_LABEL, Queue, UnitOrder
from shared.scheduling.parts import in_one_go
from shared.scheduling.queues.nodes import Charge, WaitingUnit
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

KEY = group_key(GroupSource.NATIVE, "default", "train")


def wall_of(at: float) -> str:
    return f"t{at:g}"


def scene_with(nodes: int = 1, **labels: str) -> Scene:
    scene = Scene()
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").allocatable(cpu="4").label(**labels).node())
    scene.begin()
    scene.run()
    return scene


def tell_group(scene: Scene, minimum: int = 3, **changes: object) -> None:
    group = PodGroup(KEY, GroupSource.NATIVE, "default", "train", gang=True, min_count=minimum)
    scene.inbox.append(ObjectChanged("podgroups", "default/train", replace(group, **changes)))


def add_members(scene: Scene, count: int, *, start: int = 0) -> None:
    for number in range(start, start + count):
        scene.add_pod(replace(make_pod(f"m{number}").cpu("2").pod(), group=KEY))


# --- groups ---------------------------------------------------------------------------------------------------------


def test_a_gang_is_followed_from_nothing_to_running() -> None:
    scene = scene_with(2, rack="r1")
    assert list(group_keys(scene.core)) == []
    add_members(scene, 2)
    scene.run(batch=100)
    facts = group_facts(scene.core, KEY)
    assert facts is not None
    assert (phase_of(facts), why(facts)[0], facts.place) == ("waiting", "GroupMissing", "gated")
    tell_group(scene, topology=GroupTopology("rack"))
    scene.run(batch=100)
    facts = group_facts(scene.core, KEY)
    assert facts is not None
    assert why(facts) == ("Incomplete", "2 of at least 3 members exist; 1 more must be created")
    scene.hold_plans = True
    add_members(scene, 2, start=2)
    scene.run(batch=100)
    facts = group_facts(scene.core, KEY)
    assert facts is not None
    assert (phase_of(facts), {one.state for one in facts.members}) == ("placing", {"planned"})
    assert phases(scene.core) == UnitCounts(placing=1)
    assert shown(facts, scene.now, wall_of).state == "planned"
    scene.hold_plans = False
    scene.deliver(scene.bind(scene.held_plans[0]))
    scene.run(batch=100)
    facts = group_facts(scene.core, KEY)
    assert facts is not None
    assert (phase_of(facts), facts.bound, facts.domain) == ("running", 4, "r1")
    assert sorted(one.name for one in facts.members) == ["m0", "m1", "m2", "m3"]
    assert whole(facts, scene.now, wall_of).nodes == {"n0": 2, "n1": 2}
    assert phases(scene.core) == UnitCounts(running=1)


def test_a_gang_that_does_not_fit_tells_the_conditions_word_and_the_sentence() -> None:
    scene = scene_with(1)
    tell_group(scene)
    add_members(scene, 3)
    scene.run(batch=100)
    facts = find_group(scene.core, "default", "train")
    assert facts is not None
    reason, message = why(facts)
    assert reason == "Unschedulable"
    assert "minCount (3) cannot be satisfied" in message
    assert facts.place == "unschedulable"


def test_a_broken_gang_is_told_as_broken() -> None:
    scene = scene_with(2)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    for name in ("m0", "m1"):
        scene.delete_pod(f"uid-{name}")
    scene.run(batch=100)
    facts = group_facts(scene.core, KEY)
    assert facts is not None
    assert phase_of(facts) == "broken"
    assert phases(scene.core) == UnitCounts(broken=1)


def test_a_gang_whose_members_finish_one_by_one_runs_until_the_last_and_has_ended_then() -> None:
    scene = scene_with(2)
    tell_group(scene, 3)
    add_members(scene, 3)
    scene.run(batch=100)
    for number, phase in enumerate(("running", "running", "ended")):
        scene.change_pod(f"uid-m{number}", phase="Succeeded")
        scene.run(batch=100)
        facts = group_facts(scene.core, KEY)
        assert facts is not None
        assert (phase_of(facts), phases(scene.core)) == (phase, UnitCounts(**{phase: 1}))


def test_pods_of_a_job_that_is_no_gang_are_lone_pods() -> None:
    scene = scene_with(1)
    key = group_key(GroupSource.JOB, "default", "sweep")
    scene.inbox.append(ObjectChanged("jobs", "default/sweep", PodGroup(key, GroupSource.JOB, "default", "sweep")))
    scene.hold_plans = True
    scene.add_pod(replace(make_pod("s0").pod(), group=key))
    scene.run(batch=100)
    assert list(group_keys(scene.core)) == []
    gang = PodGroup(group_key(GroupSource.JOB, "default", "done"), GroupSource.JOB, "default", "done", gang=True)
    scene.deliver(ObjectChanged("jobs", "default/done", gang))  # without members it has ended, or not begun
    assert list(group_keys(scene.core)) == []
    assert group_facts(scene.core, key) is None
    assert set(lone_units(scene.core)) == {"uid-s0"}


def test_a_name_is_looked_for_in_the_order_of_the_sources() -> None:
    scene = scene_with(1)
    other = group_key(GroupSource.PLUGINS, "default", "train")
    scene.inbox.append(
        ObjectChanged(
            "xpodgroups", "default/train", PodGroup(other, GroupSource.PLUGINS, "default", "train", gang=True)
        )
    )
    scene.run()
    found = find_group(scene.core, "default", "train")
    assert found is not None
    assert found.key == other
    tell_group(scene)
    scene.run()
    found = find_group(scene.core, "default", "train")
    assert found is not None
    assert found.key == KEY
    assert find_group(scene.core, "default", "none") is None


# --- queues ---------------------------------------------------------------------------------------------------------


def with_queues() -> Scene:
    """research (cpu 8 guaranteed) over vision and speech; a unit in each, vision's held by its maximum."""
    scene = scene_with(2)
    tree = tree_of(scene.core)
    tree.set_capacity({"cpu": 8000, "pods": 100})
    for queue in (
        Queue("research", guaranteed={"cpu": 4000}, namespaces=("lab",)),
        Queue("vision", parent="research", maximum={"cpu": 2000}, weight=Fraction(2)),
        Queue("speech", parent="research", order=UnitOrder.FIFO),
        Queue("lost", parent="nobody"),
    ):
        tree.put_queue(queue)
    tree.charge(Charge("uid-a", "lab", "vision", (("cpu", 1000),), "uid-a"))
    tree.add(WaitingUnit("uid-v", "lab", "vision", 5, 1, (("cpu", 1500),)))
    tree.add(WaitingUnit("uid-w", "lab", "vision", 0, 2, (("cpu", 500),)))
    tree.add(WaitingUnit("uid-s", "lab", "speech", 0, 3, (("cpu", 500),)))
    for unit in iter(tree.front, None):
        tree.take(unit)
    return scene


def test_the_tree_is_told_from_the_top_with_what_is_wrong_in_it() -> None:
    scene = with_queues()
    names = queue_names(scene.core)
    assert names.index("research") < names.index("speech") < names.index("vision")
    lost = queue_facts(scene.core, "lost", scene.now)
    assert lost is not None
    assert "there is no Queue nobody" in lost.problem
    research = queue_facts(scene.core, "research", scene.now)
    assert research is not None
    assert sorted(research.children) == ["speech", "vision"]
    assert queue_facts(scene.core, "", scene.now) is None
    assert (research.warnings, queue_totals(scene.core).problems) == ([], 2)
    tree_of(scene.core).set_capacity({"cpu": 3000})
    research = queue_facts(scene.core, "research", scene.now)
    assert research is not None
    assert research.warnings == [
        "spec.guaranteed[cpu]: 4 is more than the cluster has, 3; guarantee less, or add nodes"
    ]
    assert queue_totals(scene.core).problems == 3
    assert queue_facts(scene.core, "none", scene.now) is None


def test_a_unit_that_its_quota_holds_back_is_counted_placed_last_and_told_why() -> None:
    scene = with_queues()
    vision = queue_facts(scene.core, "vision", scene.now, units=True)
    assert vision is not None
    assert vision.path == ["research", "vision"]
    assert [one.key for one in vision.pending] == ["uid-v"]
    assert vision.blocked_units == 1
    assert "maximum" in vision.pending[0].blocked
    assert QueuePlaces(scene.core).of("uid-v") == 1
    assert QueuePlaces(scene.core).of("uid-none") is None


def test_the_queue_of_a_pod_is_its_label_or_its_namespaces() -> None:
    scene = with_queues()
    assert queue_of(scene.core, "lab", {}) == "research"
    assert queue_of(scene.core, "lab", {QUEUE_LABEL: "speech"}) == "speech"
    assert queue_of(scene.core, "elsewhere", {}) == ""


def test_a_simulation_changes_nothing_and_says_what_the_nodes_take() -> None:
    scene = with_queues()
    before = dict(tree_of(scene.core).units)
    found = in_one_go(simulated(scene.core, SimulatedJob("speech", "lab", 4, 2, (("cpu", 1000),)), scene.now))
    assert (found.queue, found.starts_in_s, found.fits) == ("speech", 0.0, 4)
    assert found.summary.startswith("it would start at once")
    never = in_one_go(simulated(scene.core, SimulatedJob("vision", "lab", 4, 4, (("cpu", 1000),)), scene.now))
    assert never.starts_in_s is None
    assert never.summary.startswith("it would never start as things are: queue vision: ")
    assert tree_of(scene.core).units == before


def test_a_simulated_job_fits_on_nodes_that_are_kept_for_what_it_asks_for() -> None:
    scene = with_queues()
    kept = make_node("g0").allocatable(cpu="8", **{"nvidia.com/gpu": "8"}).taint("nvidia.com/gpu", "NoSchedule")
    scene.add_node(kept.node())
    scene.run()
    job = SimulatedJob("speech", "lab", 4, 2, (("cpu", 1000), ("nvidia.com/gpu", 2)))
    assert in_one_go(simulated(scene.core, job, scene.now)).fits == 4


def test_a_job_whose_pods_go_one_by_one_is_told_how_many_its_queue_lets_go() -> None:
    scene = with_queues()
    scene.core.queues.change("small", Queue("small", maximum={"cpu": 2500}))
    scene.run()
    found = in_one_go(simulated(scene.core, SimulatedJob("small", "lab", 6, 1, (("cpu", 750),)), scene.now))
    assert (found.starts_in_s, found.lets, found.fits) == (0, 3, 6)
    assert found.summary == (
        "it would start at once, with 3 of its 6 members; the limits of its queue have no room for more now"
    )
    whole = in_one_go(simulated(scene.core, SimulatedJob("small", "lab", 3, 1, (("cpu", 750),)), scene.now))
    assert (whole.lets, whole.summary) == (3, "it would start at once")


def test_units_that_had_their_turn_or_lack_members_are_shown_as_waiting_in_their_queue() -> None:
    scene = scene_with(1)
    scene.core.queues.change("small", Queue("small", namespaces=("default",)))
    tell_group(scene, 3)
    add_members(scene, 10)
    other = group_key(GroupSource.NATIVE, "default", "few")
    few = PodGroup(other, GroupSource.NATIVE, "default", "few", gang=True, min_count=3)
    scene.inbox.append(ObjectChanged("podgroups", "default/few", few))
    scene.add_pod(replace(make_pod("f0").cpu("2").pod(), group=other))
    scene.run(batch=100, until_s=3.0)
    facts = queue_facts(scene.core, "small", scene.now, units=True)
    assert facts is not None
    assert (facts.pending_units, facts.parked_units, facts.parked_pods) == (2, 1, 10)
    shown = queue_whole(facts, {})
    assert [(one.name, one.position, one.place, one.members, one.reason) for one in shown.units] == [
        ("train", None, "unschedulable", 10, "Unschedulable"), ("few", None, "gated", 1, "Incomplete"),
    ]  # fmt: skip
