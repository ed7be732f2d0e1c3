"""Preemption in the mesh: nominated, then evicted, bound when the victim is gone; one winner, no second victim."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from services.coordinator.core.instructions import EmitEvent, PatchCondition, SendPlan, StoreNominations
from services.coordinator.core.state import CoreSettings
from services.coordinator.preemption.nominations import TOLD_AFTER_S
from services.coordinator.preemption.records import Records
from shared.model.cluster_events import ObjectChanged
from shared.model.cluster_objects import DisruptionBudget
from shared.model.constraints import Requirement
from shared.model.terms.labels import LabelSelector, selector_of_labels
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.services.coordinator.scene import Scene, check_overcommit, check_places


def full(nodes: int = 2, *, settings: CoreSettings | None = None) -> Scene:
    """Every node of 4 CPU holds one pod of 3, of priority 0."""
    scene = Scene(settings=settings)
    for number in range(nodes):
        scene.add_node(make_node(f"n{number}").node())
    scene.begin()
    for number in range(nodes):
        scene.add_pod(make_pod(f"low{number}").cpu("3").set(labels={"app": "low"}).on(f"n{number}").pod())
    scene.run()
    return scene


def high(name: str = "high", priority: int = 100) -> PodBuilder:
    return make_pod(name).cpu("3").priority(priority)


def test_a_pod_of_higher_priority_is_nominated_then_its_victim_evicted_then_it_is_bound_there() -> None:
    scene = full()
    scene.add_pod(high().pod())
    scene.run(until_s=15)
    assert len(scene.evicted) == 1
    node = "n" + scene.evicted[0][-1]
    assert scene.bindings == [("uid-high", node)]
    kept = [store for store in scene.of(StoreNominations) if store.changes[0][2]]
    assert [store.changes for store in kept] == [(("uid-high", "default/high", node),)]
    order = [i for i in scene.trace if i is kept[0] or (isinstance(i, SendPlan) and i.plan.evictions)]
    assert order[0] is kept[0]
    (event,) = [e for e in scene.of(EmitEvent) if e.reason == "Preempted"]
    assert (event.uid, event.note) == (scene.evicted[0], f"Preempted by pod uid-high on node {node}")
    assert not check_overcommit(scene)
    assert not check_places(scene)


def test_nobody_is_evicted_while_the_nomination_is_not_stored() -> None:
    scene = full()
    scene.slow_stores = 1
    scene.add_pod(high().pod())
    scene.run()
    assert not scene.evicted
    scene.run(until_s=20)
    assert len(scene.evicted) == 1
    assert len(scene.bindings) == 1


def test_a_pod_whose_victim_leaves_at_once_is_told_nothing_and_etcd_keeps_nothing_of_it() -> None:
    scene = full()
    scene.add_pod(high().pod())
    scene.run(until_s=15)
    assert [uid for uid, _ in scene.bindings] == ["uid-high"]
    assert not scene.of(PatchCondition)
    assert scene.nominations == {}


def test_a_pod_whose_victim_takes_long_is_told_once_where_it_is_to_go_and_why_it_waits() -> None:
    scene = full()
    scene.keep_victims = True
    scene.add_pod(high().pod())
    scene.run(until_s=0.9 * TOLD_AFTER_S)
    (victim,) = scene.evicted
    assert not scene.of(PatchCondition)
    assert scene.nominations == {"uid-high": "n" + victim[-1]}
    scene.run(until_s=30)
    (told,) = scene.of(PatchCondition)
    assert told.nominated == scene.pods["uid-high"].nominated_node == "n" + victim[-1]
    assert told.message == "0/2 nodes are available: 2 Insufficient cpu."
    assert scene.nominations == {}, "its status has it"
    assert scene.evicted == [victim]
    scene.delete_pod(victim)
    scene.run(until_s=5)
    assert scene.bindings == [("uid-high", told.nominated)]


def test_a_nomination_that_is_over_before_it_was_told_is_never_told() -> None:
    scene = full(1)
    scene.budget_forbids = {"uid-low0"}
    scene.add_pod(high().pod())
    scene.run(until_s=30)
    assert scene.plans
    assert not scene.evicted
    assert scene.of(PatchCondition)
    assert not any(patch.nominated for patch in scene.of(PatchCondition))


def test_a_nomination_that_the_api_server_does_not_take_costs_nobody_else() -> None:
    scene = full()
    scene.keep_victims, scene.lost_patches = True, 100
    scene.add_pod(high().pod())
    scene.run(until_s=60)
    (victim,) = scene.evicted
    scene.delete_pod(victim)
    scene.run(until_s=5)
    assert [uid for uid, _ in scene.bindings] == ["uid-high"]
    assert len(scene.evicted) == 1


def test_a_pod_that_never_preempts_evicts_nobody_and_is_told_so() -> None:
    scene = full()
    scene.add_pod(replace(high().pod(), never_preempts=True))
    scene.run(until_s=5)
    assert not scene.evicted
    assert scene.of(PatchCondition)[-1].message == (
        "0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
    )


def test_a_pod_that_opted_out_is_never_a_victim() -> None:
    scene = full(1)
    scene.change_pod("uid-low0", preemptible=False)
    scene.add_pod(high().pod())
    scene.run(until_s=5)
    assert not scene.evicted
    assert scene.of(PatchCondition)[-1].message.endswith("1 No preemption victims found for incoming pod.")


def test_while_a_victim_is_leaving_nobody_else_is_evicted_for_the_pod() -> None:
    scene = full()
    scene.keep_victims = True
    scene.add_pod(high().pod())
    scene.run(until_s=5)
    (victim,) = scene.evicted
    scene.core.state.queue.wake("uid-high", scene.now)
    scene.run(until_s=30)
    assert scene.evicted == [victim]
    scene.delete_pod(victim)
    scene.run(until_s=15)
    assert [uid for uid, _ in scene.bindings] == ["uid-high"]


def test_a_new_leader_reads_the_nomination_back_and_evicts_no_second_victim() -> None:
    before = full()
    before.keep_victims = True
    before.add_pod(high().pod())
    before.run(until_s=5)
    (victim,) = before.evicted
    after = Scene()
    for node in before.nodes.values():
        after.add_node(node)
    for pod in before.pods.values():
        after.add_pod(pod)
    after.begin()
    after.run(until_s=30)
    assert not after.evicted
    assert after.of(PatchCondition)[-1].message.endswith(
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    after.delete_pod(victim)
    after.add_pod(make_pod("sneaky").cpu("3").pod())
    after.run(until_s=30)
    assert ("uid-high", "n" + victim[-1]) in after.bindings
    assert "uid-sneaky" not in dict(after.bindings)


def killed_before_it_told() -> Scene:
    """A leader died whose victim leaves, before the preemptor's status said where that one is to go; its heir is at
    work, and then a label of the preemptor changes."""
    scene = full(8)
    scene.keep_victims = True
    scene.add_pod(high().pod())
    scene.run(until_s=0.5 * TOLD_AFTER_S)
    assert not scene.of(PatchCondition)
    scene.seed += 1  # it would choose the same of equals
    scene.replace_leader(set())
    scene.run(until_s=5)
    scene.change_pod("uid-high", labels={"seen": "again"})
    scene.run(until_s=5)
    return scene


def test_a_new_leader_goes_on_with_a_nomination_that_was_not_told_yet() -> None:
    scene = killed_before_it_told()
    (victim,) = scene.evicted
    node = scene.pods[victim].node_name
    assert scene.core.state.cluster.nominated_to == {"uid-high": node}
    scene.delete_pod(victim)
    scene.run(until_s=15)
    assert scene.bindings == [("uid-high", node)]
    assert scene.nominations == {}


def test_ablation_where_etcd_keeps_no_nominations_a_new_leader_evicts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Records, "inherit", lambda *_: None)
    assert len(set(killed_before_it_told().evicted)) == 2


def test_a_new_leader_keeps_no_nominations_of_those_that_wait_no_more() -> None:
    scene = full()
    scene.nominations = {"uid-gone": "n0", "uid-low0": "n1", "uid-unreadable": ""}
    scene.replace_leader(set())
    scene.run(until_s=5)
    assert scene.nominations == {}


def test_ablation_where_victims_are_asked_before_etcd_has_it_the_checker_says_so() -> None:
    scene = full()
    scene.slow_stores = 1
    scene.add_pod(high().pod())
    scene.run()
    (known,) = set(scene.core.nominations.made.values())
    assert scene.core.validate() == []
    known.evicting = True
    assert [line.partition(":")[0] for line in scene.core.validate()] == ["nominated-first"]
    known.evicting = False
    scene.core.nominations.records.kept["uid-gone"] = "n0"
    assert [line.partition(":")[0] for line in scene.core.validate()] == ["nominated-first"]


def test_two_preemptors_do_not_share_one_victim() -> None:
    scene = full(2)
    scene.add_pod(high("first").pod())
    scene.add_pod(high("second").pod())
    scene.run(until_s=40)
    assert sorted(scene.evicted) == ["uid-low0", "uid-low1"]
    assert sorted(uid for uid, _ in scene.bindings) == ["uid-first", "uid-second"]
    assert not check_overcommit(scene)


def budget(scene: Scene) -> None:
    item = DisruptionBudget("default", "keep", selector_of_labels({"app": "low"}), allowed=0)
    scene.inbox.append(ObjectChanged("poddisruptionbudgets", "default/keep", item))
    scene.budget_forbids = {"uid-low0", "uid-low1"}


def test_a_budget_is_violated_only_where_nobody_else_would_do() -> None:
    scene = full(2)
    budget(scene)
    scene.change_pod("uid-low1", labels={"app": "other"})
    scene.budget_forbids = {"uid-low0"}
    scene.add_pod(high().pod())
    scene.run(until_s=15)
    assert scene.evicted == ["uid-low1"]


def test_best_effort_forces_and_strict_never_does() -> None:
    forced = full(1)
    budget(forced)
    forced.add_pod(high().pod())
    forced.run(until_s=15)
    assert forced.evicted == ["uid-low0"]
    strict = full(1, settings=CoreSettings(preemption_strict=True))
    budget(strict)
    strict.add_pod(high().pod())
    strict.run(until_s=15)
    assert not strict.evicted


UNTIERED = LabelSelector((Requirement("tier", "DoesNotExist", ()),))


@pytest.mark.parametrize("labels", [{}, {"app": "low"}], ids=["bare", "labelled"])
@pytest.mark.parametrize("selector", [LabelSelector(), UNTIERED], ids=["{}", "DoesNotExist"])
def test_a_pod_that_an_empty_selector_or_one_of_absent_labels_selects_is_protected(
    selector: LabelSelector, labels: dict[str, str]
) -> None:
    """kube-scheduler before 1.38 evicts such pods (kubernetes#141785); the mesh does on no cluster, whatever its
    release: others leave, and where nobody else would do the API server's budget is asked, not passed by."""
    scene = full(2)
    scene.change_pod("uid-low0", labels=labels)
    scene.change_pod("uid-low1", labels={"tier": "db"})
    item = DisruptionBudget("default", "all", selector, allowed=0)
    scene.inbox.append(ObjectChanged("poddisruptionbudgets", "default/all", item))
    scene.budget_forbids = {"uid-low0"}
    if not selector.requirements:  # it covers everybody
        scene.budget_forbids.add("uid-low1")
    strict = full(1, settings=CoreSettings(preemption_strict=True))
    strict.change_pod("uid-low0", labels=labels)
    strict.inbox.append(ObjectChanged("poddisruptionbudgets", "default/all", item))
    for one in (scene, strict):
        one.add_pod(high().pod())
        one.run(until_s=15)
    assert not strict.evicted
    (asked,) = [eviction for plan in scene.plans for eviction in plan.evictions]
    if selector.requirements:
        assert (asked.uid, asked.unprotected) == ("uid-low1", True)
    else:
        assert (asked.unprotected, asked.force) == (False, True)
