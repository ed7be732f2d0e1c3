"""The coordinator's core with real agents: what is placed, what is told, what is given back."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from services.coordinator.agents.registry import AgentRegistry
from services.coordinator.binding.plans import Ledger
from services.coordinator.core.core import LEAST_WORK, Core
from services.coordinator.core.instructions import EmitEvent, PatchCondition, SendOffer, SendPlan, SetTimer
from services.coordinator.core.state import WORK_PER_TURN
from services.coordinator.cycle.cycle import Cycle
from services.coordinator.cycle.requeueing import Requeuer
from services.coordinator.preemption.groups import GroupPreemptor
from services.coordinator.preemption.search import Preemptor
from services.coordinator.status.reporter import StatusReporter
from shared.model.cluster_events import ObjectChanged, PodUpserted
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import Queue
from shared.scheduling.places import Place
from shared.scheduling.queue import PodQueue
from shared.scheduling.state.cache import recount
from shared.turns import Tick
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_bound_once, check_overcommit, check_places


def cluster(nodes: int = 4, **options: object) -> Scene:
    scene = Scene(**options)  # type: ignore[arg-type]
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").node())
    scene.begin()
    scene.run()
    return scene


def test_a_lone_pod_is_bound_without_any_timer() -> None:
    scene = cluster()
    scene.add_pod(make_pod("a").cpu("1").pod())
    scene.run()
    assert [uid for uid, _ in scene.bindings] == ["uid-a"]
    assert scene.core.state.cache.accounts["uid-a"].assumed_at is None
    assert not scene.core.state.queue.entries
    assert not scene.core.ledger.placed


def test_many_pods_are_bound_once_each_and_within_allocatable() -> None:
    scene = cluster(8)
    for number in range(40):
        scene.add_pod(make_pod(f"p{number}").cpu("700m").memory("256Mi").pod())
    scene.run(batch=7)
    assert len(scene.bindings) == 40
    assert not check_bound_once(scene)
    assert not check_overcommit(scene)
    assert not recount(scene.core.state.cache, scene.core.state.cache.table.row_of)


def test_a_pod_that_fits_nowhere_is_told_why_once_and_placed_when_room_appears() -> None:
    scene = cluster(2)
    scene.add_pod(make_pod("big").cpu("3").pod())
    scene.add_pod(make_pod("big2").cpu("3").pod())
    scene.add_pod(make_pod("late").cpu("3").pod())
    scene.run(until_s=30)
    assert scene.core.state.queue.count()[Place.UNSCHEDULABLE] == 1
    patches = scene.of(PatchCondition)
    (message,) = [p.message for p in patches]
    assert message == (
        "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: "
        "2 No preemption victims found for incoming pod."
    )
    assert sorted(e.reason for e in scene.of(EmitEvent)) == ["FailedScheduling", "Scheduled", "Scheduled"]
    assert "Successfully assigned default/big to " in " ".join(e.note for e in scene.of(EmitEvent))
    assert not check_places(scene)
    bound = dict(scene.bindings)
    scene.delete_pod(next(iter(bound)))
    scene.run(until_s=15)
    assert "uid-late" in dict(scene.bindings)


def test_a_parked_pod_is_placed_when_a_new_node_loses_the_taint_it_came_with() -> None:
    scene = cluster(1)
    for name in ("a", "b"):
        scene.add_pod(make_pod(name).cpu("3").pod())
    scene.run(until_s=30)
    assert scene.core.state.queue.count()[Place.UNSCHEDULABLE] == 1
    scene.add_node(make_node("new").taint("node.kubernetes.io/not-ready", "NoSchedule").node())
    scene.run(until_s=2)
    assert scene.core.state.queue.count()[Place.UNSCHEDULABLE] == 1
    scene.add_node(make_node("new").node())
    scene.run(until_s=2)
    assert "new" in dict(scene.bindings).values()


def test_a_parked_pod_is_placed_when_room_appears_on_a_node_that_was_labelled_while_full() -> None:
    scene = cluster(1)
    scene.add_pod(make_pod("tenant").cpu("3").pod())
    scene.add_pod(make_pod("a").cpu("3").select(zone="z").pod())
    scene.run(until_s=30)
    assert scene.core.state.queue.count()[Place.UNSCHEDULABLE] == 1
    [node] = scene.nodes.values()
    scene.add_node(msgspec.structs.replace(node, labels={**node.labels, "zone": "z"}))
    scene.run(until_s=2)
    scene.delete_pod("uid-tenant")
    scene.run(until_s=2)
    assert "uid-a" in dict(scene.bindings)


def test_no_offer_goes_out_before_all_lists_are_complete() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.add_pod(make_pod("a").cpu("1").pod())
    scene.run()
    assert not scene.of(SendOffer)
    scene.begin()
    scene.run()
    assert len(scene.bindings) == 1


def test_other_schedulers_pods_count_but_are_not_placed() -> None:
    scene = cluster(1)
    foreign = make_pod("foreign").cpu("3").on("n0")
    foreign.json["spec"]["schedulerName"] = "default-scheduler"
    scene.add_pod(foreign.pod())
    pending = make_pod("pending").cpu("1")
    pending.json["spec"]["schedulerName"] = "default-scheduler"
    scene.add_pod(pending.pod())
    scene.add_pod(make_pod("ours").cpu("2").pod())
    scene.run(until_s=5)
    assert not scene.bindings
    assert not scene.of(SendPlan)


def test_an_unreadable_pod_is_told_and_the_others_go_on() -> None:
    scene = cluster(1)
    scene.add_pod(make_pod("bad").cpu("abc").pod())
    scene.add_pod(make_pod("good").cpu("1").pod())
    scene.run()
    assert [uid for uid, _ in scene.bindings] == ["uid-good"]
    (patch,) = scene.of(PatchCondition)
    assert patch.reason == "SchedulerError"
    assert "abc" in patch.message


def test_an_agents_death_leaves_its_nodes_to_the_others() -> None:
    scene = cluster(6)
    scene.leave("agent-0")
    scene.run()
    for number in range(18):
        scene.add_pod(make_pod(f"p{number}").cpu("1200m").pod())
    scene.run()
    assert len(scene.bindings) == 18
    assert {node for _, node in scene.bindings} == {f"n{n}" for n in range(6)}


def test_a_silent_agent_delays_a_round_by_the_offer_deadline_only() -> None:
    scene = cluster(4)
    scene.lost_answers.add("agent-0")
    started = scene.now
    scene.add_pod(make_pod("a").cpu("1").pod())
    scene.run(until_s=0.4)
    assert len(scene.bindings) == 1
    scene.add_pod(make_pod("b").cpu("1").pod())
    scene.run()
    assert len(scene.bindings) == 2
    assert scene.now - started < 0.5


def test_host_labels_bring_a_pod_to_its_node() -> None:
    scene = cluster(3)
    scene.add_node(make_node("gpu").label(kind="gpu").node())
    scene.add_pod(make_pod("a").select(kind="gpu").pod())
    scene.run()
    assert scene.bindings == [("uid-a", "gpu")]


def test_a_pod_whose_constraints_are_too_large_is_told_so_and_the_others_go_on() -> None:
    scene = cluster(1)
    scene.add_pod(make_pod("huge").select(**{f"k{n}": "v" * 60 for n in range(3000)}).pod())
    scene.add_pod(make_pod("small").cpu("1").pod())
    scene.run()
    assert [uid for uid, _ in scene.bindings] == ["uid-small"]
    assert "bytes" in scene.of(PatchCondition)[0].message
    assert not check_places(scene)


def test_classes_that_do_not_fit_into_one_offer_go_in_several() -> None:
    scene = cluster(1)
    for number in range(16):
        scene.add_pod(
            make_pod(f"p{number}").prefer(1, "zone", *[f"{number}-{n}" + "v" * 50 for n in range(1700)]).pod()
        )
    scene.run(batch=20)
    assert len(scene.bindings) == 16
    assert scene.core.state.stats.rounds == 2


def test_a_node_beyond_the_wires_bounds_is_left_out() -> None:
    scene = cluster(1)
    scene.add_node(make_node("weird").label(**{f"k{n}": "v" for n in range(2000)}).node())
    scene.add_pod(make_pod("a").cpu("1").pod())
    scene.run()
    assert scene.bindings == [("uid-a", "n0")]


def test_units_of_one_class_on_many_agents_ask_each_for_its_share_only() -> None:
    scene = cluster(40, agents=20)
    for number in range(64):
        scene.add_pod(make_pod(f"p{number}").cpu("1").pod())
    scene.run(batch=70)
    assert len(scene.bindings) == 64
    assert scene.core.state.stats.answers < 64 * 20


def test_a_class_whose_nodes_sit_with_one_agent_is_placed_without_backoff() -> None:
    scene = cluster(40, agents=20)
    scene.add_node(make_node("gpu").label(kind="gpu").allocatable(cpu="200").node())
    scene.run()
    for number in range(64):
        scene.add_pod(make_pod(f"p{number}").select(kind="gpu").cpu("1").pod())
    scene.run(batch=70)
    assert len(scene.bindings) == 64
    assert scene.core.state.stats.losses == 0


def test_where_every_round_is_slow_nobody_is_called_silent_for_it() -> None:
    scene = cluster(2)
    scene.lost_answers = {"agent-0", "agent-1"}
    for number in range(12):
        scene.add_pod(make_pod(f"p{number}").cpu("100m").pod())
        scene.step(2)
        took_s = min(0.05 * (number + 1), 0.5)
        scene.now += took_s  # within what the rounds before have made usual
        scene.timeouts.clear()
        scene.answer_late()
        scene.run()
    assert len(scene.bindings) == 12
    assert scene.core.state.stats.rounds_cut == 0
    assert scene.core.state.stats.silences == 0


def test_every_bound_pod_gets_its_event() -> None:
    scene = cluster(4)
    for number in range(80):
        scene.add_pod(make_pod(f"p{number}").cpu("10m").pod())
    scene.run()
    assert len({e.uid for e in scene.of(EmitEvent) if e.reason == "Scheduled"}) == 80


def test_latency_does_not_count_the_time_in_which_no_node_took_the_pod() -> None:
    scene = Scene()
    scene.add_node(make_node("n0").node())
    scene.begin()
    scene.add_pod(make_pod("first").on("n0").cpu("4").pod())
    scene.add_pod(make_pod("waits").cpu("4").pod())
    scene.run()
    scene.now += 100
    scene.delete_pod("uid-first")
    scene.run(until_s=5)
    assert scene.pods["uid-waits"].node_name == "n0"
    (latency_s,) = scene.core.state.stats.latencies_s
    assert latency_s < 10
    (_, first_seen_s) = scene.core.state.stats.scheduled_s[-1]
    assert first_seen_s >= 100, "kube-scheduler's own figure counts from the first sight"


@pytest.mark.parametrize("by", ["queue", "group"])
def test_latency_does_not_count_the_time_for_which_a_pod_was_gated(by: str) -> None:
    scene = Scene()
    scene.add_node(make_node("n0").allocatable(cpu="4").node())
    scene.begin()
    pod = make_pod("held").cpu("1").pod()
    if by == "queue":
        scene.core.queues.change("small", Queue("small", maximum={"cpu": 100}, namespaces=("default",)))
    else:
        pod = replace(pod, group=group_key(GroupSource.NATIVE, "default", "later"))
    scene.add_pod(pod)
    scene.run(until_s=scene.now + 2.0)
    scene.now += 278
    if by == "queue":
        scene.core.queues.change("small", Queue("small", maximum={"cpu": 4000}, namespaces=("default",)))
    else:
        group = PodGroup(pod.group, GroupSource.NATIVE, "default", "later", gang=True, min_count=1)
        scene.inbox.append(ObjectChanged("podgroups", "default/later", group))
    scene.run(until_s=scene.now + 5.0)
    assert scene.pods["uid-held"].node_name == "n0"
    (latency_s,) = scene.core.state.stats.latencies_s
    ((_, scheduled_s),) = scene.core.state.stats.scheduled_s
    assert max(latency_s, scheduled_s) < 10


def test_on_a_lone_pods_way_nobody_is_stepped_that_has_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = cluster()

    def step(_: object) -> None:
        raise AssertionError("it was not due")

    for part, name in (
        (Ledger, "step"), (AgentRegistry, "push_views"), (Requeuer, "step"), (StatusReporter, "step")
    ):  # fmt: skip
        monkeypatch.setattr(part, name, step)
    scene.add_pod(make_pod("a").cpu("1").pod())
    scene.run()
    assert [uid for uid, _ in scene.bindings] == ["uid-a"]


def greedy(core: Core, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Every step that draws from the turn's work has something to do, and takes all that it may; what each may take."""
    shares: dict[str, int] = {}

    def drawing(name: str) -> object:
        def draw(_: object) -> bool:
            shares[name], core.state.work = core.state.work, 0
            return False

        return draw

    for part, name in ((Requeuer, "step"), (Cycle, "start"), (Preemptor, "step"), (GroupPreemptor, "step")):
        monkeypatch.setattr(part, name, drawing(part.__name__))
    monkeypatch.setattr(PodQueue, "has_active", lambda _: True)
    core.preemptor.searches["a"] = core.group_preemptor.searches["b"] = None  # type: ignore[assignment]
    core.group_preemptor.begun, core.state.agenda.waking = 1, 0.0
    return shares


def test_of_a_full_turn_each_step_gets_an_equal_share(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = cluster()
    shares = greedy(scene.core, monkeypatch)
    scene.core.handle([Tick()], scene.now)
    assert shares == dict.fromkeys(("Requeuer", "Cycle", "Preemptor", "GroupPreemptor"), WORK_PER_TURN // 4)


def test_what_a_step_leaves_is_for_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = cluster()
    shares = greedy(scene.core, monkeypatch)
    monkeypatch.setattr(Requeuer, "step", lambda _: None)
    monkeypatch.setattr(Cycle, "start", lambda _: False)
    scene.core.handle([Tick()], scene.now)
    assert shares == dict.fromkeys(("Preemptor", "GroupPreemptor"), WORK_PER_TURN // 2)


def test_many_events_leave_less_work_to_the_steps_but_never_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = cluster()
    shares = greedy(scene.core, monkeypatch)
    scene.core.handle([Tick()] * 100, scene.now)
    assert sum(shares.values()) == WORK_PER_TURN - 50
    scene.core.state.agenda.waking = 0.0
    scene.core.handle([Tick()] * 500, scene.now)
    assert sum(shares.values()) == LEAST_WORK


def test_where_there_is_no_node_all_pods_are_parked_though_nothing_else_happens() -> None:
    scene = cluster(0)
    pods = [make_pod(f"p{number}").cpu("1").pod() for number in range(3 * WORK_PER_TURN)]
    core = scene.core
    out = core.handle([PodUpserted(pod) for pod in pods], scene.now)
    for _ in range(4):
        if not any(isinstance(timer, SetTimer) and timer.at <= scene.now for timer in out):
            break
        out = core.handle([Tick()], scene.now)
    assert core.state.queue.count()[Place.UNSCHEDULABLE] == len(pods)
