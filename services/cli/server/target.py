"""Which server an operator's command speaks to: flags, else the environment, else a context. Pure.

One rule, in this order, so that nobody has to guess: ``--server``; ``--kube-context`` (under ``kubectl conclave`` also
``--context``, or kubectl's current context); ``--context``; ``CONCLAVE_SERVER``; the current context. What belongs to
a way that was not taken (a token file without a server) is refused, not ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from services.cli.server.contexts import ContextEntry, Contexts
from shared.errors import ConfigError
from shared.hostport import server_of

SERVER_ENV, TOKEN_FILE_ENV = "CONCLAVE_SERVER", "CONCLAVE_TOKEN_FILE"
DEFAULT_NAMESPACE = "conclave-system"
"""Where ``k8s/`` installs the mesh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCredentials:
    """What we show and what we trust. ``ca`` alone checks the server; ``cert`` and ``key`` are ours."""

    token_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class Direct:
    """Servers that are reached by address; the first that takes a connection answers."""

    urls: tuple[str, ...]
    credentials: ServerCredentials
    source: str
    """Where the address is from, for error messages: ``--server``, ``context prod`` ..."""


@dataclass(frozen=True, slots=True)
class ThroughKubectl:
    """A mesh inside a cluster, reached by ``kubectl port-forward``. ``context`` empty: kubectl's current one."""

    context: str
    namespace: str
    credentials: ServerCredentials
    source: str


Target = Direct | ThroughKubectl


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags as given. Empty: not given."""

    server: str = ""
    token_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    context: str = ""
    kube_context: str = ""
    mesh_namespace: str = ""


NO_SERVER = (
    "no server: give --server URL and --token-file FILE, or --kube-context NAME for a mesh in a cluster; "
    "to keep it, use 'conclave context add'"
)


def resolve(
    flags: Flags,
    environ: Mapping[str, str],
    contexts: Callable[[], Contexts],
    *,
    kubectl: bool = False,
    clusters: Callable[[], Collection[str]] = tuple,
) -> Target:
    """The server that is meant. ``kubectl``: run as ``kubectl conclave``. ``ConfigError``: none, or two.

    ``clusters``: contexts of the kubeconfig, which ``--context`` means where no stored one has the name. Both are
    called only where a context decides, so that a broken file harms nobody who names a server.
    """
    if kubectl and flags.context:
        if flags.kube_context:
            raise ConfigError("--kube-context: --context means the same under kubectl; give one of them")
        flags = replace(flags, kube_context=flags.context, context="")
    ways = [
        name
        for name, value in (
            ("--server", flags.server),
            ("--kube-context", flags.kube_context),
            ("--context", flags.context),
        )
        if value
    ]
    if len(ways) > 1:
        raise ConfigError(f"{ways[1]}: {ways[0]} names a server already; give one of them")
    given = _credentials(flags)
    if flags.server:
        _no_namespace(flags)
        token = flags.token_file or _path(environ.get(TOKEN_FILE_ENV, ""))
        return direct(flags.server, replace(given, token_file=token), "--server")
    if flags.kube_context or (kubectl and not flags.context):
        source = f"kube context {flags.kube_context}" if flags.kube_context else "kubectl's current context"
        return ThroughKubectl(flags.kube_context, flags.mesh_namespace or DEFAULT_NAMESPACE, given, source)
    if flags.context:
        stored = contexts()
        if flags.context not in stored.entries and flags.context in clusters():
            source = f"kube context {flags.context}"
            return ThroughKubectl(flags.context, flags.mesh_namespace or DEFAULT_NAMESPACE, given, source)
        return _of_context(flags, flags.context, stored.named(flags.context))
    if environ.get(SERVER_ENV):
        _no_namespace(flags)
        token = flags.token_file or _path(environ.get(TOKEN_FILE_ENV, ""))
        return direct(environ[SERVER_ENV], replace(given, token_file=token), SERVER_ENV)
    known = contexts()
    if known.current:
        return _of_context(flags, known.current, known.named(known.current))
    for name in ("token_file", "ca", "cert", "key", "mesh_namespace"):
        if getattr(flags, name):
            raise ConfigError(f"--{name.replace('_', '-')}: no server it could be for; {NO_SERVER}")
    raise ConfigError(NO_SERVER)


def direct(servers: str, credentials: ServerCredentials, source: str) -> Direct:
    """A target from comma-separated URLs. ``ConfigError``: one is no URL of a server, or TLS files without https."""
    urls = tuple(_read_url(part.strip().rstrip("/"), source) for part in servers.split(",") if part.strip())
    if not urls:
        raise ConfigError(f"{source}: is empty; give a URL such as http://127.0.0.1:8701")
    if (credentials.ca or credentials.cert) and not all(url.startswith("https://") for url in urls):
        raise ConfigError(f"{source}: --ca and --cert need a server that speaks TLS; write https://")
    if bool(credentials.cert) != bool(credentials.key):
        raise ConfigError("--cert: goes together with --key; give both")
    return Direct(urls, credentials, source)


def _read_url(url: str, source: str) -> str:
    try:
        server = server_of(url)
    except ValueError:
        raise ConfigError(
            f"{source}: {url!r} is no server's URL; write it as http://HOST:8701 or https://HOST:8701"
        ) from None
    if server.path or "@" in url:
        raise ConfigError(f"{source}: {url!r} holds more than scheme, host and port; leave the rest out")
    return server.url


def _of_context(flags: Flags, name: str, entry: ContextEntry) -> Target:
    """The context's server; flags for files win over the context's."""
    merged = _credentials(flags, entry)
    source = f"context {name}"
    if entry.server:
        _no_namespace(flags)
        return direct(entry.server, merged, source)
    namespace = flags.mesh_namespace or entry.namespace or DEFAULT_NAMESPACE
    return ThroughKubectl(entry.kube_context, namespace, merged, source)


def _no_namespace(flags: Flags) -> None:
    if flags.mesh_namespace:
        raise ConfigError("--mesh-namespace: belongs to --kube-context; leave it out, or give --kube-context")


def _credentials(flags: Flags, entry: ContextEntry | None = None) -> ServerCredentials:
    """What the flags name, else what the context does."""
    names = ("token_file", "ca", "cert", "key")
    return ServerCredentials(**{name: getattr(flags, name) or _path(getattr(entry, name, "")) for name in names})


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None
