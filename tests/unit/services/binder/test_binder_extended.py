"""A binder and the claim that it makes for a pod's extended resources: made, told, taken over, deleted for nothing.

Whatever a binder has done when it dies, and whatever of it arrives late, its successor ends with the pod bound and told
of one claim, or with no claim that holds a device.
"""

from __future__ import annotations

from typing import Any

import pytest

from services.binder.core.events import BindingRefused, Event
from services.binder.core.in_flight import BindingStage
from services.binder.core.instructions import Bind, Commit, ReleaseClaim, WriteClaim
from services.binder.cycle.claim_returns import ClaimReturns
from services.binder.metrics import DeviceMetrics
from shared.errors import LeadershipLost
from shared.kube.scheduling_kinds import DEVICE_CLAIMS
from shared.model.cluster_events import Listed, PositionLost
from shared.runtime.observe.metrics import Metrics
from shared.scheduling.devices.extended import claim_name
from shared.wire.messages import Outcome
from tests.builders import make_node
from tests.fake_kube import at_once, copy
from tests.sim.claims import (
    CLASSES,
    RESOURCE,
    add_class,
    add_devices,
    add_requesting,
    check_claims,
    control_claims,
    devices_of,
    leaked,
    made_for,
)
from tests.unit.services.binder.binder_checks import check_all
from tests.unit.services.binder.binder_world import AlwaysValid, Binder, World, make_world
from tests.unit.services.binder.test_binder_claims import until


def requesting_world() -> World:
    """Two nodes with a device each, one with a device plugin, and a pod ``p`` that requests one."""
    world = make_world(nodes=2, pods=0)
    add_class(world.kube, resource=RESOURCE)
    for name in ("n0", "n1"):
        add_devices(world.kube, name, 1)
    world.kube.add_node(make_node("plugin").allocatable(cpu="4", **{RESOURCE: "1"}))
    add_requesting(world.kube, "p")
    return world


def planned(world: World, *nodes: str) -> tuple[Binder, int]:
    binder = world.start_binder()
    return binder, world.send(binder, world.plan(("p", nodes[0], list(nodes[1:]))))


def killed(world: World, binder: Binder) -> Binder:
    binder.effects.clear()
    binder.stopped = "killed"
    return world.start_binder()


def bound_and_clean(world: World, node: str = "n0") -> None:
    assert world.node_of("p") == node
    assert check_all(world) + check_claims(world.kube) + leaked(world.kube) == []
    assert not world.intents()


def bound_with_fault(world: World, binder: Binder, verb: str, fault: str) -> Event:
    """Carry out the Binding, of whose two requests one meets a fault; what the binder would hear of it."""
    binding = until(world, binder, Bind)
    binder.effects.remove(binding)
    world.api.faults = {verb: [fault]}
    at_once(world.api_calls.bind(binding))
    [heard] = world._heard
    world._heard.clear()
    return heard


def told(world: World) -> str:
    found: dict[str, Any] = world.kube.pods["default/p"]["status"].get("extendedResourceClaimStatus", {})
    return str(found.get("resourceClaimName", ""))


def test_the_intent_names_the_claim_before_it_is_made_and_the_pod_is_told_before_it_is_bound() -> None:
    world = requesting_world()
    binder, _ = planned(world, "n0")
    order = until(world, binder, WriteClaim)
    [intent] = world.intents().values()
    assert intent is not None
    [named] = intent.pods[0].claims
    assert (named.name, named.uid, named.fresh, named.made) == (order.name, "", True, True)
    assert made_for(world.kube, "p") == []
    world.run(binder, WriteClaim)
    [claim] = made_for(world.kube, "p")
    assert devices_of(claim) == ["gpu.example.com/n0/d0"]
    assert not any(isinstance(one, Bind) for one in binder.effects)  # the watch has not shown it
    binding = until(world, binder, Bind)
    assert binding.tells
    assert told(world) == ""
    world.settle(binder)
    assert told(world) == order.name
    bound_and_clean(world)
    assert binder.core.stats.conflicting_bindings == 0


@pytest.mark.parametrize("fault_at", [0, 1])
@pytest.mark.parametrize("fault", ["drop_request", "drop_reply", "late"])
@pytest.mark.parametrize("dies", [False, True])
def test_a_write_that_is_lost_or_late_ends_with_one_claim(fault: str, fault_at: int, *, dies: bool) -> None:
    world = requesting_world()
    binder, _ = planned(world, "n0")
    order = until(world, binder, WriteClaim)
    world.fault_at = fault_at
    if dies:
        world.carry_out(order, fault=fault)
        binder = killed(world, binder)
    else:
        world.run(binder, WriteClaim, fault=fault)
    world.settle(binder)
    bound_and_clean(world)
    assert bool(world.api.delayed) == (fault == "late")
    for write in world.api.delayed:
        with pytest.raises(Exception, match=r"precondition|immutable|not found|already exists"):
            write()
    bound_and_clean(world)


@pytest.mark.parametrize("verb", ["patch", "bind"])
@pytest.mark.parametrize("fault", ["drop_request", "drop_reply"])
@pytest.mark.parametrize("dies", [False, True])
def test_a_pod_that_was_told_and_not_bound_is_bound_by_the_version_that_this_made(
    verb: str, fault: str, *, dies: bool
) -> None:
    world = requesting_world()
    binder, _ = planned(world, "n0")
    heard = bound_with_fault(world, binder, verb, fault)
    if dies:
        binder = killed(world, binder)
    else:
        world.tell(binder, heard)
    world.settle(binder)
    bound_and_clean(world)


@pytest.mark.parametrize("fault_at", [0, 1])
@pytest.mark.parametrize("fault", ["ok", "drop_request", "drop_reply", "late"])
@pytest.mark.parametrize("dies", [False, True])
def test_what_never_bound_is_deleted_whatever_answer_is_missing(fault: str, fault_at: int, *, dies: bool) -> None:
    world = requesting_world()
    binder, request = planned(world, "n0")
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    world.kube.change_node("n0", unschedulable=True)
    order = until(world, binder, ReleaseClaim)
    assert order.made
    world.fault_at = fault_at
    if dies:
        world.carry_out(order, fault=fault)
        binder = killed(world, binder)
    else:
        world.run(binder, ReleaseClaim, fault=fault)
    world.settle(binder)
    world.pass_time(binder, 30.0)
    world.settle(binder)
    if not dies:
        [result] = binder.answers[request].results
        assert result.outcome == Outcome.CONFLICT
    assert made_for(world.kube, "p") == []
    assert not world.intents()
    assert bool(world.api.delayed) == (fault == "late")
    for write in world.api.delayed:
        with pytest.raises(Exception, match=r"precondition|not found"):
            write()
    assert not binder.core.state.devices.accounts.assumed
    world.kube.change_node("n0", unschedulable=False)
    world.watch(binder)
    world.send(binder, world.plan(("p", "n0")))  # and it is made again, by the same name
    world.settle(binder)
    bound_and_clean(world)


def test_ablation_who_deletes_nothing_leaves_a_claim_with_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClaimReturns, "order", lambda *_: None)
    world = requesting_world()
    binder, _ = planned(world, "n0")
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    world.kube.change_node("n0", unschedulable=True)
    world.settle(binder)
    assert [one[:2] for one in leaked(world.kube)] == ["D3", "D7"]


@pytest.mark.parametrize("first", ["plugin", "n0"])
def test_a_node_with_a_device_plugin_gives_its_own_and_no_claim_is_made(first: str) -> None:
    world = requesting_world()
    world.kube.change_node("n0", unschedulable=True)
    binder, _ = planned(world, *dict.fromkeys((first, "plugin")))
    world.settle(binder)
    assert world.node_of("p") == "plugin"
    assert (made_for(world.kube, "p"), told(world)) == ([], "")
    bound_and_clean(world, "plugin")


def test_a_pod_that_was_told_of_a_claim_and_goes_to_a_device_plugin_is_told_that_none_serves_it() -> None:
    world = requesting_world()
    binder, _ = planned(world, "n0")
    heard = bound_with_fault(world, binder, "bind", "drop_request")
    assert told(world)
    world.kube.change_node("n0", unschedulable=True)
    world.watch(binder)
    world.tell(binder, heard)
    world.settle(binder)
    assert made_for(world.kube, "p") == []
    world.send(binder, world.plan(("p", "plugin")))
    world.settle(binder)
    assert told(world) == ""
    bound_and_clean(world, "plugin")


def put_theirs(world: World) -> str:
    """A claim of somebody else's, allocated for somebody else, by the name of that for ``p``; its key."""
    name = claim_name("p", world.uid("p"))
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
    theirs = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    world.kube.put_object(DEVICE_CLAIMS, theirs)
    return f"default/{name}"


@pytest.mark.parametrize("when", ["planned", "committed", "being written"])
@pytest.mark.parametrize("allocated", [False, True])
def test_a_claim_that_somebody_else_has_by_that_name_refuses_the_pod_with_the_remedy(
    when: str, *, allocated: bool
) -> None:
    world = requesting_world()

    def put() -> str:
        key = put_theirs(world)
        if not allocated:
            world.kube.put_object(DEVICE_CLAIMS, {**world.kube.objects["resourceclaims"][key], "status": {}})
        return key

    key = put() if when == "planned" else ""
    binder, request = planned(world, "n0")
    if when == "committed":
        until(world, binder, Commit)
        key = put()
        world.watch(binder)
    elif when == "being written":
        until(world, binder, WriteClaim)
        key = put()
    world.settle(binder)
    [result] = binder.answers[request].results
    assert (result.outcome, world.node_of("p"), told(world)) == (Outcome.REFUSED, "", "")
    assert "was not made for pod" in result.reason
    assert "delete it" in result.reason
    assert bool(world.kube.objects["resourceclaims"][key]["status"]) == allocated  # nothing was done to it
    assert not world.intents()
    world.kube.drop_object(DEVICE_CLAIMS, key)
    world.watch(binder)
    world.send(binder, world.plan(("p", "n0")))
    world.settle(binder)
    bound_and_clean(world)


def test_a_pod_whose_claims_name_is_taken_goes_to_a_device_plugin() -> None:
    world = requesting_world()
    put_theirs(world)
    binder, _ = planned(world, "n0", "plugin")
    world.settle(binder)
    assert (world.node_of("p"), told(world)) == ("plugin", "")


def held_back(world: World, binder: Binder) -> None:
    """The Binding that is next is refused for now: its unit waits, committed."""
    bind = until(world, binder, Bind)
    binder.effects.remove(bind)
    world.tell(binder, BindingRefused(world.uid("p"), bind.attempt, 429, "too many requests", 0.1))


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("node", ["n0", "plugin", "n1"])
def test_a_claim_that_comes_late_ends_the_attempt_that_needs_another_and_no_term(node: str, first: int) -> None:
    """``first``: how many devices it asks for, where the pod needs one."""
    world = requesting_world()
    binder, _ = planned(world, "n0")
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim, fault="late")
    world.kube.change_node("n0", unschedulable=True)
    world.settle(binder)
    assert made_for(world.kube, "p") == []
    world.kube.change_node("n0", unschedulable=False)
    world.watch(binder)
    request = world.send(binder, world.plan(("p", node)))
    if node == "plugin":
        held_back(world, binder)
    else:
        until(world, binder, Commit)
        world.run(binder, Commit)
    [late] = world.api.delayed
    late()
    [claim] = made_for(world.kube, "p")
    if first != 1:
        claim = copy(claim)
        claim["spec"]["devices"]["requests"][0]["exactly"]["count"] = first
        world.kube.put_object(DEVICE_CLAIMS, claim)
    world.watch(binder)
    world.pass_time(binder, 1.0)
    world.settle(binder)
    assert not binder.stopped
    if (node, first) in (("n0", 1), ("n1", 1)):
        bound_and_clean(world, node)
        return
    [result] = binder.answers[request].results
    assert (result.outcome, world.node_of("p")) == (Outcome.CONFLICT, "")
    for key in list(world.kube.objects["resourceclaims"]):  # as the coordinator does where no node takes the pod
        world.kube.drop_object(DEVICE_CLAIMS, key)
    world.watch(binder)
    world.send(binder, world.plan(("p", "n0")))
    world.settle(binder)
    bound_and_clean(world)


def test_a_pod_is_not_bound_with_a_claim_that_somebody_deletes_before_the_binding() -> None:
    world = requesting_world()
    binder, request = planned(world, "n0")
    held_back(world, binder)
    [claim] = made_for(world.kube, "p")
    world.kube.delete_claim(f"default/{claim['metadata']['name']}", claim["metadata"]["uid"], "")
    world.watch(binder)
    world.pass_time(binder, 1.0)
    world.settle(binder)
    [result] = binder.answers[request].results
    assert (result.outcome, world.node_of("p")) == (Outcome.CONFLICT, "")
    assert "is being deleted" in result.reason
    assert made_for(world.kube, "p") == []
    world.send(binder, world.plan(("p", "n0")))
    world.settle(binder)
    bound_and_clean(world)


def test_a_claim_that_goes_before_the_answer_about_it_comes_is_made_again() -> None:
    world = requesting_world()
    binder, _ = planned(world, "n0")
    order = until(world, binder, WriteClaim)
    binder.effects.remove(order)
    answer = world.carry_out(order)
    assert answer is not None
    world.watch(binder)
    world.kube.drop_object(DEVICE_CLAIMS, order.key)
    world.watch(binder)
    world.pass_time(binder, 1.0)
    world.tell(binder, answer)
    world.settle(binder)
    bound_and_clean(world)


def test_an_api_server_that_does_not_keep_what_the_pod_is_told_has_no_such_pod_bound() -> None:
    world = requesting_world()
    world.kube.drops_extended = True  # the gate DRAExtendedResource is off
    binder, request = planned(world, "n0")
    world.settle(binder)
    [result] = binder.answers[request].results
    assert (result.outcome, world.node_of("p")) == (Outcome.REFUSED, "")
    assert "--feature-gates=DRAExtendedResource=true" in result.reason
    assert made_for(world.kube, "p") == []
    assert not world.intents()
    world.send(binder, world.plan(("p", "plugin")))  # what a device plugin gives needs no claim
    world.settle(binder)
    bound_and_clean(world, "plugin")


@pytest.mark.parametrize("kind", [WriteClaim, ReleaseClaim, Bind])
def test_who_may_not_lead_any_more_makes_no_claim_deletes_none_and_tells_no_pod(
    kind: type[WriteClaim | ReleaseClaim | Bind], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = requesting_world()
    binder, _ = planned(world, "n0")
    if kind is ReleaseClaim:
        until(world, binder, WriteClaim)
        world.run(binder, WriteClaim)
        world.kube.change_node("n0", unschedulable=True)
    until(world, binder, kind)
    before = copy(made_for(world.kube, "p"))
    monkeypatch.setattr(AlwaysValid, "is_valid", lambda *_: False)
    with pytest.raises(LeadershipLost, match="the lease may have ended"):
        world.run(binder, kind)
    assert (made_for(world.kube, "p"), told(world), world.node_of("p")) == (before, "", "")


@pytest.mark.parametrize("fault_at", [0, 1, 2])
def test_what_a_paused_leader_has_read_it_deletes_no_more_once_its_successor_has_gone_on(fault_at: int) -> None:
    world = requesting_world()
    binder, _ = planned(world, "n0")
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    world.kube.change_node("n0", unschedulable=True)
    order = until(world, binder, ReleaseClaim)
    world.fault_at = fault_at
    world.carry_out(order, fault="late")  # it has read, and was valid then
    world.kube.change_node("n0", unschedulable=False)
    binder = killed(world, binder)
    world.settle(binder)
    if not world.node_of("p"):
        world.send(binder, world.plan(("p", "n0")))
        world.settle(binder)
    for write in world.api.delayed:
        with pytest.raises(Exception, match=r"precondition|not found"):
            write()
    assert len(world.api.delayed) == (fault_at < 2)  # there are two writes
    bound_and_clean(world)


def test_a_claim_that_somebody_elses_finalizer_keeps_is_left_without_devices() -> None:
    world = requesting_world()
    binder, _ = planned(world, "n0")
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    claim = copy(made_for(world.kube, "p")[0])
    claim["metadata"]["finalizers"].append("example.com/theirs")
    world.kube.put_object(DEVICE_CLAIMS, claim)
    world.kube.change_node("n0", unschedulable=True)
    world.settle(binder)
    [claim] = made_for(world.kube, "p")
    assert claim["metadata"]["finalizers"] == ["example.com/theirs"]
    assert (devices_of(claim), claim["status"].get("reservedFor", [])) == ([], [])
    assert not binder.core.state.devices.inventory.usage.exclusive
    assert not world.intents()


def test_a_claim_that_goes_while_the_pod_is_on_its_way_is_made_again() -> None:
    world = requesting_world()
    binder, _ = planned(world, "n0")
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    [claim] = made_for(world.kube, "p")
    world.kube.drop_object(DEVICE_CLAIMS, f"default/{claim['metadata']['name']}")
    world.settle(binder)
    assert [one["metadata"]["uid"] != claim["metadata"]["uid"] for one in made_for(world.kube, "p")] == [True]
    bound_and_clean(world)


def test_a_plan_is_not_judged_before_the_classes_are_listed_unless_the_node_offers_the_resource() -> None:
    world = requesting_world()
    world.kube.drop_object(CLASSES, "gpu")
    add_requesting(world.kube, "q")
    binder = world.start_binder()
    world.tell(binder, PositionLost("deviceclasses"))
    world.send(binder, world.plan(("p", "n0")))
    world.send(binder, world.plan(("q", "plugin")))
    assert until(world, binder, Bind).request.name == "q"
    assert binder.core.state.in_flight[world.uid("p")].stage is BindingStage.AWAITED
    add_class(world.kube, resource=RESOURCE)
    world.watch(binder)
    world.tell(binder, Listed("deviceclasses"))
    world.settle(binder)
    bound_and_clean(world)


def test_a_pod_is_not_bound_where_no_class_stands_for_its_resource_any_more_and_its_claim_goes() -> None:
    world = requesting_world()
    binder, request = planned(world, "n0")
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    add_class(world.kube)
    world.settle(binder)
    [result] = binder.answers[request].results
    assert result.outcome == Outcome.CONFLICT
    assert "no device class stands for its extended resources any more" in result.reason
    assert made_for(world.kube, "p") == []
    assert not world.intents()


def test_a_node_that_gets_a_device_plugin_while_its_pod_is_on_its_way_gives_its_own_at_the_next_attempt() -> None:
    world = requesting_world()
    binder, request = planned(world, "n0")
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    node = copy(world.kube.nodes["n0"])
    node["status"]["allocatable"][RESOURCE] = "1"
    world.kube._store_node(node)
    world.settle(binder)
    [result] = binder.answers[request].results
    assert result.outcome == Outcome.CONFLICT
    assert made_for(world.kube, "p") == []
    world.send(binder, world.plan(("p", "n0")))
    world.settle(binder)
    assert (world.node_of("p"), told(world), made_for(world.kube, "p")) == ("n0", "", [])


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("node", ["n0", "plugin"])
def test_a_pod_that_somebody_else_binds_leaves_the_claim_that_was_made_for_it(node: str, *, dies: bool) -> None:
    world = requesting_world()
    binder, request = planned(world, "n0")
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    world.kube.bind_elsewhere("p", node)
    if dies:
        binder = killed(world, binder)
    world.settle(binder)
    world.pass_time(binder, 30.0)
    world.settle(binder)
    if not dies:
        [result] = binder.answers[request].results
        assert result.node == node
    assert made_for(world.kube, "p") == []
    assert not world.intents()


def test_a_gang_whose_minimum_a_made_claim_breaks_leaves_no_claim() -> None:
    world = requesting_world()
    add_requesting(world.kube, "q")
    control_claims(world.kube)
    binder = world.start_binder()
    world.send(binder, world.gang(("p", "n0"), ("q", "n1"), at_least=2))
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim)
    other = copy(made_for(world.kube, "p")[0]) if made_for(world.kube, "p") else copy(made_for(world.kube, "q")[0])
    assert devices_of(other)
    for node in ("n0", "n1"):
        world.kube.change_node(node, unschedulable=True)
    world.settle(binder)
    assert (made_for(world.kube, "p"), made_for(world.kube, "q")) == ([], [])
    assert not world.intents()


@pytest.mark.parametrize(
    ("fault", "made", "failed"), [("ok", 1.0, None), ("drop_request", 1.0, 1.0), ("drop_reply", None, 1.0)]
)
def test_claims_that_are_made_are_counted_by_what_came_of_the_request(
    fault: str, made: float | None, failed: float | None
) -> None:
    """One that is there already, since the answer was lost, is not made once more."""
    metrics, world = Metrics("binder"), requesting_world()
    world.api_calls._claim_created = DeviceMetrics(metrics, profile="conclave").created
    binder, _ = planned(world, "n0")
    until(world, binder, WriteClaim)
    world.run(binder, WriteClaim, fault=fault)
    world.settle(binder)
    bound_and_clean(world)

    def counted(status: str) -> float | None:
        return metrics.registry.get_sample_value("scheduler_resourceclaim_creates_total", {"status": status})

    assert (counted("success"), counted("failure")) == (made, failed)
