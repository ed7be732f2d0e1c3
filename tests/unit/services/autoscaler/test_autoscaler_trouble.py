"""What one object, one hiccup or one operator's step may do to the decisions: nothing beyond its own object."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from services.autoscaler.core.cluster import ScaledCluster
from services.autoscaler.core.events import (
    KINDS,
    HpaFact,
    HpaSeen,
    NodeFact,
    ScaledNodeSeen,
    ScaledPodGone,
    ScaledPodSeen,
    SetSeen,
    TargetFact,
)
from services.autoscaler.core.instructions import CommitRecord, Instruction, Write
from shared.autoscaling.observation import Policy
from shared.autoscaling.safety.readings import SignalReading
from shared.model.controllers.autoscaler import ScalingSignal, TargetRef
from shared.turns import Tick
from tests.unit.services.autoscaler.scaler_world import WALL, World, pod_of, spec_of, usage_of


class Unmakeable(World):
    """A world whose policies cannot be made of these settings, by a bug."""

    def policies(self, name: str, settings: Mapping[str, object]) -> Policy:
        if settings:
            raise ZeroDivisionError("a bug")
        return super().policies(name, settings)


def test_a_policy_that_cannot_be_made_is_told_on_its_object_and_ends_no_term():
    world = Unmakeable(spec=spec_of("front", policy={"name": "test", "settings": {"a": 0}}))
    world.serve("front", 4)
    process = world.elect()
    world.run()
    assert not process.stopped
    assert world.condition("Ready")[:2] == ("False", "PolicyUnusable")
    assert "ZeroDivisionError" in world.condition("Ready")[2]


@pytest.fixture
def world() -> World:
    """One service at 4 replicas that is to have 7, with a go."""
    made = World(spec=spec_of("front"))
    made.serve("front", 4)
    made.policy.wanted = {"front": 7}
    made.elect()
    made.run()
    made.approve()
    return made


def advance(world: World, kind: type[Instruction]) -> None:
    """Do what was asked for until this kind of instruction waits."""
    assert world.process is not None
    while not any(isinstance(one, kind) for one in world.process.waiting):
        world.carry_out(world.process)


def leave_a_rise_unfinished(world: World) -> None:
    """The leader recorded 4 -> 7 and died before it wrote; the next one leads, and its policy wants 2."""
    world.now += 10
    world.tell(Tick())
    advance(world, Write)
    world.policy.wanted = {"front": 2}
    world.elect()
    world.now += 10
    world.tell(Tick())


def test_an_unfinished_rise_outlives_a_commit_that_failed(world: World):
    leave_a_rise_unfinished(world)
    advance(world, CommitRecord)
    process = world.process
    assert process is not None
    world.lose(process, next(at for at, one in enumerate(process.waiting) if isinstance(one, CommitRecord)))
    world.run()
    assert world.accepted == [("front", 4, 7, 2)]


def test_a_deposed_leaders_late_write_is_not_taken_for_somebody_elses(world: World):
    leave_a_rise_unfinished(world)
    advance(world, Write)
    one = world.deployments["front"]
    one.replicas, one.version = 7, one.version + 1  # it arrives right before ours
    world.run(2)
    assert world.condition("ForeignWriter")[0] == "False"
    assert world.deployments["front"].replicas == 2  # from here on the policy decides


def test_bounds_that_an_earlier_leader_set_are_known_for_ours_by_the_next(world: World):
    bounds = {"minimum": 1, "maximum": 30, "ref": TargetRef("apps/v1", "Deployment", "front")}
    world.hpas["front"] = HpaFact(namespace="shop", name="front", uid="h", resource_version="1", **bounds)  # type: ignore[arg-type]
    world.tell(HpaSeen(world.hpas["front"]))
    world.apply(spec_of("front", mode="act-on-hpa-bounds"))
    world.run()
    world.approve()
    world.run(2)
    assert world.hpas["front"].maximum == 20
    world.elect()
    world.run()
    changed = msgspec.structs.replace(world.hpas["front"], maximum=5, resource_version="9", writer="kubectl")
    world.hpas["front"] = changed
    world.run(2)
    assert world.hpas["front"] == changed
    assert "kubectl" in world.condition("ForeignWriter")[2]


def test_a_rule_that_fails_in_the_policys_place_is_told(world: World):
    world.rule.raises = True
    world.apply({**world.spec, "killSwitch": "PlainHPA"})
    world.run()
    assert world.accepted == []
    assert world.condition("PolicySound")[:2] == ("False", "PolicyFailed")


def test_a_sum_over_some_of_the_pods_is_no_smaller_load(world: World):
    """An adapter that lost the samples of three pods out of four."""
    spec = spec_of("front")
    spec["targets"][0]["metrics"] = [{"signal": "arrivals", "type": "Pods", "metric": "requests"}]
    world.now += 600
    world.policy.wanted = {"front": 1}
    world.apply(spec)
    world.readings = {"front": {ScalingSignal.ARRIVALS: SignalReading(25.0, WALL + world.now, pods=1)}}
    world.run()
    world.approve()
    world.run()
    assert world.accepted == []
    assert "only 1 of 4 pods have a sample" in world.condition("MetricsGood")[2]
    world.readings = {"front": {ScalingSignal.ARRIVALS: SignalReading(100.0, WALL + world.now, pods=4)}}
    world.run()
    assert world.accepted == [("front", 4, 1, 1)]


@pytest.mark.parametrize(("usage", "why"), [({"memory": 1e8}, "has no sample"), ({"cpu": -0.1}, "is negative")])
def test_one_pods_bad_sample_spoils_the_mean(world: World, usage: dict[str, float], why: str):
    world.now += 600
    good = {"cpu": 0.5, "memory": 1e8}
    world.metrics = {
        f"front-{number}": usage_of(
            f"front-{number}",
            WALL + world.now,
            **(good if number != 2 else {**good, **usage} if "cpu" in usage else usage),
        )
        for number in range(4)
    }
    world.policy.wanted = {"front": 1}
    world.run()
    assert world.accepted == []
    assert why in world.condition("MetricsGood")[2]


@pytest.mark.parametrize("kind", KINDS)
def test_while_a_watch_is_silent_nothing_falls_and_its_age_is_told(world: World, kind: str):
    world.policy.wanted = {"front": 1}
    world.silent_s = {kind: 240.0}
    world.run(3)
    assert world.accepted == []
    assert world.condition("MetricsGood")[0] == "False"
    assert f"{kind}: as they were 240 s ago" in world.condition("MetricsGood")[2]
    world.silent_s = {kind: 60.0}  # bookmarks come each minute
    world.run()
    assert world.accepted == [("front", 4, 1, 1)]


def test_a_silent_watch_lets_hpas_rule_rise(world: World):
    world.policy.wanted = {"front": 1}
    world.rule.wanted = {"front": 6}
    world.silent_s = {"pods": 240.0}
    world.run()
    assert world.accepted == [("front", 4, 6, 1)]


def without_its_policy(world: World) -> None:
    """The next leader's release has no such policy."""
    world.policies = lambda name, settings: World.policies(world, "hpa" if name == "hpa" else "gone", settings)  # type: ignore[method-assign]
    world.elect()


def test_the_kill_switch_works_at_once_while_the_named_policy_cannot_be_made(world: World):
    world.run()
    without_its_policy(world)
    world.run()
    assert world.condition("Ready")[:2] == ("False", "PolicyUnusable")
    world.rule.wanted = {"front": 5}
    world.apply({**world.spec, "killSwitch": "PlainHPA"})
    world.run()
    assert world.accepted == [("front", 4, 7, 1), ("front", 7, 5, 2)]
    assert world.condition("PolicySound")[:2] == ("False", "PolicyUnusable")


def test_without_the_recorded_weights_the_kill_switch_would_wait_for_a_new_go(world: World):
    """Ablation: the go names the digest of weights that this release cannot compute."""
    world.run()
    assert world.record is not None
    world.record = msgspec.structs.replace(world.record, weights="")
    without_its_policy(world)
    world.rule.wanted = {"front": 5}
    world.apply({**world.spec, "killSwitch": "PlainHPA"})
    world.run(2)
    assert world.accepted == [("front", 4, 7, 1)]
    assert world.condition("Acting")[1] == "NotApproved"


def test_pods_on_their_way_out_serve_nobody_and_hold_their_room():
    cluster = ScaledCluster()
    cluster.take(ScaledNodeSeen(NodeFact(name="n1", cpu=2.0, memory=2.0**30, pods=10, takes=True, cordoned=False)))
    cluster.take(SetSeen("set-front", "uid-front"))
    for name, leaving in (("a", False), ("b", True)):
        pod = pod_of(name, owner="set-front", deleting=leaving, requests={"cpu": 1000, "memory": 0})
        cluster.take(ScaledPodSeen(pod))
    target = TargetFact(uid="uid-front", resource_version="1", replicas=1)
    found = cluster.pods_of("shop", TargetRef("apps/v1", "Deployment", "front"), target)
    assert [(pod.name, pod.there) for pod in found] == [("a", True), ("b", False)]
    assert cluster.free_nodes()[0].cpu == 0.0
    cluster.take(ScaledPodGone("b"))
    assert cluster.free_nodes()[0].cpu == 1.0
    assert cluster.validate() == []


def test_a_role_is_told_with_its_reason(world: World):
    world.policy.roles = {"front": "failure-manager"}  # type: ignore[attr-defined]
    world.policy.reasons = {"front": "stuck above 0"}  # type: ignore[attr-defined]
    world.run()
    row = world.status["services"][0]
    assert (row["role"], row["why"]) == ("failure-manager", "test decided as failure-manager (stuck above 0)")
    world.apply({**world.spec, "killSwitch": "PlainHPA"})
    world.run()
    assert "role" not in world.status["services"][0]
