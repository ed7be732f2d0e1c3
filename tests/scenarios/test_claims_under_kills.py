"""Claims by the thousand while binder and coordinator die at every step of a claim's way: none lost, no device twice.

Pods with a claim each, by a template, are deleted and made anew all the time, more of them than there are devices. The
API server refuses some Bindings and writes of claims, and loses some answers. At every death the other process goes on.
Devices of two claims, claims that outlive their pods, pods bound without devices and pods that are told nothing: the
audit looks for them in the API server's whole history (``world``). ``SCENARIO_LENGTH=full`` is 10,000 claims.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lab.audit.devices import claims_of
from shared.runtime.process.failpoints import VARIABLE
from tests.patience import FULL, PATIENCE_S
from tests.scenarios.groups.test_gang_crash_points import started_anew
from tests.scenarios.world import World, length, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

Json = dict[str, Any]
API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
DRIVER = "gpu.example.com"
BY_TEMPLATE = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}

NODES, DEVICES = int(length(short=5, full=50)), int(length(short=4, full=8))
MADE = int(length(short=150, full=10_000))
"""Claims."""
BEYOND = int(length(short=4, full=40))
"""Pods beyond those for which there are devices."""
AT_ONCE = int(length(short=4, full=16))

BINDER = ["after_commit", "after_claim_mark", "after_claim_status@3", "before_claim_free"]
COORDINATOR = ["after_plan@2"]
FREEING = ["after_claim_free"]
"""Of the coordinator, which frees claims that keep their pods from every node."""
if FULL:
    STEPS = ("commit", "claim_mark", "claim_status", "bind", "claim_free")
    BINDER = [f"{when}_{step}{times}" for times in ("", "@7") for step in STEPS for when in ("before", "after")]
    COORDINATOR = ["before_plan", "after_plan", "before_plan@9", "after_plan@9"]
    FREEING = ["before_claim_free", "after_claim_free"]

FAULTS: list[Json] = [
    {"kind": "forbid", "method": "POST", "path": "/binding$", "probability": 0.05},
    {"kind": "conflict", "method": "POST", "path": "/binding$", "probability": 0.05},
    {"kind": "drop", "method": "POST", "path": "/binding$", "probability": 0.02},
    {"kind": "conflict", "method": "PATCH", "path": "/resourceclaims/", "probability": 0.02},
    {"kind": "error", "method": "PATCH", "path": "/resourceclaims/", "probability": 0.02},
    {"kind": "drop", "method": "PATCH", "path": "/resourceclaims/", "probability": 0.02},
]


class Churn:
    """Pods by a fixed number of names, each deleted and made anew at any time. ``made``: claims of pods so far."""

    def __init__(self, cluster: World) -> None:
        self._cluster = cluster
        self._rng = Random(1)
        self._names = [f"p{number:04}" for number in range(NODES * DEVICES + BEYOND)]
        self._busy: set[str] = set()
        self._seen: set[str] = set()
        self._enough = asyncio.Event()

    @property
    def made(self) -> int:
        return len(self._seen)

    def count(self) -> None:
        """Note whose claims are there; a pod tells its own once it was made."""
        for pod in self._cluster.pods.values():
            if all(claims_of(pod)):
                self._seen.add(pod["metadata"]["uid"])
        if self.made >= MADE:
            self._enough.set()

    async def _again(self) -> None:
        while True:
            name = self._rng.choice(self._names)
            if name in self._busy:
                continue
            self._busy.add(name)
            self.count()
            await self._cluster.delete_pod_if_there(name)
            await self._cluster.add_pod(name, cpu="10m", **BY_TEMPLATE)
            self._busy.discard(name)

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Until the block ends, and there were as many claims as are wanted."""
        await self._cluster.add_pods(self._names, cpu="10m", **BY_TEMPLATE)
        async with asyncio.TaskGroup() as tasks:
            each = [tasks.create_task(self._again()) for _ in range(AT_ONCE)]
            try:
                yield
                await self._enough.wait()
            finally:
                for task in each:
                    task.cancel()
        for name in self._names:  # whoever was cancelled between the two
            if name in self._busy:
                await self._cluster.delete_pod_if_there(name)
                await self._cluster.add_pod(name, cpu="10m", **BY_TEMPLATE)


async def died_at_each(
    cluster: World, service: str, failpoints: Sequence[str], once_it_leads: Callable[[], Awaitable[None]] | None = None
) -> None:
    """One of two processes leads, and dies by its own hand as soon as it gets there; then the other one does.
    ``once_it_leads``: what brings it there, where nothing does already."""
    mesh = cluster.mesh
    for failpoint in failpoints:
        leads = await mesh.leader(service)
        (name,) = (one for one in mesh.services if one.startswith(service) and one != leads)
        armed = mesh.services[name]
        await armed.ready.wait()
        await started_anew(armed, mesh, signal.SIGKILL, failpoint)
        await armed.ready.wait()
        armed.ended.clear()  # before it leads: work is waiting for it
        armed.environ[VARIABLE] = ""
        await started_anew(mesh.services[leads], mesh, signal.SIGTERM)
        if once_it_leads is not None:
            assert await mesh.leader(service) == name
            await once_it_leads()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await armed.ended.wait()
        except TimeoutError:
            raise AssertionError(f"{name} did not reach {failpoint}") from None
        assert armed.codes[-1] == -signal.SIGKILL, f"{name} ended by itself, not at {failpoint}"


async def template(cluster: World) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}}
    path = f"{API}/namespaces/default/resourceclaimtemplates"
    spec = {"spec": {"devices": {"requests": [request]}}}
    await cluster.create(path, "ResourceClaimTemplate", "one", api="resource.k8s.io/v1", spec=spec)


async def claims(cluster: World) -> list[Json]:
    found: list[Json] = (await cluster.call("GET", CLAIMS))["items"]
    return found


def users(claim: Json) -> list[str]:
    return [one["uid"] for one in (claim.get("status") or {}).get("reservedFor") or ()]


async def at_rest(cluster: World) -> None:
    """Until claims have devices exactly where a bound pod uses them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            bound = {cluster.pods[name]["metadata"]["uid"] for name in cluster.bound_names()}
            given = [claim for claim in await claims(cluster) if (claim.get("status") or {}).get("allocation")]
            if sorted(uid for claim in given for uid in users(claim)) == sorted(bound) and all(map(users, given)):
                return
            await asyncio.sleep(0.1)  # a list is the API server's word; a watch of ours might be behind


async def test_no_device_is_given_twice_and_no_claim_is_lost_while_processes_die_at_every_step(tmp_path: Path) -> None:
    twin = ["--simulate", "--nodes", str(NODES), "--devices", str(DEVICES)]
    own = ["--validate", "--lease-ttl-s", "15"]  # a loaded machine ends nobody; who is killed is missed at once
    flags = {"binder": own, "coordinator": own}
    async with world(tmp_path, twin_flags=twin, flags=flags) as cluster:
        await template(cluster)
        churn = Churn(cluster)
        async with churn.going():
            await cluster.faults(*FAULTS)
            await died_at_each(cluster, "binder", BINDER)
            await died_at_each(cluster, "coordinator", COORDINATOR)
        await cluster.faults()
        every = NODES * DEVICES
        await cluster.until(lambda c: len(c.bound_names()) == every, within_s=60, what="all devices are used")
        refused = "cannot allocate all claims"
        await cluster.until(
            lambda c: all(refused in c.told(name) for name in c.pods.keys() - c.bound_names()), within_s=60,
            what="the others are told why",
        )  # fmt: skip
        await at_rest(cluster)
        assert churn.made >= MADE


async def test_a_claim_that_keeps_its_pod_from_every_node_is_freed_though_who_frees_it_dies(tmp_path: Path) -> None:
    twin = ["--simulate", "--nodes", "2", "--devices", "8"]
    async with world(tmp_path, twin_flags=twin, binders=1) as cluster:
        await cluster.patch_node("node-0", {"spec": {"unschedulable": True}})
        names: list[str] = []

        async def one_more() -> None:
            name = f"held-{len(names)}"
            names.append(name)
            await held_claim(cluster, name, "node-0")
            await cluster.add_pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": name}])

        await died_at_each(cluster, "coordinator", FREEING, one_more)
        await cluster.until(lambda c: c.bound(*names), within_s=60, what="each is bound where it may be")
        assert {cluster.node(name) for name in names} == {"node-1"}
        await at_rest(cluster)


async def held_claim(cluster: World, name: str, node: str) -> None:
    """A claim that has a device of the node, as another scheduler that gave up may leave it."""
    request = {"name": "r", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}}
    finalizer = {"finalizers": ["resource.kubernetes.io/delete-protection"]}
    made = await cluster.create(
        CLAIMS, "ResourceClaim", name, api="resource.k8s.io/v1", metadata=finalizer,
        spec={"devices": {"requests": [request]}},
    )  # fmt: skip
    device = f"gpu-{name.rpartition('-')[2]}"
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "r", "driver": DRIVER, "pool": node, "device": device}
    made["status"] = {
        "allocation": {
            "devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
    }  # fmt: skip
    await cluster.call("PUT", f"{CLAIMS}/{name}/status", made)
