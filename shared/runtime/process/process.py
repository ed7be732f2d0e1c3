"""The settings every service has, and the one way to start a service with them.

One place, so that ``conclave run``, the supervisor and a container can start any service with the same flags
(``--etcd --etcd-prefix --listen --advertise --id --token-file --log-level`` and the TLS files). Heavy libraries (grpc)
are imported where they are used. Nothing here belongs to one service, and secrets are read from files alone.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec
import structlog

from shared.errors import ConfigError, StoreError
from shared.hostport import ServerUrl, bare_host, is_every_address, server_of, split_host_port, url_of
from shared.ports import Store
from shared.runtime.observe.logging import TAIL, configure
from shared.runtime.process.service import EXIT_CONFIG, PROGRAM, Service, run_service
from shared.runtime.process.settings import help_text, load, parse_flags
from shared.wire.keys import DEFAULT_PREFIX, Keys

if TYPE_CHECKING:
    from shared.adapters.etcd.store import EtcdStore

START_TIMEOUT_S = 10.0
"""How long a starting process waits for etcd before it says that it cannot be reached."""


SchedulerName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", max_length=253)]
"""What the API server takes as ``spec.schedulerName``; any other name could never match a pod."""

Standby = Literal["warm", "cold"]
"""Whether a process that may lead keeps a mirror of the cluster until it does (ADR 0058)."""


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """What every service is told. A service's own settings inherit from this."""

    etcd: tuple[str, ...] = ("http://127.0.0.1:2379",)
    """Endpoints of etcd, comma-separated; asked in this order."""
    etcd_prefix: str = DEFAULT_PREFIX
    """Everything in etcd lies under it; two meshes with different prefixes do not see each other."""
    etcd_unsafe: Literal["warn", "refuse"] = "warn"
    """What is done about an etcd whose release may corrupt its data (3.5.0 to 3.5.2): a line in the log, or no start.
    The demo's wheel is such a release; do not keep anything on it."""
    etcd_upkeep: Literal["own", "shared"] = "shared"
    """Whose etcd it is. own: this mesh's alone, whose leader makes room where it is short (compacts the history,
    defragments, disarms NOSPACE). shared: others use it too; what to do is told and nothing is done."""
    etcd_quota_mb: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """etcd's ``--quota-backend-bytes`` in MB, for releases before 3.6, which do not tell it. 0: theirs, or 2 GiB."""
    etcd_ca: Path | None = None
    """CA bundle for etcd (PEM); needed where an endpoint says https."""
    etcd_cert: Path | None = None
    """Our certificate towards etcd (PEM); its CN is the etcd user."""
    etcd_key: Path | None = None
    """The key of ``etcd_cert`` (PEM)."""
    listen: str = "127.0.0.1:0"
    """HOST:PORT of the HTTP listener, :PORT for every address of IPv4 and IPv6; port 0 takes a free one. Beyond
    loopback only with a token file or TLS."""
    live_listen: str = ""
    """HOST:PORT, or :PORT, where a thread tells a kubelet whether the process makes progress (``GET /livez``, plain
    HTTP). Empty: nowhere."""
    advertise: str = ""
    """Under which URL the others reach the listener, or under which host or IP address alone: scheme and port are then
    the listener's. Empty: the listener's own address."""
    id: str = ""
    """Name of this place (pod or host name); outlives a restart. Empty: host name and process id."""
    token_file: Path | None = None
    """File with the bearer tokens between services; see docs."""
    tls_cert: Path | None = None
    """Our certificate for mutual TLS between services (PEM)."""
    tls_key: Path | None = None
    """The key of ``tls_cert`` (PEM)."""
    tls_ca: Path | None = None
    """CA that signs the services' certificates (PEM)."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    otel_endpoint: str = ""
    """URL of an OTLP/HTTP collector for a trace per attempt to place a pod; needs the extra ``otel``. Empty: none."""
    otel_every: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    """One unit in so many is traced; give every service the same."""
    lease_ttl_s: Annotated[int, msgspec.Meta(ge=1, le=600)] = 3
    """TTL of our lease in etcd; a dead process is noticed this much later. Renewed every third of it."""
    follow_parent: bool = False
    """End when the process that started this one is gone (embedded mesh)."""

    def __post_init__(self) -> None:
        together = (self.tls_cert, self.tls_key, self.tls_ca)
        if any(together) and not all(together):
            raise ValueError("tls_cert, tls_key, tls_ca: give all three or none")
        if (self.etcd_cert is None) != (self.etcd_key is None):
            raise ValueError("etcd_cert, etcd_key: give both or none")
        if self.etcd_cert is not None and self.etcd_ca is None:
            raise ValueError("etcd_ca: missing beside etcd_cert; give the CA that signed etcd's certificate")
        plain = [endpoint for endpoint in self.etcd if not endpoint.startswith("https://")]
        if self.etcd_ca is not None and plain:
            raise ValueError(f"etcd: {plain[0]} is without TLS though etcd_ca is given; write https:// or leave it out")
        scheme = self._advertised.scheme if self.advertise else ""
        if self.tls_cert is not None and scheme == "http":
            raise ValueError("advertise: says http:// though tls_cert is given; write https://")
        if self.tls_cert is None and scheme == "https":
            raise ValueError(
                "advertise: says https:// but tls_cert is not given; give the tls_* files or write http://"
            )
        split_host_port(self.listen)
        if self.live_listen:
            split_host_port(self.live_listen, "live_listen")

    @property
    def advertised_host(self) -> str:
        """The host of ``advertise``; only where that is set."""
        return self._advertised.host

    def advertised(self, port: int) -> str:
        """The URL of ``advertise``, for a listener on this port; only where that is set."""
        server = self._advertised
        if "://" not in self.advertise:
            return url_of(server.scheme, server.host, port)
        return f"{server.url}{server.path}".rstrip("/")

    @property
    def _advertised(self) -> ServerUrl:
        """``ValueError`` naming the setting: nobody could call it, and that would show at the others alone."""
        if "://" not in self.advertise:
            host = bare_host(self.advertise)
            if not host:
                raise ValueError(
                    f"advertise: {self.advertise!r} is no host; give an IP address or a name alone, or http(s)://HOST:PORT"
                )
            server = ServerUrl("http" if self.tls_cert is None else "https", host, None)
        else:
            try:
                server = server_of(self.advertise)
            except ValueError as error:
                raise ValueError(f"advertise: {error}") from None
        if is_every_address(server.host):
            raise ValueError(f"advertise: {self.advertise!r} is what we listen on; give an address that others reach")
        return server

    @property
    def tls_files(self) -> dict[str, Path] | None:
        """What ``client_tls`` and ``server_tls`` take; None: services speak plain HTTP."""
        if self.tls_ca is None or self.tls_cert is None or self.tls_key is None:
            return None
        return {"ca_file": self.tls_ca, "cert_file": self.tls_cert, "key_file": self.tls_key}


P = TypeVar("P", bound=ProcessSettings)


def check_prometheus(url: str, token_file: Path | None, ca: Path | None) -> None:
    """``ValueError`` naming the setting: those of a Prometheus do not fit each other."""
    for setting, given in (("prometheus_token_file", token_file), ("prometheus_ca", ca)):
        if given is not None and not url:
            raise ValueError(f"{setting}: is for prometheus; give its URL too, or leave it out")
        if given is not None and not given.is_file():
            raise ValueError(f"{setting}: {given} is no file; give one that is there")
    if not url:
        return
    try:
        server = server_of(url)
    except ValueError:
        raise ValueError(f"prometheus: {url!r} is no URL; give one such as http://prometheus:9090") from None
    if ca is not None and server.scheme != "https":
        raise ValueError(f"prometheus: {url} is without TLS though prometheus_ca is given; write https://")


def run_process(service: str, kind: type[P], load_main: Callable[[], Callable[[Service, P], Awaitable[None]]]) -> int:
    """Read the settings, set up the log, run; the exit code. What every ``__main__`` of a service does.

    ``load_main`` imports the composition root: it may raise ``ConfigError``, and nothing heavy is read for ``--help``.
    """
    try:
        settings = read_settings(kind, service)
        main = load_main()
    except ConfigError as error:
        sys.stderr.write(f"{PROGRAM}{error}\n")
        return EXIT_CONFIG
    configure(service, level=settings.log_level, tail=TAIL)
    structlog.contextvars.bind_contextvars(id=identity(settings))
    return run_service(
        lambda running: main(running, settings),
        name=service,
        follow_parent=settings.follow_parent,
        live_listen=settings.live_listen,
    )


def read_settings(kind: type[P], service: str) -> P:
    """Settings from the command line, the environment and ``--config``; ``--help`` is answered and ends the process.

    Raises ``ConfigError`` in one line.
    """
    arguments = sys.argv[1:]
    if "--help" in arguments or "-h" in arguments:
        sys.stdout.write(help_text(kind, service))
        raise SystemExit(0)
    flags, file = parse_flags(kind, arguments)
    configured = os.environ.get("CONCLAVE_CONFIG", "")
    return load(
        kind,
        service=service,
        file=file or (Path(configured) if configured else None),
        environ=os.environ,
        flags=flags,
    )


def identity(settings: ProcessSettings) -> str:
    """The process's id: as set, else unique on this network."""
    return settings.id or f"{socket.gethostname()}-{os.getpid()}"


def keys_of(settings: ProcessSettings) -> Keys:
    """The names in etcd. ``ConfigError`` for a bad prefix."""
    return Keys.under(settings.etcd_prefix)


def store_opener(settings: ProcessSettings) -> Callable[[], EtcdStore]:
    """What opens a connection to etcd in the loop that calls it. ``ConfigError`` at once for a bad endpoint."""
    from shared.adapters.etcd.channel import EtcdSettings, EtcdTls
    from shared.adapters.etcd.store import EtcdStore

    tls = None
    if settings.etcd_ca is not None:
        tls = EtcdTls(ca_file=settings.etcd_ca, cert_file=settings.etcd_cert, key_file=settings.etcd_key)
    etcd = EtcdSettings(endpoints=settings.etcd, tls=tls)
    return lambda: EtcdStore(etcd)


async def await_store(store: Store, settings: ProcessSettings, *, timeout_s: float = START_TIMEOUT_S) -> None:
    """Return once etcd answers. ``ConfigError`` naming the endpoints when it does not within ``timeout_s``."""
    try:
        await store.get(keys_of(settings).coordinator_leader, timeout_s=timeout_s)
    except StoreError as error:
        raise ConfigError(
            f"etcd: no answer from {','.join(settings.etcd)} within {timeout_s:g} s ({error}); "
            "start it or correct --etcd"
        ) from error
