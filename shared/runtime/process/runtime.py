"""What one process of the mesh runs with: its name, figures, peers, listener, etcd and, for leaders, the API server.

Everything is built from the settings, so that a service's composition root holds only what is its own. ``opened``
closes what was opened, the listener first: nobody is answered from connections that are gone.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from shared.adapters.etcd import store as _etcd  # noqa: F401  before the loop turns: it brings grpc, a second's work
from shared.adapters.kube.signs import told
from shared.adapters.peers.client import PeerClient
from shared.adapters.peers.clock_skew import ClockSkew
from shared.adapters.peers.credentials import TokenFile, client_tls, server_tls
from shared.errors import ConfigError, StoreError
from shared.ports import Store
from shared.runtime.http.callers import Authenticator
from shared.runtime.http.listener import Listener, listen
from shared.runtime.http.peers import FiguresRoute, PeerRoute, build_app
from shared.runtime.observe.hops import open_hops
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.health import ProcessHealth
from shared.runtime.process.process import (
    ProcessSettings,
    await_store,
    identity,
    keys_of,
    split_address,
    store_opener,
)
from shared.runtime.process.service import Service

if TYPE_CHECKING:
    from shared.adapters.kube.api import KubeClient

log = structlog.get_logger()

P = TypeVar("P", bound=ProcessSettings)
P_co = TypeVar("P_co", bound=ProcessSettings, covariant=True)

UNSAFE_ETCD = frozenset({"3.5.0", "3.5.1", "3.5.2"})
"""Releases that etcd's own project tells not to use: a crash under load may leave members with different data
(etcd-io/etcd issue 13766; repaired in 3.5.3)."""


class Runtime(Generic[P_co]):
    """One process. ``role``: agent, binder, coordinator or learner. ``ConfigError``: a setting or a file of it."""

    def __init__(self, service: Service, settings: P_co, role: str) -> None:
        self.service = service
        self.settings = settings
        self.role = role
        self.id = identity(settings)
        self.keys = keys_of(settings)
        self.hops = open_hops(role, self.id, endpoint=settings.otel_endpoint, every=settings.otel_every)
        self.metrics = Metrics(role)
        self.open_store = store_opener(settings)
        self.url = ""
        """Ours, as the others are told; known once we listen."""
        self.api: KubeClient | None = None
        """Put here by services that have access to a cluster."""
        self._listener: Listener | None = None
        tokens = TokenFile(settings.token_file) if settings.token_file is not None else None
        files = settings.tls_files
        skew = ClockSkew()
        self.authenticator = Authenticator(tokens=tokens, mutual_tls=files is not None)
        self.client = PeerClient(
            # with a certificate no token is shown: it would be one more secret on its way, and count for nothing
            credentials=tokens if files is None else None,
            tls=client_tls(**files) if files is not None else None,
            skew=skew,
        )
        certificates = {
            "certificate": settings.tls_cert,
            "CA": settings.tls_ca,
            "etcd certificate": settings.etcd_cert,
            "etcd CA": settings.etcd_ca,
        }
        self.health = ProcessHealth({name: file for name, file in certificates.items() if file is not None}, skew)
        self.health.register(self.metrics)

    @cached_property
    def store(self) -> Store:
        """The main loop's connection to etcd."""
        return self.open_store()

    async def listen(self, routes: Sequence[PeerRoute | FiguresRoute]) -> None:
        """Answer peers, probes and scrapes where the settings say."""
        app = build_app(
            self.metrics,
            routes=routes,
            authenticator=self.authenticator,
            ready=lambda: self.service.ready,
            settings=self.settings,
        )
        host, port = split_address(self.settings.listen)
        files = self.settings.tls_files
        self._listener = await listen(app, host=host, port=port, tls=server_tls(**files) if files is not None else None)
        self.url = self.settings.advertise.rstrip("/") or self._listener.url

    async def check_servers(self) -> None:
        """Return once etcd and, where we have a client of it, the API server answer. ``ConfigError`` otherwise."""
        await await_store(self.store, self.settings)
        await check_etcd(self.store, self.settings)
        if self.api is not None:
            await self.api.check()
            self._tell_watches(self.api)

    def _tell_watches(self, api: KubeClient) -> None:
        """Whether what the API server tells comes through: a warning where it does not, and figures."""
        now = asyncio.get_running_loop().time
        self.health.ask("watches", lambda: told(api.signs.lost(now())))
        self.metrics.gauge_of(
            "watch_silent_seconds",
            "Longest time for which a watch of the API server has given no sign of life; 0 without a watch",
            lambda: api.signs.silent_s(now()),
        )
        self.metrics.counter_of(
            "watches_blind_total",
            "Watches of the API server that gave no sign of life when one was due, and were opened anew",
            lambda: api.signs.blind,
        )

    def ready(self) -> None:
        """Say that we are: to probes, and by the one line on stdout that supervisors and people wait for."""
        self.service.mark_ready()
        sys.stdout.write(f"ready {self.role} {self.id} {self.url}\n")
        sys.stdout.flush()

    async def close(self) -> None:
        """Close what was opened, what others see first."""
        if self._listener is not None:
            await self._listener.close()
        await self.client.close()
        if self.api is not None:
            await self.api.close()
        if "store" in self.__dict__:
            await self.store.close()
        self.hops.close()


@asynccontextmanager
async def opened(service: Service, settings: P, role: str) -> AsyncIterator[Runtime[P]]:
    """A ``Runtime``, closed at the end."""
    runtime = Runtime(service, settings, role)
    try:
        yield runtime
    finally:
        await runtime.close()


def new_incarnation() -> str:
    """A name no other process has."""
    return uuid.uuid4().hex


async def check_etcd(store: Store, settings: ProcessSettings) -> None:
    """Look at the release of the etcd that answers; one that is unsafe is told, or refused (``ConfigError``)."""
    try:
        version = await store.server_version()
    except StoreError as error:
        log.info("etcd_version_unknown", error=error)
        return
    if version not in UNSAFE_ETCD:
        return
    text = f"etcd: {version} may corrupt its data; run 3.5.3 or later, best a 3.6 (docs/operations/etcd.md)"
    if settings.etcd_unsafe == "refuse":
        raise ConfigError(f"{text}, or allow it by --etcd-unsafe=warn")
    log.warning("etcd_unsafe", version=version, problem=text)
