"""A whole mesh as real processes on loopback: etcd, the twin's API server, coordinators, agents, binders.

For process tests. Every service is the module that a container runs; one that ends is started again after a moment, as
a supervisor does, unless the test took it down. Ports are free ones, files lie in a temporary directory, and leaving
the ``async with`` ends everything that was started, by pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from shared.hostport import join_host_port
from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings
from tests.patience import PATIENCE_S
from tests.ports import free_port
from tests.process.fork_server import SERVICES, Forked, fork_server

ROOT = Path(__file__).parents[2]
TOKEN = "twin-token-for-tests"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ELSEWHERE = {"twin": "twin", "learner": "lab.serve"}
"""Modules of what is no service of the mesh's house."""
RESTART_S = 0.3


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class Running:
    """One service: how to start it, and its process now."""

    name: str
    arguments: list[str]
    log: Path
    environ: dict[str, str]
    """For it alone, from its next start on; ``PYTHONPATH``: another tree whose service it is."""
    process: Forked | asyncio.subprocess.Process | None = None
    url: str = ""
    admin_url: str = ""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    may_start: asyncio.Event = field(default_factory=_set)
    """Cleared: when it ends it stays down until this is set again."""
    wanted: bool = True
    starts: int = 0
    codes: list[int] = field(default_factory=list)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


def etcd_of(folder: Path, members: int, flags: tuple[str, ...] = (), host: str = "127.0.0.1") -> list[EmbeddedEtcd]:
    """A private etcd of so many members, not started; several must be started together. ``flags``: TLS, of one;
    ``host``: where one listens."""
    if members == 1:
        scheme = "https" if flags else "http"
        settings = EmbeddedEtcdSettings(
            data_dir=folder, host=host, client_port=free_port(), fsync=False, client_scheme=scheme, extra_flags=flags,
            start_timeout_s=PATIENCE_S,
        )  # fmt: skip
        return [EmbeddedEtcd(settings)]
    peers = [f"http://127.0.0.1:{free_port()}" for _ in range(members)]
    everyone = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
    found = []
    for number, peer in enumerate(peers):
        flags = (
            f"--name=m{number}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={everyone}", "--heartbeat-interval=100", "--election-timeout=1000",
        )  # fmt: skip
        settings = EmbeddedEtcdSettings(
            data_dir=folder / f"m{number}", client_port=free_port(), fsync=False, extra_flags=flags,
            start_timeout_s=PATIENCE_S,
        )  # fmt: skip
        found.append(EmbeddedEtcd(settings))
    return found


class Mesh:
    """``async with Mesh(tmp_path) as mesh``: everything runs and is ready."""

    forks = False
    """Whether services are forked from a process that has imported them: so for tests, while benches measure starts."""

    def __init__(
        self,
        folder: Path,
        *,
        coordinators: int = 2,
        agents: int = 2,
        binders: int = 2,
        flags: dict[str, list[str]] | None = None,
        twin_flags: list[str] | None = None,
        environ: dict[str, str] | None = None,
        etcd_members: int = 1,
        etcd_flags: tuple[str, ...] = (),
        tls: ssl.SSLContext | None = None,
        kinds: Sequence[Path] = (),
        host: str = "127.0.0.1",
    ) -> None:
        """``flags``: of every process of a service, ``{name}`` in them its own name; ``tls``: how ``get`` asks them;
        ``kinds``: files with the definitions of custom resources that are served before the mesh starts; ``host``: the
        loopback address that all of it is on."""
        self.folder = folder
        self.tls = tls
        self.members = etcd_of(folder / "etcd", etcd_members, etcd_flags, host)
        self.etcd = self.members[0]
        self.services: dict[str, Running] = {}
        self.kubeconfig = folder / "kubeconfig"
        self.audit = folder / "audit.jsonl"
        self.api_url = ""
        self._counts = {"coordinator": coordinators, "agent": agents, "binder": binders}
        self._flags = flags or {}
        self._twin_flags = ["--host", host, *(twin_flags or [])]
        self._listen = join_host_port(host, 0)
        self._environ = environ or {}
        self._kinds = kinds
        self._keepers: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._stop()

    async def _start(self) -> None:
        twin = ["--token", TOKEN, "--kubeconfig-out", str(self.kubeconfig), "--audit", str(self.audit)]
        await asyncio.gather(
            *(member.start() for member in self.members), self.start("twin", "twin", [*twin, *self._twin_flags])
        )
        import yaml

        server = yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        # the same port speaks both, and we need not check its certificate
        self.api_url = server.replace("https://", "http://")
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"})
        for file in self._kinds:
            await self.create(DEFINITIONS, yaml.safe_load(file.read_text()))
        names = [(service, number) for service, count in self._counts.items() for number in range(count)]
        await asyncio.gather(*(self.add(service, number) for service, number in names))

    async def add(self, service: str, number: int, environ: dict[str, str] | None = None) -> Running:
        """One more coordinator, agent or binder, ready. ``environ``: for it alone."""
        flags = ["--etcd", ",".join(member.endpoint for member in self.members), "--id", f"{service}-{number}"]
        own = self._flags.get(service, [])
        if "--listen" not in own:
            flags += ["--listen", self._listen]
        if service != "agent":
            flags += ["--kubeconfig", str(self.kubeconfig)]
        flags += [flag.replace("{name}", f"{service}-{number}") for flag in own]
        return await self.start(f"{service}-{number}", service, flags, environ)

    async def _stop(self) -> None:
        for running in self.services.values():
            running.wanted = False
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        services = [running for running in self.services.values() if running.name != "twin"]
        for running in services:
            await self._end(running, signal.SIGKILL)
        if "twin" in self.services:
            await self._end(self.services["twin"], signal.SIGTERM)  # it has an audit file to finish
        for running in self.services.values():
            if isinstance(running.process, Forked):
                running.process.close()
        if self._session is not None:
            await self._session.close()
        # without a quorum a member takes seconds to end by itself
        await asyncio.gather(*(m.kill() if len(self.members) > 1 else m.stop() for m in self.members))

    async def _end(self, running: Running, number: signal.Signals) -> None:
        process = running.process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    # --- services -----------------------------------------------------------------------------------------------

    async def start(
        self, name: str, service: str, arguments: list[str], environ: dict[str, str] | None = None
    ) -> Running:
        """Start a service, keep it running, and wait for its ``ready`` line."""
        known = self.services.get(name)
        if known is not None and (known.wanted or (known.process is not None and known.process.returncode is None)):
            raise ValueError(f"{name} runs already: give the new one another name, or take the old one down before")
        command = [sys.executable, "-m", ELSEWHERE.get(service, f"services.{service}"), *arguments]
        running = self.services[name] = Running(name, command, self.folder / f"{name}.log", environ or {})
        self._keepers.append(asyncio.create_task(self._keep(running)))
        async with asyncio.timeout(PATIENCE_S):
            await running.ready.wait()
        return running

    async def _keep(self, running: Running) -> None:
        while running.wanted:
            running.ready.clear()
            environ = {**os.environ, "PYTHONPATH": str(ROOT), **self._environ, **running.environ}
            with running.log.open("ab") as log:
                running.process = await self._process(running.arguments, log.fileno(), environ)
            running.starts += 1
            assert running.process.stdout is not None
            async for line in running.process.stdout:
                if line.startswith(b"admin"):
                    running.admin_url = line.decode().split()[-1]
                if line.startswith((b"ready", b"serving")):
                    running.url = line.decode().split()[-1]
                    running.ready.set()
            running.codes.append(await running.process.wait())
            running.ready.clear()
            running.ended.set()
            if running.wanted:
                await asyncio.sleep(RESTART_S)
                await running.may_start.wait()

    async def _process(
        self, command: list[str], stderr: int, environ: dict[str, str]
    ) -> Forked | asyncio.subprocess.Process:
        interpreter, flag, module, *arguments = command
        if self.forks and (interpreter, flag) == (sys.executable, "-m") and module in SERVICES:
            return await fork_server().start(module, arguments, stderr=stderr, environ=environ)
        return await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=environ,
            cwd=environ["PYTHONPATH"].split(os.pathsep)[0],
        )

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a service; it is started again when it ends."""
        os.kill(self.services[name].pid, number)

    async def get(self, name: str, route: str) -> dict[str, Any]:
        """A JSON answer of a service."""
        options: dict[str, Any] = {} if self.tls is None else {"ssl": self.tls}
        async with self.session.get(self.services[name].url + route, **options) as response:
            answer: dict[str, Any] = await response.json()
            return answer

    async def leader(self, service: str = "coordinator") -> str:
        """The name of the process that leads and has finished its takeover."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for name, running in self.services.items():
                    if name.startswith(service) and running.ready.is_set():
                        with contextlib.suppress(aiohttp.ClientError, json.JSONDecodeError):
                            figures = (await self.get(name, "/v1/stats")).get(service, {})
                            if figures.get("leading"):
                                return name
                await asyncio.sleep(0.05)

    # --- the cluster --------------------------------------------------------------------------------------------

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None
        return self._session

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self.session.post(self.api_url + path, json=body) as response:
            answer: dict[str, Any] = await response.json()
            assert response.status < 300, answer
            return answer

    async def add_nodes(
        self, count: int, *, cpu: str = "4", memory: str = "8Gi", pods: str = "110", named: str = "node"
    ) -> None:
        for number in range(count):
            await self.create(
                "/api/v1/nodes",
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": f"{named}-{number}"},
                    "status": {
                        "allocatable": {"cpu": cpu, "memory": memory, "pods": pods},
                        "capacity": {"cpu": cpu, "memory": memory, "pods": pods},
                        "conditions": [{"type": "Ready", "status": "True"}],
                    },
                },
            )
            # admission taints a new node as not ready; a node controller would take that back
            patch = {"spec": {"taints": None}}
            headers = {"Content-Type": "application/merge-patch+json"}
            url = f"{self.api_url}/api/v1/nodes/{named}-{number}"
            async with self.session.patch(url, json=patch, headers=headers) as response:
                assert response.status == 200, await response.text()

    async def add_pod(self, name: str, *, cpu: str = "100m", memory: str = "64Mi", **spec: Any) -> None:
        await self.create(
            "/api/v1/namespaces/default/pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "schedulerName": "conclave",
                    "containers": [
                        {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
                    ],
                    **spec,
                },
            },
        )

    async def pods(self) -> list[dict[str, Any]]:
        async with self.session.get(self.api_url + "/api/v1/pods") as response:
            items: list[dict[str, Any]] = (await response.json())["items"]
            return items

    async def wait_bound(self, names: set[str]) -> None:
        """Until all of these pods are bound."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if names <= {p["metadata"]["name"] for p in await self.pods() if p["spec"].get("nodeName")}:
                    return
                await asyncio.sleep(0.02)

    def audit_entries(self) -> list[dict[str, Any]]:
        """Every change the API server accepted, in order. Once the twin has ended: see ``audit_until_now``."""
        return [json.loads(line) for line in self.audit.read_text().splitlines()]

    async def audit_until_now(self) -> list[dict[str, Any]]:
        """The same while the twin runs, which writes its file in pieces and late: everything that it accepted before
        this was asked. A namespace made now is the mark: lines are in order, so what is before it is whole."""
        name = f"audit-mark-{uuid.uuid4().hex}"
        await self.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        async with asyncio.timeout(PATIENCE_S):
            while True:
                *lines, _ = self.audit.read_bytes().split(b"\n")  # the last one may be half a line
                entries = [json.loads(line) for line in lines]
                marks = [number for number, entry in enumerate(entries) if entry["name"] == name]
                if marks:
                    return entries[: marks[0]]
                await asyncio.sleep(0.05)


def bindings_per_uid(entries: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The nodes each pod uid was given, in order: more than one is a double bind (I1)."""
    nodes: dict[str, list[str]] = {}
    for entry in entries:
        if entry["kind"] != "Pod":
            continue
        node = entry["object"].get("spec", {}).get("nodeName")
        uid = entry["object"]["metadata"]["uid"]
        if node and (not nodes.get(uid) or nodes[uid][-1] != node):
            nodes.setdefault(uid, []).append(node)
    return nodes
