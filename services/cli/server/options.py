"""The options that name a server, and a connection to it for as long as one command runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from services.cli.server.contexts import CONTEXTS_ENV, Contexts, contexts_file, read_contexts
from services.cli.server.target import Direct, Flags, Target, resolve
from services.cli.terminal.until_signal import until_signal
from shared.errors import ConfigError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Connect: TypeAlias = "Callable[[], AbstractAsyncContextManager[AdminClient]]"

KUBECTL = "kubectl"
"""``obj`` of the root command when it was started as ``kubectl conclave``: --context is then kubectl's."""
FILE = click.Path(path_type=Path)


def under_kubectl(here: click.Context | None = None) -> bool:
    """Whether this runs as ``kubectl conclave``. ``here``: needed while completing, when no context is current."""
    context = here or click.get_current_context(silent=True)
    return context is not None and context.find_root().obj == KUBECTL


def stored_contexts() -> Contexts:
    """The contexts on this machine. ``ConfigError``: their file cannot be used, or is named and not there."""
    file = contexts_file(os.environ)
    if os.environ.get(CONTEXTS_ENV) and not file.exists():
        raise ConfigError(
            f"{CONTEXTS_ENV}: {file} is not there (a 'conclave up' that has ended takes its own along); name another, "
            "unset it, or make one with 'conclave context add'"
        )
    return read_contexts(file)


def complete_context(here: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of contexts, for completion: none where the file cannot be used, since nothing may be printed now."""
    if under_kubectl(here):
        return []
    try:
        return sorted(name for name in stored_contexts().entries if name.startswith(incomplete))
    except ConfigError:
        return []


SERVER = click.option("--server", default="", metavar="URL", help="Admin address, as http://HOST:8701.")
TOKEN_FILE = click.option("--token-file", type=FILE, help="File with our token.")
CA = click.option("--ca", type=FILE, help="CA of the server's certificate (PEM); default: the system's.")
CERT = click.option("--cert", type=FILE, help="Our certificate (PEM), instead of a token.")
KEY = click.option("--key", type=FILE, help="The key of --cert (PEM).")
CONTEXT = click.option(
    "--context",
    default="",
    metavar="NAME",
    shell_complete=complete_context,
    help="One of 'conclave context list', else of the kubeconfig; under 'kubectl conclave' of the kubeconfig.",
)
KUBE_CONTEXT = click.option("--kube-context", default="", metavar="NAME", help="A cluster's mesh, through kubectl.")
_WHERE = "Where the mesh is in it.  [default: conclave-system]"
MESH_NAMESPACE = click.option("--mesh-namespace", default="", help=_WHERE)

NAMESPACE_OF_MESH = "-n means the namespace of pods in every command; the mesh's own is --mesh-namespace"

_SERVER = (SERVER, TOKEN_FILE, CA, CERT, KEY, CONTEXT, KUBE_CONTEXT)
SERVER_NAMES = ("server", "token_file", "ca", "cert", "key", "context", "kube_context", "mesh_namespace")


def server_options(command: F) -> F:
    """``--server`` and its like; the command takes them as ``**server`` and gives them to ``with_server``.

    It is about no namespace: ``-n``, which means objects' in every command, is refused.
    """
    no_namespace = removed_options("-n", "--namespace", instead=NAMESPACE_OF_MESH)
    return no_namespace(_with(command, (*_SERVER, MESH_NAMESPACE)))


def list_server_options(command: F) -> F:
    """As ``server_options``, for commands whose ``-n`` means pods."""
    return _with(command, (*_SERVER, MESH_NAMESPACE))


def _with(command: F, options: tuple[Callable[[F], F], ...]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def removed_options(*flags: str, instead: str) -> Callable[[F], F]:
    """Flags of a way that is gone: still understood, to say in one line (exit code 2) what takes their place."""

    def refuse(_here: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise ConfigError(f"{parameter.opts[0]}: is no longer taken: {instead}")

    def add(command: F) -> F:
        for flag in flags:
            # a name of its own: else it takes the value of another option of the same name
            name = "removed_" + flag.strip("-").replace("-", "_")
            command = click.option(flag, name, hidden=True, expose_value=False, callback=refuse)(command)
        return command

    return add


def cluster_context(name: str | None) -> str:
    """The kubeconfig's context that ``--context NAME`` means: that of the stored context of this name, where it reaches
    a cluster, else NAME itself; "" for the current one."""
    if not name or under_kubectl():
        return name or ""
    try:
        entry = stored_contexts().entries.get(name)
    except ConfigError:
        return name
    return entry.kube_context if entry is not None and entry.kube_context else name


def kubeconfig_contexts() -> list[str]:
    """Names of the contexts in the user's kubeconfig; none where it cannot be read."""
    from shared.adapters.kube.kubeconfig import context_names

    return context_names()


def given(here: click.Context, name: str) -> bool:
    """Whether the option stands on the command line."""
    return here.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def flags_of(**server: Any) -> Flags:
    """The options as flags; options of other names are not looked at."""
    return Flags(**{name: server[name] for name in SERVER_NAMES if server.get(name)})


def target_of(flags: Flags, here: click.Context | None = None) -> Target:
    """The server that is meant. ``ConfigError``: none is named, or two are. ``here``: as of ``under_kubectl``."""
    return resolve(flags, os.environ, stored_contexts, kubectl=under_kubectl(here), clusters=kubeconfig_contexts)


@asynccontextmanager
async def opened(target: Target, *, timeout_s: float | None = None) -> AsyncIterator[AdminClient]:
    """A client of ``target``. ``ConfigError``: a token, certificate or kubectl that cannot be used."""
    from services.cli.server.client import TIMEOUT_S, AdminClient, tls_context
    from services.cli.server.forward import FORWARDED, forwarded, read_token
    from shared.adapters.peers.credentials import TokenFile

    credentials = target.credentials
    token = TokenFile(credentials.token_file).authorization().removeprefix("Bearer ") if credentials.token_file else ""
    secure = isinstance(target, Direct) and target.urls[0].startswith("https://")
    secure = secure or credentials.ca is not None or credentials.cert is not None
    tls = tls_context(credentials.ca, credentials.cert, credentials.key) if secure else None
    async with contextlib.AsyncExitStack() as stack:
        urls: Sequence[str]
        pages = ""
        if isinstance(target, Direct):
            urls = target.urls
        else:
            port = await stack.enter_async_context(forwarded(target))
            urls = [f"{'https' if secure else 'http'}://127.0.0.1:{port}"]
            pages = FORWARDED  # this port ends with the command
            if not token and credentials.cert is None:
                token = await read_token(target)
        patience_s = TIMEOUT_S if timeout_s is None else timeout_s
        client = AdminClient(urls, token=token, tls=tls, timeout_s=patience_s, pages=pages)
        stack.push_async_callback(client.close)
        yield client


def connector(server: dict[str, Any]) -> Connect:
    """Opens the server that the options name; they are resolved anew each time, so that a context may change."""
    return lambda: opened(target_of(flags_of(**server)))


def with_server(server: dict[str, Any], work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """Do ``work`` with the server that the options name. Ctrl-C and SIGTERM end it, and kubectl with it.

    ``ConfigError``: refused. ``ServerFailed``: no answer, or nobody knows.
    """
    return run_connected(connector(server), work)


def run_connected(connect: Connect, work: Callable[[AdminClient], Awaitable[T]]) -> T:
    """As ``with_server``, once it is known how to connect."""

    async def run() -> T:
        async with connect() as client:
            return await work(client)

    return asyncio.run(until_signal(run()))
