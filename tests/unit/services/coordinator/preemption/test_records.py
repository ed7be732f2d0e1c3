"""What etcd keeps of where pods are to go, across leaders: who waits goes on with it, and nobody else is evicted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from services.coordinator.core.events import IntentsListed
from services.coordinator.preemption.nominations import TOLD_AFTER_S, Nominations
from shared.model.cluster_events import ObjectChanged
from shared.model.devices import ClaimRef, DeviceClass, DevicePod
from shared.model.pod import Pod
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.preemption.test_preemption import full, high
from tests.unit.services.coordinator.preemption.test_preemption_races import until_stored
from tests.unit.services.coordinator.scene import Scene
from tests.unit.shared.scheduling.devices.builders import ask, claim, device, local


def tell_devices(scene: Scene) -> None:
    """Each node has a device; the claim of ``claiming`` is there."""
    scene.inbox.append(ObjectChanged("deviceclasses", "any", DeviceClass("any")))
    for name in scene.nodes:
        scene.inbox.append(ObjectChanged("resourceslices", name, local(device("d"), node=name)))
    scene.inbox.append(ObjectChanged("resourceclaims", "default/c", claim(ask())))


def lose_claim(scene: Scene) -> None:
    scene.inbox.append(ObjectChanged("resourceclaims", "default/c", None))


def claiming() -> Pod:
    pod = high().pod()
    return replace(pod, asks=DevicePod("default", pod.name, pod.uid, (ClaimRef("c", "c"),)))


def nominated() -> Scene:
    """A pod with a claim is to go where somebody leaves; its status does not say so yet."""
    scene = Scene()
    for number in range(8):
        scene.add_node(make_node(f"n{number}").node())
    tell_devices(scene)
    scene.begin()
    for number in range(8):
        scene.add_pod(make_pod(f"low{number}").cpu("3").on(f"n{number}").pod())
    scene.run()
    scene.keep_victims = True
    scene.add_pod(claiming())
    scene.run(until_s=0.5 * TOLD_AFTER_S)
    assert len(scene.evicted) == 1
    scene.seed += 1  # it would choose the same of equals
    return scene


def heir_learns_claims_late(scene: Scene) -> None:
    scene.replace_leader(set())
    scene.run(until_s=5)
    assert scene.core.state.gated.keys() == {"uid-high"}
    tell_devices(scene)


def claim_goes_and_comes(scene: Scene) -> None:
    scene.hold_plans = True
    lose_claim(scene)
    scene.change_pod("uid-high", labels={"seen": "again"})
    scene.run(until_s=1)
    assert scene.core.state.gated.keys() == {"uid-high"}
    scene.hold_plans = False
    tell_devices(scene)


def refused_and_taken_again(scene: Scene) -> None:
    scene.change_pod("uid-high", unsupported="what nobody looks at")
    scene.run(until_s=1)
    assert scene.core.state.untried.keys() == {"uid-high"}
    scene.change_pod("uid-high", unsupported="")


GAPS = [heir_learns_claims_late, claim_goes_and_comes, refused_and_taken_again]


@pytest.mark.parametrize("gap", GAPS)
def test_a_pod_that_is_not_tried_for_a_while_goes_on_where_somebody_leaves_for_it(gap: Callable[[Scene], None]) -> None:
    scene = nominated()
    (victim,) = scene.evicted
    gap(scene)
    scene.run(until_s=10)
    assert scene.evicted == [victim]
    assert scene.core.state.cluster.nominated_to == {"uid-high": scene.pods[victim].node_name}
    scene.delete_pod(victim)
    scene.run(until_s=10)
    assert [uid for uid, _ in scene.bindings] == ["uid-high"]
    assert scene.nominations == {}


def test_ablation_where_it_is_forgotten_meanwhile_another_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    forget = Nominations.forget
    monkeypatch.setattr(Nominations, "forget", lambda self, uid, **_: forget(self, uid))
    scene = nominated()
    heir_learns_claims_late(scene)
    scene.run(until_s=10)
    assert len(set(scene.evicted)) == 2


def test_a_pod_that_is_deleted_while_it_is_not_tried_leaves_no_record() -> None:
    scene = nominated()
    lose_claim(scene)
    scene.change_pod("uid-high", labels={"seen": "again"})
    scene.run(until_s=1)
    assert scene.nominations
    scene.delete_pod("uid-high")
    scene.run(until_s=1)
    assert scene.nominations == {}


def inherited(*leaving: str) -> Scene:
    """etcd says n0, which the pod's status says not: that says n1. On the nodes ``leaving`` somebody leaves."""
    scene = full(8)
    scene.keep_victims = True
    scene.inbox.clear()
    scene.pods["uid-high"] = replace(high().pod(), nominated_node="n1")
    for node in leaving:
        uid = f"uid-low{node[1:]}"
        scene.pods[uid] = replace(scene.pods[uid], terminating=True)
    scene.nominations = {"uid-high": "n0"}
    scene.replace_leader(set())
    scene.run(until_s=3)
    return scene


def test_where_an_older_leader_nominated_a_pod_elsewhere_meanwhile_its_victim_is_waited_for() -> None:
    scene = inherited("n1")
    assert scene.evicted == []
    assert scene.core.state.cluster.nominated_to == {"uid-high": "n1"}
    assert scene.nominations == {}
    scene.delete_pod("uid-low1")
    scene.run(until_s=10)
    assert scene.bindings == [("uid-high", "n1")]


@pytest.mark.parametrize("leaving", [("n0",), ("n0", "n1")])
def test_where_somebody_leaves_the_node_that_etcd_says_that_counts(leaving: tuple[str, ...]) -> None:
    scene = inherited(*leaving)
    assert scene.evicted == []
    assert scene.core.state.cluster.nominated_to == {"uid-high": "n0"}


def test_ablation_where_a_record_of_any_age_counts_one_more_is_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nominations, "_passed_over", lambda *_: False)
    assert inherited("n1").evicted == ["uid-low0"]


@pytest.mark.parametrize("records_first", [True, False])
def test_an_heir_tells_what_was_not_told_and_keeps_it_until_then_in_whatever_order_lists_come(
    *, records_first: bool
) -> None:
    scene = full(8)
    scene.keep_victims = True
    scene.add_pod(high().pod())
    scene.run(until_s=0.5 * TOLD_AFTER_S)
    (victim,) = scene.evicted
    kept, scene.lost_patches = dict(scene.nominations), 1000
    scene.replace_leader(set())
    if records_first:
        listed = next(event for event in scene.inbox if isinstance(event, IntentsListed))
        scene.inbox.remove(listed)
        scene.inbox.appendleft(listed)
    scene.run(until_s=3)
    assert scene.nominations == kept == {"uid-high": scene.pods[victim].node_name}
    scene.lost_patches = 0
    scene.change_pod("uid-high", labels={"seen": "again"})
    scene.delete_pod(victim)
    scene.run(until_s=40)
    assert scene.bindings == [("uid-high", kept["uid-high"])]
    assert scene.nominations == {}


def test_what_was_stored_before_the_choice_was_given_up_says_nothing_of_the_next_one() -> None:
    scene = full(1)
    scene.add_pod(high().pod())
    before = until_stored(scene)
    (given_up,) = scene.core.nominations.made.values()
    scene.core.nominations.end(given_up)
    scene.slow_stores = 1
    while not scene.core.nominations.made:  # it backs off first
        scene.run(until_s=0.2)
    (known,) = scene.core.nominations.made.values()
    assert known is not given_up
    scene.deliver(before)
    assert not known.evicting
    assert not scene.evicted
    scene.run(until_s=15)
    assert known.evicting
    assert scene.bindings == [("uid-high", "n0")]
