"""What nominated pods hold, moved by each that comes and goes, is what counting all of them anew gives."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from msgspec.structs import replace

from shared.model.constraints import HostPort, PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.resources import GPU_MILLI
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.groups.trial import Trial
from shared.scheduling.groups.tried_members import TriedMembers
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.room.nominated_room import NominatedPods, apart
from tests.unit.shared.scheduling.groups.gangs import member

CLASSES = [
    PodClass(requests=(("cpu", 500),)),
    PodClass(requests=(("cpu", 1000), ("memory", 1 << 20))),
    PodClass(requests=(("cpu", 100),), host_ports=(HostPort(80, "TCP", ""),)),
    PodClass(requests=((GPU_MILLI, 500),)),
]


def nominated(rng: Random, number: int, nodes: int) -> Pod:
    pod = member(f"p{number}", priority=rng.choice([0, 5, 9]))
    return replace(pod, pod_class=rng.choice(CLASSES), nominated_node=f"n{rng.randrange(nodes)}", group="")


def naive(state: ClusterState, priority: int) -> tuple[Counter[tuple[PodClass, str]], set[str]]:
    """Those in sums by class and node, and those apart."""
    sums, alone = Counter[tuple[PodClass, str]](), set[str]()
    for node, pods in state.nominated.items():
        for pod in pods.values() if node in state.table.row_of else ():
            if pod.priority < priority:
                continue
            if apart(pod.pod_class):
                alone.add(pod.uid)
            else:
                sums[pod.pod_class, node] += 1
    return sums, alone


def kept(state: ClusterState, priority: int) -> tuple[Counter[tuple[PodClass, str]], set[str]]:
    held = state.held_for(priority)
    assert all(held.copies.values()), "classes that nobody is of any more are forgotten"
    found = Counter(
        {
            (pod_class, state.table.names[row]): count
            for pod_class, copies in held.copies.items()
            for row, count in copies.items()
        }
    )
    return found, {pod.uid for pods in held.apart.values() for pod in pods}


@pytest.mark.parametrize("seed", range(5))
def test_what_is_kept_is_what_counting_anew_gives(seed: int) -> None:
    rng, state = Random(seed), ClusterState()
    for number in range(6):
        state.upsert_node(Node(name=f"n{number}", allocatable={"pods": 110, "cpu": 9000}))
    for step in range(300):
        match rng.randrange(12):
            case 0:
                state.remove_node(f"n{rng.randrange(8)}")
            case 1:
                state.upsert_node(Node(name=f"n{rng.randrange(8)}", allocatable={"pods": 110, "cpu": 9000}))
            case 2 | 3 | 4:
                state.withdraw_nomination(f"p{rng.randrange(40)}")
            case _:
                state.nominate(nominated(rng, rng.randrange(40), 8))
        if step % 3 == 0:
            for priority in (0, 5, 10):
                assert kept(state, priority) == naive(state, priority)


@pytest.mark.parametrize("seed", range(5))
def test_a_gang_yields_to_all_of_them_but_its_own_members(seed: int) -> None:
    rng, state = Random(seed), ClusterState()
    for number in range(4):
        state.upsert_node(Node(name=f"n{number}", allocatable={"pods": 110, "cpu": 90_000, GPU_MILLI: 4000}))
    for number in range(30):
        state.nominate(nominated(rng, number, 5))
    pods = [replace(member(f"m{number}", 500, priority=5), nominated_node=f"n{number}") for number in range(3)]
    for pod in pods:
        state.nominate(pod)
    tried = TriedMembers(state, [*pods, member("m3", 500, priority=5)])
    trial = Trial.of(tried, FeasibilityCache(state.table))
    for name in ("cpu", "memory", "pods"):
        free, asked = trial.free(name), Counter[str]()
        for node, there in state.nominated.items():
            for pod in there.values():
                if pod.priority >= 5 and pod.uid[0] == "p":
                    asked[node] += 1 if name == "pods" else dict(pod.pod_class.requests).get(name, 0)
        if free is None:
            continue
        for node, row in state.table.row_of.items():
            whole = {"cpu": 90_000, "pods": 110}.get(name, 0)
            assert free[row] == whole - asked[node]


def test_one_nomination_more_costs_its_node_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, state, looked_at = Random(0), ClusterState(), list[str]()
    for number in range(200):
        state.upsert_node(Node(name=f"n{number}", allocatable={"pods": 110, "cpu": 9000}))
        state.nominate(nominated(rng, number, 200))
    state.held_for(0)
    put = NominatedPods.put
    monkeypatch.setattr(
        NominatedPods, "put", lambda held, node, *more: (looked_at.append(node), put(held, node, *more))
    )
    state.nominate(replace(nominated(rng, 1000, 200), nominated_node="n7"))
    state.held_for(0)
    state.held_for(0)
    assert looked_at == ["n7"]
