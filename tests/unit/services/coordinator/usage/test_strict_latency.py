"""A strict limit of latency: a filter for any policy, by what agents measured within the window; else the pod waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from services.coordinator.core.events import NodeSample, NodesMeasured
from services.coordinator.core.instructions import EmitEvent, SendPlan
from services.coordinator.core.state import CoreSettings
from services.coordinator.inspect.explain import explain
from services.coordinator.usage.measured import GONE_S
from shared.model.cluster_events import NodeDeleted, NodeUpserted, ObjectChanged
from shared.model.node import UNKNOWN_LATENCY
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.policy.registry import HEURISTICS, heeds_latency
from shared.scheduling.cycle.conflicts import check_placement
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.profile import DEFAULT
from shared.scheduling.filters.static import BEYOND_LIMIT, LATENCY_UNKNOWN
from shared.scheduling.places import Place
from shared.scheduling.state.node_table import NodeTable
from shared.turns import Tick
from shared.wire.readings import LATENCY_STALE_S
from shared.wire.records import PolicyRef
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_places

NODES = [f"n{number}" for number in range(6)]
MESHES = ["1", "4", "per-node"]
POLICIES = ["kube-default", "random", "most-allocated", "frag", "marl-dqn", "ee", "lb", "el", "lb=1,el=1"]


def scene(agents: str = "1", policy: str = "kube-default") -> Scene:
    made = Scene(agents=0 if agents == "per-node" else int(agents), policy=policy)
    for name in NODES:
        made.add_node(make_node(name).allocatable(cpu="4", memory="8Gi", pods="110").node())
        if agents == "per-node":
            made.join(f"at-{name}", node=name, tell=False)
    made.begin()
    made.run()
    return made


def strict(name: str, *, hard_ms: float = 30, target: str = "shop", cpu: str = "100m", **changes: Any) -> Pod:
    pod = make_pod(name).cpu(cpu).memory("128Mi").pod()
    limits = {"latency_hard_us": round(hard_ms * 1000), "latency_target": target, "latency_strict": True}
    return replace(pod, pod_class=replace(pod.pod_class, **limits), **changes)


def limits_told(made: Scene) -> list[EmitEvent]:
    return [one for one in made.of(EmitEvent) if one.reason.startswith("LatencyLimit")]


def measure(made: Scene, *, age_s: float = 0.0, to: str = "shop", **latency_ms: float) -> None:
    samples = [
        NodeSample(name, age_s, 100, 1 << 20, source="agent", latencies={to: (round(ms * 1000), 100)})
        for name, ms in latency_ms.items()
    ]
    made.now += 1.0
    made.deliver(NodesMeasured(tuple(samples)))
    made.run()


def add(made: Scene, *pods: Pod) -> list[str]:
    """The nodes of these pods, "" for one that waits."""
    for pod in pods:
        made.add_pod(pod)
    made.run()
    return nodes_of(made, *pods)


def nodes_of(made: Scene, *pods: Pod) -> list[str]:
    assert not check_places(made)
    return [made.pods[pod.uid].node_name for pod in pods]


def message(made: Scene, pod: Pod) -> str:
    """What it is told, without what is said of preemption."""
    return made.pods[pod.uid].condition[2].partition(" preemption:")[0]


@pytest.mark.parametrize("agents", MESHES)
@pytest.mark.parametrize("policy", POLICIES)
def test_under_every_policy_pods_go_within_their_limit_alone_and_wait_where_no_node_is(
    policy: str, agents: str
) -> None:
    made = scene(agents, policy)
    measure(made, n0=50, n1=10, n2=31, n3=29, n4=30)
    pods = [strict(f"p{number}", cpu="1") for number in range(13)]
    where = add(made, *pods)
    assert sorted(where) == [""] + ["n1"] * 4 + ["n3"] * 4 + ["n4"] * 4
    waits = pods[where.index("")]
    told = f"1 {LATENCY_UNKNOWN}, 2 {BEYOND_LIMIT}, 3 Insufficient cpu"
    assert message(made, waits) == f"0/6 nodes are available: {told}."
    assert all(not place.alternatives for send in made.of(SendPlan) for place in send.plan.placements)


@pytest.mark.parametrize("agents", MESHES)
def test_a_reading_within_the_limit_wakes_the_pod_at_once(agents: str) -> None:
    made = scene(agents)
    measure(made, n0=50)
    (near, nearer) = pods = strict("near"), strict("nearer", hard_ms=5)
    assert add(made, *pods) == ["", ""]
    assert message(made, near) == f"0/6 nodes are available: 1 {BEYOND_LIMIT}, 5 {LATENCY_UNKNOWN}."
    measure(made, n0=50, n1=20)
    assert made.core.state.queue.entries.get(nearer.uid).place is Place.UNSCHEDULABLE
    made.run(until_s=11)  # its back-off
    assert nodes_of(made, *pods) == ["n1", ""]
    measure(made, n1=4)
    made.run(until_s=11)
    assert nodes_of(made, *pods) == ["n1", "n1"]


def test_a_reading_that_lets_nobody_in_wakes_nobody() -> None:
    made = scene()
    measure(made, n0=50)
    add(made, strict("near"))
    woken = made.core.state.stats.woken
    for far in (60, 40, 31, 30.001, 900):
        measure(made, n0=far, n1=far)
    assert made.core.state.stats.woken == woken
    measure(made, n0=30)
    assert made.core.state.stats.woken == woken + 1


@pytest.mark.parametrize("step_ms", [0.3, 0.1, 0.001])
def test_a_limit_holds_to_the_microsecond_however_little_a_median_moves(step_ms: float) -> None:
    """Policies are spared what wavers (``STEP``); a limit is not."""
    made = scene()
    measure(made, n0=30)
    assert add(made, strict("a")) == ["n0"]
    measure(made, n0=30 + step_ms)
    assert add(made, late := strict("b")) == [""]
    measure(made, n0=30)
    made.run(until_s=11)
    assert nodes_of(made, late) == ["n0"]


@pytest.mark.parametrize("agents", MESHES)
def test_a_reading_older_than_its_window_is_none(agents: str) -> None:
    made = scene(agents)
    measure(made, n0=10)
    made.run(until_s=LATENCY_STALE_S - 1)
    assert add(made, strict("early")) == ["n0"]
    made.run(until_s=1)
    assert add(made, late := strict("late")) == [""]
    assert message(made, late) == f"0/6 nodes are available: 6 {LATENCY_UNKNOWN}."
    measure(made, n0=10, age_s=LATENCY_STALE_S)  # it was on its way for so long
    made.run(until_s=11)
    assert nodes_of(made, late) == [""]
    measure(made, n0=10)
    made.run(until_s=11)
    assert nodes_of(made, late) == ["n0"]


def test_a_reading_of_an_hour_ago_does_not_come_before_a_newer_one() -> None:
    made = scene()
    measure(made, n0=50)
    measure(made, n0=10, age_s=3600)
    assert add(made, strict("a")) == [""]


def test_a_latency_that_jumps_a_thousandfold_is_unknown_until_it_is_told_again() -> None:
    made = scene()
    measure(made, n0=50_000)
    measure(made, n0=20)
    assert add(made, pod := strict("a")) == [""]
    assert message(made, pod) == f"0/6 nodes are available: 6 {LATENCY_UNKNOWN}."
    said = "latency: shop jumped from 50000 to 20 ms; it counts when it is told again"
    assert made.core.variants.used["n0"].missing == (said,)
    measure(made, n0=20)
    made.run(until_s=11)
    assert nodes_of(made, pod) == ["n0"]
    assert made.core.variants.used["n0"].missing == ()


def test_a_latency_that_jumps_each_time_is_not_believed() -> None:
    made = scene()
    for ms in (50_000, 20, 0.02):
        measure(made, n0=ms)
    assert add(made, pod := strict("a")) == [""]
    measure(made, n0=0.03)
    made.run(until_s=11)
    assert nodes_of(made, pod) == ["n0"]


def test_another_machine_of_the_same_name_has_not_been_measured() -> None:
    made = scene()
    measure(made, n0=10)
    made.inbox.append(NodeUpserted(replace(made.nodes["n0"], uid="another")))
    made.run()
    assert add(made, strict("a")) == [""]


@pytest.mark.parametrize("agents", ["1", "per-node"])
@pytest.mark.parametrize("policy", ["kube-default", "marl-dqn"])
@pytest.mark.parametrize("deleted", [False, True])
def test_nor_do_readings_of_the_machine_before_come_back_with_what_others_tell(
    *, deleted: bool, policy: str, agents: str
) -> None:
    made = scene(agents, policy)
    measure(made, n0=10)
    assert add(made, strict("first")) == ["n0"]
    another = replace(made.nodes["n0"], uid="another")
    if deleted:
        made.inbox.append(NodeDeleted("n0"))
    made.inbox.append(NodeUpserted(another))
    made.run()
    old = NodeSample("n0", 5.0, 100, 1 << 20, source="agent", latencies={"shop": (10_000, 100)})
    made.deliver(NodesMeasured((NodeSample("n0", 0.0, 100, 1 << 20), old)))  # of cpu alone, and one on its way
    made.run()
    assert add(made, late := strict("late")) == [""]
    assert message(made, late) == f"0/6 nodes are available: 6 {LATENCY_UNKNOWN}."
    assert add(made, make_pod("any").cpu("100m").pod()) != [""]
    for agent in made.agents.values():
        table = agent.replica.table
        assert (table.newest_latency("shop", table.live_rows()) < 0).all()
    measure(made, n0=900)  # of another machine it is no jump
    assert made.core.variants.used["n0"].missing == ()


def test_an_agent_learns_that_latencies_ended_though_their_nodes_are_silent_for_long() -> None:
    """Else it offers those nodes for ever, and the pod waits beside one that would take it."""
    made = scene()
    made.add_pod(make_pod("there").cpu("2").on("n4").pod())  # all others score better
    measure(made, n0=10, n1=10, n2=10, n3=10, n4=29)
    assert add(made, strict("first"))[0] in NODES[:5]
    for _ in range(round(GONE_S / 60) + 2):
        made.run(until_s=60)
        measure(made, n4=29)
    assert "n0" not in made.core.variants.used
    assert add(made, strict("late")) == ["n4"]


def test_a_reading_that_wakes_several_offers_the_room_in_queue_order() -> None:
    made = scene()
    for name in NODES[1:]:
        made.add_pod(make_pod(f"on-{name}").cpu("4").on(name).pod())
    made.add_pod(make_pod("on-n0").cpu("3").on("n0").pod())
    measure(made, n0=50)
    high = strict("high", cpu="1", priority=100, never_preempts=True)
    low = strict("low", hard_ms=10, cpu="1")
    assert add(made, low, high) == ["", ""]
    measure(made, n0=5)
    made.run(until_s=11)
    assert nodes_of(made, low, high) == ["", "n0"]


def test_a_reading_that_rose_and_fell_while_a_group_was_judged_wakes_who_was_parked_between() -> None:
    made = scene()
    measure(made, n0=20)
    add(made, strict("other", target="elsewhere"))
    requeuer = made.core.requeuer
    requeuer.hold("group")
    measure(made, n0=50)
    assert add(made, pod := strict("late")) == [""]
    measure(made, n0=20)
    requeuer.release("group")
    made.deliver(Tick())
    made.run(until_s=11)
    assert nodes_of(made, pod) == ["n0"]


def test_a_pod_for_which_others_leave_a_node_looks_elsewhere_once_that_is_too_far() -> None:
    made = scene()
    for name in NODES:
        made.add_pod(make_pod(f"on-{name}").cpu("4").on(name).pod())
    measure(made, n3=10)
    made.keep_victims = True
    add(made, pod := strict("high", cpu="1", priority=100))
    assert made.core.state.cluster.nominated_to[pod.uid] == "n3"
    measure(made, n1=10)
    measure(made, n3=50)
    made.run(until_s=30)
    assert made.core.state.cluster.nominated_to.get(pod.uid) == "n1"


def test_without_a_target_the_nodes_annotation_is_held_against_the_limit() -> None:
    made = scene()
    assert add(made, pod := strict("a", target="")) == [""]
    for latency_us, node in ((40_000, ""), (30_000, "n2")):
        made.add_node(replace(made.nodes["n2"], latency_us=latency_us))
        made.run(until_s=11)
        assert nodes_of(made, pod) == [node]
    made.add_node(replace(made.nodes["n2"], latency_us=UNKNOWN_LATENCY))
    made.run()
    assert add(made, strict("b", target="")) == [""]


def test_nobody_is_evicted_on_a_node_that_is_beyond_the_limit() -> None:
    made = scene()
    for name in NODES:
        made.add_pod(make_pod(f"on-{name}").cpu("4").on(name).pod())
    measure(made, n0=50, n1=40, n3=31)
    assert add(made, pod := strict("high", cpu="1", priority=100)) == [""]
    made.run(until_s=60)
    assert made.evicted == []
    measure(made, n3=20)
    made.run(until_s=60)
    assert made.evicted == ["uid-on-n3"]
    assert nodes_of(made, pod) == ["n3"]


@pytest.mark.parametrize("agents", MESHES)
def test_a_gang_goes_within_the_limit_together_or_not_at_all(agents: str) -> None:
    made = scene(agents)
    key = group_key(GroupSource.NATIVE, "default", "g")
    group = PodGroup(key, GroupSource.NATIVE, "default", "g", gang=True, min_count=3)
    made.inbox.append(ObjectChanged("podgroups", "default/g", group))
    pods = [strict(f"g{number}", cpu="2", group=key) for number in range(3)]
    measure(made, n0=20, n1=40, n2=50)
    assert add(made, *pods) == ["", "", ""]
    made.run(until_s=60)
    assert nodes_of(made, *pods) == ["", "", ""]
    measure(made, n0=20, n1=30)
    made.run(until_s=30)
    assert sorted(nodes_of(made, *pods)) in (["n0", "n0", "n1"], ["n0", "n1", "n1"])


@pytest.mark.parametrize("agents", MESHES)
def test_explain_says_how_far_each_node_is_and_whether_the_policy_looks_at_a_wish(agents: str) -> None:
    made = scene(agents)
    measure(made, n0=50)
    add(made, pod := strict("a"))
    told = explain(made.core, made.pods[pod.uid], {}, made.now)
    assert (told["latency"]["strict"], told["latency"]["heeded"]) == (True, True)
    group = next(one for one in told["nodes"]["groups"] if list(one["reasons"]) == [BEYOND_LIMIT])
    assert group["nodes"][0]["numbers"][0]["text"] == "50 ms from shop, 30 ms is the limit"
    wish = replace(pod, uid="uid-b", pod_class=replace(pod.pod_class, latency_strict=False))
    (node,) = add(made, wish)
    assert node
    told = explain(made.core, made.pods["uid-b"], {}, made.now)
    assert told["latency"]["heeded"] is False
    assert "kube-default does not look at it" in told["summary"]


@pytest.mark.parametrize("agents", MESHES)
@pytest.mark.parametrize("policy", ["most-allocated", "frag"])
def test_a_pod_that_is_placed_beyond_a_wish_is_named_at_once_with_the_policy_that_ignored_it(
    policy: str, agents: str
) -> None:
    made = scene(agents, policy)
    measure(made, **dict.fromkeys(NODES, 50.0))
    made.trace.clear()
    wish = strict("a")
    (node,) = add(made, replace(wish, pod_class=replace(wish.pod_class, latency_strict=False)))
    (event,) = limits_told(made)
    assert (event.reason, event.uid) == ("LatencyLimitBroken", wish.uid)
    assert f"{policy} does not look at it" in event.note
    assert [(one.node, one.ignored_by) for one in made.core.variants.limits.broken_now()] == [(node, policy)]
    measure(made, **dict.fromkeys(NODES, 10.0))
    assert [one.reason for one in limits_told(made)] == ["LatencyLimitBroken", "LatencyLimitKept"]


@pytest.mark.parametrize("agents", MESHES)
def test_a_strict_limit_that_was_held_and_broke_later_names_no_policy(agents: str) -> None:
    made = scene(agents, "most-allocated")
    measure(made, **dict.fromkeys(NODES, 10.0))
    (node,) = add(made, strict("a"))
    measure(made, **{node: 60.0})
    assert [(one.node, one.ignored_by) for one in made.core.variants.limits.broken_now()] == [(node, "")]


@pytest.mark.parametrize(
    ("scheduler", "policy", "named"),
    [("conclave", "most-allocated", "most-allocated"), ("conclave", "el", ""), ("default-scheduler", "frag", "")],
)
def test_of_a_wish_that_broke_later_the_policy_in_use_is_named_where_it_looks_at_none_and_the_pod_is_ours(
    scheduler: str, policy: str, named: str
) -> None:
    made = scene(policy=policy)
    measure(made, **dict.fromkeys(NODES, 10.0))
    pod = strict("a", node_name="n1", scheduler_name=scheduler)
    made.add_pod(replace(pod, pod_class=replace(pod.pod_class, latency_strict=False)))
    made.run()
    assert limits_told(made) == []
    measure(made, n1=60.0)
    (event,) = limits_told(made)
    assert ("does not look at it" in event.note) is bool(named)
    assert [(one.node, one.ignored_by) for one in made.core.variants.limits.broken_now()] == [("n1", named)]


@pytest.mark.parametrize(("policy", "looks"), [("el", True), ("ee", False), ("lb=1,el=1", True), ("frag", False)])
def test_policies_say_whether_they_look_at_a_wish(policy: str, looks: bool) -> None:
    made = scene(policy=policy)
    assert made.core.variants.heeds_latency is looks


@pytest.mark.parametrize(("leader", "agent"), [(True, True), (True, False), (False, True), (False, False)])
def test_either_side_alone_keeps_the_limit_and_without_the_filter_nobody_does(*, leader: bool, agent: bool) -> None:
    """An agent of an older version offers what is beyond it, and is refused; the safeguard off: the pod goes there."""
    filters = {True: DEFAULT, False: DEFAULT.unmeasured}
    made = Scene(agents=0, settings=CoreSettings(profile=filters[leader], validate=True))
    made.profile = filters[agent]
    made.join("agent-0", tell=False)
    made.add_node(make_node("n0").node())
    made.begin()
    made.run()
    measure(made, n0=50)
    (node,) = add(made, strict("a"))
    assert node == ("" if leader or agent else "n0")


@pytest.mark.parametrize("name", ["el=1,new@2", "=", "lb=1,el=1,lb=1"])
def test_a_pointer_that_another_version_wrote_says_it_by_its_members(name: str) -> None:
    assert heeds_latency(PolicyRef(name, 1, members=("lb", "el")))
    assert not heeds_latency(PolicyRef(name.replace("el", "ee"), 1, members=("lb",)))


@pytest.mark.parametrize("said", [property(lambda _: True), 1, "el", None])
def test_a_plug_in_that_says_it_in_another_way_does_not_look(said: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HEURISTICS, "mine", type("Mine", (), {"heeds_latency": said}))
    assert not heeds_latency(PolicyRef("mine", 1))


def test_the_binder_holds_a_limit_against_what_it_sees_of_it() -> None:
    """It hears no readings; the node's own annotation it does see."""
    table = NodeTable(1)
    row = table.upsert(replace(make_node("n0").node(), latency_us=40_000))
    checks = FeasibilityCache(table, profile=DEFAULT.unmeasured)
    assert check_placement(checks, strict("a").pod_class, "n0") is None
    refused = check_placement(checks, strict("a", target="").pod_class, "n0")
    assert refused is not None
    assert refused.reasons == (BEYOND_LIMIT,)
    table.set_latency(row, 30_000)
    assert check_placement(checks, strict("a", target="").pod_class, "n0") is None


def test_a_delay_that_grew_old_is_none_at_the_leader_and_at_agents() -> None:
    made = scene(policy="marl-dqn")
    made.now += 1.0
    sample = NodeSample("n0", 0.0, 100, 1 << 20, 0.1, 0.1, source="agent", delay_us=40_000, latencies={})
    made.deliver(NodesMeasured((sample,)))
    (agent,) = made.agents.values()

    def delays() -> list[float]:
        stores = made.core.variants.store, agent.lanes.store
        return [float(store.look(np.array([store.nodes["n0"]])).delay_ms[0]) for store in stores]

    add(made, make_pod("a").cpu("100m").pod())
    assert delays() == [40.0, 40.0]
    made.run(until_s=LATENCY_STALE_S)
    add(made, make_pod("b").cpu("100m").pod())
    assert delays() == [0.0, 0.0]


def test_another_machine_of_the_same_name_has_no_delay_yet() -> None:
    made = scene(policy="marl-dqn")
    made.now += 1.0
    made.deliver(NodesMeasured((NodeSample("n0", 0.0, 100, 1 << 20, source="agent", delay_us=40_000, latencies={}),)))
    store = made.core.variants.store
    assert store.look(np.array([store.nodes["n0"]])).delay_ms[0] == 40.0
    made.inbox.append(NodeUpserted(replace(made.nodes["n0"], uid="another")))
    made.run()
    assert store.look(np.array([store.nodes["n0"]])).delay_ms[0] == 0.0
