"""The processes of a mesh and when it schedules: shared by ``conclave demo`` and ``conclave up``.

It knows flags, not code: a service is ``python -m services.NAME`` with the settings every service has. The mesh
schedules when a coordinator leads and has synced, every agent has joined and a binder leads; all of that is read from
outside, from etcd and from the leader's own ``/readyz``.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import secrets
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from services.cli.etcd import MeshView, read_mesh
from services.cli.local.supervisor import Child, Spec, Supervisor
from shared.errors import ConfigError, StoreError
from shared.ports import Store
from shared.runtime.records.shards import change_shards
from shared.wire.keys import DEFAULT_PREFIX, Keys

READY_TIMEOUT_S = 60.0
POLL_S = 0.1
HTTP_TIMEOUT_S = 2.0

REWARD_DELAY_S, WINDOW_S, METRICS_S = 15.0, 30.0, 15.0
"""Defaults of the agents' ``reward_delay_s`` and the coordinators' ``rollout_window_s`` and ``metrics_every_s``."""
LEAST_METRICS_S = 0.01
"""The least that ``metrics_every_s`` takes, however fast the twin plays."""

DEMO_LEARNING = ("--min-transitions", "100", "--updates", "100", "--gate-seeds", "500-501")
DEMO_ROLLOUT = ("--rollout-min-samples", "5", "--rollout-good-windows", "1", "--rollout-promotion", "auto")
"""A demo lasts half a minute and nobody operates it: less experience, less proof per step, and no operator's word, so
that there is something to see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSettings:
    """What a mesh is made of."""

    etcd: str
    etcd_prefix: str = DEFAULT_PREFIX
    kubeconfig: Path
    context: str | None = None
    scheduler_name: str = "conclave"
    coordinators: int = 2
    agents: int = 2
    binders: int = 2
    """For each shard."""
    shards: int = 1
    """What the nodes are divided into; ``0`` is the first one's name."""
    policy: str = "kube-default"
    learner: bool = False
    """Whether a learner runs and trains ``policy`` while the mesh does."""
    speed: float = 1.0
    """Virtual seconds per second: what waits for pods to be at work waits so much shorter."""
    seed: int = 0
    state_dir: Path
    log_level: str = "info"
    admin_ports: tuple[int, ...] = ()
    """Of the coordinators' admin APIs on loopback: fixed, so that a dashboard finds one that was started again. None
    given: free ones, other ones after each start."""

    @property
    def token_file(self) -> Path:
        """The bearer token between the services."""
        return self.state_dir / "peer-token"

    @property
    def admin_token_file(self) -> Path:
        """Tokens of the admin API, the admin's first: that is the one a client that is given this file sends."""
        return self.state_dir / "admin-tokens"


def free_ports(count: int) -> tuple[int, ...]:
    """Ports on loopback that nobody holds now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return tuple(int(probe.getsockname()[1]) for probe in probes)


def write_secret(file: Path) -> str:
    """A fresh secret in a file that only this user can read: never on a command line, where everybody sees it."""
    secret = secrets.token_hex(32)
    _write_private(file, secret + "\n")
    return secret


def _write_private(file: Path, text: str) -> None:
    """For this user alone, also where an older file could be read by others."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as sink:
        os.fchmod(descriptor, 0o600)
        sink.write(text)


def write_tokens(settings: MeshSettings) -> None:
    """The bearer token between the services, and one per role for the admin API."""
    write_secret(settings.token_file)
    lines = [f"{secrets.token_hex(32)} {role} local\n" for role in ("admin", "operator", "viewer")]
    _write_private(settings.admin_token_file, "".join(lines))


def mesh_specs(settings: MeshSettings) -> list[Spec]:
    """Every process of the mesh, etcd and API server apart."""
    common = [
        "--etcd", settings.etcd, "--etcd-prefix", settings.etcd_prefix, "--listen", "127.0.0.1:0",
        "--token-file", str(settings.token_file), "--log-level", settings.log_level,
    ]  # fmt: skip
    cluster = ["--kubeconfig", str(settings.kubeconfig), "--scheduler-name", settings.scheduler_name]
    if settings.context:
        cluster += ["--context", settings.context]
    learned = ["--policy", settings.policy, "--seed", str(settings.seed), "--workload-speed", f"{settings.speed:g}"]
    rollout = ["--rollout-window-s", f"{WINDOW_S / settings.speed:g}"]
    rollout += ["--metrics-every-s", f"{max(METRICS_S / settings.speed, LEAST_METRICS_S):g}"]
    if settings.learner and settings.speed != 1.0:
        rollout += DEMO_ROLLOUT
    wanted = (
        ("coordinator", settings.coordinators, [*cluster, *learned, *rollout]),
        ("agent", settings.agents, [*learned, "--reward-delay-s", f"{REWARD_DELAY_S / settings.speed:g}"]),
        ("binder", settings.binders * settings.shards, cluster),
    )
    specs = []
    for service, count, own in wanted:
        for number in range(count):
            name = f"{service}-{number}"
            more = _admin(settings, number) if service == "coordinator" else []
            if service == "binder" and settings.shards > 1:
                more = ["--shard", str(number % settings.shards)]
            argv = (sys.executable, "-m", f"services.{service}", "--id", name, *common, *own, *more)
            # One arena per thread pair keeps glibc from holding a heap per thread: memory per agent is a target.
            specs.append(Spec(name, service, argv, env=(("MALLOC_ARENA_MAX", "2"),)))
    if settings.learner:
        argv = (sys.executable, "-m", "services.learner.serve", "--id", "learner-0", *common, *_learning(settings))
        specs.append(Spec("learner-0", "learner", argv))
    return specs


def _admin(settings: MeshSettings, number: int) -> list[str]:
    port = settings.admin_ports[number] if number < len(settings.admin_ports) else 0
    return ["--admin-listen", f"127.0.0.1:{port}", "--admin-token-file", str(settings.admin_token_file)]


def _learning(settings: MeshSettings) -> list[str]:
    """A learner in step with the mesh's time."""
    flags = ["--policy", settings.policy, "--state-dir", str(settings.state_dir / "learner")]
    return flags if settings.speed == 1.0 else [*flags, *DEMO_LEARNING]


def _unsynced(view: MeshView, leader: str) -> str:
    """Why the leader has not listed the cluster, as far as it says: that another mesh has the cluster, for one."""
    record = view.processes.get(f"coordinator/{leader}")
    told = "; ".join(record.warnings) if record is not None else ""
    return f"the leading coordinator has not synced{': ' if told else ''}{told}"


class Mesh:
    """A running mesh: its processes and what etcd says of it."""

    def __init__(self, settings: MeshSettings, supervisor: Supervisor, store: Store) -> None:
        self.settings = settings
        self.supervisor = supervisor
        self.store = store
        self.keys = Keys.under(settings.etcd_prefix)
        self.view = MeshView()
        token = settings.token_file.read_text(encoding="ascii").strip()
        self._headers = {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None

    async def divide(self) -> None:
        """Divide the nodes as the settings say, before anybody leads: also back into one shard."""
        names = [str(number) for number in range(self.settings.shards)]
        now = dt.datetime.now(dt.UTC)
        await change_shards(self.store, self.keys, names, by="conclave up", reason="", now=now, unmanned=True)

    def start(self) -> list[Child]:
        """Start every process."""
        return [self.supervisor.start(spec) for spec in mesh_specs(self.settings)]

    async def refresh(self) -> MeshView:
        """Look at etcd; the last view where it does not answer."""
        try:
            self.view = await read_mesh(self.store, self.keys, timeout_s=HTTP_TIMEOUT_S)
        except StoreError:
            return self.view
        return self.view

    async def get(self, url: str, path: str) -> Any:
        """JSON (or text) of one of our services; None where it does not answer 200."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=HTTP_TIMEOUT_S)
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        try:
            async with self._session.get(url + path) as answer:
                if answer.status != 200:
                    return None
                if "json" in answer.content_type:
                    return await answer.json()
                return await answer.text()
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None

    async def schedules(self) -> str:
        """Empty when the mesh schedules; otherwise what is still missing."""
        view = await self.refresh()
        if view.coordinator is None:
            return "no coordinator leads"
        if len(view.binders) < self.settings.shards:
            return "no binder leads" + (f" {self.settings.shards - len(view.binders)} shard(s)" if view.binders else "")
        if len(view.agents) < self.settings.agents:
            return f"{len(view.agents)} of {self.settings.agents} agents have joined"
        status = await self.get(view.coordinator.record.url, "/v1/status")
        if not status or not status.get("leading"):
            return "the leading coordinator does not answer"
        if not status.get("synced"):
            return _unsynced(view, view.coordinator.record.identity)
        if len(status.get("agents") or ()) < self.settings.agents:
            return "the leading coordinator does not know all agents yet"
        known = status.get("binders") or {}
        if sum(bool(binder.get("url")) for binder in known.values()) < self.settings.shards:
            return "the leading coordinator does not know every shard's binder yet"
        return ""

    async def wait_scheduling(self, *, on_wait: Callable[[str], None] | None = None) -> None:
        """Return once the mesh schedules. ``ConfigError``: a process cannot start, or it takes too long."""
        missing = "nothing has started"
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while missing:
                    if self.supervisor.failure.done():
                        self.supervisor.failure.result()
                    missing = await self.schedules()
                    if on_wait is not None:
                        on_wait(missing)
                    if missing:
                        await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise ConfigError(
                f"the mesh does not schedule after {READY_TIMEOUT_S:g} s: {missing}; see {self.supervisor.log_dir}"
            ) from None

    async def close(self) -> None:
        """Release connections; the supervisor ends the processes."""
        if self._session is not None:
            await self._session.close()
