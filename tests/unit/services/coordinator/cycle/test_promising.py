"""Whom of many agents a lone pod is asked of: few that promise most; all where too little is known or none takes it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as replace_fields

from services.coordinator.core.events import AgentsChanged, DecisionsReceived, PointerSeen, PolicyRead
from services.coordinator.core.instructions import SendOffer
from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle import promising
from services.coordinator.cycle.classes import OfferedClass
from services.coordinator.cycle.promising import NEVER, RENEW_S, Promising, kind_of
from services.coordinator.rollout.demand import ClusterDemand
from shared.agent.core import AgentCore
from shared.decide.stages import Stage
from shared.model.pod import Pod
from shared.policy.heuristics import KubeDefault
from shared.policy.marl.policy import MarlDqn
from shared.policy.observation import Need, Observation, Rng, Verdicts
from shared.policy.registry import HEURISTICS, load_policy, ref_of, reference
from shared.policy.rollout.rollout import first_pointer, publish, rehearse, to_stage
from shared.policy.weights import WeightsFile, decode, encode, shipped
from shared.wire.records import PolicyPointer, PolicyRef, Rehearsed
from tests.builders import make_node, make_pod
from tests.marl_weights import weights
from tests.unit.services.coordinator.rollout.test_evaluation import BY_HAND, NEW, OLD, Rolled
from tests.unit.services.coordinator.rollout.test_sampling import Serving
from tests.unit.services.coordinator.scene import Scene, check_bound_once, check_overcommit, check_places

NODES, FEW = 24, 3
SETTINGS = CoreSettings(validate=True, asked_agents=FEW)
MIXED = "kube-default=0.5,least-allocated=0.5"
"""Cannot be asked at the coordinator: what agents last said is all there is."""


def scene_of(policy: str = "kube-default", settings: CoreSettings = SETTINGS) -> Scene:
    """An agent on each node, which others use the less, the higher its number."""
    scene = Scene(agents=0, policy=policy, settings=settings)
    for number in range(NODES):
        scene.join(f"a{number}", node=f"n{number}", tell=False)
        scene.add_node(make_node(f"n{number}").allocatable(cpu="32", memory="64Gi", pods="110").node())
        scene.add_pod(make_pod(f"other{number}").cpu(f"{30 - number}").on(f"n{number}").pod())
    scene.begin()
    scene.run()
    return scene


def asked(scene: Scene, *pods: Pod) -> list[str]:
    """Who was asked about these, which come together."""
    scene.trace.clear()
    for pod in pods:
        scene.add_pod(pod)
    scene.run(batch=len(pods))
    assert check_bound_once(scene) == check_overcommit(scene) == check_places(scene) == []
    return [offer.agent for offer in scene.of(SendOffer)]


def lone(number: int, cpu: str = "100m") -> Pod:
    return make_pod(f"p{number}").cpu(cpu).memory("64Mi").pod()


def where(scene: Scene, pod: Pod) -> str:
    return scene.pods[pod.uid].node_name


def test_by_a_policy_that_can_be_asked_here_few_are_asked_and_the_best_node_is_among_them() -> None:
    scene = scene_of()
    for number in range(12):
        pod, table = lone(number), scene.core.state.cache.table
        rows = table.live_rows()
        score = KubeDefault().decide(Observation(table, pod.pod_class, rows), np.random.default_rng(0)).score
        best = {table.names[row] for row in rows[score == score.max()]}
        assert len(asked(scene, pod)) == FEW
        assert where(scene, pod) in best


def test_by_any_other_all_are_asked_about_the_first_pod_and_few_about_those_that_differ_by_amounts() -> None:
    scene = scene_of(MIXED)
    assert len(asked(scene, lone(0))) == NODES
    for number in range(1, 9):
        assert FEW <= len(asked(scene, lone(number, cpu=f"{100 + number}m"))) <= 2 * FEW
    assert FEW <= len(asked(scene, lone(9, cpu="3"))) <= 2 * FEW
    assert len(asked(scene, make_pod("other").memory("1Gi").tolerate(key="a", operator="Exists").pod())) == NODES


def test_a_node_that_became_better_is_asked_again_though_others_promised_more() -> None:
    scene = scene_of(MIXED)
    asked(scene, lone(0))
    scene.delete_pod(make_pod("other0").pod().uid)
    scene.run()
    pod = lone(1)
    assert "a0" in asked(scene, pod)
    assert where(scene, pod) == "n0"


def test_ablation_without_what_changed_it_is_never_found(monkeypatch: pytest.MonkeyPatch) -> None:
    learn = Promising._learn

    def blind(self: Promising, offered: OfferedClass, words: object) -> None:
        learn(self, offered, words)  # type: ignore[arg-type]
        for said in self._said.values():
            said.generation = self._state.cache.table.generation  # the same array: nothing ever differs

    monkeypatch.setattr(Promising, "_learn", blind)
    scene = scene_of(MIXED)
    asked(scene, lone(0))
    scene.delete_pod(make_pod("other0").pod().uid)
    scene.run()
    pod = lone(1)
    assert "a0" not in asked(scene, pod)
    assert where(scene, pod) != "n0"


def test_where_most_nodes_are_others_since_all_are_asked() -> None:
    scene = scene_of(MIXED)
    asked(scene, lone(0))
    for number in range(NODES // 2 + 1):
        scene.add_pod(make_pod(f"more{number}").cpu("100m").on(f"n{number}").pod())
    scene.run()
    assert len(asked(scene, lone(1))) == NODES
    assert len(asked(scene, lone(2))) <= 2 * FEW


class Rejects(KubeDefault):
    """Would rather have nothing."""

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:
        return Verdicts(super().decide(observation, rng).score, np.zeros(len(observation.rows), np.bool_))


def test_where_none_of_few_accepts_all_are_asked_at_once() -> None:
    scene = scene_of()
    for number in range(NODES - 2 * FEW, NODES):
        scene.agents[f"a{number}"] = AgentCore(Rejects(), np.random.default_rng(0))
    pod = lone(0)
    assert len(asked(scene, pod)) == FEW + NODES
    assert where(scene, pod) == f"n{NODES - 2 * FEW - 1}"


def test_where_none_of_few_answers_all_others_are_asked() -> None:
    scene = scene_of()
    scene.lost_answers = {f"a{number}" for number in range(NODES - FEW, NODES)}
    pod = lone(0)
    scene.trace.clear()
    scene.add_pod(pod)
    scene.run(until_s=2.0)
    assert where(scene, pod) == f"n{NODES - FEW - 1}"
    assert not scene.core.state.queue.entries


def test_ablation_a_pod_that_few_did_not_take_would_be_told_that_nobody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OfferedClass, "narrow", property(lambda self: bool(self.sole)))
    scene = scene_of()
    for number in range(NODES - 2 * FEW, NODES):
        scene.agents[f"a{number}"] = AgentCore(Rejects(), np.random.default_rng(0))
    pod = lone(0)
    asked(scene, pod)
    assert where(scene, pod) == ""


def test_units_that_come_together_are_asked_of_more_and_never_lost() -> None:
    scene = scene_of()
    pods = [lone(number, cpu=f"{100 + number}m") for number in range(4)]
    assert len(asked(scene, *pods)) < NODES
    assert all(where(scene, pod) for pod in pods)


@pytest.mark.parametrize(("together", "everybody"), [(1, False), (3, True)])
def test_of_pods_that_others_decide_about_a_lone_one_is_asked_of_few(together: int, everybody: bool) -> None:
    scene = scene_of()
    label = {"matchLabels": {"app": "web"}}
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "labelSelector": label}
    pods = []
    for number in range(together):
        made = make_pod(f"web{number}").cpu("100m").set(labels={"app": "web"})
        made.json["spec"]["topologySpreadConstraints"] = [spread | {"whenUnsatisfiable": "ScheduleAnyway"}]
        pods.append(made.pod())
    assert (len(set(asked(scene, *pods))) == NODES) is everybody
    assert all(where(scene, pod) for pod in pods)


def gpu_scene(policy: str, settings: CoreSettings = SETTINGS) -> Scene:
    """An agent on each node; others have a part of its GPUs, of each another."""
    scene = Scene(agents=0, policy=policy, settings=settings)
    for number in range(NODES):
        scene.join(f"a{number}", node=f"n{number}", tell=False)
        made = make_node(f"n{number}").label(**{"conclave.io/gpu-model": f"m{number % 3}"})
        scene.add_node(made.allocatable(cpu="64", memory="256Gi", pods="110").gpus(2 + number % 7).node())
        scene.add_pod(make_pod(f"other{number}").cpu("1").gpu_milli(100 + 37 * (number % 24)).on(f"n{number}").pod())
    scene.begin()
    scene.run()
    return scene


def for_gpus(number: int) -> Pod:
    made = make_pod(f"p{number}").cpu(f"{2 + number % 3}").memory("1Gi").gpu_milli((1000, 500, 2000, 300)[number % 4])
    return (made.select(**{"conclave.io/gpu-model": "m1"}) if number % 5 == 4 else made).pod()


@pytest.mark.parametrize("policy", ["frag", "fgd", "power", "best-fit"])
def test_by_policies_of_gpus_few_are_asked_and_pods_go_where_they_would_if_all_were(policy: str) -> None:
    few, everybody = gpu_scene(policy), gpu_scene(policy, replace(SETTINGS, asked_agents=0))
    for number in range(16):
        pod = for_gpus(number)
        assert len(asked(few, pod)) <= FEW
        assert len(asked(everybody, pod)) > FEW
        assert where(few, pod) == where(everybody, pod)
    assert not few.core.cycle._promising._said  # which nobody would go by


def test_ablation_agents_that_count_the_demand_themselves_choose_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterDemand, "news", lambda self, view: None)
    few, everybody = gpu_scene("frag"), gpu_scene("frag", replace(SETTINGS, asked_agents=0))
    places = []
    for number in range(16):
        asked(few, pod := for_gpus(number))
        asked(everybody, pod)
        places.append((where(few, pod), where(everybody, pod)))
    assert any(ours != theirs for ours, theirs in places)


def test_weights_that_are_not_shipped_are_ranked_by_once_they_were_read() -> None:
    scene, file = gpu_scene("frag"), shipped("frag")
    card = replace_fields(file.card, version=file.card.version + 1)
    own = decode(encode(WeightsFile(file.arrays, card)), policy="frag")
    for agent in scene.agents.values():
        agent.lanes.use(reference(own), load_policy("frag", data=encode(own), sha256=own.sha256))
    scene.inbox.append(PointerSeen(first_pointer(reference(own), number=1)))
    scene.run()
    assert len(asked(scene, for_gpus(0))) > FEW
    scene.inbox.append(PolicyRead(reference(own), load_policy("frag", data=encode(own), sha256=own.sha256)))
    scene.run()
    assert len(asked(scene, for_gpus(1))) <= FEW
    scene.inbox.append(PointerSeen(first_pointer(PolicyRef("lb", 1, "b" * 64), number=2)))
    scene.inbox.append(PolicyRead(reference(own), load_policy("frag", data=encode(own), sha256=own.sha256)))
    scene.run()
    assert scene.core.variants.ranked_here.of(candidate=False) is None  # it came too late


def test_weights_that_are_read_late_place_by_what_rehearsals_said_of_them_here_as_at_the_agents() -> None:
    scene, file = gpu_scene("frag"), shipped("frag")
    own = decode(
        encode(WeightsFile(file.arrays, replace_fields(file.card, version=file.card.version + 1))), policy="frag"
    )
    said = Rehearsed(policy="frag", sha256=own.sha256, places="fgd", told="")
    pointer = rehearse(first_pointer(reference(own), number=1), [said], reason="test", by="test").after

    def placed_by() -> str:
        scene.run()
        guard = scene.core.variants.ranked_here.of(candidate=False)
        assert guard is not None
        return guard.policy.placed_by  # type: ignore[attr-defined]

    scene.inbox.append(PointerSeen(pointer))
    scene.inbox.append(PolicyRead(reference(own), load_policy("frag", data=encode(own), sha256=own.sha256)))
    assert placed_by() == "fgd"
    scene.inbox.append(PointerSeen(replace_fields(pointer, number=3, reason="another")))
    assert placed_by() == "fgd"
    scene.inbox.append(PolicyRead(reference(own), load_policy("frag", data=encode(own), sha256=own.sha256)))
    assert placed_by() == "fgd"
    scene.inbox.append(PointerSeen(replace_fields(pointer, number=4, rehearsed=())))
    assert placed_by() == "frag"


@pytest.mark.parametrize("policy", ["frag", "best-fit"])
def test_where_ranking_fails_here_all_are_asked(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = gpu_scene(policy)
    guard = scene.core.variants.ranked_here.of(candidate=False)
    assert guard is not None

    def fails(observation: Observation, rng: Rng) -> Verdicts:
        raise ArithmeticError("here alone")

    monkeypatch.setattr(guard.policy, "decide", fails)
    assert len(asked(scene, for_gpus(0))) == NODES


def test_a_candidate_that_goes_by_the_demand_has_nobody_asked_about_the_pods_of_another_policy() -> None:
    scene = scene_of(MIXED)
    assert len(asked(scene, lone(0))) == NODES
    pointer = publish(first_pointer(ref_of(MIXED), number=1), ref_of("frag"), by="test").after
    scene.inbox.append(PointerSeen(to_stage(pointer, Stage.SHADOW, 0, reason="test", by="test").after))
    scene.run()
    assert Need.DEMAND in scene.core.variants.needs
    assert len(asked(scene, lone(1))) == NODES
    for number in range(2, 6):
        assert len(asked(scene, lone(number))) <= 2 * FEW


def test_a_plug_in_that_goes_by_the_demand_is_asked_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(KubeDefault):
        name = "own"
        needs = frozenset({Need.DEMAND})

    monkeypatch.setitem(HEURISTICS, "own", Own)
    scene = scene_of("own")
    for number in range(3):
        assert len(asked(scene, lone(number))) == NODES


@pytest.mark.parametrize("most", [0, NODES // 2])
def test_all_are_asked_where_the_setting_is_0_or_few_would_be_no_fewer(most: int) -> None:
    scene = scene_of(settings=replace(SETTINGS, asked_agents=most))
    assert len(asked(scene, lone(0))) == NODES


def test_a_node_without_an_agent_takes_no_place_among_few() -> None:
    scene = scene_of()
    scene.leave(f"a{NODES - 1}")
    scene.run()
    pod = lone(0)
    assert len(asked(scene, pod)) == FEW
    assert where(scene, pod) == f"n{NODES - 2}"


@pytest.mark.parametrize(("drifts", "everybody"), [(True, True), (False, False)])
def test_after_a_minute_all_are_asked_by_policies_whose_scores_drift(drifts: bool, everybody: bool) -> None:
    scene = scene_of(MIXED)
    if drifts:
        scene.core.variants.needs = scene.core.variants.needs | {Need.CLUSTER_MEANS}
    asked(scene, lone(0))
    asked(scene, lone(1, cpu="3"))
    scene.run(until_s=RENEW_S + 1.0)
    assert (len(asked(scene, lone(2))) == NODES) is everybody
    assert len(asked(scene, lone(3))) <= 2 * FEW
    assert len(asked(scene, lone(4, cpu="3"))) <= 2 * FEW  # pods of other amounts were asked about


def test_sizes_of_guaranteed_pods_and_of_claims_are_amounts_like_any() -> None:
    scene = scene_of(MIXED)
    assert len(asked(scene, guaranteed(0, "100m"))) == NODES
    for number in range(1, 6):
        assert len(asked(scene, guaranteed(number, f"{100 + number}m"))) <= 2 * FEW
    assert len(asked(scene, guaranteed(6, "3"))) <= 2 * FEW
    one, like, larger = (replace_fields(lone(0).pod_class, claimed=claimed) for claimed in ((2, 500), (3, 400), (4, 1)))
    assert kind_of(one) == kind_of(like) != kind_of(larger)
    assert kind_of(one, amounts=False) == kind_of(larger, amounts=False)


def guaranteed(number: int, cpu: str) -> Pod:
    made = make_pod(f"p{number}").cpu(cpu).memory(f"{64 + number}Mi")
    resources = made.json["spec"]["containers"][0]["resources"]
    resources["limits"] = dict(resources["requests"])
    pod = made.pod()
    assert pod.pod_class.needs is not None
    return pod


def test_pods_that_are_right_for_few_nodes_wash_out_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promising, "MOST_KINDS", 2)
    scene = scene_of(MIXED)
    asked(scene, lone(0))
    for number in range(3):
        asked(scene, pinned(number))
    assert len(asked(scene, lone(1))) <= 2 * FEW


def pinned(number: int) -> Pod:
    made = make_pod(f"pinned{number}").cpu("100m")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    made.json["spec"]["affinity"] = {"nodeAffinity": required}
    return made.pod()


def test_a_node_that_is_freed_while_it_refuses_is_asked_again() -> None:
    scene = scene_of(MIXED)
    scene.add_pod(make_pod("filler").cpu("2").on("n0").pod())
    scene.run()
    offer(scene, lone(0))
    answers, scene.inbox = scene.inbox, deque()
    scene.delete_pod(make_pod("other0").pod().uid)
    scene.run()
    scene.inbox = answers
    scene.run()
    assert where(scene, lone(0)) not in ("", "n0")
    assert "a0" in asked(scene, pod := lone(1))
    assert where(scene, pod) == "n0"


def test_an_agent_that_was_restarted_while_others_answered_has_refused_nothing() -> None:
    scene, best = scene_of(MIXED), f"a{NODES - 1}"
    offer(scene, lone(0))
    others = deque(e for e in scene.inbox if not (isinstance(e, DecisionsReceived) and e.agent == best))
    scene.inbox = deque()
    scene.join(best, node=f"n{NODES - 1}", tell=False)
    scene.deliver(AgentsChanged(tuple(scene.records.values())))
    scene.run()  # it is given its node while others are waited for
    scene.inbox = others
    scene.run()
    assert where(scene, lone(0)) == f"n{NODES - 2}"
    assert best in asked(scene, pod := lone(1))
    assert where(scene, pod) == f"n{NODES - 1}"


def offer(scene: Scene, pod: Pod) -> None:
    """Offers about it are out; the answers of all lie in the inbox."""
    scene.add_pod(pod)
    while not any(isinstance(event, DecisionsReceived) for event in scene.inbox):
        assert scene.step()
    assert sum(isinstance(event, DecisionsReceived) for event in scene.inbox) == len(scene.inbox) == NODES


def test_nodes_of_agents_that_fail_take_no_places_among_few() -> None:
    scene = scene_of()
    for number in range(NODES - FEW, NODES):
        del scene.agents[f"a{number}"]  # their leases live
    asked(scene, lone(0))
    pod = lone(1)
    assert len(asked(scene, pod)) == FEW
    assert where(scene, pod) == f"n{NODES - FEW - 1}"


@pytest.mark.parametrize("policy", ["kube-default", MIXED])
def test_agents_of_several_nodes_count_once_each(policy: str) -> None:
    scene = Scene(agents=10, policy=policy, settings=SETTINGS)
    for number in range(60):
        scene.add_node(make_node(f"n{number}").allocatable(cpu="32", memory="64Gi", pods="110").node())
    scene.begin()
    scene.run()
    owner = scene.core.registry.ownership.owner
    best = owner["n0"]
    for number in range(60):
        scene.add_pod(
            make_pod(f"other{number}").cpu("1" if owner[f"n{number}"] == best else "20").on(f"n{number}").pod()
        )
    scene.run()
    asked(scene, lone(0))
    names = asked(scene, pod := lone(1))
    assert best in names
    assert FEW <= len(names) == len(set(names)) <= 2 * FEW
    assert owner[where(scene, pod)] == best


def test_of_a_node_that_was_judged_by_another_policy_nothing_is_known() -> None:
    scene = Rolled(agents=12, nodes=24, settings=replace(SETTINGS, rollout=BY_HAND.rollout))
    scene.shadow()
    scene.put(to_stage(scene.pointer, Stage.ACTIVE, 0, reason="test", by="test").after)
    asked(scene, lone(0))
    promising = set(asked(scene, lone(1)))
    assert len(promising) < len(scene.agents)
    for agent in promising:
        scene.agents[agent].lanes.use(OLD, scene.agents[agent].lanes.active.guard.fallback)
    asked(scene, lone(2))
    (said,) = (found for found in scene.core.cycle._promising._said.values() if (found.generation >= 0).any())
    owner, table = scene.core.registry.ownership.owner, scene.core.state.cache.table
    judged = {agent for name, agent in owner.items() if said.generation[table.row_of[name]] != NEVER}
    assert judged
    assert promising - judged


def ranked(number: int, priority: int, app: str = "web") -> Pod:
    made = make_pod(f"ranked{number}").cpu("100m").memory("64Mi").set(labels={"app": f"{app}-{priority}"})
    return made.priority(priority).pod()


def test_what_pods_of_one_priority_were_told_is_nothing_that_those_of_another_go_by() -> None:
    scene, ref = scene_of(), PolicyRef("marl-dqn", 1, "a" * 64)
    for agent in scene.agents.values():
        agent.lanes.use(ref, MarlDqn(weights()))
    scene.deliver(PointerSeen(PolicyPointer(active=ref, number=1)))
    assert len(asked(scene, ranked(0, 0))) == NODES
    assert len(asked(scene, ranked(1, 0))) <= 2 * FEW
    assert len(asked(scene, ranked(2, 1000))) == NODES
    assert len(asked(scene, ranked(3, 1000))) <= 2 * FEW
    assert len(asked(scene, ranked(4, 0))) <= 2 * FEW
    assert len(asked(scene, ranked(5, 1000, app="other"))) <= 2 * FEW  # of another workload


def test_classes_of_one_kind_differ_by_amounts_of_about_the_same_size_alone() -> None:
    one, like, larger = (lone(0, cpu=cpu).pod_class for cpu in ("600m", "1000m", "1100m"))
    assert kind_of(one) == kind_of(like) != kind_of(larger)
    assert kind_of(one) != kind_of(make_pod().cpu("600m").memory("64Mi").select(disk="fast").pod().pod_class)


def test_a_candidate_is_asked_about_guided_units_by_its_own_rule() -> None:
    """What it says of the first unit alone would stand for all of them: it is not scored anew at the coordinator."""
    scene = Serving(settings=CoreSettings(validate=True))
    scene.shadow()
    scene.canary(100)
    scene.trace.clear()
    for _ in range(4):
        scene.add_pod(scene.web_pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "1"}}}]))
    scene.run(batch=4)
    assert scene.pointer.candidate == NEW
    groups = [group for offer in scene.of(SendOffer) for group in offer.offer.groups if group.guidance is not None]
    assert max(len(group.units) for group in groups) == 4
