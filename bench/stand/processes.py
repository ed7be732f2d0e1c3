"""The processes that are measured: the twin's API server, ``conclave up``, a kube-scheduler; their CPU and memory."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from bench.stand.figures import quantile
from bench.stand.proc import cpu_s, descendants, rss_mb
from services.cli.etcd import read_mesh
from services.cli.local.mesh import free_ports
from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.wire.keys import Keys

READY_S = 180.0
EVERY_S = 1.0
CONCLAVE = [sys.executable, "-m", "services.cli"]


ROOT = Path(__file__).parents[2]


@functools.cache
def compile_modules(interpreter: str, checkout: Path) -> None:
    """Give a checkout the bytecode that an installation has, whatever PYTHONDONTWRITEBYTECODE says: pip compiles what
    it installs, and without it each process would do so as it starts, in a second of CPU and more."""
    made = subprocess.run([interpreter, "-m", "compileall", "-q", "services", "shared"], cwd=checkout, check=False)
    if made.returncode:
        sys.exit(f"bench: the modules of {checkout} cannot be compiled; may this user write there?")


def start_twin(folder: Path, *flags: str) -> tuple[subprocess.Popen[str], Path]:
    """The twin's API server and its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    serve = [*CONCLAVE, "twin", "serve", "--token", "bench-token-0123456789", "--kubeconfig-out", str(kubeconfig)]
    process = subprocess.Popen([*serve, *flags], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if not process.stdout.readline():
        sys.exit("bench: the twin did not start")
    return process, kubeconfig


TURNS = {"turns": "turn_duration_seconds", "turns_cpu": "turn_cpu_seconds"}
"""Of the leader's loop, by the clock and in CPU time: on a shared machine the clock counts the others too."""


def turn_figures(turns: dict[str, float]) -> dict[str, Any]:
    """How many, how many above 50 ms, and the border below which all of them are."""
    if not turns.get("+Inf"):
        return {}
    count = turns["+Inf"]
    border = next(name for name, value in turns.items() if name != "sum" and value == count)
    return {
        "count": int(count), "above_50_ms": int(count - turns["0.05"]),
        "longest_at_most_s": float(border), "seconds": round(turns["sum"], 2),
    }  # fmt: skip


def bearer(file: str) -> dict[str, str]:
    """The header with the first token of a file."""
    return {"Authorization": f"Bearer {Path(file).read_text().split()[0]}"}


def stop(process: subprocess.Popen[str]) -> None:
    """End what was started here."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass
class ProcessTreeUsage:
    """CPU and memory of a process and all below it, by service, sampled so that one that ends is not forgotten."""

    pid: int
    name: str = ""
    """Of the process itself; "" leaves it out."""
    _first: dict[int, float] = field(default_factory=dict)
    _last: dict[int, float] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)

    def sample(self) -> None:
        """Look once."""
        found = descendants(self.pid) | {self.pid: self.name or "up"}
        for pid in found:
            try:
                used = cpu_s(pid)
            except OSError:
                continue
            self._first.setdefault(pid, used if not self._names else 0.0)
            self._last[pid] = used
        self._names.update(found)

    def begin(self) -> None:
        """From here on."""
        self._first.clear()
        self._last.clear()
        self._names.clear()
        self.sample()

    def cpu_by_name(self) -> dict[str, float]:
        """CPU seconds since ``begin``."""
        self.sample()
        total: defaultdict[str, float] = defaultdict(float)
        for pid, last in self._last.items():
            total[self._names[pid].removeprefix("services.")] += last - self._first[pid]
        return dict(total)

    def since_birth(self) -> dict[str, float]:
        """CPU seconds of each process since it was started, by name; where ``begin`` was never called."""
        self.sample()
        total: defaultdict[str, float] = defaultdict(float)
        for pid, last in self._last.items():
            total[self._names[pid].removeprefix("services.")] += last
        return dict(total)

    def pid_of(self, identity: str) -> int:
        """The process that runs under this name now."""
        self.sample()
        alive = {pid for pid in self._names if Path(f"/proc/{pid}").exists()}
        return next(pid for pid in alive if self._names[pid].split()[-1] == identity)

    def rss(self) -> dict[str, float]:
        """MB now."""
        self.sample()
        found = {}
        for pid, name in self._names.items():
            try:
                found[name.removeprefix("services.")] = round(rss_mb(pid), 1)
            except OSError:
                continue
        return found


class BenchMesh:
    """``conclave up``. ``ready_at``: when it said so. ``checkout``: of another version, with its own ``.venv``."""

    title = "Conclave"

    def __init__(
        self, kubeconfig: Path, folder: Path, agents: int, *, coordinators: int = 2, binders: int = 2, shards: int = 1,
        checkout: Path | None = None, single: bool = False,
    ) -> None:  # fmt: skip
        """``binders``: of each of ``shards``, of which one leads; ``single``: they are in the coordinators' processes,
        and there are no agents."""
        counts = {"agents": agents, "coordinators": coordinators, "binders": binders}
        if shards > 1:  # an older checkout may know none
            counts["shards"] = shards
        own = checkout / ".venv" / "bin" / "python" if checkout is not None else Path(sys.executable)
        up = [str(own), "-m", "services.cli", "up", "--kubeconfig", str(kubeconfig), "--keep", str(folder / "state")]
        up += [word for name, count in counts.items() for word in (f"--{name}", str(count))]
        up += ["--single"] if single else []
        compile_modules(str(own), checkout or ROOT)
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(up, stdout=subprocess.PIPE, text=True, cwd=checkout)
        self.usage = ProcessTreeUsage(self.process.pid)
        self.ready_at = 0.0
        self.leader = ""
        self._term = 0
        self._session: aiohttp.ClientSession | None = None
        self._status_ms: list[float] = []
        self._status_failed = 0

    async def ready(self) -> None:
        """Wait for the ready line."""
        assert self.process.stdout is not None
        line = await asyncio.to_thread(self.process.stdout.readline)
        self.ready_at = time.monotonic()
        if not line.startswith("ready"):
            sys.exit("bench: the mesh did not become ready")
        words = dict(word.split("=", 1) for word in line.split()[1:])
        self._admin, self._url = words["admin"], words["url"]
        self._headers = bearer(words["admin-token-file"])
        self._peer = bearer(words["token-file"])
        self._store = EtcdStore(EtcdSettings(endpoints=tuple(words["etcd"].split(","))))
        self._session = aiohttp.ClientSession()
        self.leader, self._term = await self.leading()

    async def leading(self) -> tuple[str, int]:
        """(who leads, since which term), by etcd."""
        view = await read_mesh(self._store, Keys())
        return (view.coordinator.record.identity, view.coordinator.term) if view.coordinator else ("", 0)

    async def leading_process(self, service: str) -> str:
        """Who of the service leads, by etcd."""
        view = await read_mesh(self._store, Keys())
        leading = view.coordinator if service == "coordinator" else next(iter(view.binders.values()), None)
        return leading.record.identity if leading is not None else ""

    async def stats(self) -> dict[str, Any]:
        """The leader's own figures; nothing where it does not answer."""
        assert self._session is not None
        try:
            async with self._session.get(
                self._url + "/v1/stats", headers=self._peer, timeout=aiohttp.ClientTimeout(5)
            ) as told:
                found: dict[str, Any] = msgspec.json.decode(await told.read())
                return found
        except (aiohttp.ClientError, TimeoutError):
            return {}

    async def turns(self, name: str) -> dict[str, float]:
        """The leader's turns so far, as the histogram ``name`` has them: by upper border in seconds, and their sum."""
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(5)
        try:
            async with self._session.get(self._url + "/metrics", headers=self._peer, timeout=timeout) as told:
                lines = (await told.text()).splitlines()
        except (aiohttp.ClientError, TimeoutError):
            return {}
        pattern = re.compile(rf'conclave_{name}_(?:bucket{{le="(.+)"}}|(sum)) (.+)')
        found = [match for line in lines if (match := pattern.fullmatch(line))]
        return {match[1] or match[2]: float(match[3]) for match in found}

    async def look(self) -> None:
        """Ask as ``conclave status`` does, once."""
        assert self._session is not None
        asked = time.monotonic()

        async def one(path: str) -> None:
            assert self._session is not None
            async with self._session.get(self._admin + path, headers=self._headers) as told:
                await told.read()
                told.raise_for_status()

        try:
            async with asyncio.timeout(10):
                await asyncio.gather(one("/v1/overview"), one("/v1/members?limit=500"), one("/v1/terms?limit=10"))
        except (aiohttp.ClientError, TimeoutError):
            self._status_failed += 1
        self._status_ms.append((time.monotonic() - asked) * 1000)

    def status_figures(self) -> dict[str, Any]:
        """Since the last call."""
        taken, failed, self._status_ms, self._status_failed = self._status_ms, self._status_failed, [], 0
        return {"asked": len(taken), "failed": failed, "p50_ms": quantile(taken, 50), "p99_ms": quantile(taken, 99)}

    async def lease_figures(self) -> dict[str, Any]:
        """Whether the leader that was there at ``ready`` still leads."""
        identity, term = await self.leading()
        return {"term_at_ready": self._term, "term_now": term, "kept": (identity, term) == (self.leader, self._term)}

    async def close(self) -> None:
        """End it."""
        if self._session is not None:
            await self._session.close()
            await self._store.close()
        stop(self.process)


class KubeScheduler:
    """A kube-scheduler with its defaults, for the same pods; ``qps``: of its client, for its 50. Ready is what its
    ``/readyz`` calls so."""

    title = "kube-scheduler"
    leader = "kube-scheduler"

    def __init__(self, binary: str, kubeconfig: Path, folder: Path, *, gates: str = "", qps: int = 0) -> None:
        self._port = free_ports(1)[0]
        config = folder / "scheduler.yaml"
        rate = f", qps: {qps}, burst: {qps}" if qps else ""
        config.write_text(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            f"leaderElection: {{leaderElect: false}}\nclientConnection: {{kubeconfig: {kubeconfig}{rate}}}\n"
            "profiles: [{schedulerName: conclave}]\n"
        )
        command = [binary, "--config", str(config), "--bind-address", "127.0.0.1", "--secure-port", str(self._port),
                   "--cert-dir", str(folder), *(["--feature-gates", gates] if gates else [])]  # fmt: skip
        self.started_at = time.monotonic()
        self._log = (folder / "kube-scheduler.log").open("w")
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, text=True)
        self.usage = ProcessTreeUsage(self.process.pid, "kube-scheduler")
        self.ready_at = 0.0

    async def ready(self) -> None:
        """Wait until it has listed everything."""
        async with aiohttp.ClientSession() as session:
            while self.process.poll() is None and time.monotonic() < self.started_at + READY_S:
                try:
                    async with session.get(f"https://127.0.0.1:{self._port}/readyz", ssl=False) as told:
                        if told.status == 200:
                            self.ready_at = time.monotonic()
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)
        sys.exit(f"bench: the kube-scheduler did not become ready; see {self._log.name}")

    async def stats(self) -> dict[str, Any]:
        return {}

    async def turns(self, name: str) -> dict[str, float]:
        del name
        return {}

    async def look(self) -> None:
        """It has no such command."""

    def status_figures(self) -> dict[str, Any]:
        return {}

    async def lease_figures(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None:
        """End it."""
        stop(self.process)
        self._log.close()


Scheduler = BenchMesh | KubeScheduler


class WatchedProcesses:
    """``async with``: the CPU of a scheduler is counted, and its status asked for, each second."""

    def __init__(self, scheduler: Scheduler, cpus: dict[str, int]) -> None:
        self._scheduler = scheduler
        self._others = {name: (pid, 0.0) for name, pid in cpus.items()}
        self.figures: dict[str, Any] = {}

    async def __aenter__(self) -> WatchedProcesses:
        self._scheduler.usage.begin()
        self._scheduler.status_figures()
        self._others = {name: (pid, cpu_s(pid)) for name, (pid, _) in self._others.items()}
        self._turns = {name: await self._scheduler.turns(name) for name in TURNS.values()}
        self._began, self._load = time.monotonic(), os.getloadavg()[0]
        self._task = asyncio.create_task(self._sample())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        took_s, by_name = time.monotonic() - self._began, self._scheduler.usage.cpu_by_name()
        mesh = {name: used for name, used in by_name.items() if not name.startswith("etcd")}
        leader = sum(used for name, used in mesh.items() if name.split()[-1:] == [self._scheduler.leader])
        turns = {name: await self._scheduler.turns(name) for name in TURNS.values()}
        self.figures = {
            "seconds": round(took_s, 1),
            "machine_load": {"before": round(self._load, 2), "after": round(os.getloadavg()[0], 2)},
            "cpu_s": {name: round(used, 2) for name, used in sorted(by_name.items())},
            "cores": round(sum(mesh.values()) / took_s, 3),
            "cores_with_etcd": round(sum(by_name.values()) / took_s, 3),
            "leader_share": round(leader / sum(mesh.values()), 3) if sum(mesh.values()) else 0.0,
            "cores_of_others": {n: round((cpu_s(pid) - at) / took_s, 3) for n, (pid, at) in self._others.items()},
            "rss_mb": self._scheduler.usage.rss(),
            "status": self._scheduler.status_figures(),
            "lease": await self._scheduler.lease_figures(),
            **{
                title: turn_figures({at: value - self._turns[name].get(at, 0.0) for at, value in turns[name].items()})
                for title, name in TURNS.items()
            },
        }

    def cpu_s(self) -> float:
        """Of the scheduler without etcd, since it began."""
        return sum(used for name, used in self._scheduler.usage.cpu_by_name().items() if not name.startswith("etcd"))

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            self._scheduler.usage.sample()
            await self._scheduler.look()
