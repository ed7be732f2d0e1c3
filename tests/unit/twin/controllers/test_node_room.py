"""The twin's kubelets refuse what their node has no room for, and the audit counts it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import pytest
import uvloop

from lab.audit.audit import Audit
from lab.audit.log import read_entries
from lab.audit.rules import Json
from lab.traces.workload import node_json, pod_json
from tests.patience import PATIENCE_S
from twin.audit import AuditFile
from twin.bootstrap import make_registry
from twin.controllers.kubelet_objects import FAIL_ANNOTATION
from twin.controllers.node_room import NodeRoomController
from twin.model.room import ONE_POD, AdmissionRoom


@pytest.mark.parametrize(
    ("asks", "reason"),
    [
        ({"cpu": 3, "memory": 1}, None),
        ({"cpu": 4}, "OutOfcpu"),
        ({"cpu": 1, "nvidia.com/gpu": 2}, "OutOfnvidia.com/gpu"),
        ({"cpu": 1, "example.com/away": 9}, None),
        ({}, None),
    ],
)
def test_a_kubelet_refuses_by_what_its_node_names(asks: dict[str, int], reason: str | None):
    unit = 10**9
    room = AdmissionRoom({"cpu": 4 * unit, "memory": 8 * unit, "nvidia.com/gpu": unit, "pods": 2 * ONE_POD})
    assert room.lacks("first", {"cpu": unit}) is None
    found = room.lacks("second", {name: amount * unit for name, amount in asks.items()})
    assert (found.reason if found else None) == reason
    if found is None:
        assert room.lacks("third", {}) is not None, "two pods fit"
        room.remove("first")
        assert room.lacks("third", {}) is None
    else:
        assert room.lacks("second", {"cpu": unit}) is None, "who was refused holds nothing"
        assert found.message.endswith(("requested: 4000, used: 1000, capacity: 4000", "used: 0, capacity: 1"))


class Twin:
    """A registry whose kubelets have room for four cpus on each node."""

    def __init__(self) -> None:
        self.registry = make_registry(clock=time.time, rng=Random(1))
        self.rooms = NodeRoomController(self.registry)
        self.changed = asyncio.Event()
        self.registry.subscribe(lambda _: self.changed.set())

    def node(self, **annotations: str) -> None:
        node = node_json("n", {"cpu": "4", "memory": "8Gi", "pods": "110"}, annotations=annotations)
        self.registry.create(self.registry.context("create", "nodes", "", "n"), "nodes", "", node)

    def pod(self, name: str, cpu: str, phase: str = "Pending") -> None:
        pod = pod_json(name, {"cpu": cpu})
        self.registry.create(self.registry.context("create", "pods", "default", name), "pods", "default", pod)
        status = {"phase": phase}
        self.change("pods", name, lambda p: {**p, "spec": {**p["spec"], "nodeName": "n"}, "status": status})

    def change(self, resource: str, name: str, change) -> None:
        namespace = "default" if resource == "pods" else ""
        ctx = self.registry.context("update", resource, namespace, name)
        self.registry.guaranteed_update(ctx, resource, namespace, name, change)

    def told(self, name: str) -> str:
        pod = self.registry.get("pods", "default", name)
        assert pod is not None
        return pod["status"].get("reason") or pod["status"]["phase"]

    async def until(self, name: str, told: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.told(name) != told:
                self.changed.clear()
                await self.changed.wait()


def test_pods_beyond_the_room_of_their_node_fail_for_good_whoever_bound_them(tmp_path: Path):
    file = tmp_path / "audit.jsonl"

    async def scene() -> None:
        twin, writer = Twin(), AuditFile(file)
        twin.registry.subscribe(writer)
        twin.rooms.start()
        twin.node()
        for name in ("a", "b", "c"):
            twin.pod(name, "2")
        await twin.until("c", "OutOfcpu")
        assert [twin.told(name) for name in ("a", "b", "c")] == ["Pending", "Pending", "OutOfcpu"]
        twin.change("pods", "a", lambda p: {**p, "status": {"phase": "Succeeded"}})
        twin.pod("d", "2")
        assert (twin.told("c"), twin.told("d"), dict(twin.rooms.refusals)) == ("OutOfcpu", "Pending", {"OutOfcpu": 1})
        writer.close()

    uvloop.run(scene())
    audit = Audit()
    for entry in read_entries(file.read_bytes().splitlines(keepends=True), file.name):
        audit.feed(entry)
    report = audit.report()
    assert (report.refused_by_kubelets, report.overcommitted_nodes, report.ok) == (1, 1, False), report.examples


def test_what_runs_stays_and_a_kubelet_that_is_down_looks_when_it_is_back():
    async def scene() -> None:
        twin = Twin()
        twin.node(**{FAIL_ANNOTATION: "true"})
        for name, phase in (("late", "Pending"), ("runs", "Running"), ("too", "Running")):
            twin.pod(name, "3", phase)
        twin.rooms.start()
        assert twin.rooms.refusals == {}
        twin.change("nodes", "n", lambda n: {**n, "metadata": {**n["metadata"], "annotations": annotations(n)}})
        await twin.until("late", "OutOfcpu")
        assert [twin.told(name) for name in ("late", "runs", "too")] == ["OutOfcpu", "Running", "Running"]

    def annotations(node: Json) -> Json:
        return {name: text for name, text in node["metadata"]["annotations"].items() if name != FAIL_ANNOTATION}

    uvloop.run(scene())
