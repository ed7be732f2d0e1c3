"""The processes of a mesh and when it schedules: shared by ``conclave demo`` and ``conclave up``.

It knows flags, not code: a service is ``python -m services.NAME`` with the settings every service has. The mesh
schedules when a coordinator leads and has synced, every agent has joined and a binder leads each shard; all of that the
leader says itself (``/v1/status``). It holds no client of etcd: ``conclave up`` stays beside the mesh and should be
small.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from services.cli.local.run import LEARNER
from services.cli.local.supervisor import Child, ChildSpec, Supervisor
from shared.adapters.http.dialing import dial, target_of
from shared.errors import ConfigError
from shared.wire.keys import DEFAULT_PREFIX

READY_TIMEOUT_S = 60.0
POLL_S = 0.1
HTTP_TIMEOUT_S = 2.0

REWARD_DELAY_S, WINDOW_S, METRICS_S = 15.0, 30.0, 15.0
"""Defaults of the agents' ``reward_delay_s`` and the coordinators' ``rollout_window_s`` and ``metrics_every_s``."""
LEAST_METRICS_S = 0.01
"""The least that ``metrics_every_s`` takes, however fast the twin plays."""

COORDINATING = ("coordinator", "single")
"""Services that are candidates for coordinator."""

DEMO_LEARNING = ("--min-transitions", "100", "--updates", "100", "--gate-seeds", "500-501")
DEMO_ROLLOUT = ("--rollout-min-samples", "5", "--rollout-good-windows", "1", "--rollout-promotion", "auto")
"""A demo lasts half a minute and nobody operates it: less experience, less proof per step, and no operator's word, so
that there is something to see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSettings:
    """What a mesh is made of."""

    etcd: str
    etcd_own: bool = False
    """Whether etcd is this mesh's alone: then it makes room in it."""
    etcd_quota_mb: int = 0
    """etcd's quota, where it may not tell it; 0: not known."""
    etcd_binary: Path | None = None
    """The private etcd's; None: found on this machine."""
    etcd_prefix: str = DEFAULT_PREFIX
    kubeconfig: Path | None
    """None: as kubectl's."""
    context: str | None = None
    scheduler_name: str = "conclave"
    profiles: Path | None = None
    """Of further schedulerNames."""
    coordinators: int = 2
    agents: int = 2
    """0: the leading coordinator decides itself."""
    binders: int = 2
    """For each shard."""
    shards: int = 1
    """What the nodes are divided into; ``0`` is the first one's name."""
    single: bool = False
    """Whether each coordinator has a binder in its process, and decides itself: no agents and binders beside it."""
    policy: str = "kube-default"
    learner: bool = False
    """Whether a learner runs and trains ``policy`` while the mesh does."""
    jobs: bool = False
    """Whether TrainingJobs are run."""
    speed: float = 1.0
    """Virtual seconds per second: what waits for pods to be at work waits so much shorter."""
    seed: int = 0
    state_dir: Path
    coordinator_flags: tuple[str, ...] = ()
    """More flags of every coordinator."""
    agent_flags: tuple[str, ...] = ()
    """More flags of every agent; ``{name}`` in them is its own."""
    log_level: str = "info"
    admin_ports: tuple[int, ...] = ()
    """Of the coordinators' admin APIs on loopback: fixed, so that a dashboard finds one that was started again. None
    given: free ones, other ones after each start."""

    @property
    def shard_names(self) -> tuple[str, ...]:
        """What the binders are started for."""
        return tuple(str(number) for number in range(self.shards))

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


def mesh_specs(settings: MeshSettings) -> list[ChildSpec]:
    """Every process of the mesh, etcd and API server apart."""
    common = [
        "--etcd", settings.etcd, "--etcd-prefix", settings.etcd_prefix, "--listen", "127.0.0.1:0",
        "--token-file", str(settings.token_file), "--log-level", settings.log_level,
    ]  # fmt: skip
    if settings.etcd_own:
        common += ["--etcd-upkeep", "own", "--etcd-quota-mb", str(settings.etcd_quota_mb)]
    cluster = ["--scheduler-name", settings.scheduler_name]
    if settings.kubeconfig is not None:
        cluster = ["--kubeconfig", str(settings.kubeconfig), *cluster]
    if settings.context:
        cluster += ["--context", settings.context]
    profiles = ["--profiles", str(settings.profiles)] if settings.profiles is not None else []
    cluster += profiles
    learned = ["--policy", settings.policy, "--seed", str(settings.seed)]
    rollout: list[str] = []
    delay: list[str] = []
    if settings.speed != 1.0:  # else what the environment says counts
        learned += ["--workload-speed", f"{settings.speed:g}"]
        rollout = ["--rollout-window-s", f"{WINDOW_S / settings.speed:g}"]
        rollout += ["--metrics-every-s", f"{max(METRICS_S / settings.speed, LEAST_METRICS_S):g}"]
        delay = ["--reward-delay-s", f"{REWARD_DELAY_S / settings.speed:g}"]
    if settings.learner and settings.speed != 1.0:
        rollout += DEMO_ROLLOUT
    deciding = [] if settings.agents else ["--embedded-agent"]
    leading = "single" if settings.single else "coordinator"
    binders = 0 if settings.single else settings.binders * settings.shards
    wanted = (
        (leading, settings.coordinators, [*cluster, *learned, *rollout, *deciding]),
        ("agent", settings.agents, [*learned, *profiles, *delay]),
        ("binder", binders, cluster),
    )
    specs = []
    for service, count, own in wanted:
        for number in range(count):
            name = f"{service}-{number}"
            more = [*_admin(settings, number), *settings.coordinator_flags] if service in COORDINATING else []
            if service == "agent":
                more = [flag.replace("{name}", name) for flag in settings.agent_flags]
            if service == "binder" and settings.shards > 1:
                more = ["--shard", str(number % settings.shards)]
            argv = (sys.executable, "-m", f"services.{service}", "--id", name, *common, *own, *more)
            # One arena per thread pair keeps glibc from holding a heap per thread: memory per agent is a target.
            specs.append(ChildSpec(name, service, argv, env=(("MALLOC_ARENA_MAX", "2"),)))
    if settings.jobs:
        reports = ("--report-listen", "127.0.0.1:0")
        of_cluster = cluster[: len(cluster) - len(profiles)]
        argv = (sys.executable, "-m", "services.jobs", "--id", "jobs-0", *common, *of_cluster, *reports)
        specs.append(ChildSpec("jobs-0", "jobs", argv, env=(("MALLOC_ARENA_MAX", "2"),)))
    if settings.learner:
        argv = (sys.executable, "-m", LEARNER, "--id", "learner-0", *common, *_learning(settings))
        specs.append(ChildSpec("learner-0", "learner", argv))
    return specs


def _admin(settings: MeshSettings, number: int) -> list[str]:
    port = settings.admin_ports[number] if number < len(settings.admin_ports) else 0
    return ["--admin-listen", f"127.0.0.1:{port}", "--admin-token-file", str(settings.admin_token_file)]


def _learning(settings: MeshSettings) -> list[str]:
    """A learner in step with the mesh's time."""
    flags = ["--policy", settings.policy, "--state-dir", str(settings.state_dir / "learner")]
    return flags if settings.speed == 1.0 else [*flags, *DEMO_LEARNING]


class LocalMesh:
    """A running mesh: its processes and what they say."""

    def __init__(self, settings: MeshSettings, supervisor: Supervisor) -> None:
        self.settings = settings
        self.supervisor = supervisor
        self.leader: Child | None = None
        """The coordinator that was seen leading last."""
        self.stands_by = ""
        """Which other mesh we leave the cluster to, in a line; "" where we do not."""
        self._token = settings.token_file.read_text(encoding="ascii").strip()

    def start(self) -> list[Child]:
        """Start every process."""
        return [self.supervisor.start(spec) for spec in mesh_specs(self.settings)]

    async def get(self, url: str, path: str) -> Any:
        """JSON of one of our services; None where it does not answer 200."""
        try:
            target = target_of(url)
            async with asyncio.timeout(HTTP_TIMEOUT_S):
                connection = await dial(target)
                try:
                    text = f"GET {path} HTTP/1.1\r\n{target.headers}Authorization: Bearer {self._token}\r\n\r\n"
                    head, body = await connection.ask(text.encode(), HTTP_TIMEOUT_S)
                finally:
                    connection.abort()
            return msgspec.json.decode(body) if head.status == 200 else None
        except (OSError, TimeoutError, ValueError):
            return None

    async def schedules(self) -> str:
        """Empty when the mesh schedules; otherwise what is still missing."""
        self.leader, status = await self._leading()
        self.stands_by = str(status.get("stands_by") or "")
        told = "; ".join(status.get("warnings") or ())
        if self.leader is None:
            return f"no coordinator leads{': ' if told else ''}{told}"
        if not status.get("synced"):
            return f"the leading coordinator has not synced{': ' if told else ''}{told}"
        joined = len(status.get("agents") or ())
        if joined < self.settings.agents:
            return f"{joined} of {self.settings.agents} agents have joined"
        names, binders = self.settings.shard_names, status.get("binders") or {}
        leaderless = [name for name in names if not (binders.get(name) or {}).get("url")]
        if leaderless:
            return "no binder leads" + (f" shard {', '.join(leaderless)}" if len(names) > 1 else "")
        return ""

    async def _leading(self) -> tuple[Child | None, dict[str, Any]]:
        """The coordinator that says it leads, and all that it says; else what one of the others says."""
        standby: dict[str, Any] = {}
        for child in self.supervisor.children.values():
            if child.spec.service in COORDINATING and child.ready.is_set():
                status = await self.get(child.url, "/v1/status")
                if status and status.get("leading"):
                    return child, status
                standby = status or standby
        return None, standby

    async def wait_scheduling(self, *, on_wait: Callable[[str], None] | None = None) -> None:
        """Return once the mesh schedules. ``ConfigError``: a process cannot start, or it takes too long; a mesh that
        stands by for another one waits for as long as that is there."""
        missing = "nothing has started"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(READY_TIMEOUT_S) as patience:
                while missing:
                    if self.supervisor.failure.done():
                        self.supervisor.failure.result()
                    missing = await self.schedules()
                    if self.stands_by:
                        patience.reschedule(loop.time() + READY_TIMEOUT_S)
                    if on_wait is not None:
                        on_wait(missing)
                    if missing:
                        await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise ConfigError(
                f"the mesh does not schedule after {READY_TIMEOUT_S:g} s: {missing}; see {self.supervisor.log_dir}"
            ) from None
