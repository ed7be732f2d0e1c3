"""What a binder may have written into claims is given back before the pod's intent goes, whatever answer is missing."""

from __future__ import annotations

import pytest

from services.binder.core.core import BinderCore
from services.binder.core.events import ClaimUnwritten, IntentsListed
from services.binder.core.instructions import Bind, Commit, ListIntents, ReadPod, ReleaseClaim, WriteClaim
from services.binder.core.state import BinderCoreSettings
from services.binder.cycle.binding_cycle import BindingCycle
from services.binder.cycle.claims import ClaimsOfTerm
from shared.errors import LeadershipLost
from shared.kube.scheduling_kinds import DEVICE_CLAIMS
from shared.model.cluster_events import Listed, ObjectUnreadable, PositionLost
from shared.ports import BindRequest, DeleteKey
from shared.turns import Tick
from shared.wire.messages import Outcome
from tests.builders import make_pod
from tests.fake_kube import copy
from tests.sim.claims import add_claim, add_claiming, add_class, add_devices, check_claims, control_claims, devices_of
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import KEYS, AlwaysValid, Binder, World, make_world
from tests.unit.services.binder.test_binder_claims import claim_of, claiming_world, until

LISTS = ("resourceclaims", "resourceslices", "deviceclasses", "podgroups")


def written(world: World, *, fault: str = "ok", fault_at: int = 0) -> Binder:
    """A binder that has sent the writes of p's claim."""
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    world.fault_at = fault_at
    world.run(binder, WriteClaim, fault=fault)
    return binder


def later(world: World, binder: Binder, seconds: float = 100.0) -> None:
    world.settle(binder)
    world.now += seconds
    world.tell(binder, Tick())
    world.settle(binder)
    assert check_all(world) + check_claims(world.kube) == []


def test_the_binding_waits_until_the_watch_shows_the_write_itself_and_not_an_event_of_before() -> None:
    world = claiming_world()
    binder = written(world)
    world.watch(binder, 1)  # the mark's event, older than the write of the status
    assert not any(isinstance(one, Bind) for one in binder.effects)
    world.watch(binder, 1)
    assert any(isinstance(one, Bind) for one in binder.effects)


@pytest.mark.parametrize("fault_at", [0, 1])
@pytest.mark.parametrize("fault", ["drop_request", "drop_reply", "late"])
def test_a_write_without_an_answer_is_given_back_when_the_unit_ends(fault: str, fault_at: int) -> None:
    world = claiming_world()
    binder = written(world, fault=fault, fault_at=fault_at)
    world.kube.change_node("n0", unschedulable=True)
    later(world, binder)
    for write in world.api.delayed:
        with pytest.raises(Exception, match=r"precondition|not found"):
            write()
    later(world, binder)
    assert not devices_of(claim_of(world))
    assert not claim_of(world)["status"].get("reservedFor")
    assert not binder.core.state.devices.accounts.assumed
    assert not world.intents()


def test_a_refused_write_holds_no_device_though_the_claim_cannot_be_read() -> None:
    world = claiming_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    order = until(world, binder, WriteClaim)
    binder.effects.remove(order)
    world.tell(binder, ClaimUnwritten(order.key, None, known=False, status=429, message="busy"))
    assert binder.core.state.devices.accounts.assumed[order.key].sent is None


def test_a_claim_that_is_gone_at_the_api_server_is_not_written_again_at_once() -> None:
    world = claiming_world()
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    world.kube.drop_object(DEVICE_CLAIMS, "default/p-gpu")
    world.run(binder, WriteClaim)
    assert not any(isinstance(one, WriteClaim) for one in binder.effects)


def dies_while_it_gives_back(world: World) -> World:
    """A binder withdraws a unit, commits what it wants committed, and dies before its claim is free."""
    binder = written(world)
    world.kube.change_node("n0", unschedulable=True)
    world.watch(binder)
    assert any(isinstance(one, ReleaseClaim) for one in binder.effects)
    for _ in range(5):
        world.now += 0.1
        world.tell(binder, Tick())
        while any(isinstance(one, Commit) for one in binder.effects):
            world.run(binder, Commit)
    world.crash(binder)
    world.late.clear()
    later(world, world.start_binder())
    return world


def test_the_intent_stays_until_its_claims_are_free() -> None:
    world = dies_while_it_gives_back(claiming_world())
    assert not devices_of(claim_of(world))
    assert not world.intents()


def test_ablation_an_intent_that_goes_first_leaves_its_device_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = BindingCycle.end

    def end_at_once(self: BindingCycle, binding, outcome, **rest):  # type: ignore[no-untyped-def]
        ended(self, binding, outcome, **rest)
        self._committer.clear(binding.uid, self._state.now)

    monkeypatch.setattr(BindingCycle, "end", end_at_once)
    world = claiming_world()
    world.settings = BinderCoreSettings()
    assert devices_of(claim_of(dies_while_it_gives_back(world)))


def test_a_binder_that_stops_waits_for_claims_that_it_gives_back() -> None:
    world = claiming_world()
    binder = written(world)
    world.kube.change_node("n0", unschedulable=True)
    world.watch(binder)
    assert not binder.core.state.in_flight
    assert binder.core.busy
    world.settle(binder)
    assert not binder.core.busy


def test_a_pod_is_planned_anew_while_its_claim_is_given_back_and_is_bound_after_that() -> None:
    world = claiming_world()
    binder = written(world)
    world.kube.change_node("n0", unschedulable=True)
    world.watch(binder)
    world.send(binder, world.plan(("p", "n1")))
    world.settle(binder)
    assert world.node_of("p") == "n1"
    assert [one.split("/")[1] for one in devices_of(claim_of(world))] == ["n1"]
    assert not world.intents()


def planned_while_its_claim_is_given_back() -> tuple[World, Binder]:
    """The claim is free and everything done that follows from that, and no time has passed."""
    world = claiming_world()
    binder = written(world)
    world.kube.change_node("n0", unschedulable=True)
    world.watch(binder)
    world.send(binder, world.plan(("p", "n1")))
    began = world.now
    while binder.effects:
        world.run(binder)
        world.watch(binder)
        world.tell(binder, Tick())
    assert world.now == began
    return world, binder


def test_a_plan_that_waits_for_a_claim_goes_on_when_the_claim_is_free_not_some_time_after() -> None:
    world, _ = planned_while_its_claim_is_given_back()
    assert world.node_of("p") == "n1"


def test_ablation_who_is_not_told_that_a_claim_is_settled_looks_again_only_by_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClaimsOfTerm, "_settled", lambda *_: None)
    world, binder = planned_while_its_claim_is_given_back()
    assert not world.node_of("p")
    later(world, binder)
    assert world.node_of("p") == "n1"


def test_who_inherits_an_intent_gives_back_each_claim_of_it_though_another_is_gone() -> None:
    world = make_world(nodes=1, pods=0)
    add_class(world.kube)
    add_devices(world.kube, "n0", 2)
    pod = make_pod("p").cpu("100m")
    names = {"x": "cx", "y": "cy"}
    pod.json["spec"]["resourceClaims"] = [{"name": one, "resourceClaimName": claim} for one, claim in names.items()]
    world.kube.add_pod(pod)
    for claim in names.values():
        add_claim(world.kube, claim)
    world.crash(written(world))
    world.late.clear()
    world.kube.drop_object(DEVICE_CLAIMS, "default/cy")
    binder = world.start_binder(ready=False)
    world.sync(binder)
    later(world, binder)
    assert not devices_of(claim_of(world, "cx"))


def test_a_claim_whose_device_is_taken_is_given_back_though_an_attempt_before_wrote_it() -> None:
    world = claiming_world()
    world.crash(written(world))
    world.etcd.txn([], [DeleteKey(KEYS.intent(key)) for key in world.stored()])
    add_claiming(world.kube, "q")
    control_claims(world.kube)
    theirs = copy(claim_of(world, "q-gpu"))
    theirs["status"] = copy(claim_of(world))["status"]
    theirs["status"]["reservedFor"] = [{"resource": "pods", "name": "q", "uid": world.uid("q")}]
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    world.kube.put_object(DEVICE_CLAIMS, theirs)  # another scheduler chose the same device
    world.watch(binder)
    world.run(binder, Commit)
    assert not any(isinstance(one, WriteClaim) for one in binder.effects)
    world.settle(binder)
    assert not devices_of(claim_of(world))
    assert check_claims(world.kube) == []


def taken_over_without(world: World, kind: str, shard: str = "0") -> Binder:
    """A successor that was listed everything but this kind, and whose grace is over."""
    term = world._take(KEYS.binder_leader(shard))
    binder = Binder(BinderCore(term, world.settings, KEYS, shard=shard, shards=world.shards(), kinds=LISTS))
    world.tell(binder, IntentsListed(world.stored(), world.fence(shard)))
    history = world.kube.history
    world.kube.history = [entry for entry in history if entry[1] != kind]
    world.watch(binder)
    world.tell(binder, *(Listed(one) for one in ("nodes", "pods", *LISTS) if one != kind))
    world.kube.history = history
    world.now += world.settings.takeover_grace_s + 1
    world.tell(binder, Tick())
    return binder


def list_again(world: World, binder: Binder, kind: str) -> None:
    binder.seen = 0
    world.watch(binder)
    world.tell(binder, Listed(kind))


def test_intents_with_claims_are_not_judged_before_claims_are_listed() -> None:
    world = claiming_world()
    world.crash(written(world))
    world.late.clear()
    binder = taken_over_without(world, "resourceclaims")
    assert not [one for one in binder.effects if not isinstance(one, ListIntents)]
    assert binder.core.wake_at > world.now  # it waits, and does not spin
    assert binder.core.takeover.missing == ["resourceclaims", "devices for 1 inherited pods"]
    list_again(world, binder, "resourceclaims")
    later(world, binder)
    assert world.node_of("p") == "n0"


def test_plans_for_other_pods_do_not_wait_for_devices_that_an_intent_claims() -> None:
    world = claiming_world()
    world.kube.add_pod(make_pod("plain"))
    world.crash(written(world))
    world.late.clear()
    binder = taken_over_without(world, "resourceclaims")
    room = binder.core.state.cache.accounts[world.uid("p")]
    assert room.node_name == "n0", "what the intent holds is counted meanwhile"
    plain = world.send(binder, world.plan(("plain", "n0")))
    again = world.send(binder, world.plan(("p", "n1")))
    for _ in range(5):
        while binder.effects:
            world.run(binder)
        world.now += world.settings.sweep_every_s  # what a sweep finds again is not taken for an orphan's
        world.tell(binder, Tick())
    assert binder.answers[plain].results[0].outcome == Outcome.BOUND
    [told] = binder.answers[again].results  # no conflict: by that its claim would be freed, with which it may be bound
    assert (told.outcome, told.reason) == (Outcome.UNRESOLVED, "an earlier intent of it waits for devices to be listed")
    assert not world.node_of("p")
    list_again(world, binder, "resourceclaims")
    world.settle(binder)
    assert world.node_of("p") == "n0"
    assert not world.intents()
    assert check_all(world) + check_claims(world.kube) == []


def test_a_gang_waits_whole_for_devices_that_one_member_claims() -> None:
    world = claiming_world()
    world.kube.add_pod(make_pod("plain"))
    first = world.start_binder()
    world.send(first, world.gang(("p", "n0"), ("plain", "n1"), at_least=2))
    world.run(first, Commit)
    world.crash(first)
    world.late.clear()
    binder = taken_over_without(world, "resourceclaims")
    assert binder.core.takeover.accepting
    assert [binder.core.state.cache.accounts[world.uid(name)].node_name for name in ("p", "plain")] == ["n0", "n1"]
    assert not [one for one in binder.effects if not isinstance(one, ListIntents)]
    list_again(world, binder, "resourceclaims")
    world.settle(binder)
    assert (world.node_of("p"), world.node_of("plain")) == ("n0", "n1")
    assert not world.intents()
    assert check_all(world) + check_claims(world.kube) == []


def test_after_a_lost_position_a_claim_that_is_seen_means_nothing_until_all_are_listed() -> None:
    world = claiming_world()
    add_claiming(world.kube, "q")
    control_claims(world.kube)
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    until(world, binder, WriteClaim)
    world.tell(binder, PositionLost("resourceclaims"))
    world.run(binder, WriteClaim)
    theirs = copy(claim_of(world, "q-gpu"))
    theirs["status"] = copy(claim_of(world))["status"]
    theirs["status"]["reservedFor"] = [{"resource": "pods", "name": "q", "uid": world.uid("q")}]
    world.watch(binder)  # ours beside the list, theirs on a page that is still to come
    world.now += world.settings.volumes_again_s
    world.tell(binder, Tick())
    assert not any(isinstance(one, Bind) for one in binder.effects)
    world.kube.put_object(DEVICE_CLAIMS, theirs)
    world.watch(binder)
    world.tell(binder, Listed("resourceclaims"))
    world.settle(binder)
    assert not world.node_of("p")
    assert check_claims(world.kube) == []


def test_after_a_lost_position_the_binding_goes_when_all_claims_are_listed() -> None:
    world = claiming_world()
    binder = written(world)
    world.tell(binder, PositionLost("resourceclaims"))
    world.watch(binder)
    assert not any(isinstance(one, Bind) for one in binder.effects)
    world.tell(binder, Listed("resourceclaims"))
    assert any(isinstance(one, Bind) for one in binder.effects)


def test_what_another_shard_committed_holds_its_devices_though_claims_are_listed_late() -> None:
    world = make_world(nodes=7, pods=0)
    add_class(world.kube)
    for number in range(7):
        add_devices(world.kube, f"n{number}", 1)
    for name in ("p", "q"):
        add_claiming(world.kube, name)
    control_claims(world.kube)
    world.divide("0", "1")
    moved = next(name for number in range(7) if world.shards().of(name := f"n{number}") == "1")
    world.divide("0")
    first = world.start_binder()
    world.send(first, world.plan(("p", moved)))
    world.run(first, Commit)
    world.divide("0", "1")
    world.crash(first)
    second = taken_over_without(world, "resourceclaims", "1")
    list_again(world, second, "resourceclaims")
    request = world.send(second, world.plan(("q", moved)))
    world.settle(second)
    assert second.answers[request].results[0].outcome == Outcome.CONFLICT


def test_a_write_is_seen_by_a_later_version_that_cannot_be_read() -> None:
    world = claiming_world()
    binder = written(world)
    ours = claim_of(world)["metadata"]["resourceVersion"]
    world.tell(binder, ObjectUnreadable("resourceclaims", "default/p-gpu", str(int(ours) - 1)))
    assert not any(isinstance(one, Bind) for one in binder.effects)
    world.tell(binder, ObjectUnreadable("resourceclaims", "default/p-gpu", str(int(ours) + 1)))
    assert any(isinstance(one, Bind) for one in binder.effects)


def test_a_plan_is_not_judged_by_half_a_list_of_claims() -> None:
    world = claiming_world()
    binder = taken_over_without(world, "resourceclaims")
    assert binder.core.takeover.accepting  # nothing is inherited: others need not wait
    add_devices(world.kube, "n0", 1)
    request = world.send(binder, world.plan(("p", "n0")))
    world.now += 1
    world.tell(binder, Tick())
    assert request not in binder.answers
    assert not any(isinstance(one, ReadPod) for one in binder.effects), "the pod is known: nothing is asked"
    list_again(world, binder, "resourceclaims")
    world.settle(binder)
    assert world.node_of("p") == "n0"


def most_under_way(world: World, pods: int) -> int:
    """How many writes of claims one binder had under way at a time, all pods being bound, or given back, at last."""
    binder = world.start_binder()
    for name in (f"p{number}" for number in range(pods)):
        add_claiming(world.kube, name)
    control_claims(world.kube)
    world.watch(binder)
    world.send(binder, world.plan(*((f"p{number}", "n0") for number in range(pods))))
    most = 0
    for step in range(4000):
        if step == 40:
            world.kube.change_node("n0", unschedulable=True)
        world.watch(binder)
        most = max(most, sum(isinstance(one, WriteClaim | ReleaseClaim) for one in binder.effects))
        if binder.effects:
            world.run(binder, type(binder.effects[-1]))
        elif not binder.core.busy:
            break
        else:
            world.now = max(world.now, binder.core.wake_at)
            world.tell(binder, Tick())
    assert not binder.core.busy
    assert check_all(world) + check_claims(world.kube) == []
    return most


def test_so_many_claims_are_written_at_a_time_as_bindings() -> None:
    world = make_world(nodes=1, pods=0)
    world.settings = BinderCoreSettings(max_bindings=3, validate=True)
    add_class(world.kube)
    add_devices(world.kube, "n0", 20)
    assert most_under_way(world, 20) == 3


def test_the_intent_of_a_gang_that_is_given_back_stays_until_the_claims_of_all_are_free() -> None:
    world = make_world(nodes=2, pods=0)
    add_class(world.kube)
    for node in ("n0", "n1"):
        add_devices(world.kube, node, 1)
    for name in ("p0", "p1"):
        add_claiming(world.kube, name)
    control_claims(world.kube)
    binder = world.start_binder()
    world.send(binder, world.gang(("p0", "n0"), ("p1", "n1"), at_least=2))
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    world.kube.change_node("n0", unschedulable=True)
    world.watch(binder)
    while any(not isinstance(one, ReleaseClaim) for one in binder.effects):
        world.run(binder, next(type(one) for one in binder.effects if not isinstance(one, ReleaseClaim)))
    assert world.intents()
    world.crash(binder)
    world.late.clear()
    later(world, world.start_binder())
    assert not any(devices_of(claim_of(world, f"{name}-gpu")) for name in ("p0", "p1"))
    assert not world.intents()


def test_a_transaction_counts_claims_as_it_counts_pods() -> None:
    world = make_world(nodes=1, pods=0)
    world.settings = BinderCoreSettings(max_value_pods=4, validate=True)
    add_class(world.kube)
    add_devices(world.kube, "n0", 5)
    for number in range(5):
        add_claiming(world.kube, f"p{number}")
    control_claims(world.kube)
    binder = world.start_binder()
    placements = [(f"p{number}", "n0") for number in range(5)]
    world.send(binder, world.plan(*placements[:2]))
    world.send(binder, world.gang(*placements[2:], at_least=3))
    world.settle(binder)
    assert all(world.node_of(name) for name, _ in placements)
    assert max(one.intent.named for one in world.commitments) == 4
    assert check_all(world) + check_claims(world.kube) == []


def test_a_pod_that_somebody_else_bound_elsewhere_holds_none_of_the_devices_that_were_assumed_for_it() -> None:
    world = claiming_world()
    add_claiming(world.kube, "q")
    control_claims(world.kube)
    binder = world.start_binder()
    world.send(binder, world.plan(("p", "n0")))
    meta = world.kube.pods["default/p"]["metadata"]
    world.kube.bind(BindRequest("default", "p", meta["uid"], meta["resourceVersion"], "n1"))
    world.watch(binder)
    world.send(binder, world.plan(("q", "n0")))
    world.settle(binder)
    assert not binder.core.state.devices.accounts.assumed
    assert world.node_of("q") == "n0"


@pytest.mark.parametrize("kind", [WriteClaim, ReleaseClaim])
def test_who_may_not_lead_any_more_writes_no_claim_and_ends_its_term(
    kind: type[WriteClaim | ReleaseClaim], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = claiming_world()
    if kind is ReleaseClaim:
        binder = written(world)
        world.kube.change_node("n0", unschedulable=True)
    else:
        binder = world.start_binder()
        world.send(binder, world.plan(("p", "n0")))
    until(world, binder, kind)
    before = copy(claim_of(world))
    monkeypatch.setattr(AlwaysValid, "is_valid", lambda *_: False)
    with pytest.raises(LeadershipLost, match="a claim was not written"):
        world.run(binder, kind)
    assert claim_of(world) == before


@pytest.mark.parametrize("made_anew", [False, True])
@pytest.mark.parametrize("kind", [WriteClaim, ReleaseClaim])
def test_an_answer_that_comes_after_its_claim_is_gone_brings_it_not_back(
    kind: type[WriteClaim | ReleaseClaim], *, made_anew: bool
) -> None:
    world = claiming_world()
    if kind is ReleaseClaim:
        binder = written(world)
        world.kube.change_node("n0", unschedulable=True)
    else:
        binder = world.start_binder()
        world.send(binder, world.plan(("p", "n0")))
    order = until(world, binder, kind)
    binder.effects.remove(order)
    answer = world.carry_out(order)
    assert answer is not None
    world.kube.drop_object(DEVICE_CLAIMS, "default/p-gpu")
    if made_anew:
        add_claim(world.kube, "p-gpu")
    world.watch(binder)
    world.tell(binder, answer)
    shown = binder.core.state.devices.accounts.shown.get("default/p-gpu")
    assert (shown.uid if shown is not None else "") == (claim_of(world)["metadata"]["uid"] if made_anew else "")
    assert not binder.core.state.devices.accounts.assumed
    world.settle(binder)
    assert check_all(world) + check_claims(world.kube) == []
