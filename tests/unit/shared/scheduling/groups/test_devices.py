"""Members of a gang that claim devices: what one is given in a trial the next does not get."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from shared.model.constraints import PodClass, Requirement, SelectorTerm
from shared.model.devices import (
    AllocatedDevice,
    Allocation,
    ClaimRef,
    Device,
    DeviceAsk,
    DeviceClaim,
    DeviceClass,
    DevicePod,
    DeviceRequest,
    DeviceSlice,
    Reach,
)
from shared.model.pod import Pod
from shared.scheduling.cycle.prefilter import prefilter
from shared.scheduling.devices.claimed import ClaimedDevices
from shared.scheduling.devices.rule import DynamicResources
from shared.scheduling.state.cluster_state import ClusterState
from tests.unit.shared.scheduling.groups.gangs import KEY, attempt, cpus, gang


def cluster(local: list[int], net: int = 0) -> tuple[ClusterState, ClaimedDevices]:
    """Nodes with so many devices each, and so many that all nodes see."""
    state = cpus(**{f"n{number}": 64_000 for number in range(len(local))})
    devices = state.devices = ClaimedDevices(state.table)
    devices.put("deviceclasses", "any", DeviceClass("any"))
    pools = {f"n{number}": (count, Reach(f"n{number}")) for number, count in enumerate(local)}
    for pool, (count, reach) in (pools | {"net": (net, Reach(all_nodes=True))}).items():
        devices.put("resourceslices", pool, DeviceSlice(
            name=pool, driver="d", pool=pool, generation=1, count=1, reach=reach,
            devices=tuple(Device(f"g{number}") for number in range(count)),
        ))  # fmt: skip
    return state, devices


def member(devices: ClaimedDevices, name: str, count: int = 1, *, shared: str = "") -> Pod:
    own = f"own-{name}"
    request = DeviceRequest("r", DeviceAsk("r", "any", count=count))
    devices.put("resourceclaims", f"d/{own}", DeviceClaim("d", own, f"uid-{own}", (request,), owner=name))
    refs = (ClaimRef("own", own), *((ClaimRef("shared", shared),) if shared else ()))
    pod_class = PodClass(requests=(("cpu", 100),))
    return devices.described(Pod(name, "d", name, "", pod_class, group=KEY, asks=DevicePod("d", name, name, refs)))


@pytest.mark.parametrize("seed", range(60))
def test_so_many_members_are_placed_as_there_are_devices_for_and_the_live_accounting_takes_them(seed: int) -> None:
    rng = Random(seed)
    local = [rng.randrange(4) for _ in range(rng.randrange(1, 7))]
    state, devices = cluster(local, rng.randrange(3))
    free = sum(local) + len(devices.inventory.published(("d", "net")))
    pods = [member(devices, f"m{number}") for number in range(rng.randrange(1, 12))]
    before = devices.version
    found = attempt(state, gang(len(pods)), pods)
    assert len(found.nodes) == min(len(pods), free)
    assert found.reached == (len(pods) <= free)
    assert (devices.version, devices.inventory.usage.exclusive.total()) == (before, 0)
    for uid, node in found.nodes.items():
        pod = next(pod for pod in pods if pod.uid == uid)
        assert devices.assume(pod, node, 0.0) == ""


@pytest.mark.parametrize("seed", range(40))
def test_members_that_ask_differently_get_what_the_live_accounting_gives(seed: int) -> None:
    rng = Random(seed)
    state, devices = cluster([rng.randrange(6) for _ in range(4)], rng.randrange(3))
    devices.put("resourceclaims", "d/s", DeviceClaim("d", "s", "uid-s", (DeviceRequest("r", DeviceAsk("r", "any")),)))
    pods = [member(devices, f"m{n}", rng.randrange(1, 4), shared=rng.choice(("", "s"))) for n in range(6)]
    found = attempt(state, gang(len(pods)), pods)
    by_uid = {pod.uid: pod for pod in pods}
    for uid, node in found.nodes.items():
        assert devices.assume(by_uid[uid], node, 0.0) == ""
    assert list(devices.validate()) == []


def test_a_member_whose_claim_is_shared_follows_the_first_where_that_is_allocated() -> None:
    state, devices = cluster([4, 4, 9])
    shared = DeviceClaim("d", "s", "uid-s", (DeviceRequest("r", DeviceAsk("r", "any")),))
    devices.put("resourceclaims", "d/s", shared)
    pods = [member(devices, f"m{number}", shared="s") for number in range(3)]
    found = attempt(state, gang(3), pods)
    assert (found.reached, len(set(found.nodes.values()))) == (True, 1)
    terms = (SelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)),)
    given = Allocation((AllocatedDevice("r", "d", "n1", "g0"),), terms=terms)
    devices.put("resourceclaims", "d/s", replace(shared, allocation=given, resource_version="2"))
    assert set(attempt(state, gang(3), pods).nodes.values()) == {"n1"}
    more = [*pods, member(devices, "m3", shared="s")]
    assert len(attempt(state, gang(4), more).nodes) == 3  # all that is left there


def test_what_is_taken_back_in_a_trial_is_free_there_and_a_copy_goes_its_own_way() -> None:
    state, devices = cluster([1])
    first, second = member(devices, "a"), member(devices, "b")
    [rule] = prefilter(state, second).rules
    assert isinstance(rule, DynamicResources)
    trial = rule.of_members(frozenset("ab"))
    trial.adjust(first, 0, 1)
    other = trial.copy()
    assert trial.verdict(0) is not None
    trial.adjust(first, 0, -1)
    assert (trial.verdict(0), other.verdict(0) is None, rule.verdict(0)) == (None, False, None)
    other.adjust(member(devices, "stranger"), 0, -1)
    assert other.mask().tolist() == [False]
