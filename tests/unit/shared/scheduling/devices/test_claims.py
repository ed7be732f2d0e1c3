"""The claims of a pod before and after they are allocated: what PreEnqueue, PreFilter, Filter and PostFilter say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.model.constraints import Requirement, SelectorTerm
from shared.model.devices import (
    AllocatedDevice,
    Allocation,
    ClaimRef,
    Consumer,
    DeviceClaim,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    TaintRule,
)
from shared.model.node import Node
from shared.model.units.pod_group import GroupSource, PodGroup
from shared.scheduling.devices.claims import held_by, holders
from shared.scheduling.devices.dynamic_resources import PodDevices, Unblock, before_queueing
from shared.scheduling.framework import Code, Rejection
from tests.unit.shared.scheduling.devices.builders import (
    DRIVER,
    NODE,
    allocated,
    ask,
    claim,
    cluster,
    device,
    local,
    outcome,
    pod,
    prepared,
)

MINE = replace(claim(ask()), owner="uid-pod")
TEMPLATED = ClaimRef("g", "c", "t")
GROUP = Consumer("gang", "uid-gang", group=True)
OF_GROUP = replace(TEMPLATED, holder=GROUP)


@pytest.mark.parametrize(
    ("ref", "there", "why"),
    [
        (ClaimRef("g", "c"), None, 'could not find ResourceClaim "default/c"'),
        (ClaimRef("g", "c"), replace(MINE, deleting=True), 'resourceclaim "c" is being deleted'),
        (ClaimRef("g", None, "t"), MINE, 'pod "default/pod": ResourceClaim not created yet'),
        (
            TEMPLATED,
            replace(MINE, owner="other"),
            "ResourceClaim default/c was not created for Pod default/pod (Pod is not owner)",
        ),
        (
            ClaimRef("g", sourceless=True),
            MINE,
            'pod "default/pod", spec.resourceClaim "g": none of the supported fields are set',
        ),
        (TEMPLATED, MINE, ""),
        (ClaimRef("g", "", "t"), None, ""),
        (OF_GROUP, replace(MINE, owner="uid-gang"), ""),
        (OF_GROUP, MINE, ""),
        (
            TEMPLATED,
            replace(MINE, owner="uid-gang"),
            "ResourceClaim default/c was not created for Pod default/pod (Pod is not owner)",
        ),
        (
            OF_GROUP,
            replace(MINE, owner="uid-of-a-gang-before"),
            "ResourceClaim default/c was not created for Pod default/pod (neither Pod nor PodGroup gang is the owner)",
        ),
    ],
)
def test_a_pod_whose_claim_is_not_its_own_is_not_queued(ref: ClaimRef, there: DeviceClaim | None, why: str) -> None:
    devices = cluster(local(device("d0")), *(() if there is None else (there,)))
    asking = replace(pod(), claims=(ref,))
    refused = before_queueing(asking, devices.inventory)
    assert (refused.reasons[0] if refused is not None else "") == why
    if why:
        assert devices.prepare(asking, 0.0) == refused


@pytest.mark.parametrize(
    ("of_pod", "of_group", "shared"),
    [
        (ClaimRef("g", "c"), ClaimRef("g", "c"), True),
        (ClaimRef("g", "c"), ClaimRef("g", "d"), False),
        (ClaimRef("g", "c"), ClaimRef("h", "c"), False),
        (ClaimRef("g", "made-1", "t"), ClaimRef("g", None, "t"), True),
        (ClaimRef("g", None, "t"), ClaimRef("g", None, "t"), True),  # not made yet
        (ClaimRef("g", "made-1", "t"), ClaimRef("g", None, "u"), False),
        (ClaimRef("g", "c", "t"), ClaimRef("g", "c"), False),
        (ClaimRef("g", "c"), ClaimRef("g", None, "c"), False),
        (ClaimRef("g", sourceless=True), ClaimRef("g", "c"), False),
    ],
)
def test_a_claim_is_the_groups_where_pod_and_group_say_the_same_of_it(
    of_pod: ClaimRef, of_group: ClaimRef, *, shared: bool
) -> None:
    group = PodGroup("podgroup:default/gang", GroupSource.NATIVE, "default", "gang", uid="uid-gang", claims=(of_group,))
    asking = replace(pod(), claims=(of_pod, ClaimRef("own", "e")))
    found = held_by(asking, group, {})
    assert found.claims == (replace(of_pod, holder=GROUP) if shared else of_pod, ClaimRef("own", "e"))
    name = f"default/{of_pod.claim}"
    assert holders(found) == ({name: GROUP} if shared and of_pod.claim else {})


@pytest.mark.parametrize(("owner", "shared"), [("uid-pod", False), ("uid-gang", True), ("", True)])
def test_a_claim_that_was_made_for_the_pod_is_the_pods_whatever_its_group_says(owner: str, shared: bool) -> None:
    """A controller that knows nothing of claims of groups makes one for each pod."""
    group = PodGroup(
        "podgroup:default/gang", GroupSource.NATIVE, "default", "gang", uid="uid-gang", claims=(TEMPLATED,)
    )
    asking = replace(pod(), claims=(TEMPLATED,))
    found = held_by(asking, group, {"default/c": replace(MINE, owner=owner)})
    assert bool(holders(found)) is shared


def test_what_a_group_has_may_be_freed_where_it_is_reserved_for_the_group_alone() -> None:
    has = replace(claim(ask()), allocation=Allocation((), ELSEWHERE), owner="uid-gang")
    for reserved, freed in (((), True), (("uid-gang",), True), (("uid-pod",), False), (("uid-gang", "x"), False)):
        devices = cluster(replace(has, reserved_for=reserved))
        asking = replace(pod(), claims=(replace(OF_GROUP, claim=has.name),))
        found = devices.prepare(asking, 0.0)
        assert isinstance(found, PodDevices)
        assert found.rejection(NODE) is not None
        assert bool(found.unblock().deallocate) is freed


def test_a_pod_without_claims_is_skipped() -> None:
    assert cluster().prepare(pod(), 0.0) is None


@pytest.mark.parametrize(
    ("request_", "code", "why"),
    [
        (DeviceRequest("r", ask(class_name="gone")), Code.UNRESOLVABLE, "request r: device class gone does not exist"),
        (
            DeviceRequest("r", alternatives=(ask("a"), ask("b", class_name="gone"))),
            Code.UNRESOLVABLE,
            "request r/b: device class gone does not exist",
        ),
        (DeviceRequest("r", ask(class_name="")), Code.ERROR, "request r: unsupported request type"),
        (DeviceRequest("r"), Code.UNRESOLVABLE, "resource claim default/c, request r: unknown request type"),
    ],
)
def test_a_class_that_is_not_there_refuses_every_node(request_: DeviceRequest, code: Code, why: str) -> None:
    devices = cluster(local(device("d0")), claim(request_))
    assert devices.prepare(pod(claim(request_)), 0.0) == Rejection("DynamicResources", code, (why,))


TERMS = (SelectorTerm((Requirement("zone", "In", ("a",)),)),)
NOT_AVAILABLE = "UnschedulableAndUnresolvable: resourceclaim not available on the node"


def test_an_allocated_claim_is_usable_where_its_devices_are_and_its_class_and_taints_do_not_count() -> None:
    has = replace(claim(ask(class_name="gone")), allocation=Allocation((), TERMS))
    assert outcome(cluster(), has) == []
    assert outcome(cluster(), has, node=Node("n1", labels={"zone": "b"})) == NOT_AVAILABLE


READY, FAILED = "example.com/ready", "example.com/failed"


def waiting(conditions: dict[str, str] | None, at: float | None = 1000.0) -> DeviceClaim:
    result = AllocatedDevice("r", DRIVER, "n0", "d0", bound_on=(READY,), failed_on=(FAILED,))
    told = {} if conditions is None else {result.id: conditions}
    return replace(claim(ask()), allocation=Allocation((result,), at=at), conditions=told)


@pytest.mark.parametrize(
    ("one", "now", "usable"),
    [
        (waiting({READY: "True"}), 5000.0, True),
        (waiting({READY: "True", FAILED: "True"}), 1000.0, False),
        (waiting({READY: "True", FAILED: "False"}), 5000.0, True),
        (waiting({READY: "False"}), 1600.0, True),
        (waiting({READY: "False"}), 1600.1, False),
        (waiting(None), 1600.0, True),
        (waiting(None), 1601.0, False),
        (waiting(None, at=None), 9e9, True),
    ],
)
def test_devices_have_ten_minutes_to_be_bound_unless_they_say_that_they_never_will(
    one: DeviceClaim, now: float, usable: bool
) -> None:
    assert (prepared(cluster(), one, now=now).rejection(NODE) is None) is usable


ELSEWHERE = (SelectorTerm(fields=(Requirement("metadata.name", "In", ("n9",)),)),)


@pytest.mark.parametrize(
    ("reserved", "freed"),
    [((), True), (("uid-pod",), True), (("other",), False), (("uid-pod", "other"), False)],
)
def test_an_allocation_that_bars_every_node_is_dropped_where_it_takes_nothing_from_others(
    reserved: tuple[str, ...], freed: bool
) -> None:
    has = replace(claim(ask()), allocation=Allocation((), ELSEWHERE), reserved_for=reserved)
    found = prepared(cluster(), has)
    assert found.unblock() == Unblock("still not schedulable")  # no node was looked at
    assert found.rejection(NODE) is not None
    expected = Unblock("deallocation of ResourceClaim completed", (has,)) if freed else Unblock("still not schedulable")
    assert found.unblock() == expected


def test_an_allocation_is_kept_where_the_pods_other_claim_could_not_be_allocated_either() -> None:
    has = replace(claim(ask(), name="a"), allocation=Allocation((), ELSEWHERE))
    found = prepared(cluster(), has, claim(ask(), name="b"))
    assert "cannot allocate" in str(found.rejection(NODE))
    assert found.unblock().deallocate == ()


def test_earlier_alternatives_score_more_and_allocated_ones_count_beside_what_is_to_be_allocated() -> None:
    choice = DeviceRequest("r", alternatives=(ask("big", 9), ask("small")))
    taken = Allocation((AllocatedDevice("r/big", DRIVER, "n0", "other"),))
    devices = cluster(local(device("d0")))
    assert prepared(devices, claim(choice, name="a")).score(NODE) == 7
    has = replace(claim(choice, name="b"), allocation=taken)
    assert prepared(devices, claim(choice, name="a"), has).score(NODE) == 7 + 8
    assert prepared(devices, has).score(NODE) == 0


BAD = DeviceTaint("bad", "yes", "NoSchedule")


@pytest.mark.parametrize(
    ("selects", "touched"),
    [
        (None, False),
        (("", "", ""), True),
        ((DRIVER, "", ""), True),
        (("other.example.com", "", ""), False),
        (("", "n0", "d0"), True),
        (("", "n0", "d1"), False),
    ],
)
def test_a_taint_rule_touches_what_it_selects_and_nothing_without_a_selector(
    selects: tuple[str, str, str] | None, touched: bool
) -> None:
    devices = cluster(local(device("d0")))
    wanted, tolerant = claim(ask()), claim(ask(tolerations=(DeviceToleration("bad", "Equal", "yes"),)), name="t")
    assert outcome(devices, wanted) == ["d0"]
    devices.inventory.put_taint_rule(TaintRule("rule", BAD, selects))
    assert isinstance(outcome(devices, wanted), str) is touched
    assert outcome(devices, tolerant) == ["d0"]
    devices.inventory.put_slice(local(device("d0"), generation=2))
    assert isinstance(outcome(devices, wanted), str) is touched
    devices.inventory.remove_taint_rule("rule")
    assert outcome(devices, wanted) == ["d0"]


def test_a_claim_that_changes_hands_or_goes_frees_what_it_had() -> None:
    devices = cluster(local(device("d0"), device("d1")))
    wanted = claim(ask())
    devices.inventory.put_claim(allocated("d0"))
    assert outcome(devices, wanted) == ["d1"]
    devices.inventory.put_claim(allocated("d1"))
    assert outcome(devices, wanted) == ["d0"]
    devices.inventory.put_claim(replace(allocated("d1"), allocation=None))
    assert outcome(devices, claim(ask(count=2), name="two")) == ["d0", "d1"]
    devices.inventory.put_claim(allocated("d0"))
    devices.inventory.remove_claim("default/used")
    assert outcome(devices, wanted) == ["d0"]


def test_two_claims_that_hold_one_device_free_it_together() -> None:
    devices = cluster(local(device("d0")), allocated("d0", name="a"), allocated("d0", name="b"))
    devices.inventory.remove_claim("default/a")
    assert isinstance(outcome(devices, claim(ask())), str)
    devices.inventory.remove_claim("default/b")
    assert outcome(devices, claim(ask())) == ["d0"]
