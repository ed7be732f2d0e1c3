"""Which workloads stand where: told to the agents as changes, only while a policy looks, and never to drift apart."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from random import Random

import numpy as np
import pytest

from services.coordinator.core.events import NodeSample, NodesMeasured, PointerSeen
from services.coordinator.core.instructions import SendOffer
from services.coordinator.usage import inventory
from services.coordinator.usage.inventory import WorkloadInventory
from shared.model.cluster_events import NodeDeleted
from shared.model.pod import Pod
from shared.policy.marl.policy import MarlDqn
from shared.wire.codec import encode
from shared.wire.records import PolicyPointer, PolicyRef
from tests.builders import PodBuilder, make_node, make_pod
from tests.marl_weights import weights
from tests.unit.services.coordinator.scene import Scene

MARL = PolicyRef("marl-dqn", 1, "a" * 64)
DEFAULT = PolicyRef("kube-default", 1)


def scene(*, nodes: int = 4, agents: int = 2, active: PolicyRef = MARL) -> Scene:
    made = Scene(agents=agents)
    for number in range(nodes):
        add_node(made, f"n{number}")
    made.begin()
    made.run()
    switch(made, active, number=1)
    return made


def add_node(made: Scene, name: str) -> None:
    made.add_node(make_node(name).allocatable(cpu="4", memory="8Gi", pods="110").node())


def switch(made: Scene, active: PolicyRef, *, number: int) -> None:
    for agent in made.agents.values():
        if active == MARL:
            agent.lanes.use(MARL, MarlDqn(weights()))
    made.inbox.append(PointerSeen(PolicyPointer(active=active, number=number)))
    made.run()


def copy_of(app: str, name: str) -> PodBuilder:
    built = make_pod(name).cpu("100m").memory("64Mi")
    built.json["metadata"]["labels"] = {"app": app}
    return built


def come(made: Scene, *pods: Pod) -> list[SendOffer]:
    made.trace.clear()
    for pod in pods:
        made.add_pod(pod)
    made.run(batch=len(pods) or 1)
    return made.of(SendOffer)


def digest(workload: str) -> str:
    return blake2b(workload.encode(), digest_size=8).hexdigest()


def drift(made: Scene) -> list[str]:
    """Nodes of which an agent believes other workloads than stand there by the coordinator's accounts; "" if none."""
    made.trace.clear()
    before = {name: made.core.state.cache.pods_on(name) for name in made.nodes}
    made.add_pod(copy_of("probe", f"probe-{len(made.bindings)}-{made.now}").pod())
    made.run()
    index, wrong = made.core.state.cluster.index, []
    asked = {send.agent for send in made.of(SendOffer)}  # who is suspect hears nothing, and decides nothing
    for agent in (made.agents[name] for name in sorted(asked)):
        for name in agent.replica.table.row_of:
            stands = [pod for pod in index.pods_on(name) if pod.uid in before[name]]
            expected = Counter(digest(pod.workload) for pod in stands)
            if agent.lanes.store.standing(name) != dict(expected):
                wrong.append(f"{name}: {agent.lanes.store.standing(name)} for {dict(expected)}")
        wrong += [f"{name}: not ours" for name in agent.lanes.store.nodes if name not in agent.replica.table.row_of]
    return wrong


def test_agents_hear_of_the_pods_on_their_nodes_once() -> None:
    made = scene()
    come(made, *(copy_of("web", f"w{number}").pod() for number in range(6)))
    first, second = come(made, copy_of("db", "d0").pod()), come(made, copy_of("db", "d1").pod())
    told = [send.offer.residents for send in first]
    assert sum(len(one.stands) for one in told if one is not None) == 6
    assert all(one is not None and [name.cpu_millis for name in one.workloads][-1] == 100 for one in told)
    again = [send.offer.residents for send in second]
    assert sum(len(one.stands) for one in again if one is not None) == 1
    assert not any(name for one in again if one is not None for name in one.workloads if name.id == 1)
    assert drift(made) == []


def test_a_pod_that_ends_is_told_as_ended() -> None:
    made = scene()
    come(made, copy_of("web", "a").pod(), copy_of("web", "b").pod())
    come(made, copy_of("db", "c").pod())
    made.delete_pod("uid-a")
    made.change_pod("uid-b", phase="Succeeded")
    made.run()
    ended = [send.offer.residents for send in come(made, copy_of("db", "d").pod())]
    assert sum(len(one.ended) for one in ended if one is not None) == 2
    assert drift(made) == []


def test_no_name_of_a_workload_leaves_the_coordinator() -> None:
    made = scene()
    come(made, copy_of("very-secret", "p").pod())
    for send in come(made, copy_of("very-secret", "q").pod()):
        body = encode(send.offer)
        assert b"secret" not in body
        assert bytes.fromhex(digest("default/app:very-secret")) in body or send.offer.residents is not None


def test_where_no_policy_looks_owners_share_one_class_and_nothing_is_told() -> None:
    made = scene(active=DEFAULT)
    pods = [copy_of(f"app-{number}", f"p{number}").pod() for number in range(50)]
    sends = come(made, *pods)
    assert {definition.class_id for send in sends for definition in send.offer.classes} == {1}
    assert all(send.offer.residents is None for send in sends)
    assert all(definition.workload == 0 for send in sends for definition in send.offer.classes)


def test_where_a_policy_looks_a_workload_is_a_class_on_the_wire_and_none_in_the_filters() -> None:
    made = scene()
    sends = come(made, *(copy_of(f"app-{number}", f"p{number}").pod() for number in range(5)))
    defined = {definition.workload for send in sends for definition in send.offer.classes}
    assert len(defined - {0}) == 5
    agent = next(iter(made.agents.values()))
    assert len({known.pod_class for known in agent._classes.values()}) == 1
    assert len({known.seen for known in agent._classes.values()}) == 5


def test_switching_back_and_forth_tells_everything_anew() -> None:
    made = scene()
    come(made, copy_of("web", "a").pod(), copy_of("web", "b").pod())
    assert drift(made) == []
    switch(made, DEFAULT, number=2)
    assert all(send.offer.residents is None for send in come(made, copy_of("web", "c").pod()))
    made.delete_pod("uid-a")
    made.run()
    for agent in made.agents.values():
        agent.lanes.use(MARL, MarlDqn(weights()))
    switch(made, MARL, number=3)
    sends = come(made, copy_of("web", "d").pod())
    assert all(send.offer.residents is not None and send.offer.residents.anew for send in sends)
    assert drift(made) == []


USE = {"busy": 300, "idle": 20}
"""Millicores that a pod of the app really uses; all request 100."""


def learned() -> Scene:
    """Both are known, from nodes' samples alone."""
    made, rng = scene(), Random(3)
    for number in range(40):
        app = rng.choice(["busy", "idle"])
        come(made, copy_of(app, f"{app}-{number}").pod())
        made.now += 15.0
        samples = []
        for name in made.nodes:
            used = sum(USE[made.pods[uid].labels["app"]] for uid in made.core.state.cache.pods_on(name))
            samples.append(NodeSample(name, 1.0, used, 0))
        made.deliver(NodesMeasured(tuple(samples)))
    drift(made)
    return made


def agents_know(made: Scene) -> bool:
    usages = [agent.lanes.store.usage for agent in made.agents.values()]
    found = [
        (usage.use[usage.workloads[digest(f"default/app:{app}")], 0] * 4000, USE[app])
        for usage in usages
        for app in USE
    ]
    return all(abs(millis - real) < 15 for millis, real in found)


def test_two_workloads_of_equal_requests_drift_apart_by_what_they_use() -> None:
    assert agents_know(learned())


def test_a_new_leader_that_has_measured_nothing_leaves_agents_what_they_know() -> None:
    made = learned()
    made.replace_leader(set())
    made.run()
    switch(made, MARL, number=2)
    come(made, *(copy_of(app, f"{app}-late").pod() for app in USE))
    assert drift(made) == []
    assert agents_know(made)


def test_a_new_leader_counts_the_pods_that_stand_as_old() -> None:
    made = scene()
    come(made, copy_of("web", "a").pod())
    made.replace_leader(set())
    made.run()
    switch(made, MARL, number=2)
    sends = come(made, copy_of("web", "b").pod())
    ages = [pod.age_ms for send in sends if send.offer.residents is not None for pod in send.offer.residents.stands]
    assert ages == [3_600_000]
    assert drift(made) == []


def wander(made: Scene, seed: int) -> list[str]:
    """Pods come and go, nodes come and go, agents leave, join and fall silent; what drifted apart in the end."""
    rng, wrong = Random(seed), []
    for number in range(60):
        match rng.randrange(9):
            case 0 | 1 | 2:
                come(made, *(copy_of(f"app-{rng.randrange(4)}", f"p{number}-{k}").pod() for k in range(3)))
            case 3 if made.pods:
                made.delete_pod(rng.choice(sorted(made.pods)))
            case 4 if made.pods:
                made.change_pod(rng.choice(sorted(made.pods)), phase="Succeeded")
            case 5:
                add_node(made, f"n{rng.randrange(8)}")
            case 6 if len(made.nodes) > 2:
                name = rng.choice(sorted(made.nodes))
                del made.nodes[name]
                made.binder.remove_node(name)
                made.inbox.append(NodeDeleted(name))
            case 7 if len(made.agents) > 1 and number % 2:
                made.leave(rng.choice(sorted(made.agents)))
            case 7:
                made.join(f"late-{number}")
                made.agents[f"late-{number}"].lanes.use(MARL, MarlDqn(weights()))
            case 8:
                made.lost_answers = {rng.choice(sorted(made.agents))}
                come(made, copy_of("web", f"lost-{number}").pod())
                made.lost_answers = set()
        made.run(until_s=rng.choice([0.0, 0.0, 5.0]))
        if number % 5 == 4:
            made.run(until_s=10.0)
            wrong += drift(made)
    return wrong


@pytest.mark.parametrize("seed", range(6))
def test_agents_never_believe_other_workloads_than_stand_there(seed: int) -> None:
    assert wander(scene(agents=3), seed) == []


def test_an_agent_that_is_far_behind_is_told_everything_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "MAX_JOURNAL", 2)
    monkeypatch.setattr(inventory, "MAX_PER_OFFER", 3)
    monkeypatch.setattr(inventory, "MAX_NAMES", 0)
    monkeypatch.setattr(inventory, "MAX_WORKLOADS", 0)
    made = scene()
    come(made, *(copy_of(f"app-{number}", f"p{number}").pod() for number in range(8)))
    for _ in range(4):
        drift(made)
    assert drift(made) == []


def test_an_agent_that_missed_more_than_stands_on_its_nodes_is_told_everything_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = scene()
    owner = made.core.registry.ownership.owner["n0"]
    others = [copy_of("db", f"db-{number}").on("n0").pod() for number in range(8)]
    come(made, *others[:4], copy_of("web", "a").pod())
    monkeypatch.setattr(inventory, "MOST_BEHIND", 2)
    sends = come(made, *others[4:], copy_of("web", "b").pod())
    anew = {send.agent for send in sends if send.offer.residents is not None and send.offer.residents.anew}
    assert anew == made.agents.keys() - {owner}
    assert drift(made) == []


def test_the_checker_sees_a_node_that_changed_hands_untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: nodes that come into an agent's view are not told of."""
    monkeypatch.setattr(WorkloadInventory, "_meet", lambda self, heard, view: None)
    assert wander(scene(agents=3), 0) != []


def test_means_of_the_cluster_count_what_is_on_its_way() -> None:
    made = scene(nodes=1, agents=1)
    made.deliver(NodesMeasured((NodeSample("n0", 0.0, 0, 0),)))
    come(made, copy_of("web", "a").pod())
    cluster = come(made, copy_of("web", "b").pod())[0].offer.cluster
    np.testing.assert_allclose(cluster[0], 0.025, atol=1e-6)  # 100m of 4 CPU, requested and not measured yet


def absurd(name: str, *, node: str = "") -> Pod:
    built = copy_of("absurd", name).cpu("1E").memory("7Ei")
    if node:
        built.json["spec"]["nodeName"] = node
    return built.pod()


@pytest.mark.parametrize("node", ["", "n0"])
def test_a_pod_that_asks_for_the_impossible_stops_no_offer(node: str) -> None:
    """Waiting, or put on a node by hand: for one number out of the bounds an agent would refuse the whole offer."""
    made = scene()
    made.deliver(NodesMeasured(tuple(NodeSample(name, 1.0, 0, 0) for name in made.nodes)))
    come(made, absurd("huge", node=node))
    come(made, copy_of("web", "a").pod())
    assert "uid-a" in dict(made.bindings)
    usage = made.core.variants.store.usage
    assert usage.use.max() <= 2.0  # no pod is taken to use more than its node has, 4 CPU and 8 Gi


def test_a_batch_beyond_the_journal_keeps_a_bounded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "MAX_JOURNAL", 4)
    made = scene()
    come(made, *(copy_of("web", f"w{number}").pod() for number in range(30)))
    for number in range(30):
        made.delete_pod(f"uid-w{number}")
    made.run(batch=30)
    assert len(made.core.variants.inventory._journal) <= 8
    assert drift(made) == []


def phantoms(made: Scene) -> float:
    """Young pods that a store counts beyond those it knows, after pods that ended at the end of 200 quiet seconds."""
    come(made, copy_of("web", "a").pod())
    come(made, copy_of("web", "b").pod())
    made.now += 200.0
    for uid in ("uid-a", "uid-b"):
        made.delete_pod(uid)
    made.run()
    come(made, copy_of("web", "c").pod())
    stores = [made.core.variants.store, *(agent.lanes.store for agent in made.agents.values())]
    known = [sum(pod.bound_s + age_s > s.now_s for pod in s._pods.values() for age_s in s.young_s) for s in stores]
    return float(sum(abs(s._young.sum() - young) for s, young in zip(stores, known, strict=True)))


def test_a_pod_that_ends_after_quiet_times_leaves_no_phantom() -> None:
    assert phantoms(scene()) == 0.0


def priorities(made: Scene, app: str) -> set[int | None]:
    """Of the workload, as the agents know it."""
    return {agent.lanes.store.priorities.get(digest(f"default/app:{app}")) for agent in made.agents.values()}


def test_a_workloads_priority_is_the_highest_of_its_pods_and_told_again_when_it_rises() -> None:
    made = scene()
    come(made, copy_of("web", "a").priority(5).pod())
    assert priorities(made, "web") == {5}
    come(made, copy_of("web", "b").priority(2).pod())
    assert priorities(made, "web") == {5}
    come(made, copy_of("web", "c").priority(2**40).pod())
    come(made, copy_of("db", "d").pod())
    assert (priorities(made, "web"), priorities(made, "db")) == ({2**31 - 1}, {0})
    assert drift(made) == []


def test_priorities_end_with_the_policy_that_looks() -> None:
    made = scene()
    come(made, copy_of("web", "a").priority(5).pod())
    switch(made, DEFAULT, number=2)
    come(made, copy_of("web", "b").priority(3).pod())
    switch(made, MARL, number=3)
    come(made, copy_of("db", "c").pod())
    assert made.core.variants.store.priorities["default/app:web"] == 5
    made.delete_pod("uid-a")
    switch(made, DEFAULT, number=4)
    switch(made, MARL, number=5)
    come(made, copy_of("db", "d").pod())
    assert priorities(made, "web") <= {3, None}  # agents on whose nodes none stands need not know
    come(made, copy_of("web", "e").priority(2).pod())
    assert priorities(made, "web") == {3}


@pytest.mark.parametrize("agents", [1, 2, 4])
def test_who_is_told_everything_anew_is_told_the_priorities_of_classes_that_it_knows(agents: int) -> None:
    made = scene(agents=agents)
    come(made, copy_of("web", "a").priority(5).pod())
    for number in range(3):
        made.core.variants.inventory._session += 1
        come(made, copy_of("db", f"d{number}").pod())
        come(made, copy_of("web", f"b{number}").priority(5).pod())
        assert (priorities(made, "web"), priorities(made, "db") - {None}) == ({5}, {0})


@pytest.mark.parametrize("new", [0, 1])
def test_all_agents_judge_a_pod_by_the_priority_that_it_raises_its_workload_to(new: int) -> None:
    made = scene()
    come(made, copy_of("web", "a").priority(0).pod())
    made.core.registry.views[sorted(made.agents)[new]].classes.clear()  # it does not know the class, the other does
    sends = come(made, copy_of("web", "b").priority(1000).pod())[: len(made.agents)]
    assert {send.agent for send in sends} == made.agents.keys()
    for send in sends:
        told = send.offer.residents
        assert told is not None
        assert [name.priority for name in told.workloads if name.key.hex() == digest("default/app:web")] == [1000]


def test_priorities_of_workloads_that_came_and_went_are_forgotten_though_nothing_is_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inventory, "MAX_WORKLOADS", 3)
    made = scene()
    for number in range(20):
        made.add_pod(copy_of(f"job-{number}", f"j{number}").priority(7).on("n0").pod())
        made.run()
        if number:
            made.delete_pod(f"uid-j{number - 1}")
            made.run()
        assert len(made.core.variants.store.priorities) <= 3 + 2 + 1
    come(made, copy_of("web", "a").priority(3).pod())
    assert priorities(made, "web") == {3}
    assert 7 in priorities(made, "job-19")
    assert drift(made) == []


def test_beyond_so_many_rises_of_priorities_everything_is_told_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "MAX_RISEN", 2)
    made = scene()
    for rise in range(7):
        come(made, copy_of("web", f"p{rise}").priority(rise).pod())
    come(made, copy_of("db", "d").pod())
    assert 6 in priorities(made, "web")
    assert priorities(made, "web") <= {6, None}
    assert drift(made) == []


def test_agents_are_told_what_a_node_used_in_the_mean_of_its_last_samples() -> None:
    made = scene(nodes=1, agents=1)
    for millis in (1000, 3000):
        made.now += 5.0
        made.deliver(NodesMeasured((NodeSample("n0", 1.0, millis, 0),)))
    (offer,) = come(made, copy_of("web", "w").pod())
    (told,) = offer.offer.samples
    assert told.shares[0] == pytest.approx((3000 - 2000 * np.exp(-5 / 30)) / 4000)
    made.deliver(NodeDeleted("n0"))
    add_node(made, "n0")
    made.run()
    made.now += 5.0
    made.deliver(NodesMeasured((NodeSample("n0", 1.0, 400, 0),)))
    (offer,) = come(made, copy_of("web", "late").pod())
    assert offer.offer.samples[0].shares[0] == pytest.approx(0.1)


def crowded(agents: int, **priorities: int) -> str:
    """Where a pod of ``low`` goes: two short nodes, pods of ``high`` stand on the one that it would prefer."""
    made = scene(nodes=2, agents=agents)
    for app, node, count in (("high", "n0", 5), ("low", "n1", 6)):
        for number in range(count):
            pod = copy_of(app, f"{app}{number}").cpu("500m").priority(priorities[app]).on(node).pod()
            made.add_pod(pod)
    made.run()
    made.now += 5.0
    made.deliver(NodesMeasured(tuple(NodeSample(name, 1.0, 3700, 0) for name in ("n0", "n1"))))
    come(made, copy_of("low", "late").cpu("500m").priority(priorities["low"]).pod())
    return made.pods["uid-late"].node_name


@pytest.mark.parametrize("agents", [1, 2])
def test_a_pod_keeps_away_from_a_short_node_of_pods_that_outrank_it_through_the_mesh(agents: int) -> None:
    assert crowded(agents, high=1000, low=0) == "n1"
    assert crowded(agents, high=0, low=0) == crowded(agents, high=0, low=1000) == "n0"
