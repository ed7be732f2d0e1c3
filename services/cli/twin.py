"""``conclave twin``: the simulated cluster.

``serve`` runs its API server as a process of its own; what records clusters and plays them is the lab's, and is loaded
when it is asked for.
"""

from __future__ import annotations

from pathlib import Path

import click

from services.cli.app import Commands
from services.cli.local.run import become

LAB = dict.fromkeys(("capture", "lost", "replay", "series", "trace"), "lab.cli.twin.command") | dict.fromkeys(
    ("divide", "judge"), "lab.cli.twin.judging"
)


@click.group(commands=Commands(LAB))
def twin() -> None:
    """The simulated cluster."""


@twin.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port to listen on.")
@click.option("--token", help="Only this bearer token is let in, as cluster admin.")
@click.option("--token-file", type=click.Path(path_type=Path), help="Read that token from a file.")
@click.option("--advertise", help="Host name for the kubeconfig and the certificate; default: --host.")
@click.option("--kubeconfig-out", type=click.Path(path_type=Path), help="Write a kubeconfig for the server here.")
@click.option("--audit", type=click.Path(path_type=Path), help="Write every accepted change here, as JSON lines.")
@click.option(
    "--requests", type=click.Path(path_type=Path), help="Write who asked for which verb on which resource here."
)
@click.option("--faults", type=click.Path(path_type=Path), help="Faults to inject from the start, as JSON.")
@click.option(
    "--simulate",
    is_flag=True,
    help="Play the controllers of Deployments, ReplicaSets, Jobs, volumes and deletions, and the kubelets of nodes "
    "annotated conclave.io/twin-node=true.",
)
@click.option(
    "--speed", type=float, default=1.0, show_default=True, help="Virtual seconds per second, with --simulate."
)
@click.option(
    "--kubernetes",
    type=click.Choice(["1.36", "1.37"]),
    default="1.36",
    show_default=True,
    help="The release to answer for: 1.36 has pod groups in scheduling.k8s.io/v1alpha2, 1.37 in v1beta1.",
)
@click.option("--cluster", type=click.Path(path_type=Path), help="Nodes, devices and objects to begin with, as YAML.")
@click.option("--nodes", type=click.IntRange(0), help="Begin with so many nodes, in place of --cluster.")
@click.option("--devices", type=click.IntRange(0), help="Devices of each of them, of the driver gpu.example.com.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Repeat uids, generated names and injected faults.")
def serve(
    host: str,
    port: int,
    token: str | None,
    token_file: Path | None,
    advertise: str | None,
    kubeconfig_out: Path | None,
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
    """Serve the Kubernetes API from memory until SIGTERM; prints one line when it does."""
    # kubectl sends a token over TLS only, so what people start by hand speaks it beside plain HTTP.
    flags = ["--host", host, "--port", str(port), "--kubeconfig-scheme", "https"]
    for name, value in (
        ("--token", token),
        ("--token-file", token_file),
        ("--advertise", advertise),
        ("--kubeconfig-out", kubeconfig_out),
        ("--audit", audit),
        ("--requests", requests),
        ("--faults", faults),
        ("--kubernetes", kubernetes),
        ("--cluster", cluster),
        ("--nodes", nodes),
        ("--devices", devices),
        ("--seed", seed),
    ):
        if value is not None:
            flags += [name, str(value)]
    if simulate:
        flags += ["--simulate", "--speed", f"{speed:g}"]
    become("twin", tuple(flags))
