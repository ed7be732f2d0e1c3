"""``python -m twin``: parse flags, serve until SIGTERM or SIGINT; nothing else."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
import uvloop

from shared.adapters.http.sockets import EVERY
from shared.errors import ConfigError
from shared.hostport import join_host_port, url_of
from shared.runtime.observe import logging
from twin.api.server import TwinServer
from twin.audit import FLUSH_EVERY_S, AuditFile
from twin.bootstrap import make_registry
from twin.certificate import make_server_tls
from twin.cluster_file import MOST_NODES, ClusterFile, plain_cluster, populate, read_cluster
from twin.controllers.device_claims import DeviceClaimController
from twin.controllers.device_drivers import DeviceDrivers
from twin.controllers.device_taints import DeviceTaintEviction
from twin.controllers.disruptions import DisruptionController
from twin.controllers.garbage_collector import GarbageCollector
from twin.controllers.kubelet import Kubelets
from twin.controllers.node_room import NodeRoomController
from twin.controllers.node_zones import NodeZonesController
from twin.controllers.pod_groups import PodGroupProtection
from twin.controllers.runtime import Controller
from twin.controllers.volumes import VolumeController
from twin.controllers.workloads import WorkloadController
from twin.faults import FaultPlan
from twin.kinds.table import KUBERNETES
from twin.kubeconfig import kubeconfig_text, write_atomically
from twin.registry.registry import TwinRegistry
from twin.request_log import RequestLog

_ALONE = (
    "no kubelets and no controllers are played: Deployments and Jobs make no pods, bound pods stay Pending;"
    " --simulate plays them"
)


def _give_up(message: str) -> NoReturn:
    """One line on stderr, exit code 2: the same for every unusable flag or file."""
    click.echo(f"conclave twin: {message}", err=True)
    sys.exit(2)


def _read_faults(path: Path) -> FaultPlan:
    try:
        return FaultPlan.parse(json.loads(path.read_text()))
    except OSError as error:
        _give_up(f"cannot read the fault plan {path}: {error.strerror}")
    except ValueError as error:
        _give_up(f"the fault plan {path} cannot be used: {error}")


def _read_token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        token = path.read_text().strip()
    except OSError as error:
        _give_up(f"--token-file: cannot read {path}: {error.strerror}")
    if not token:
        _give_up(f"--token-file: {path} is empty; write the administrator's token into it")
    return token


def _open_request_log(path: Path | None) -> RequestLog | None:
    if path is None:
        return None
    try:
        return RequestLog(path)
    except OSError as error:
        _give_up(f"--requests: cannot write {path}: {error.strerror}")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0 lets the system choose.")
@click.option("--token", default="", help="The administrator's bearer token; generated when it is not given.")
@click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False), help="Read the token from this file.")
@click.option("--advertise", default="", help="Host name for the kubeconfig and the certificate; default: --host.")
@click.option("--kubeconfig-out", type=click.Path(path_type=Path, dir_okay=False), help="Write a kubeconfig here.")
@click.option(
    "--kubeconfig-scheme",
    type=click.Choice(["http", "https"]),
    default="http",
    show_default=True,
    help="https: the port speaks TLS too, which kubectl needs to send a token.",
)
@click.option("--audit", type=click.Path(path_type=Path, dir_okay=False), help="Write every accepted change here.")
@click.option(
    "--requests",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write here who asked for which verb on which resource, once each.",
)
@click.option("--faults", type=click.Path(path_type=Path, dir_okay=False), help="A fault plan (JSON) to start with.")
@click.option(
    "--simulate",
    is_flag=True,
    help="Play the controllers of Deployments, ReplicaSets, Jobs, budgets, volumes and deletions, and the kubelets of "
    "nodes annotated conclave.io/twin-node=true.",
)
@click.option(
    "--speed", type=float, default=1.0, show_default=True, help="Virtual seconds per second; with --simulate."
)
@click.option(
    "--kubernetes",
    type=click.Choice(KUBERNETES),
    default=KUBERNETES[0],
    show_default=True,
    help="The release to answer for: 1.36 has pod groups in scheduling.k8s.io/v1alpha2, 1.37 in v1beta1.",
)
@click.option(
    "--cluster",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Nodes, devices and objects to begin with (YAML).",
)
@click.option("--nodes", type=click.IntRange(0, MOST_NODES), help="Begin with so many nodes, in place of --cluster.")
@click.option("--devices", type=click.IntRange(0), help="Devices of each of them, of the driver gpu.example.com.")
@click.option("--seed", type=int, default=None, help="Repeat uids and injected faults.")
def main(
    host: str,
    port: int,
    token: str,
    token_file: Path | None,
    advertise: str,
    kubeconfig_out: Path | None,
    kubeconfig_scheme: str,
    audit: Path | None,
    requests: Path | None,
    faults: Path | None,
    simulate: bool,
    speed: float,
    kubernetes: str,
    cluster: Path | None,
    nodes: int | None,
    devices: int | None,
    seed: int | None,
) -> None:
    """Serve enough of the Kubernetes API for real clients, from memory."""
    logging.configure("twin")
    rng = random.Random(seed)
    plan = _read_faults(faults) if faults is not None else FaultPlan()
    token = token or _read_token(token_file) or secrets.token_urlsafe(24)
    registry = make_registry(clock=time.time, rng=rng, kubernetes=kubernetes)
    flush: Callable[[], None] | None = None
    writer: AuditFile | None = None
    if audit is not None:
        try:
            writer = AuditFile(audit)
        except OSError as error:
            _give_up(f"cannot write the audit file {audit}: {error.strerror}")
        registry.subscribe(writer)
        flush = writer.flush
    try:
        populate(registry, cluster_of(cluster, nodes, devices, simulate=simulate))
        kubelets = Kubelets(registry, speed=speed) if simulate else None
        players = _players(registry, kubelets, speed)
    except ConfigError as error:
        _give_up(str(error))
    # an address that stands for every one is none to be called by
    name = advertise or ("localhost" if host in EVERY else host)
    tls, certificate = make_server_tls(name, dt.datetime.now(dt.UTC)) if kubeconfig_scheme == "https" else (None, b"")
    witness = _open_request_log(requests)
    server = TwinServer(registry, token=token, faults=plan, rng=rng, tls=tls, witness=witness)
    if kubelets is not None:
        server.metrics.play(kubelets.used, speed=speed)

    def announce(bound: int) -> None:
        if kubeconfig_out is not None:
            text = kubeconfig_text(url_of(kubeconfig_scheme, name, bound), token, certificate)
            try:
                write_atomically(kubeconfig_out, text)
            except OSError as error:
                _give_up(f"cannot write the kubeconfig {kubeconfig_out}: {error.strerror}")
        click.echo(f"serving {url_of('http', host, bound)}")
        sys.stdout.flush()
        if not simulate:
            click.echo(f"conclave twin: {_ALONE}", err=True)

    try:
        uvloop.run(_serve(server, host, port, announce, flush, players))
    finally:
        for file in (writer, witness):
            if file is not None:
                file.close()


def cluster_of(path: Path | None, nodes: int | None, devices: int | None, *, simulate: bool) -> ClusterFile:
    """What the flags say of the cluster to begin with."""
    given = [
        name for name, value in (("--cluster", path), ("--nodes", nodes), ("--devices", devices)) if value is not None
    ]
    if given and not simulate:
        raise ConfigError(f"{given[0]} needs --simulate: without it nobody plays the nodes")
    if path is not None:
        if len(given) > 1:
            raise ConfigError(f"--cluster and {given[1]}: the file says how many there are; drop one of the two")
        return read_cluster(path)
    if devices is not None and nodes is None:
        raise ConfigError("--devices needs --nodes: how many nodes have them?")
    return plain_cluster(nodes or 0, devices or 0)


def _players(registry: TwinRegistry, kubelets: Kubelets | None, speed: float) -> list[Controller[Any]]:
    """Who acts on the cluster; nobody does without kubelets."""
    if kubelets is None:
        return []
    return [
        kubelets,
        VolumeController(registry, speed=speed),
        WorkloadController(registry),
        DisruptionController(registry),
        GarbageCollector(registry),
        PodGroupProtection(registry),
        DeviceClaimController(registry),
        DeviceDrivers(registry),
        DeviceTaintEviction(registry, speed=speed),
        NodeZonesController(registry, speed=speed),
        NodeRoomController(registry),
    ]


async def _serve(
    server: TwinServer,
    host: str,
    port: int,
    announce: Callable[[int], None],
    flush: Callable[[], None] | None,
    players: Sequence[Controller[Any]],
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        await server.start(port, host)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        _give_up(f"--port: cannot listen on {join_host_port(host, port)}: {why}; give another one")
    for player in players:
        player.start()
    announce(server.port)
    while not stopping.is_set():
        try:
            async with asyncio.timeout(FLUSH_EVERY_S if flush is not None else None):
                await stopping.wait()
        except TimeoutError:
            assert flush is not None
            flush()
    for player in players:
        player.stop()
    await server.stop()


if __name__ == "__main__":
    main()
