"""``lb`` goes by measured use where somebody measures and by requests where nobody does, with one agent as with many:
readings that are old, jump, stand still or come from another machine end or are bounded, for all alike."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from services.coordinator.core.events import NodeSample, NodesMeasured, PointerSeen
from services.coordinator.core.instructions import SendOffer
from services.coordinator.core.state import CoreSettings
from services.coordinator.usage import requested
from services.coordinator.usage.measured import OLD_S
from shared.model.cluster_events import NodeDeleted
from shared.policy.registry import make_policy, ref_of
from shared.policy.usage.load import node_load
from shared.policy.usage.views import LOADS, SUMMARY
from shared.scheduling.cycle.profile import PluginSet
from shared.wire.records import PolicyPointer
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

NODES = [f"n{number}" for number in range(4)]
GIB = 1 << 30


def scene(agents: int = 2, policy: str = "lb", parts: tuple[str, ...] = ("cpu", "memory")) -> Scene:
    """Each node with one pod that asks for a tenth."""
    made = Scene(agents=agents, settings=CoreSettings(profile=PluginSet(load_parts=parts), validate=True))
    for name in NODES:
        made.add_node(make_node(name).allocatable(cpu="10", memory="10Gi", pods="110").node())
        pod = make_pod(f"on-{name}").cpu("1").memory("1Gi")
        pod.json["spec"]["nodeName"] = name
        made.add_pod(pod.pod())
    made.begin()
    made.run()
    point(made, policy)
    return made


def point(made: Scene, policy: str) -> None:
    for agent in made.agents.values():
        agent.lanes.use(ref_of(policy), make_policy(policy))
    number = made.core.variants.number + 1
    made.inbox.append(PointerSeen(PolicyPointer(active=ref_of(policy), number=number)))
    made.run()


def tell(made: Scene, *cpu: float, age_s: float = 0.0, memory: float = 0.1, disk: float | None = None) -> None:
    """Shares of cpu in use, node by node, a second later."""
    made.now += 1.0
    made.deliver(
        NodesMeasured(
            tuple(
                NodeSample(name, age_s, round(10_000 * share), round(10 * GIB * memory), disk, source="sensor")
                for name, share in zip(NODES, cpu, strict=False)
            )
        )
    )


def come(made: Scene, name: str) -> str:
    before = len(made.bindings)
    made.add_pod(make_pod(name).cpu("100m").memory("128Mi").pod())
    made.run()
    return made.bindings[before][1]


def loads(made: Scene) -> dict[str, float]:
    """As the leader sees them; agents know the same measurements."""
    table = made.core.state.cache.table
    for agent in made.agents.values():
        theirs = agent.replica.table
        for name, row in theirs.row_of.items():
            ours = table.row_of[name]
            assert theirs.use.then(row) == table.use.then(ours)
            assert theirs.use.shares[:, row].tolist() == table.use.shares[:, ours].tolist()
    return {name: float(node_load(table, np.array([table.row_of[name]]))[0]) for name in NODES}


@pytest.mark.parametrize("agents", [1, 4])
def test_the_node_that_uses_least_gets_the_pod_though_all_request_the_same(agents):
    made = scene(agents)
    tell(made, 0.5, 0.4, 0.02, 0.3)
    assert come(made, "a") == "n2"
    tell(made, 0.5, 0.4, 0.9, 0.05)
    assert come(made, "b") == "n3"
    point(made, "ee")
    tell(made, 0.5, 0.4, 0.9, 0.05)
    assert come(made, "c") == "n2"


@pytest.mark.parametrize("agents", [1, 4])
def test_a_node_that_is_measured_to_be_full_is_not_packed_further_while_another_takes_the_pod(agents):
    made = scene(agents, "ee")
    tell(made, 0.995, 0.4, 0.1, 0.1)
    assert come(made, "a") == "n1"
    tell(made, 0.995, 0.995, 0.995, 0.995)
    assert come(made, "b") in NODES  # all are: a pod that fits by its requests is placed


def test_what_is_watched_is_a_setting():
    made = scene(parts=("disk",))
    made.deliver(
        NodesMeasured(
            tuple(NodeSample(n, 0.0, 9000, GIB, 0.1 if n == "n1" else 0.6, source="sensor") for n in NODES[:3])
        )
    )
    assert come(made, "a") in ("n1", "n3")  # of n3 nobody measures the disk: a tenth is requested there
    tell(made, 0.1, 0.9, 0.1, 0.1, disk=0.05)
    made.deliver(NodesMeasured((NodeSample("n0", 0.0, 0, 0, 0.01, source="sensor"),)))
    tell(made, 0.1, 0.9, 0.1, 0.1, disk=0.5)
    made.now += 1.0
    made.deliver(NodesMeasured((NodeSample("n1", 0.0, 9900, 9 * GIB, 0.01, source="sensor"),)))
    assert come(made, "b") == "n1"


def test_the_cluster_that_nodes_are_compared_with_is_measured_too():
    made = scene()
    tell(made, 0.5, 0.4, 0.1, 0.2)
    made.trace.clear()
    come(made, "a")
    cluster = dict(zip(SUMMARY, made.of(SendOffer)[0].offer.cluster, strict=True))
    assert [cluster[name] for name in LOADS] == pytest.approx([0.2, 0.1, 0.3, 1.0])
    assert cluster["requested"] == pytest.approx(0.1)


def test_a_pod_that_a_late_reading_does_not_show_counts_by_its_requests():
    made = scene()
    tell(made, 0.1, 0.1, 0.1, 0.1)
    made.now += 30.0
    first = come(made, "a")
    made.now += 5.0
    tell(made, *([0.1] * 4), age_s=15.0)  # of before it came
    second = come(made, "b")
    assert loads(made)[first] > 0.1
    assert second != first


def slow_starters(start_s: float) -> dict[str, int]:
    """Pods by node: one a second while the first, bound ``start_s`` ago, shows in no reading yet; n0 uses least."""
    made = scene()
    made.now += 100.0  # of before, nobody knows what was requested
    for second in range(round(start_s)):
        if second % 5 == 0:
            tell(made, 0.1, 0.3, 0.3, 0.3)
        made.now += 1.0
        made.add_pod(make_pod(f"slow-{second}").cpu("200m").memory("205Mi").pod())
        made.run()
    return {name: sum(node == name for _, node in made.bindings) for name in NODES}


@pytest.mark.parametrize("start_s", [1.0, 10.0, 30.0])
def test_pods_that_are_slow_to_start_do_not_all_go_to_the_node_that_looks_idle_meanwhile(start_s):
    assert slow_starters(start_s)["n0"] <= 5 + start_s / 4


def test_ablation_pods_that_are_taken_to_be_shown_before_they_started_all_go_to_one_node(monkeypatch):
    """The check above can fail."""
    monkeypatch.setattr(requested, "SHOWN_S", 1.0)
    assert slow_starters(30.0)["n0"] > 5 + 30.0 / 4


def test_a_node_that_fell_silent_counts_by_its_requests_for_everybody_alike():
    made = scene()
    tell(made, 0.9, 0.8, 0.7, 0.01)
    assert come(made, "a") == "n3"
    made.now += OLD_S - 5.0
    tell(made, 0.9, 0.8, 0.7)
    made.now += 10.0
    made.deliver()
    come(made, "b")
    assert loads(made)["n3"] >= 0.1
    assert loads(made)["n0"] == pytest.approx(0.5, abs=0.02)
    made.now += OLD_S
    made.deliver()
    come(made, "c")
    assert not made.core.state.cache.table.use
    assert not any(agent.replica.table.use for agent in made.agents.values())


def test_a_reading_that_jumps_a_thousandfold_moves_no_pod_for_longer_than_it_lasts():
    made = scene()
    tell(made, 0.1, 0.2, 0.3, 0.01)
    come(made, "a")
    for jumped in (10.0 * 1000, 5.0):  # beyond what can be: left out; within: it counts as full
        made.now += 5.0
        tell(made, 0.1, 0.2, 0.3, jumped)
        come(made, f"jumped-{jumped}")
        assert max(loads(made).values()) <= 1.0
    made.now += 5.0
    tell(made, 0.6, 0.6, 0.6, 0.01)
    assert come(made, "back") == "n3"


@pytest.mark.parametrize("clock_s", [-3599.0, 3600.0], ids=["behind", "ahead"])
def test_a_source_whose_clock_is_off_by_an_hour_is_none_or_new(clock_s):
    """What is told as an hour old is too old; an age below nothing is none by the time it comes here."""
    made = scene()
    tell(made, 0.5, 0.5, 0.5, 0.01, age_s=max(0.0, -clock_s))
    come(made, "a")
    assert bool(made.core.state.cache.table.use) == (clock_s > 0)
    assert loads(made)["n0"] == pytest.approx(0.3 if clock_s > 0 else 0.1, abs=0.02)


def test_a_machine_that_took_anothers_name_is_not_judged_by_what_that_used():
    made = scene()
    tell(made, 0.5, 0.5, 0.5, 0.01)
    come(made, "a")
    node = made.nodes["n3"]
    made.add_node(replace(node, uid="another"))
    made.run()
    come(made, "b")
    assert loads(made)["n3"] >= 0.1


@pytest.mark.parametrize("told_meanwhile", [False, True])
@pytest.mark.parametrize("gone", [False, True], ids=["another uid", "deleted and made again"])
def test_a_late_reading_of_the_machine_before_is_none_of_the_one_that_took_its_name(gone, told_meanwhile):
    made = scene()
    tell(made, 0.5, 0.5, 0.5, 0.01)
    for number in range(3):  # every agent hears of it
        come(made, f"first-{number}")
    node = made.nodes["n3"]
    if gone:
        made.inbox.append(NodeDeleted("n3"))
        made.run()
    if told_meanwhile:
        tell(made, 0.5, 0.5, 0.5, 0.01)  # also of a machine whose node is gone
    made.now += 1.0
    made.add_node(replace(node, uid="another"))
    made.run()
    for number in range(3):
        come(made, f"before-{number}")
    for store in (made.core.variants.store, *(agent.lanes.store for agent in made.agents.values())):
        assert not store.sampled(np.array([store.nodes.get("n3", -1)])).any()
    for late_s in (15.0, 2.5):
        tell(made, 0.5, 0.5, 0.5, 0.01, age_s=late_s)
    come(made, "a")
    assert loads(made)["n3"] >= 0.1  # by requests; as that machine was, 0.055
    for store in (made.core.variants.store, *(agent.lanes.store for agent in made.agents.values())):
        slot = store.nodes.get("n3", -1)
        assert not store.sampled(np.array([slot])).any()
    tell(made, 0.5, 0.5, 0.5, 0.7)
    come(made, "b")
    assert loads(made)["n3"] >= 0.4


@pytest.mark.parametrize("policy", ["kube-default", "lb", "marl-dqn"])
def test_readings_of_nodes_that_come_and_go_leave_nothing_behind(policy):
    made = scene(policy=policy)
    for number in range(30):
        name = f"more-{number}"
        made.add_node(make_node(name).allocatable(cpu="10", memory="10Gi", pods="110").node())
        made.run()
        made.now += 1.0
        made.deliver(NodesMeasured((NodeSample(name, 0.0, 1000, GIB),)))
        made.inbox.append(NodeDeleted(name))
        made.run()
    tell(made, 0.1, 0.1, 0.1, 0.1)
    assert set(made.core.variants.store.nodes) <= {*NODES}
    assert set(made.core.variants.used) <= {*NODES}


def test_who_begins_to_look_again_is_told_what_holds_now():
    made = scene()
    tell(made, 0.9, 0.8, 0.7, 0.01)
    come(made, "a")
    point(made, "kube-default")
    assert not made.core.state.cache.table.use
    made.now += OLD_S + 400.0
    tell(made, 0.2)
    made.trace.clear()
    come(made, "b")
    assert all(send.offer.samples == [] for send in made.of(SendOffer))
    point(made, "lb")
    tell(made, 0.3)
    come(made, "c")
    assert loads(made)["n0"] == pytest.approx(0.2, abs=0.02)
    assert loads(made)["n3"] >= 0.1


def test_an_agent_of_an_older_coordinator_goes_by_requests():
    """It tells what nodes use, and not what was requested by then."""
    made, older = scene(), SUMMARY.index("load")
    for agent in made.agents.values():
        judge = agent.decide
        agent.decide = lambda offer, judge=judge: judge(
            replace(offer, samples=[replace(use, requested=[]) for use in offer.samples], cluster=offer.cluster[:older])
        )
    tell(made, 0.9, 0.8, 0.7, 0.01)
    come(made, "a")
    assert not any(agent.replica.table.use for agent in made.agents.values())
