"""``conclave version``: what is installed, for bug reports."""

from __future__ import annotations

import platform
from importlib import metadata

import click

from services.cli.listing.wanted import DOCUMENTS, document_text
from shared.errors import ConfigError

LIBRARIES = ("aiohttp", "etcd3", "grpcio", "kubernetes", "msgpack", "msgspec", "numpy", "torch")


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml", "text"]),
    default="table",
    help="How to print it; text is table.",
)
def version(output: str) -> None:
    """Print the versions of Conclave, Python, etcd and the libraries that matter."""
    found = {"conclave": _library("conclave"), "python": platform.python_version(), "etcd": _etcd()}
    found |= {name: _library(name) for name in LIBRARIES}
    if output in DOCUMENTS:
        click.echo(document_text(found, output))
        return
    for name, text in found.items():
        click.echo(f"{name:<12} {text}")


def _library(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _etcd() -> str:
    from shared.runtime.process.embedded_etcd import find_etcd

    try:
        binary = find_etcd()
    except ConfigError:
        return "not found"
    problem = " (not safe: docs/operations/etcd.md)" if binary.problem else ""
    return f"{binary.release or 'unknown'}, {binary.why}{problem}"
