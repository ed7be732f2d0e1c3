"""What an autoscaler does with a decision: who may be written, what is recorded first, who else writes."""

from __future__ import annotations

import msgspec
import pytest

from services.autoscaler.core.events import HpaFact, HpaSeen, ScaledPodSeen, ScalerSeen
from services.autoscaler.core.instructions import CommitRecord, ReadRound, Write
from shared.autoscaling.safety.readings import SignalReading
from shared.model.controllers.autoscaler import ScalingSignal, TargetRef
from shared.turns import Tick
from tests.unit.services.autoscaler.scaler_world import WALL, World, pod_of, spec_of


@pytest.fixture
def world() -> World:
    """One service at 4 replicas, whose policy wants 7; nobody has given a go."""
    made = World(spec=spec_of("front"))
    made.serve("front", 4)
    made.policy.wanted = {"front": 7}
    made.elect()
    made.run()
    return made


def test_nothing_acts_without_a_go(world: World):
    world.run(3)
    assert world.accepted == []
    assert world.condition("Acting")[:2] == ("False", "NotApproved")
    assert world.status["services"][0]["allowed"] == 7


def test_with_a_go_it_is_recorded_and_then_written(world: World):
    world.approve()
    world.run()
    assert world.accepted == [("front", 4, 7, 1)]
    assert [(one.services["front"].before, one.services["front"].wrote) for one in world.records if one.services] == [
        (4, 7),
        (7, 7),
    ]
    assert world.condition("Acting")[0] == "True"
    seen = world.decisions[-1]["seen"]
    assert seen.services["front"].usage == {"cpu": 0.5, "memory": 1e8}  # type: ignore[attr-defined]


def test_a_go_of_another_spec_does_not_count(world: World):
    world.approve()
    go = world.spec["go"]
    changed = spec_of("front", go=go)
    changed["targets"][0]["maxReplicas"] = 19
    world.apply(changed)
    world.run(2)
    assert world.accepted == []
    assert world.condition("Acting")[1] == "NotApproved"


@pytest.mark.parametrize("mode", ["observe", "recommend"])
def test_other_modes_write_nothing_whatever_go_there_is(mode: str):
    world = World(spec=spec_of("front", mode=mode))
    world.serve("front", 4)
    world.policy.wanted = {"front": 7}
    world.elect()
    world.run()
    world.approve()
    world.run(2)
    assert world.accepted == []
    assert world.status["services"][0]["wanted"] == 7


def test_a_pause_between_record_and_write_stops_the_write(world: World):
    world.approve()
    process = world.process
    assert process is not None
    world.now += 10
    world.tell(Tick())
    while not isinstance(world.carry_out(process), CommitRecord):
        pass
    assert any(isinstance(one, Write) for one in process.waiting)
    # before the commit's answer
    world.apply({**world.spec, "paused": True})
    process.waiting = [one for one in process.waiting if not isinstance(one, Write)]
    assert world.accepted == []


def test_paused_writes_nothing_and_resume_needs_no_new_go(world: World):
    world.approve()
    world.apply({**world.spec, "paused": True})
    world.run(2)
    assert world.accepted == []
    assert world.condition("Acting")[1] == "Paused"
    world.scale("front", 5)
    world.apply({**world.spec, "paused": False})
    world.run()
    assert world.accepted == [("front", 5, 7, 1)]


def test_the_kill_switch_puts_hpas_rule_in_the_policys_place(world: World):
    world.approve()
    world.rule.wanted = {"front": 3}
    world.apply({**world.spec, "killSwitch": "PlainHPA"})
    world.run()
    assert world.accepted == [("front", 4, 3, 1)]
    assert world.status["decidedBy"] == "hpa"


def test_a_failing_policy_is_answered_by_the_larger_of_what_runs_and_hpas_rule(world: World):
    world.approve()
    world.policy.raises = True
    world.rule.wanted = {"front": 2}
    world.run()
    assert world.accepted == []
    world.rule.wanted = {"front": 6}
    world.run()
    assert world.accepted == [("front", 4, 6, 1)]
    assert world.condition("PolicySound")[:2] == ("False", "PolicyFailed")


def test_a_policy_that_fails_three_times_in_a_row_rests_and_is_asked_again(world: World):
    world.approve()
    world.policy.raises = True
    world.rule.wanted, world.policy.wanted = {"front": 4}, {"front": 5}
    told, asked = [], []
    while len(asked) < 3 or asked[-1] != asked[-2]:  # until a round in which it was not asked
        world.run()
        asked.append(len(world.policy.seen))
        told.append(world.condition("PolicySound"))
    assert len(set(told[-3:])) == 1, "its status is not written again and again"
    world.policy.raises = False
    rounds = len(world.rule.seen)
    for _ in range(3):
        assert world.accepted == []
        world.run()
    assert len(world.policy.seen) == asked[-1]
    world.run()
    assert len(world.policy.seen) == asked[-1] + 1
    assert len(world.rule.seen) == rounds + 4, "who stands in is asked each time"
    assert world.accepted == [("front", 4, 5, 1)]
    assert world.condition("PolicySound")[0] == "True"


def test_hpas_rule_does_not_rest_for_nobody_stands_in_for_it(world: World):
    world.approve()
    world.policy.raises = world.rule.raises = True
    world.run(5)
    world.rule.raises, world.rule.wanted = False, {"front": 6}
    world.run()
    assert world.accepted == [("front", 4, 6, 1)]


def test_without_metrics_it_holds_and_never_falls(world: World):
    world.approve()
    world.policy.wanted = {"front": 1}
    world.metrics = "metrics.k8s.io: no answer"
    world.run(5)
    assert world.accepted == []
    assert world.condition("MetricsGood")[:2] == ("False", "Bad")
    world.metrics = None
    world.run()
    assert world.accepted == [("front", 4, 1, 1)]


def test_a_bad_reading_never_reaches_the_policy(world: World):
    spec = spec_of("front")
    spec["targets"][0]["metrics"] = [{"signal": "latency", "type": "Prometheus", "query": "q"}]
    world.readings = {"front": {ScalingSignal.LATENCY: SignalReading(float("nan"), WALL + world.now)}}
    world.apply(spec)
    world.run()
    assert world.policy.seen[-1].services["front"].latency_s is None
    assert world.condition("MetricsGood")[0] == "False"


def test_a_foreign_write_is_told_and_left_alone_until_a_new_go(world: World):
    world.approve()
    world.run()
    world.scale("front", 12, writer="keda-operator")
    world.run(3)
    assert world.accepted == [("front", 4, 7, 1)]
    status, reason, message = world.condition("ForeignWriter")
    assert (status, reason) == ("True", "ForeignWriter")
    assert "keda-operator" in message
    world.approve("tuesday")
    world.run()
    assert world.accepted[-1] == ("front", 12, 7, 1)


def test_a_foreign_write_is_remembered_by_the_next_leader(world: World):
    world.approve()
    world.run()
    world.scale("front", 12)
    world.run()
    world.elect()
    world.run(3)
    assert world.deployments["front"].replicas == 12


def test_what_somebody_sets_while_nobody_leads_is_foreign_to_the_next_leader(world: World):
    world.approve()
    world.run(2)
    world.process = None
    world.scale("front", 15)
    world.elect()
    world.run(3)
    assert world.deployments["front"].replicas == 15
    assert world.condition("ForeignWriter")[0] == "True"


def test_a_write_that_somebody_overtook_is_refused_and_decided_anew(world: World):
    world.approve()
    process = world.process
    assert process is not None
    world.now += 10
    world.tell(Tick())
    while not any(isinstance(one, Write) for one in process.waiting):
        world.carry_out(process)
    world.deployments["front"].version += 1  # a label, say
    while process.waiting:
        world.carry_out(process)
    assert process.core.state.stats.conflicts == 1
    world.run()
    assert world.accepted == [("front", 4, 7, 1)]


def test_a_rise_that_was_recorded_and_not_written_is_finished_by_the_next_leader(world: World):
    world.approve()
    process = world.process
    assert process is not None
    world.now += 10
    world.tell(Tick())
    while not any(isinstance(one, Write) for one in process.waiting):
        world.carry_out(process)
    world.policy.wanted = {"front": 2}
    world.elect()
    world.run()
    assert world.accepted == [("front", 4, 7, 2)]


def test_a_deposed_leader_is_fenced_and_writes_nothing(world: World):
    world.approve()
    old = world.process
    assert old is not None
    world.now += 10
    world.tell(Tick(), to=old)
    world.elect()
    while old.waiting and not old.stopped:
        world.carry_out(old)
    assert old.stopped
    assert world.accepted == []


def test_without_etcd_nothing_is_written(world: World):
    world.approve()
    world.store_down = True
    world.run(3)
    assert world.accepted == []
    world.store_down = False
    world.run()
    assert world.accepted == [("front", 4, 7, 1)]


def hpa(minimum: int = 1, owner: str = "", name: str = "front") -> HpaFact:
    return HpaFact(
        namespace="shop", name=name, uid="hpa-uid", resource_version="1", minimum=minimum, maximum=9, owner=owner,
        ref=TargetRef("apps/v1", "Deployment", "front"),
    )  # fmt: skip


def test_beside_an_hpa_the_scale_is_not_written(world: World):
    world.approve()
    world.tell(HpaSeen(hpa(owner="ScaledObject/front")))
    world.run(2)
    assert world.accepted == []
    assert "KEDA" in world.condition("ForeignWriter")[2]


def test_an_hpas_bounds_are_set_within_ours(world: World):
    world.hpas["front"] = hpa()
    world.tell(HpaSeen(world.hpas["front"]))
    world.apply(spec_of("front", mode="act-on-hpa-bounds"))
    world.run()
    world.approve()
    world.run()
    assert world.accepted == [("front", 1, 7, 1)]
    assert (world.hpas["front"].minimum, world.hpas["front"].maximum) == (7, 20)
    assert world.deployments["front"].replicas == 4


@pytest.mark.parametrize("change", [{"minimum": 2}, {"maximum": 30}])
def test_bounds_that_somebody_else_sets_are_left_alone(world: World, change: dict[str, int]):
    world.hpas["front"] = hpa()
    world.tell(HpaSeen(world.hpas["front"]))
    world.apply(spec_of("front", mode="act-on-hpa-bounds"))
    world.run()
    world.approve()
    world.run(2)
    world.hpas["front"] = msgspec.structs.replace(world.hpas["front"], resource_version="9", writer="kubectl", **change)
    before = world.hpas["front"]
    world.run(3)
    assert world.hpas["front"] == before
    assert "kubectl" in world.condition("ForeignWriter")[2]
    world.approve("tuesday")
    world.run()
    assert (world.hpas["front"].minimum, world.hpas["front"].maximum) == (7, 20)


def test_kedas_hpa_is_left_alone(world: World):
    world.hpas["front"] = hpa(owner="ScaledObject/front")
    world.tell(HpaSeen(world.hpas["front"]))
    world.apply(spec_of("front", mode="act-on-hpa-bounds"))
    world.run()
    world.approve()
    world.run(2)
    assert world.accepted == []
    assert "ScaledObject/front" in world.condition("ForeignWriter")[2]


def test_an_unknown_deployment_is_one_condition_and_everything_stays():
    world = World(spec=spec_of("front", "gone"))
    world.serve("front", 4)
    world.policy.wanted = {"front": 9}
    world.elect()
    world.run()
    world.approve()
    world.run(2)
    assert world.accepted == []
    assert world.condition("Ready") == ("False", "TargetUnusable", "Deployment/gone: there is none in shop")


def test_an_unknown_policy_is_one_condition_and_everything_stays(world: World):
    world.apply({**world.spec, "policy": {"name": "nonesuch"}})
    world.run(2)
    assert world.condition("Ready")[1] == "PolicyUnusable"


def test_a_loop_of_calls_is_told_and_nothing_is_read(world: World):
    spec = spec_of("front", "cart")
    spec["targets"][0]["calls"], spec["targets"][1]["calls"] = ["cart"], ["front"]
    world.apply(spec)
    world.run()
    status, reason, message = world.condition("Ready")
    assert (status, reason) == ("False", "Invalid")
    assert "loop" in message
    world.now += 10
    assert not any(isinstance(one, ReadRound) for one in world.process.core.handle_all([Tick()], world.now))  # type: ignore[union-attr]


def test_a_status_that_could_not_be_written_is_written_later_though_nothing_changed():
    world = World(spec=spec_of("front", mode="nonsense"), api_down=True)
    process = world.elect(tell_every_s=5.0)
    while process.waiting:
        world.carry_out(process)
    assert world.status == {}
    world.api_down = False
    assert process.core.wake_at() is not None
    world.run()
    assert world.condition("Ready")[:2] == ("False", "Invalid")


def test_objects_beyond_the_most_rounds_wait_for_a_round_and_not_for_the_clock(world: World):
    """A wake-up in the past would turn the loop without a pause for as long as the reads take."""
    second = msgspec.structs.replace(world.scaler(), name="other", uid="other")
    process = world.elect(most_rounds=1)
    world.now += 10
    world.tell(ScalerSeen(second))
    world.now += 10
    world.tell(Tick())
    reads = [one for one in process.waiting if isinstance(one, ReadRound)]
    assert len(reads) == 1
    wake_at = process.core.wake_at()
    assert wake_at is None or wake_at > world.now


def test_two_objects_on_one_deployment_write_neither(world: World):
    world.approve()
    other = msgspec.structs.replace(world.scaler(), name="other", uid="other-uid")
    world.tell(ScalerSeen(other))
    world.run(2)
    assert world.accepted == []
    assert "other" in world.condition("ForeignWriter")[2]


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ({"rollout": "a rollout: 1 of 4"}, "a rollout"),
        ({"ready": 0}, "no pod is ready"),
        ({"ready": 3}, "budget"),
    ],
)
def test_trouble_keeps_a_service_from_falling(world: World, trouble: dict[str, object], why: str):
    from services.autoscaler.core.events import BudgetSeen
    from shared.model.cluster_objects import DisruptionBudget
    from shared.model.terms.labels import selector_of_labels

    world.approve()
    world.policy.wanted = {"front": 1}
    if "rollout" in trouble:
        world.deployments["front"].rollout = str(trouble["rollout"])
    if "ready" in trouble:
        world.settle("front", ready=int(str(trouble["ready"])))
    world.tell(BudgetSeen(DisruptionBudget("shop", "b", selector_of_labels({"app": "front"}), allowed=0)))
    world.run()
    assert all(to >= 3 for _, _, to, _ in world.accepted)
    assert why in world.status["services"][0]["why"]


def test_an_attackers_pods_with_our_labels_do_not_count(world: World):
    for number in range(50):
        world.tell(ScaledPodSeen(pod_of(f"evil-{number}", node="")))
    world.run()
    assert world.policy.seen[-1].services["front"].ready == 4


def test_an_object_made_anew_under_the_same_name_starts_without_the_old_ones_past(world: World):
    world.approve()
    world.run()
    world.scale("front", 9)
    anew = msgspec.structs.replace(world.scaler(), uid="another")
    world.tell(ScalerSeen(anew))
    process = world.process
    assert process is not None
    assert process.core.state.objects["shop/graph"].foreign == {}
