"""Devices, claims and pods of this bench, and the controller that makes claims from templates on a real server."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.gangs import load
from bench.stand.cluster import NAMESPACE, BenchCluster
from bench.stand.processes import stop

Json = dict[str, Any]
API = "/apis/resource.k8s.io/v1"
CLASSES, SLICES = f"{API}/deviceclasses", f"{API}/resourceslices"
CLAIMS = f"{API}/namespaces/{NAMESPACE}/resourceclaims"
TEMPLATES = f"{API}/namespaces/{NAMESPACE}/resourceclaimtemplates"
DRIVER = CLASS = "gpu.bench.example.com"
TEMPLATE, STANDING = "one-device", "standing"
FINALIZER = "resource.kubernetes.io/delete-protection"
PAGE = 1000


def node_name(number: int) -> str:
    """As ``bench.gangs.load`` calls it."""
    name: str = load.node(number)["metadata"]["name"]
    return name


def slice_of(number: int, devices: int) -> Json:
    """A node's devices, alike but for their index."""
    name = node_name(number)
    every = [
        {"name": f"gpu-{i}", "attributes": {"index": {"int": i}, "model": {"string": "H100"}},
         "capacity": {"memory": {"value": "80Gi"}}}
        for i in range(devices)
    ]  # fmt: skip
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": f"{name}-gpu"},
            "spec": {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": every}}  # fmt: skip


async def prepare(cluster: BenchCluster, nodes: int, devices: int) -> None:
    """Class, template and slices; what an earlier run left is gone."""
    await clear(cluster)
    expression = f"device.driver == '{DRIVER}'"
    await cluster.add(
        CLASSES, [{"metadata": {"name": CLASS}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}]
    )
    request = {"name": "gpu", "exactly": {"deviceClassName": CLASS}}
    await cluster.add(
        TEMPLATES, [{"metadata": {"name": TEMPLATE}, "spec": {"spec": {"devices": {"requests": [request]}}}}]
    )
    await cluster.add(SLICES, (slice_of(number, devices) for number in range(nodes)))


async def clear(cluster: BenchCluster) -> None:
    """Nothing of ours is left but nodes and pods."""
    await free_standing(cluster)
    for path in (TEMPLATES, CLASSES):
        await cluster.remove(path, (TEMPLATE, CLASS))
    listed = [one async for one in cluster.each(SLICES, PAGE)]
    await cluster.remove(SLICES, [one["metadata"]["name"] for one in listed if one["spec"]["driver"] == DRIVER])


def pods(prefix: str, count: int) -> Iterator[Json]:
    """Each claims one device by the template."""
    for number in range(count):
        yield pod(f"{prefix}-{number:06}")


def pod(name: str) -> Json:
    """scheduler_perf's small pod with a claim."""
    body = load.pod(name, app="bench")
    requests = {"cpu": "10m", "memory": "16Mi"}
    body["spec"]["containers"][0]["resources"] = {"requests": requests, "claims": [{"name": "gpu"}]}
    body["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
    return body


async def stand(cluster: BenchCluster, nodes: int, devices: int, count: int) -> None:
    """So many claims hold a device each that no pod uses, spread over the nodes, as scheduler_perf has it."""
    request = {"name": "gpu", "exactly": {"deviceClassName": CLASS}}
    spec = {"devices": {"requests": [request]}}
    metadata = {"labels": {STANDING: "true"}, "finalizers": [FINALIZER]}
    places = [(device, number) for device in range(devices) for number in range(nodes)][:count]

    async def one(index: int) -> None:
        device, number = places[index]
        made = await cluster.ask(
            "POST", CLAIMS, {"metadata": {"name": f"{STANDING}-{index:05}", **metadata}, "spec": spec}
        )
        node = node_name(number)
        result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": f"gpu-{device}"}
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        made["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": terms}}
        await cluster.ask("PUT", f"{CLAIMS}/{made['metadata']['name']}/status", made)

    await cluster.each_of(one, range(len(places)))


async def free_standing(cluster: BenchCluster) -> None:
    """The claims of ``stand`` are gone."""
    listed = [one async for one in cluster.each(f"{CLAIMS}?labelSelector={STANDING}%3Dtrue", PAGE)]

    async def one(claim: Json) -> None:
        path = f"{CLAIMS}/{claim['metadata']['name']}"
        await cluster.ask("PATCH", path, {"metadata": {"finalizers": None}})
        await cluster.ask("DELETE", path, None)

    await cluster.each_of(one, listed)


async def twice(cluster: BenchCluster) -> int:
    """How many devices more than one claim has now."""
    held: Counter[tuple[str, str, str]] = Counter()
    async for claim in cluster.each(CLAIMS, PAGE):
        allocation = (claim.get("status") or {}).get("allocation") or {}
        held.update(
            (one["driver"], one["pool"], one["device"]) for one in allocation.get("devices", {}).get("results", ())
        )
    return sum(count > 1 for count in held.values())


@contextlib.contextmanager
def controllers(binary: str | None, kubeconfig: Path) -> Iterator[Callable[[], None]]:
    """The controllers of claims and of deletions of a real kube-controller-manager, and what ends the bench where they
    have ended; None: the twin plays its own."""
    if binary is None:
        yield lambda: None
        return
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w+") as log:
        command = [
            binary, "--kubeconfig", str(kubeconfig), "--cert-dir", folder, "--secure-port=0", "--leader-elect=false",
            "--controllers=resourceclaim-controller,garbage-collector-controller", "--kube-api-qps=5000",
            "--kube-api-burst=5000",
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True)

        def check() -> None:
            if process.poll() is not None:
                log.seek(0)
                sys.exit(f"bench: {binary} ended: {' '.join(log.read().split())[-300:]}")

        try:
            yield check
        finally:
            stop(process)
