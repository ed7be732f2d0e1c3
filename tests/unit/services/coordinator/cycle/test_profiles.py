"""Several schedulerNames in one mesh: each pod is judged by its own profile, however many agents there are."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from services.coordinator.core.state import CoreSettings
from shared.agent.core import AgentCore
from shared.model.cluster_events import ObjectChanged
from shared.model.cluster_objects import Workload
from shared.model.pod import Pod
from shared.model.scheduling_profile import SchedulingProfile
from shared.model.terms.labels import selector_of_labels
from shared.runtime.process.profiles_file import parse_profiles
from shared.scheduling.cycle.conflicts import fits, within
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.room import places
from shared.scheduling.filters.accounted import ResourceFit
from shared.scheduling.groups.tried_members import TriedMembers
from shared.scheduling.parked_groups import fellows_of, gang_kind, group_key
from shared.scheduling.places import Place
from shared.scheduling.profiles import Profiles, profiled
from shared.scheduling.state.node_table import NodeTable
from shared.wire.messages import ClassDefinition, Decisions, LaneReport, Offer
from tests.builders import NodeBuilder, make_node, make_pod
from tests.unit.services.coordinator.groups.test_gangs import KEY, tell_group
from tests.unit.services.coordinator.queues.queue_scenes import place, told
from tests.unit.services.coordinator.scene import Scene

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"
PACKED: Json = {
    "schedulerName": "packed", "policy": "kube-default",
    "scores": {"NodeResourcesBalancedAllocation": 0},
    "args": {"NodeResourcesFit": {"scoringStrategy": {"type": "MostAllocated"}}},
}  # fmt: skip


def served(*profiles: Json) -> CoreSettings:
    found = parse_profiles({"profiles": list(profiles)}, "profiles")
    return CoreSettings(validate=True, profiles=Profiles.of(found))


def node(number: int) -> NodeBuilder:
    return make_node(f"n{number}").allocatable(cpu="8", memory="32Gi").label(**{HOST: f"n{number}"})


def scene_of(*profiles: Json, agents: int = 2, nodes: int = 6, policy: str = "kube-default") -> Scene:
    scene = Scene(agents=agents, settings=served(*profiles), policy=policy)
    for number in range(nodes):
        scene.add_node(node(number).node())
    scene.begin()
    scene.run()
    return scene


def pod(name: str, scheduler: str, **labels: str) -> Pod:
    builder = make_pod(name).cpu("1").memory("4Gi").set(labels=labels)
    builder.json["spec"]["schedulerName"] = scheduler
    return builder.pod()


def went(scene: Scene) -> dict[str, str]:
    return {uid.removeprefix("uid-"): name for uid, name in scene.bindings}


def nodes_of(scene: Scene, prefix: str) -> Counter[str]:
    return Counter(name for pod, name in went(scene).items() if pod.startswith(prefix))


@pytest.mark.parametrize(("agents", "together"), [(1, True), (1, False), (4, True), (4, False)])
def test_each_pod_is_judged_by_its_own_profile(agents: int, together: bool) -> None:
    scene = scene_of(PACKED, agents=agents)
    for number in range(6):
        scene.add_pod(pod(f"packed-{number}", "packed"))
        scene.add_pod(pod(f"spread-{number}", "conclave"))
        if not together:
            scene.run()
    scene.run(batch=100, until_s=5)
    assert max(nodes_of(scene, "packed").values()) >= 5
    assert max(nodes_of(scene, "spread").values()) <= 2


def test_a_profile_names_a_policy_of_its_own() -> None:
    scene = scene_of({"schedulerName": "packed", "policy": "most-allocated"}, policy="least-allocated", agents=4)
    for number in range(4):
        scene.add_pod(pod(f"packed-{number}", "packed"))
        scene.add_pod(pod(f"spread-{number}", "conclave"))
        scene.run(batch=100)
    assert len(nodes_of(scene, "packed")) == 1
    assert len(nodes_of(scene, "spread")) > 1
    said = {(one.name.partition("-")[0], one.policy) for plan in scene.plans for one in plan.placements}
    assert said == {("packed", "most-allocated"), ("spread", "least-allocated")}


def test_a_name_without_differences_costs_nothing() -> None:
    scene = scene_of({"schedulerName": "second"})
    scene.add_pod(pod("other", "second"))
    scene.run()
    assert nodes_of(scene, "other")
    assert scene.core.state.settings.profiles.special == {}
    assert scene.core.state.cluster.index.get("uid-other").pod_class.profile is None  # type: ignore[union-attr]


def test_a_pod_of_a_name_that_nobody_serves_is_untouched() -> None:
    scene = scene_of(PACKED)
    scene.add_pod(pod("foreign", "default-scheduler"))
    scene.run(batch=100, until_s=60)
    assert scene.bindings == []
    assert scene.pods["uid-foreign"].condition == ("", "", "")
    assert "uid-foreign" not in scene.core.state.queue.entries


def test_a_filter_that_a_profile_leaves_out_refuses_nothing_of_its_pods() -> None:
    scene = Scene(settings=served({"schedulerName": "daemons", "filters": {"disabled": ["NodeUnschedulable"]}}))
    scene.add_node(node(0).cordon().node())
    scene.begin()
    scene.add_pod(pod("plain", "conclave"))
    scene.add_pod(pod("daemon", "daemons"))
    scene.run(batch=100, until_s=5)
    assert went(scene) == {"daemon": "n0"}
    assert place(scene, "plain") is Place.UNSCHEDULABLE


def affine(*values: str) -> Json:
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": list(values)}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def test_affinity_that_a_profile_adds_holds_beside_the_pods_own() -> None:
    added = {"NodeAffinity": {"addedAffinity": affine("n1", "n2")}}
    scene = scene_of({"schedulerName": "own", "args": added}, agents=3)
    scene.add_pod(pod("a", "own"))
    builder = make_pod("b").cpu("1").select(**{HOST: "n2"})
    builder.json["spec"]["schedulerName"] = "own"
    scene.add_pod(builder.pod())
    builder = make_pod("c").cpu("1").select(**{HOST: "n3"})
    builder.json["spec"]["schedulerName"] = "own"
    scene.add_pod(builder.pod())
    scene.run(batch=100, until_s=5)
    there = went(scene)
    assert there["a"] in ("n1", "n2")
    assert there["b"] == "n2"
    assert "c" not in there
    assert "scheduler-enforced node affinity" in told(scene, "c")


class OlderAgent(AgentCore):
    """It skips the field of a class that it does not know, and says nothing of it."""

    def decide(self, offer: Offer) -> Decisions:
        classes = [
            ClassDefinition(one.class_id, replace(one.pod_class, profile=None), one.candidate, one.workload)
            for one in offer.classes
        ]
        decided = super().decide(replace(offer, classes=classes))
        return replace(decided, lanes=[replace(report, own="") for report in decided.lanes])


@pytest.mark.parametrize("older", [("agent-0",), ("agent-0", "agent-1", "agent-2")])
def test_beside_older_agents_nothing_is_placed_against_a_profile(older: tuple[str, ...]) -> None:
    added = {"NodeAffinity": {"addedAffinity": affine("n1", "n4")}}
    scene = scene_of(PACKED | {"args": PACKED["args"] | added}, agents=3)
    for name in older:
        scene.agents[name].__class__ = OlderAgent
    for number in range(12):
        scene.add_pod(pod(f"packed-{number}", "packed"))
        scene.add_pod(pod(f"plain-{number}", "conclave"))
    scene.run(batch=100, until_s=30)
    assert set(nodes_of(scene, "packed")) <= {"n1", "n4"}
    assert sum(nodes_of(scene, "packed").values()) == 12
    assert sum(nodes_of(scene, "plain").values()) == 12


def test_an_agent_tells_by_which_policy_a_profiles_pods_were_judged() -> None:
    scene = scene_of({"schedulerName": "packed", "policy": "most-allocated"}, agents=1)
    scene.add_pod(pod("packed", "packed"))
    scene.run()
    agent = scene.agents["agent-0"]
    assert [lane.ref.name for lane in agent.lanes._own.values()] == ["most-allocated"]
    assert agent.lanes.reports(0) == [LaneReport("kube-default@1")]  # told with the answer, and not again


def test_a_policy_that_an_agent_lacks_is_stood_in_for_and_told() -> None:
    agent = scene_of(PACKED, agents=1).agents["agent-0"]
    lane = agent.lanes.own("only-elsewhere")
    assert lane.ref.name == "kube-default"
    assert [(one.policy, one.failure) for one in agent.lanes.failures()] == [("only-elsewhere@0", "digest")]


def service(scene: Scene, name: str, **labels: str) -> None:
    workload = Workload("v1", "Service", "default", name, selector_of_labels(labels))
    scene.inbox.append(ObjectChanged("services", f"default/{name}", workload))


def test_default_constraints_of_a_profile_spread_pods_that_have_none() -> None:
    hard = {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}
    spread = {"PodTopologySpread": {"defaultingType": "List", "defaultConstraints": [hard]}}
    scene = scene_of(PACKED | {"args": PACKED["args"] | spread}, nodes=3)
    service(scene, "web", app="web")
    for number in range(6):
        scene.add_pod(pod(f"web-{number}", "packed", app="web"))
        scene.add_pod(pod(f"alone-{number}", "packed"))
        scene.run(batch=100, until_s=2)
    assert sorted(nodes_of(scene, "web").values()) == [2, 2, 2]
    assert max(nodes_of(scene, "alone").values()) >= 4


HARD: Json = {"maxSkew": 1, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}
EVEN: Json = {
    "schedulerName": "even",
    "args": {"PodTopologySpread": {"defaultingType": "List", "defaultConstraints": [HARD]}},
}


def test_a_gang_keeps_the_default_constraints_of_its_profile() -> None:
    scene = scene_of(EVEN, nodes=3, agents=1)
    service(scene, "web", app="web")
    tell_group(scene, 6)
    for number in range(6):
        scene.add_pod(replace(pod(f"m{number}", "even", app="web"), group=KEY))
    scene.run(batch=100, until_s=20)
    assert sorted(nodes_of(scene, "m").values()) == [2, 2, 2]


def test_room_is_made_for_a_gang_where_the_default_constraints_let_it_go() -> None:
    """One victim would make room for all of it on one node, where no more than two may go."""
    scene = scene_of(EVEN, nodes=3, agents=1)
    service(scene, "web", app="web")
    for name, cpu, at in [("large", "6", "n0"), *((f"s{n}{k}", "2", f"n{n}") for n in (1, 2) for k in range(4))]:
        scene.add_pod(make_pod(name).cpu(cpu).priority(0).on(at).pod())
    scene.run()
    tell_group(scene, 6)
    for number in range(6):
        builder = make_pod(f"m{number}").cpu("1").priority(10).set(labels={"app": "web"})
        builder.json["spec"]["schedulerName"] = "even"
        scene.add_pod(replace(builder.pod(), group=KEY))
    scene.run(batch=100, until_s=60)
    assert sorted(nodes_of(scene, "m").values()) == [2, 2, 2]
    assert "uid-large" in scene.pods


def test_what_default_constraints_count_tells_members_and_waiting_pods_apart() -> None:
    scene = scene_of(EVEN, nodes=3)
    service(scene, "web", app="web")
    scene.run()
    profiles, cluster = scene.core.state.settings.profiles, scene.core.state.cluster
    web, alone = (replace(profiles.applied(pod(name, "even", app=name)), group=KEY) for name in ("web", "alone"))
    tried = TriedMembers(cluster, [web, alone])
    counted = {template.pod.name: [rule.name for rule in template.rules] for template in tried.templates}
    assert counted == {"web": ["PodTopologySpread"], "alone": []}
    assert fellows_of(web) == KEY
    assert gang_kind(web, frozenset()) == ("gang", group_key(web))
    assert group_key(web) != group_key(replace(web, owner=("apps/v1", "ReplicaSet", "other")))


def test_an_ignored_resource_is_asked_of_no_node_and_counted_on_each() -> None:
    foo = "example.com/foo"
    args = {"NodeResourcesFit": {"ignoredResources": [foo]}}
    scene = Scene(settings=served({"schedulerName": "blind", "args": args}))
    scene.add_node(make_node("n0").allocatable(**{"cpu": "8", "memory": "32Gi", foo: "1"}).node())
    scene.begin()
    for name, scheduler in (("first", "blind"), ("second", "blind"), ("plain", "conclave")):
        builder = make_pod(name).cpu("1").request(**{foo: "1"})
        builder.json["spec"]["schedulerName"] = scheduler
        scene.add_pod(builder.pod())
        scene.run(batch=100, until_s=2)
    assert went(scene) == {"first": "n0", "second": "n0"}
    table = scene.core.state.cache.table
    assert int(table.requested[table.column_of[foo], table.row_of["n0"]]) == 2
    assert place(scene, "plain") is Place.UNSCHEDULABLE


def test_every_rule_about_amounts_leaves_an_ignored_resource_out() -> None:
    foo = "example.com/foo"
    table = NodeTable()
    table.upsert(make_node("n0").allocatable(cpu="8", memory="32Gi").node())
    blind = profiled(
        make_pod("p").cpu("1").request(**{foo: "1"}).pod().pod_class, SchedulingProfile("b", ignored=(foo,))
    )
    feasibility, rule = FeasibilityCache(table), ResourceFit()
    assert dict(blind.requests)[foo] == 1
    for _ in range(3):
        rows = np.arange(table.rows)
        assert fits(feasibility, blind, 0)
        assert rule.mask(table, blind, rows).all()
        assert rule.reasons(table, blind, 0)[1] == ()
        assert rule.tally(table, blind, rows) == {}
        assert places(table, blind, rows).tolist() == [8 - int(table.requested[0, 0]) // 1000]
        table.add_usage(0, blind, ())
        assert within(table, blind, 0)


@pytest.mark.parametrize(("weight", "beside"), [(0, False), (100, True)])
def test_required_affinity_of_standing_pods_weighs_what_the_profile_says(weight: int, beside: bool) -> None:
    args = {"InterPodAffinity": {"hardPodAffinityWeight": weight}}
    scene = scene_of({"schedulerName": "own", "policy": "kube-default", "args": args}, nodes=4)
    builder = make_pod("there").cpu("3").on("n2").set(labels={"app": "there"})
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
    builder.json["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    scene.add_pod(builder.pod())
    scene.run()
    scene.add_pod(pod("web", "own", app="web"))
    scene.run(until_s=2)
    assert (went(scene)["web"] == "n2") is beside


def test_pods_of_a_name_that_another_mesh_holds_are_left_to_it() -> None:
    settings = dataclasses.replace(served({"schedulerName": "web"}, PACKED), elsewhere=frozenset({"conclave", "web"}))
    scene = Scene(agents=2, settings=settings)
    scene.add_node(node(0).node())
    scene.begin()
    for name in ("conclave", "web", "packed"):
        scene.add_pod(pod(f"of-{name}", name))
    scene.run()
    assert went(scene).keys() == {"of-packed"}
