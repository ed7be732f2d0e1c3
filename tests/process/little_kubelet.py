"""A kubelet for a few pods on this machine: a bound pod with a command becomes a process with its environment.

What stands for the network: the host name of a job's first worker, and each pod's address, are loopback. Pods without a
command run until they are deleted. It watches, so that it is there at once, and notes how many workers of each job ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import aiohttp

from tests.process.mesh import ROOT, Mesh

Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}
GRACE_S = 5.0
FOR_EVER = aiohttp.ClientTimeout(total=None)
"""Of a watch: a session's own bound of 300 s ends it on a slow machine."""


class LittleKubelet:
    """``async with LittleKubelet(mesh) as kubelet``; leaving ends every process that it started."""

    def __init__(self, mesh: Mesh, folder: Path) -> None:
        self.mesh = mesh
        self.folder = folder
        self.pods: dict[str, Json] = {}
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.ran: defaultdict[str, list[int]] = defaultdict(list)
        """Of each job: how many workers ran, each time that this changed."""
        self.changed = asyncio.Event()
        self._started: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> LittleKubelet:
        self._spawn(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler({"message": "the kubelet failed", "exception": error})

    async def _watch(self) -> None:
        async with self.mesh.session.get(f"{self.mesh.api_url}{PODS}?watch=1", timeout=FOR_EVER) as stream:
            async for line in stream.content:
                event = json.loads(line)
                pod = event["object"]
                uid = pod["metadata"]["uid"]
                if event["type"] == "DELETED":
                    self.pods.pop(uid, None)
                else:
                    self.pods[uid] = pod
                    self._see(pod)
                self._note(pod)
                self.changed.set()
        raise AssertionError("the watch of pods has ended")

    def _note(self, pod: Json) -> None:
        job = pod["metadata"].get("labels", {}).get("conclave.io/training-job", "")
        count = len(self.running(job))
        if not self.ran[job] or self.ran[job][-1] != count:
            self.ran[job].append(count)

    def running(self, job: str) -> list[Json]:
        """Workers of the job that run and are not on their way out."""
        return [
            pod for pod in self.pods.values()
            if pod["metadata"].get("labels", {}).get("conclave.io/training-job") == job
            and pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]  # fmt: skip

    def _see(self, pod: Json) -> None:
        meta = pod["metadata"]
        uid = meta["uid"]
        if "deletionTimestamp" in meta:
            if f"end {uid}" not in self._started:
                self._started.add(f"end {uid}")
                self._spawn(self._end(meta["name"], uid))
        elif pod["spec"].get("nodeName") and uid not in self._started:
            self._started.add(uid)
            self._spawn(self._run(pod))

    async def _run(self, pod: Json) -> None:
        name, uid, container = pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"]["containers"][0]
        if not container.get("command"):
            await self.set_phase(name, uid, "Running")
            return
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        host = ".".join((f"{pod['spec']['subdomain']}-worker-0", pod["spec"]["subdomain"]))
        for one in container.get("env", ()):
            value = one.get("value", "")
            if one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") == "status.podIP":
                value = "127.0.0.1"
            environ[one["name"]] = value.replace(host, "127.0.0.1")
        with (self.folder / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *container["command"], env=environ, stdout=log, stderr=log, start_new_session=True
            )
        self.processes[uid] = process
        await self.set_phase(name, uid, "Running")
        code = await process.wait()
        if uid in self.pods:
            await self.set_phase(name, uid, "Failed" if code else "Succeeded")

    async def set_phase(self, name: str, uid: str, phase: str) -> None:
        """What a kubelet writes on this very pod: another may have its name by now."""
        url = f"{self.mesh.api_url}{PODS}/{name}/status"
        patch = {"metadata": {"uid": uid}, "status": {"phase": phase}}
        async with self.mesh.session.patch(url, json=patch, headers=MERGE) as answer:
            assert answer.status in (200, 404, 409), await answer.text()

    async def _end(self, name: str, uid: str) -> None:
        """SIGTERM, some patience, SIGKILL; then the pod is gone."""
        process = self.processes.get(uid)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                async with asyncio.timeout(GRACE_S):
                    await process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        async with self.mesh.session.delete(f"{self.mesh.api_url}{PODS}/{name}", json=body) as answer:
            assert answer.status in (200, 404, 409), await answer.text()
