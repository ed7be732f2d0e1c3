"""``conclave twin serve``: the twin's API server as a process of its own, for tests and for trying things out."""

from __future__ import annotations

from pathlib import Path

import click

from services.cli.run import become


@click.group()
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
@click.option("--simulate", is_flag=True, help="Play the kubelets of nodes annotated conclave.io/twin-node=true.")
@click.option(
    "--speed", type=float, default=1.0, show_default=True, help="Virtual seconds per second, with --simulate."
)
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
    ):
        if value is not None:
            flags += [name, str(value)]
    if simulate:
        flags += ["--simulate", "--speed", f"{speed:g}"]
    become("services.twin", tuple(flags))
