"""One stack of compose/ on the engine: up, what happens to its containers, the twin's API, and down with nothing left.

    async with Stack(composes()[0]) as stack:
        await stack.healthy()
        await stack.cluster.add_pod("p0")

The engine's event stream keeps ``containers`` current and wakes ``until``; nothing polls. Each stack has a project name
and ports of its own, so that it meets no other stack of this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shlex
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import aiohttp
import yaml

from tests.e2e.engine import BASE, ROOT, TAG, call, inspect
from tests.process.mesh import Mesh
from tests.scenarios.world import World

COMPOSE = ROOT / "compose"
MAIN = "docker-compose.yaml"
PORTS = ("TWIN_PORT", "ADMIN_PORT", "ADMIN_PORT_2", "PROMETHEUS_PORT", "GRAFANA_PORT")
START_S = 180.0
"""Until everything is healthy: a bound for a loaded machine, nothing that a test is about."""

_numbers = itertools.count()


@dataclass
class Container:
    """The container of one service, as the engine's events tell. ``health``: as the engine calls it."""

    id: str
    running: bool = False
    health: str = ""
    starts: int = 0
    exit_code: int | None = None


@dataclass
class Api:
    """What ``World`` asks of a mesh: where the API server is, and a session that it lets in."""

    api_url: str
    session: aiohttp.ClientSession


class Stack:
    """``async with``: ``files`` (or ``start`` of them alone) was started; leaving takes it down, volumes too."""

    def __init__(
        self,
        tool: tuple[str, ...],
        *,
        files: tuple[str, ...] = (MAIN,),
        profiles: tuple[str, ...] = (),
        start: tuple[str, ...] = (),
        environ: dict[str, str] | None = None,
    ) -> None:
        self.project = f"conclave-e2e-{os.getpid()}-{next(_numbers)}"
        self.containers: dict[str, Container] = {}
        self._command = [*tool, "-p", self.project, *(w for file in files for w in ("-f", str(COMPOSE / file)))]
        self._command += [word for profile in profiles for word in ("--profile", profile)]
        self._environ = {"CONCLAVE_TAG": TAG, "BASE": BASE, **free_ports(), **(environ or {})}
        self._files = files
        self._start = start
        self._changed = asyncio.Condition()
        self._following: asyncio.Task[None] | None = None
        self._events: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._listen()
            await self.compose("up", "-d", *self._start)
        except BaseException as error:
            await self._down(error)
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._down(exc)

    async def _down(self, error: BaseException | None) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        if self._events is not None and self._events.returncode is None:
            self._events.terminate()
            await self._events.wait()
        if error is not None:
            with contextlib.suppress(AssertionError):
                print(await self.compose("logs", "--no-color", "--tail", "20"))
        await self.compose("down", "--volumes", "--remove-orphans")

    # --- the command line and the engine ------------------------------------------------------------------------

    async def compose(self, *words: str, timeout_s: float = 300.0) -> str:
        """``docker compose`` of this stack."""
        return await call(*self._command, *words, timeout_s=timeout_s, environ=self._environ)

    async def cli(self, *words: str) -> str:
        """A command in a container of its own, as docs/operations/compose.md has it."""
        return await self.compose("run", "--rm", "--no-deps", "-T", "cli", *words)

    async def inside(self, service: str, *words: str, user: int = 65532) -> str:
        """A command inside a running container."""
        return await call("docker", "exec", "--user", str(user), self.containers[service].id, *words)

    async def address(self, service: str) -> str:
        """Of a container on the stack's network, which this machine reaches."""
        told = await inspect("container", self.containers[service].id)
        (network,) = told["NetworkSettings"]["Networks"].values()
        return str(network["IPAddress"])

    async def left(self) -> list[str]:
        """Containers, networks and volumes that the engine has of this stack."""
        found = []
        for kind, more in (("container", ("--all",)), ("network", ()), ("volume", ())):
            label = f"label=com.docker.compose.project={self.project}"
            found += (await call("docker", kind, "ls", "--quiet", *more, "--filter", label)).split()
        return found

    async def typed(self, script: str, *, folder: Path) -> str:
        """Shell lines of the documentation, with this stack for theirs; files they write go to ``folder``."""
        ours = script.replace(f"docker compose -f compose/{MAIN}", shlex.join(self._command))
        ours = ours.replace("127.0.0.1:18080", f"127.0.0.1:{self.port('TWIN_PORT')}")
        ours = ours.replace("twin.kubeconfig", str(folder / "twin.kubeconfig"))
        return await call("sh", "-euc", ours, environ=self._environ)

    def port(self, name: str) -> int:
        """The port on this machine that a variable of the files names."""
        return int(self._environ[name])

    @property
    def services(self) -> set[str]:
        """Those that go on running: neither one-shot nor of a profile that was not asked for."""
        profiles = {word for before, word in itertools.pairwise(self._command) if before == "--profile"}
        wanted: dict[str, set[str]] = {}  # a further file names a service again without its profiles
        for file in self._files:
            for name, service in yaml.safe_load((COMPOSE / file).read_text())["services"].items():
                wanted.setdefault(name, set()).update(service.get("profiles", ()))
        return {name for name, named in wanted.items() if named <= profiles} - {"secrets"}

    async def healthy(self, *services: str) -> None:
        """Until these, or all, run and their health checks say so."""
        wanted = set(services) or self.services
        await self.until(
            lambda: all(name in self.containers and self.containers[name].health == "healthy" for name in wanted),
            what=f"{sorted(wanted)} are healthy",
        )

    async def until(self, holds: Callable[[], bool], *, what: str, within_s: float = START_S) -> None:
        """Wait for the engine's events to show it."""
        try:
            async with asyncio.timeout(within_s), self._changed:
                await self._changed.wait_for(holds)
        except TimeoutError:
            shown = "\n".join(f"{name}: {one}" for name, one in sorted(self.containers.items()))
            raise AssertionError(f"not within {within_s:g} s: {what}\n{shown}") from None

    async def _listen(self) -> None:
        label = f"label=com.docker.compose.project={self.project}"
        # from a moment ago: events between here and the engine's first answer are told too
        command = ("docker", "events", "--since", f"{time.time() - 1:.3f}", "--format", "{{json .}}")
        self._events = await asyncio.create_subprocess_exec(
            *command, "--filter", "type=container", "--filter", label, stdout=asyncio.subprocess.PIPE
        )
        self._following = asyncio.create_task(self._follow(self._events))

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            event = json.loads(line)
            attributes = event["Actor"]["Attributes"]
            if attributes.get("com.docker.compose.oneoff", "False") == "True":
                continue
            async with self._changed:
                self._take(attributes["com.docker.compose.service"], event)
                self._changed.notify_all()

    def _take(self, service: str, event: dict[str, Any]) -> None:
        name = event["Actor"]["ID"]
        container = self.containers.get(service)
        if container is None or container.id != name:
            if event["Action"] != "create":
                return
            container = self.containers[service] = Container(name)
        what, _, detail = event["Action"].partition(": ")
        if what == "start":
            container.running, container.health, container.starts = True, "starting", container.starts + 1
        elif what == "die":
            container.running, container.health = False, ""
            container.exit_code = int(event["Actor"]["Attributes"]["exitCode"])
        elif what == "health_status":
            container.health = detail

    # --- the mesh and its cluster -------------------------------------------------------------------------------

    async def leader(self, role: str = "coordinator") -> str:
        """Which service leads, by ``conclave status``; "" while none does."""
        status = json.loads(await self.cli("conclave", "status", "--etcd", "http://etcd:2379", "-o", "json"))
        found = status["coordinator"] if role == "coordinator" else status["binders"].get("0")
        return str(found["id"]) if found else ""

    async def revision(self) -> int:
        """etcd's, by ``conclave status``."""
        return int(
            json.loads(await self.cli("conclave", "status", "--etcd", "http://etcd:2379", "-o", "json"))["revision"]
        )

    @contextlib.asynccontextmanager
    async def joined(self) -> AsyncIterator[World]:
        """The twin's cluster, followed by a watch. Its pods are those of ``default``."""
        token = (await self.inside("twin", "cat", "/secrets/twin-token")).strip()
        async with joined(f"http://127.0.0.1:{self.port('TWIN_PORT')}", token) as world:
            yield world


@contextlib.asynccontextmanager
async def joined(api_url: str, token: str) -> AsyncIterator[World]:
    """The cluster of an API server, followed by a watch."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        world = World(cast("Mesh", Api(api_url, session)))
        listed = asyncio.Event()
        following = asyncio.create_task(world.follow(listed))
        try:
            async with asyncio.timeout(START_S):
                await listed.wait()
            yield world
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def free_ports() -> dict[str, str]:
    """A free port of this machine for each variable that names one."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in PORTS]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return {name: str(probe.getsockname()[1]) for name, probe in zip(PORTS, probes, strict=True)}
