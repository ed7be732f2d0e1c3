"""``conclave context``: names for servers, so that nobody types addresses. It speaks to no server.

See ``services.cli.server.contexts`` for the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from services.cli.listing.kinds import Json, ListKind, text
from services.cli.listing.options import options_alone
from services.cli.listing.wanted import FoundItems, ListQuery
from services.cli.server.contexts import (
    ContextEntry,
    Contexts,
    check_name,
    contexts_file,
    read_contexts,
    write_contexts,
)
from services.cli.server.options import NAMESPACE_OF_MESH, complete_context, removed_options
from services.cli.server.target import DEFAULT_NAMESPACE, ServerCredentials, direct
from shared.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = click.Path(path_type=Path)


@click.group()
def context() -> None:
    """Keep names for servers: list, use, add and remove contexts."""


def _where(entry: Json) -> str:
    kube = f"kube context {entry.get('kube-context')}, namespace {entry.get('namespace') or DEFAULT_NAMESPACE}"
    return entry.get("server") or kube


def _by(entry: Json) -> str:
    if entry.get("cert"):
        return f"certificate {entry['cert']}"
    if entry.get("token-file"):
        return f"token in {entry['token-file']}"
    return "token from the cluster" if entry.get("kube-context") else "none"


CONTEXTS = ListKind(
    title="Context",
    resource="context",
    columns=(
        text("CURRENT", "current", lambda entry: "*" if entry.get("current") else " "),
        text("NAME", "name"),
        text("SERVER", _where, cut=True),
        text("CREDENTIALS", _by, cut=True),
    ),
)


@context.command("list")
@options_alone(CONTEXTS)
def list_contexts(wanted: ListQuery) -> None:
    """List the contexts; the current one is marked."""
    known = _read()
    rows = [{"name": name, "current": name == known.current, **entry.to_toml()} for name, entry in _sorted(known)]
    lines = wanted.text(FoundItems(rows))
    click.echo("\n".join(lines) or f"no contexts in {contexts_file(os.environ)}; make one with 'conclave context add'")


@context.command()
@click.argument("name", shell_complete=complete_context)
def use(name: str) -> None:
    """Let NAME be the current context: commands without --server or --context go there."""
    known = _read()
    known.named(name)
    write_contexts(contexts_file(os.environ), Contexts(name, known.entries))
    click.echo(f"current context: {name}")


@context.command()
@click.argument("name")
@click.option("--server", default="", metavar="URL", help="Admin address; several, comma-separated, where any will do.")
@click.option("--token-file", type=FILE, help="File with our token.")
@click.option("--ca", type=FILE, help="CA of the server's certificate (PEM).")
@click.option("--cert", type=FILE, help="Our certificate (PEM), instead of a token.")
@click.option("--key", type=FILE, help="The key of --cert (PEM).")
@click.option(
    "--kube-context", default="", metavar="NAME", help="Instead of --server: a cluster's mesh, through kubectl."
)
@click.option("--mesh-namespace", "namespace", default="", help="Where the mesh is in it.  [default: conclave-system]")
@removed_options("-n", "--namespace", instead=NAMESPACE_OF_MESH)
@click.option("--use", "use_it", is_flag=True, help="Let it be the current context; the first one is in any case.")
@click.option("--replace", is_flag=True, help="Replace a context of this name.")
def add(name: str, use_it: bool, replace: bool, **given: Any) -> None:
    """Add the context NAME: a server with a token file or a certificate, or a kube context."""
    check_name(name)
    entry = _entry(given)
    known = _read()
    if name in known.entries and not replace:
        raise ConfigError(f"context add: there is a context {name} already; give --replace, or another name")
    current = name if use_it or not known.entries else known.current
    write_contexts(contexts_file(os.environ), Contexts(current, {**known.entries, name: entry}))
    click.echo(f"added {name}{' (current)' if current == name else ''} to {contexts_file(os.environ)}")


@context.command()
@click.argument("name", shell_complete=complete_context)
def remove(name: str) -> None:
    """Forget the context NAME; files that it names stay."""
    known = _read()
    known.named(name)
    left_over = {other: entry for other, entry in known.entries.items() if other != name}
    write_contexts(contexts_file(os.environ), Contexts("" if known.current == name else known.current, left_over))
    click.echo(f"removed {name}")


def _read() -> Contexts:
    return read_contexts(contexts_file(os.environ))


def _entry(given: Mapping[str, Any]) -> ContextEntry:
    """The options as a context. ``ConfigError``: they do not go together, or name no server or file."""
    files = {name: given[name] for name in ("token_file", "ca", "cert", "key") if given[name] is not None}
    for name, file in files.items():
        if not file.is_file():
            raise ConfigError(f"--{name.replace('_', '-')}: {file} is no file; name one that is there")
    try:
        entry = ContextEntry(
            server=given["server"],
            kube_context=given["kube_context"],
            namespace=given["namespace"],
            **{name: str(file.absolute()) for name, file in files.items()},
        )
    except ValueError as error:
        raise ConfigError(f"context add: {error}") from None
    if entry.server:
        direct(entry.server, ServerCredentials(**files), "--server")
    return entry


def _sorted(known: Contexts) -> list[tuple[str, ContextEntry]]:
    return sorted(known.entries.items())
