"""DynamicResources over all nodes says what it says node by node."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

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
from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.devices.claimed import ClaimedDevices
from shared.scheduling.devices.rule import DynamicResources, prepare
from shared.scheduling.framework import Code
from shared.scheduling.state.cluster_state import ClusterState

NODES = 24
ASKS = (
    DeviceAsk("r", "any"),
    DeviceAsk("r", "any", count=2),
    DeviceAsk("r", "any", mode="All"),
    DeviceAsk("r", "any", selectors=("device.attributes['d'].size > 1",)),
)


def random_cluster(rng: Random) -> tuple[ClusterState, ClaimedDevices]:
    state = ClusterState()
    devices = state.devices = ClaimedDevices(state.table)
    devices.put("deviceclasses", "any", DeviceClass("any"))
    for number in range(NODES):
        state.upsert_node(Node(f"n{number}", labels={"zone": rng.choice("ab")}, allocatable={"pods": 110}))
        here = tuple(Device(f"g{i}") for i in range(rng.randrange(4)))
        parts = rng.choice((1, 1, 1, 2))  # of two parts only one is there: the pool is incomplete
        devices.put("resourceslices", f"s{number}", DeviceSlice(
            name=f"s{number}", driver="d", pool=f"n{number}", generation=1, count=parts, reach=Reach(f"n{number}"),
            devices=here,
        ))  # fmt: skip
        if here and rng.random() < 0.5:
            given = Allocation((AllocatedDevice("r", "d", f"n{number}", "g0"),))
            devices.put("resourceclaims", f"d/used{number}", DeviceClaim("d", f"used{number}", "u", allocation=given))
    for number in range(3, NODES, 7):
        state.remove_node(f"n{number}")
    return state, devices


def random_pod(rng: Random, devices: ClaimedDevices, uid: str) -> Pod:
    names = []
    if rng.random() < 0.7:
        names.append(f"own-{uid}")
        request = DeviceRequest("r", rng.choice(ASKS))
        devices.put("resourceclaims", f"d/own-{uid}", DeviceClaim("d", f"own-{uid}", uid, (request,), owner=uid))
    if not names or rng.random() < 0.4:
        names.append("shared")
        in_zone = SelectorTerm(expressions=(Requirement("zone", "In", ("a",)),))
        on_node = SelectorTerm(fields=(Requirement("metadata.name", "In", ("n5",)),))
        given = Allocation(
            (AllocatedDevice("r", "e", "net", "g"),), terms=rng.choice((None, (in_zone,), (on_node, in_zone)))
        )
        devices.put("resourceclaims", "d/shared", DeviceClaim("d", "shared", "s", allocation=given))
    asks = DevicePod("d", uid, uid, tuple(ClaimRef(name, name) for name in names))
    return Pod(uid, "d", uid, "", PodClass(), asks=asks)


@pytest.mark.parametrize("seed", range(40))
def test_mask_tally_and_failures_are_those_of_each_node(seed: int) -> None:
    rng = Random(seed)
    state, devices = random_cluster(rng)
    for number in range(4):
        pod = random_pod(rng, devices, f"p{number}")
        rule, singly = prepare(state, pod), prepare(state, pod)
        assert isinstance(rule, DynamicResources)
        assert isinstance(singly, DynamicResources)
        rows = state.table.live_rows()
        verdicts = {row: singly.verdict(row) for row in rows.tolist()}
        refused = [row for row, verdict in verdicts.items() if verdict is not None]
        failing = [verdict for verdict in verdicts.values() if verdict is not None and verdict[0] is Code.ERROR]
        everywhere = np.ones(state.table.rows, np.bool_)
        assert rule.fails(everywhere) == bool(failing)
        assert np.flatnonzero(rule.mask()).tolist() == [row for row in verdicts if row not in refused]
        reasons = Counter(reason for row in refused for reason in (verdicts[row] or (None, ()))[1])
        assert rule.tally(np.array(refused, np.int64)) == dict(reasons)
        taking = next((row for row in verdicts if row not in refused), None)
        if taking is not None:
            state.assume(pod, state.table.names[taking], 0.0)
