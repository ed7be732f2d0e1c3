"""The API server is killed and started again under a mesh: what it has forgotten is listed once, and nobody waits.

A server that begins anew has no events of before, so whoever was behind it by anything, be it of another kind, is told
410. The audit log says what our processes asked for then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shared.runtime.kube.reflector import SMALL
from tests.real.conftest import running
from tests.real.plane import Plane, PlaneSettings, missing

NODES = 6
STANDING = SMALL + 100
PATIENCE_S = 90.0
PODS = "/api/v1/namespaces/default/pods"
WATCHERS = 4
"""Processes of ``conclave up`` that follow all pods: two coordinators, two binders, the standbys warm."""


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": "conclave", "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


class Caller:
    """The administrator, who asks for single pods only, so that every list of pods is somebody else's."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    async def create(self, path: str, body: dict[str, Any]) -> None:
        async with self._plane.session.post(path, json=body) as answer:
            assert answer.status == 201, await answer.text()

    async def remove(self, name: str) -> None:
        async with self._plane.session.delete(f"{PODS}/{name}") as answer:
            assert answer.status == 200, await answer.text()

    async def found(self, path: str) -> dict[str, Any]:
        async with self._plane.session.get(path) as answer:
            told: dict[str, Any] = await answer.json()
            return told

    async def until(self, path: str, holds: Any) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds(await self.found(path)):  # noqa: ASYNC110  a watch would be one more that is lost
                await asyncio.sleep(0.1)

    async def until_bound(self, name: str) -> None:
        await self.until(f"{PODS}/{name}", lambda found: found["spec"].get("nodeName"))


def waits(found: dict[str, Any]) -> bool:
    """It was tried, and found no node."""
    return any(one["type"] == "PodScheduled" for one in found["status"].get("conditions", ()))


def asked_of_pods(audit: Path, since: int) -> list[tuple[str, bool]]:
    """(verb, whether it begins a list) of our processes' requests for all pods, in the order in which they ended."""
    with audit.open() as log:
        log.seek(since)
        entries = [json.loads(line) for line in log]
    ours = [entry for entry in entries if entry.get("userAgent", "").startswith("conclave")]
    found = [one for one in ours if one["requestURI"].startswith("/api/v1/pods?") and one["stage"] != "Panic"]
    return [(one["verb"], one["verb"] == "list" and "continue=" not in one["requestURI"]) for one in found]


@contextlib.asynccontextmanager
async def killed_server(folder: Path, *flags: str) -> AsyncIterator[tuple[Caller, Callable[[], int]]]:
    """(the administrator, how many lists of all pods our processes have begun since): a mesh has 600 pods that stand,
    three that wait for room on node-0 in the order z, m, a, and an API server that was killed and is there again."""
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    async with Plane(PlaneSettings(folder / "plane", nodes=NODES, pods=250)) as plane:
        caller = Caller(plane)
        await caller.until("/api/v1/namespaces/default/serviceaccounts/default", lambda found: "metadata" in found)
        numbers = iter(range(STANDING))

        async def stand() -> None:
            for number in numbers:
                await caller.create(PODS, pod(f"stands-{number}", "1m", nodeName=f"node-{number % NODES}"))

        await asyncio.gather(*(stand() for _ in range(16)))
        await caller.create(PODS, pod("filler", "3", nodeName="node-0"))
        command = (str(Path(sys.executable).with_name("conclave")), "up", "--kubeconfig", str(plane.kubeconfig))
        kept = ("--keep", str(folder / "kept"))
        mesh = running(folder, "mesh", *command, *flags, *kept, ready=lambda line: line.startswith("ready"))
        await asyncio.to_thread(mesh.__enter__)
        try:
            for name in ("z", "m", "a"):  # by name they stand the other way round
                await caller.create(PODS, pod(name, "3", nodeSelector={"kubernetes.io/hostname": "node-0"}))
                await caller.until(f"{PODS}/{name}", waits)
            for number in range(40):  # so that no watch of pods is where etcd is
                await caller.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"c{number}"}})
            mark = plane.audit_log.stat().st_size
            await plane.stop("kube-apiserver", signal.SIGKILL)
            await plane.start("kube-apiserver")
            yield caller, lambda: sum(begins for _, begins in asked_of_pods(plane.audit_log, mark))
        finally:
            await asyncio.to_thread(mesh.__exit__, None, None, None)


async def test_a_server_that_is_killed_and_comes_back_is_listed_once_by_each_and_a_new_pod_is_placed(
    tmp_path: Path,
) -> None:
    async with killed_server(tmp_path, "--agents", "1") as (caller, listed):
        await caller.create(PODS, pod("new", "1m"))
        await caller.until_bound("new")
        async with asyncio.timeout(PATIENCE_S):
            while listed() < WATCHERS:  # noqa: ASYNC110  of the server's log
                await asyncio.sleep(0.5)
        await caller.create(PODS, pod("newer", "1m"))
        await caller.until_bound("newer")
        assert listed() == WATCHERS


async def test_pods_that_wait_while_the_server_is_away_keep_their_order(tmp_path: Path) -> None:
    """In one process, so that no binder's view is behind the coordinator's when the room is made."""
    async with killed_server(tmp_path, "--single") as (caller, _):
        await caller.remove("filler")
        await caller.until_bound("z")
        assert not any(["nodeName" in (await caller.found(f"{PODS}/{name}"))["spec"] for name in ("m", "a")])
