"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, at will a kube-scheduler, and a
hollow kubelet for every node.

    .venv/bin/python -m tests.real.plane --nodes 10 [--kube-scheduler] [--dir DIR]

prints one line of JSON when it serves (``kubeconfig``, ``url``, ``token``, ``audit_log``, ``folder``) and runs until
SIGTERM or Ctrl-C. The binaries lie in the folder that ``KUBERNETES_BINARIES`` names; they are not ours and no part
of the project. Everything listens on loopback, on free ports, so several planes can run side by side.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import ssl
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings
from shared.runtime.process.linux import die_with_parent
from tests.certificates import TestCa
from tests.real.hollow import HollowKubelets, hollow_node

VARIABLE = "KUBERNETES_BINARIES"
NEEDED = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
START_S = 240.0
"""Until everything serves: a bound for a loaded machine."""
LOOK_EVERY_S = 0.1
"""Of a health check; a start takes some ten seconds."""
GATES = "GenericWorkload=true,GangScheduling=true"
"""Alpha in 1.36: the PodGroups of Kubernetes itself."""
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:conclave-system"]},
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "None", "resources": [{"group": "coordination.k8s.io"}]},
        {"level": "Metadata"},
    ],
}


def binaries() -> Path | None:
    """The folder of the real binaries; None: not here, for the reason that ``missing`` tells."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder and not missing() else None


def missing() -> str:
    """Why there is no real plane here, in one line; empty where there is one."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return f"{VARIABLE} names no folder with {', '.join(NEEDED)}"
    lacking = [name for name in NEEDED if not os.access(Path(folder) / name, os.X_OK)]
    return f"{VARIABLE}={folder}: no executable {', '.join(lacking)} in it" if lacking else ""


@dataclass
class PlaneSettings:
    """What a plane is made of."""

    folder: Path
    nodes: int = 3
    cpu: str = "4"
    memory: str = "16Gi"
    pods: int = 110
    gpus: int = 0
    zones: int = 3
    kube_scheduler: bool = False
    feature_gates: str = GATES
    runtime_config: str = "api/all=true"
    host: str = "127.0.0.1"
    """Or ::1."""
    extra: tuple[str, ...] = ()
    """Further flags of the API server."""
    scheduler_config: dict[str, Any] = field(default_factory=dict)
    """Further fields of kube-scheduler's configuration."""
    server_only: bool = False
    """No controller, no kubelet, no node, no audit: for benches, which bring their own nodes."""


class Plane:
    """``async with Plane(settings) as plane``: it serves, and its nodes are Ready."""

    def __init__(self, settings: PlaneSettings) -> None:
        found = binaries()
        if found is None:
            raise SystemExit(missing())
        self._binaries = found
        self.settings = settings
        self.folder = settings.folder
        self.kubeconfig = settings.folder / "admin.kubeconfig"
        self.audit_log = settings.folder / "audit.jsonl"
        self.token = "admin-of-a-test-plane"
        self._ca = TestCa()
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._etcd: EmbeddedEtcd | None = None
        self._kubelets: HollowKubelets | None = None
        self._session: aiohttp.ClientSession | None = None
        self._port = _free_port(settings.host)

    @property
    def url(self) -> str:
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"https://{host}:{self._port}"

    @property
    def session(self) -> aiohttp.ClientSession:
        """As the administrator; paths are relative to ``url``."""
        assert self._session is not None
        return self._session

    def pid(self, name: str) -> int:
        """Of ``kube-apiserver`` and the others."""
        return self._processes[name].pid

    @property
    def pids(self) -> dict[str, int]:
        """Of all that runs, etcd too."""
        assert self._etcd is not None
        return {"etcd": self._etcd.pid} | {name: process.pid for name, process in self._processes.items()}

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(START_S):
                await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        ca = self._ca.write(self.folder / "ca.pem")
        self._write_files()
        own = self._binaries / "etcd"
        settings = EmbeddedEtcdSettings(
            data_dir=self.folder / "etcd",
            binary=own if os.access(own, os.X_OK) else None,
            fsync=False,
            die_with_parent=True,
        )
        self._etcd = EmbeddedEtcd(settings)
        await self._etcd.start()
        context = ssl.create_default_context(cafile=str(ca))
        self._session = aiohttp.ClientSession(
            self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            connector=aiohttp.TCPConnector(ssl=context, limit=64),
            timeout=aiohttp.ClientTimeout(total=60),
        )
        await self.start("kube-apiserver")
        if self.settings.server_only:
            return
        await self.start("kube-controller-manager")
        if self.settings.kube_scheduler:
            await self.start("kube-scheduler")
        self._kubelets = HollowKubelets(self._session)
        await self._kubelets.start()
        made = self.settings
        for number in range(made.nodes):
            labels = {"topology.kubernetes.io/zone": f"zone-{number % made.zones}"} if made.zones else {}
            node = hollow_node(
                f"node-{number}", cpu=made.cpu, memory=made.memory, pods=made.pods, gpus=made.gpus, labels=labels
            )
            async with self._session.post("/api/v1/nodes", json=node) as answer:
                assert answer.status == 201, await answer.text()
        await self._kubelets.all_ready(made.nodes)

    def _write_files(self) -> None:
        hosts = (self.settings.host, "127.0.0.1", "localhost", "kubernetes.default.svc")
        self._ca.issue(self.folder, "kube-apiserver", *hosts)
        self._ca.issue(self.folder, "front-proxy")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self.folder / "sa.key").write_bytes(private)
        (self.folder / "sa.pub").write_bytes(public)
        people = [(self.token, "admin", "system:masters")]
        people += [(f"token-of-{name}", f"system:{name}", "") for name in NEEDED[1:]]
        self._text("tokens.csv", "".join(f'{token},{user},{user},"{group}"\n' for token, user, group in people))
        self._text("audit.yaml", yaml.safe_dump(AUDIT_POLICY))
        self._text("admin.kubeconfig", self.kubeconfig_for(self.token))
        for name in NEEDED[1:]:
            self._text(f"{name}.kubeconfig", self.kubeconfig_for(f"token-of-{name}"))
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self.folder / "kube-scheduler.kubeconfig"),
                "qps": 500,
                "burst": 500,
            },
            **self.settings.scheduler_config,
        }
        self._text("scheduler.yaml", yaml.safe_dump(config))

    def _text(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def kubeconfig_for(self, token: str) -> str:
        """A kubeconfig of this plane with that bearer token, as YAML."""
        cluster = {"server": self.url, "certificate-authority": str(self.folder / "ca.pem")}
        return yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "real",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "user"}}],
        })  # fmt: skip

    def _flags(self, name: str) -> list[str]:
        at, made = self.folder, self.settings
        gates = [f"--feature-gates={made.feature_gates}"] if made.feature_gates else []
        listen = [f"--bind-address={made.host}"]
        if name == "kube-apiserver":
            assert self._etcd is not None
            audit = (f"--audit-policy-file={at / 'audit.yaml'}", f"--audit-log-path={self.audit_log}")
            return [
                *listen, *gates, f"--secure-port={self._port}", f"--etcd-servers={self._etcd.endpoint}",
                *(() if made.server_only else audit),
                f"--cert-dir={at / 'certs'}", f"--tls-cert-file={at / 'kube-apiserver.pem'}",
                f"--tls-private-key-file={at / 'kube-apiserver.key'}", f"--token-auth-file={at / 'tokens.csv'}",
                "--authorization-mode=Node,RBAC", "--allow-privileged=true",
                f"--service-cluster-ip-range={'fd00:96::/112' if ':' in made.host else '10.96.0.0/16'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={at / 'sa.pub'}", f"--service-account-signing-key-file={at / 'sa.key'}",
                f"--runtime-config={made.runtime_config}", f"--requestheader-client-ca-file={at / 'ca.pem'}",
                "--requestheader-allowed-names=front-proxy", "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                f"--proxy-client-cert-file={at / 'front-proxy.pem'}",
                f"--proxy-client-key-file={at / 'front-proxy.key'}", *made.extra,
            ]  # fmt: skip
        port = f"--secure-port={_free_port(made.host)}"
        if name == "kube-controller-manager":
            return [
                *listen, *gates, port, f"--kubeconfig={at / (name + '.kubeconfig')}", f"--cert-dir={at / 'kcm'}",
                "--leader-elect=false", "--use-service-account-credentials=true",
                f"--service-account-private-key-file={at / 'sa.key'}", f"--root-ca-file={at / 'ca.pem'}",
                "--kube-api-qps=200", "--kube-api-burst=400",
            ]  # fmt: skip
        return [*listen, *gates, port, f"--config={at / 'scheduler.yaml'}", f"--cert-dir={at / 'ks'}"]

    async def start(self, name: str) -> None:
        """Start one of the three (again); the API server: until it is ready."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                str(self._binaries / name), *self._flags(name), stdin=asyncio.subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        if name == "kube-apiserver":
            while not await self._ready():
                if self._processes[name].returncode is not None:
                    last = (self.folder / f"{name}.log").read_text().splitlines()[-1:]
                    raise SystemExit(f"{name} ended: {''.join(last)}")
                await asyncio.sleep(LOOK_EVERY_S)

    async def _ready(self) -> bool:
        try:
            async with self.session.get("/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def stop(self, name: str, with_signal: int = signal.SIGTERM) -> None:
        """End one of them and wait for its end."""
        process = self._processes.pop(name)
        if process.returncode is None:
            process.send_signal(with_signal)
            try:
                async with asyncio.timeout(15):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    async def close(self) -> None:
        """End everything that was started."""
        if self._kubelets is not None:
            await self._kubelets.close()
        if self._session is not None:
            await self._session.close()
        for name in reversed(list(self._processes)):
            await self.stop(name, signal.SIGTERM if name == "kube-controller-manager" else signal.SIGKILL)
        if self._etcd is not None:
            await self._etcd.kill()

    def told(self) -> dict[str, Any]:
        """What a caller needs to use it."""
        return {
            "kubeconfig": str(self.kubeconfig), "url": self.url, "token": self.token, "ca": str(self.folder / "ca.pem"),
            "audit_log": str(self.audit_log), "folder": str(self.folder), "pids": self.pids,
        }  # fmt: skip


def _free_port(host: str) -> int:
    """One that nobody listens on, below those that the kernel gives to outgoing connections: on a busy machine such a
    one is taken between the look and the server's start."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        port = random.randrange(10_000, 32_768)
        with socket.socket(family) as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port


async def _run(settings: PlaneSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Plane(settings) as plane:
        print(json.dumps(plane.told()), flush=True)
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A real control plane with hollow kubelets, until it is stopped.")
    parser.add_argument("--dir", type=Path, help="where its files go (a new temporary folder)")
    parser.add_argument("--nodes", type=int, default=3, help="hollow nodes (3)")
    parser.add_argument("--cpu", default="4", help="of each node (4)")
    parser.add_argument("--memory", default="16Gi", help="of each node (16Gi)")
    parser.add_argument("--pods", type=int, default=110, help="that a node may hold (110)")
    parser.add_argument("--gpus", type=int, default=0, help="nvidia.com/gpu of each node (0)")
    parser.add_argument("--zones", type=int, default=3, help="dealt in turns (3; 0: none)")
    parser.add_argument("--host", default="127.0.0.1", help="loopback address to listen on (127.0.0.1, or ::1)")
    parser.add_argument("--kube-scheduler", action="store_true", help="run one too, for pods that name no other")
    parser.add_argument("--server-only", action="store_true", help="no controller, kubelet, node or audit: for benches")
    parser.add_argument("--feature-gates", default=GATES, help=f"({GATES})")
    parser.add_argument("--scheduler-config", type=Path, help="further fields of kube-scheduler's configuration, YAML")
    parser.add_argument("--flag", action="append", default=[], help="a further flag of the API server, repeatable")
    given = parser.parse_args()
    if reason := missing():
        sys.exit(reason)
    with tempfile.TemporaryDirectory(prefix="plane-") as temporary:
        settings = PlaneSettings(
            given.dir or Path(temporary), given.nodes, given.cpu, given.memory, given.pods, given.gpus, given.zones,
            given.kube_scheduler, given.feature_gates, host=given.host, extra=tuple(given.flag),
            server_only=given.server_only,
            scheduler_config=yaml.safe_load(given.scheduler_config.read_text()) if given.scheduler_config else {},
        )  # fmt: skip
        asyncio.run(_run(settings))


if __name__ == "__main__":
    main()
