"""Which pods a rollout learns from: those of Deployments and pod groups as well as bare ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_fields

from services.coordinator.core.instructions import KeepWindow, SendOffer
from services.coordinator.rollout import sampling
from services.coordinator.rollout.sampling import MOST_MEMBERS
from services.coordinator.rollout.view import Sampled
from shared.model.cluster_events import ObjectChanged
from shared.model.cluster_objects import Workload
from shared.model.pod import Pod
from shared.model.terms.labels import selector_of_labels
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.rollout.test_evaluation import BY_HAND, NEW, OLD, SETTINGS, Rolled

REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "w", "controller": True}
KEEP_APART = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname",
                },
            }
        ]
    }
}  # fmt: skip


TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
PINNED = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}}


class Serving(Rolled):
    """A Service and the ReplicaSet of a Deployment behind it; every pod is one of theirs."""

    def __init__(self, mode="good", **changes):
        super().__init__(mode, **changes)
        selector = selector_of_labels({"app": "web"})
        self.inbox.append(
            ObjectChanged("services", "default/web", Workload("v1", "Service", "default", "web", selector))
        )
        replicas = Workload("apps/v1", "ReplicaSet", "default", "web", selector)
        self.inbox.append(ObjectChanged("replicasets", "default/web", replicas))
        self.run()

    def web_pod(self, **spec) -> Pod:
        self.pods_made += 1
        builder = make_pod(f"web-{self.pods_made}").cpu(f"{1 + self.pods_made % 3}").memory("4Gi")
        builder.set(labels={"app": "web"})
        builder.json["metadata"]["ownerReferences"] = [REPLICA_SET]
        builder.json["spec"] |= spec
        return builder.pod()

    def replicas_come(self, count: int, **spec) -> None:
        for _ in range(count):
            self.add_pod(self.web_pod(**spec))
            self.run(until_s=0.25)

    def compared(self):
        return [kept.window for kept in self.of(KeepWindow) if kept.window.candidate]


@pytest.mark.parametrize("spec", [{}, {"affinity": KEEP_APART}], ids=["default spread", "affinity"])
def test_pods_of_a_deployment_fill_windows_and_take_a_good_candidate_to_the_end(spec):
    scene = Serving()
    scene.shadow()
    scene.replicas_come(90, **spec)
    assert all(group.guidance is not None for send in scene.of(SendOffer) for group in send.offer.groups)
    assert (scene.pointer.active, scene.pointer.previous) == (NEW, OLD)
    assert len(scene.bindings) == 90


@pytest.mark.parametrize("percent", [0, 50])
def test_a_terrible_candidate_is_withdrawn_by_pods_of_a_deployment_alone(percent):
    scene = Serving("terrible")
    scene.shadow()
    if percent:
        scene.canary(percent)
    scene.replicas_come(60)
    assert (scene.pointer.active, scene.pointer.candidate) == (OLD, None)
    assert "worse in 3 windows in a row: value" in scene.pointer.reason
    assert len(scene.compared()) == 3
    assert len(scene.bindings) == 60


def test_the_candidate_is_asked_with_the_guidance_of_the_active_policy():
    scene = Serving()
    scene.shadow()
    scene.replicas_come(2)  # so that there is something to keep away from
    scene.trace.clear()
    scene.replicas_come(8)
    offers = [send.offer for send in scene.of(SendOffer)]
    assert offers
    for offer in offers:
        active, candidate = offer.groups
        assert replace_fields(active.guidance, distinct=1) == replace_fields(candidate.guidance, distinct=1)
        assert active.norms == candidate.norms
    assert any(group.guidance.levels for offer in offers for group in offer.groups)


def test_without_guided_classes_among_the_sampled_a_deployment_fills_no_window(monkeypatch):
    """The rule is what fills them, nothing else."""
    chooses = sampling.Sampling._chooses
    monkeypatch.setattr(sampling.Sampling, "_chooses", lambda self, one: one.guidance is None and chooses(self, one))
    scene = Serving("terrible")
    scene.shadow()
    scene.replicas_come(60)
    assert scene.pointer.candidate == NEW
    assert scene.compared() == []


def test_a_pod_that_one_node_alone_may_have_is_no_sample_and_costs_no_question():
    scene = Serving()
    scene.shadow()
    scene.trace.clear()
    scene.replicas_come(5, affinity=PINNED)
    assert all(len(send.offer.groups) == 1 for send in scene.of(SendOffer))
    assert len(scene.bindings) == 5
    tally = scene.core.sampling.tally
    assert tally.choosing == 0
    assert tally.lost == {sampling.Skipped.ONE_NODE: tally.offered}


# --- pod groups -----------------------------------------------------------------------------------------------------


def gangs_come(scene: Rolled, count: int, size: int, *, labels: dict[str, str] | None = None) -> list[list[str]]:
    """One group after the other."""
    found = []
    for number in range(count):
        key = group_key(GroupSource.NATIVE, "default", f"train{number}")
        group = PodGroup(key, GroupSource.NATIVE, "default", f"train{number}", gang=True, min_count=size)
        scene.inbox.append(ObjectChanged("podgroups", f"default/train{number}", group))
        members = [make_pod(f"m{number}-{place}").cpu("2").memory("4Gi") for place in range(size)]
        pods = [replace_fields(member.set(labels=labels or {}).pod(), group=key) for member in members]
        for pod in pods:
            scene.add_pod(pod)
        scene.run(batch=100, until_s=0.4)
        found.append([pod.uid for pod in pods])
    return found


@pytest.mark.parametrize("mode", ["good", "terrible"])
@pytest.mark.parametrize("labels", [{}, {"app": "web"}], ids=["plain", "behind a service"])
def test_a_pod_group_is_one_sample(mode, labels):
    longer = replace(BY_HAND.rollout, window_s=4.0, min_samples=10)
    scene = Serving(mode, settings=replace(BY_HAND, rollout=longer))
    scene.shadow()
    gangs_come(scene, 60, 4, labels=labels)
    assert len(scene.bindings) == 240
    windows = scene.compared()
    assert len(windows) >= 3
    assert sum(window.samples for window in windows) <= 60
    assert (scene.pointer.candidate is None) is (mode == "terrible")


def test_of_a_large_pod_group_some_members_are_asked_about():
    scene = Serving(settings=BY_HAND)
    scene.shadow()
    scene.trace.clear()
    gangs_come(scene, 1, 3 * MOST_MEMBERS)
    asked = [len(group.units) for send in scene.of(SendOffer) for group in send.offer.groups]
    assert max(asked) > min(asked)
    assert min(asked) <= MOST_MEMBERS
    assert len(scene.bindings) == 3 * MOST_MEMBERS


def test_in_the_canary_all_members_of_a_pod_group_go_by_one_policy():
    scene = Rolled(settings=BY_HAND)
    scene.shadow()
    scene.canary(50)
    groups, placed = gangs_come(scene, 12, 3), scene.placed_by()
    by = [{placed[uid] for uid in members} for members in groups]
    assert all(len(policies) == 1 for policies in by)
    assert len(set.union(*by)) == 2


def test_what_is_dealt_in_thought_leaves_the_accounting_as_it_was():
    scene = Serving(settings=replace(SETTINGS, validate=True))
    scene.shadow()
    gangs_come(scene, 3, 4)
    table = scene.core.state.cache.table
    live = table.live_rows()
    assert int(table.requested[0, live].sum()) == 12 * 2000
    assert scene.overcommitted == []


def test_a_node_that_comes_while_agents_are_asked_is_open_to_no_sample():
    scene = Serving()
    scene.shadow()
    scene.replicas_come(1)  # on empty nodes that are alike no choice tells anything
    scene.add_pod(scene.web_pod())
    while not scene.core.cycle.open:
        scene.step()
    answers = list(scene.inbox)
    scene.inbox.clear()
    scene.add_node(make_node("late").allocatable(cpu="96", memory="384Gi", pods="500").node())
    scene.inbox.extend(answers)
    scene.run(until_s=0.25)
    assert len(scene.bindings) == 2
    assert len(scene.core.evaluation._open.samples) == 1


# --- what people are told -------------------------------------------------------------------------------------------


def sampled(scene: Rolled) -> Sampled:
    view = scene.core.evaluation.view()
    assert view is not None
    return view.sampling


def test_what_share_of_pods_can_be_sampled_is_told():
    scene = Serving(settings=BY_HAND)
    scene.shadow()
    scene.replicas_come(20)
    told = sampled(scene)
    assert (told.share, told.offered) == (1.0, told.choosing)
    assert told.offered >= 4


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda scene: None, "no pod was offered since the window opened"),
        (lambda scene: scene.replicas_come(3, affinity=PINNED), "cycles no pod had a choice of nodes"),
        (lambda scene: unload(scene) or scene.replicas_come(3), "cycles half of the agents or more did not judge"),
        (lambda scene: scene.replicas_come(1), "in 1 of 1 cycles the goal told no node from another"),
    ],
    ids=["nobody", "no choice", "not loaded", "all alike"],
)
def test_why_a_window_stays_empty_is_told(spoil, why):
    scene = Serving(settings=replace(BY_HAND, rollout=replace(BY_HAND.rollout, window_s=60.0)))
    scene.shadow()
    spoil(scene)
    assert why in sampled(scene).why
    assert why in scene.core.evaluation.lacking()


def test_a_window_with_its_samples_lacks_nothing():
    scene = Serving(settings=replace(BY_HAND, rollout=replace(BY_HAND.rollout, window_s=60.0)))
    scene.shadow()
    scene.replicas_come(20)
    assert sampled(scene).why == ""


def unload(scene: Rolled) -> None:
    for agent in scene.agents.values():
        agent.lanes.withdraw()
