"""What one process of the mesh runs with: its name, figures, peers, listener, etcd and, for leaders, the API server.

Everything is built from the settings, so that a service's composition root holds only what is its own. ``opened``
closes what was opened, the listener first: nobody is answered from connections that are gone.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from shared.adapters.etcd import store as _etcd  # noqa: F401  before the loop turns: it brings grpc, a second's work
from shared.adapters.kube.signs import WatchSigns, told
from shared.adapters.peers.client import PeerClient
from shared.adapters.peers.clock_skew import ClockSkew
from shared.adapters.peers.credentials import TokenFile, client_tls, server_tls
from shared.errors import ConfigError
from shared.hostport import split_host_port
from shared.ports import Store
from shared.runtime.http.callers import Authenticator
from shared.runtime.http.listener import Listener, listen
from shared.runtime.http.peers import FiguresRoute, PeerRoute, build_app
from shared.runtime.observe.hops import open_hops
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.etcd_release import unsafe_text
from shared.runtime.process.etcd_upkeep import EtcdUpkeep, SparingStore
from shared.runtime.process.health import ProcessHealth
from shared.runtime.process.process import (
    ProcessSettings,
    await_store,
    identity,
    keys_of,
    store_opener,
)
from shared.runtime.process.service import Service

if TYPE_CHECKING:
    from shared.adapters.etcd.store import EtcdStore
    from shared.adapters.kube.api import KubeClient

log = structlog.get_logger()

P = TypeVar("P", bound=ProcessSettings)
P_co = TypeVar("P_co", bound=ProcessSettings, covariant=True)


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
        self.makes_room: Callable[[], bool] = lambda: False
        """Whether it is this process that makes room in etcd now."""
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
    def _etcd(self) -> EtcdStore:
        store = self.open_store()
        self.service.spawn("etcd_history", store.keep_history())
        return store

    @cached_property
    def store(self) -> Store:
        """The main loop's connection to etcd; what can wait is not written while it is short of room."""
        return SparingStore(self._etcd, can_wait=self.keys.can_wait, short=lambda: self.upkeep.verdict.short)

    @cached_property
    def upkeep(self) -> EtcdUpkeep:
        """How etcd is, and the room that is made in it by whoever leads, and by others while nobody does."""
        return EtcdUpkeep(
            self._etcd, quota=self.settings.etcd_quota_mb * 1_000_000, ours=self.settings.etcd_upkeep == "own",
            acts=self._makes_room,
        )  # fmt: skip

    def _makes_room(self) -> bool:
        return self.makes_room()

    async def listen(self, routes: Sequence[PeerRoute | FiguresRoute]) -> None:
        """Answer peers, probes and scrapes where the settings say."""
        app = build_app(
            self.metrics,
            routes=routes,
            authenticator=self.authenticator,
            ready=lambda: self.service.ready,
            settings=self.settings,
        )
        host, port = split_host_port(self.settings.listen)
        files = self.settings.tls_files
        self._listener = await listen(app, host=host, port=port, tls=server_tls(**files) if files is not None else None)
        listening = self._listener
        self.url = self.settings.advertised(listening.port) if self.settings.advertise else listening.url

    async def check_servers(self) -> None:
        """Return once etcd and, where we have a client of it, the API server answer. ``ConfigError`` otherwise."""
        await await_store(self.store, self.settings)
        await check_etcd(self.upkeep, self.settings)
        self.health.ask("etcd", self.upkeep.text)
        self.upkeep.register(self.metrics)
        self.service.spawn("etcd_upkeep", self.upkeep.run())
        if self.api is not None:
            await self.api.check()
            self.metrics.figure("kube", self.api.figures)
            self._tell_watches(self.api)

    def _tell_watches(self, api: KubeClient) -> None:
        """Whether what the API server tells comes through: a warning where it does not, and figures."""
        now = asyncio.get_running_loop().time
        self.health.ask("watches", lambda: told(api.signs.lost(now())))
        register_watches(self.metrics, api.signs, now)

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
        if "_etcd" in self.__dict__:
            await self._etcd.close()
        self.hops.close()


def register_watches(metrics: Metrics, signs: WatchSigns, now: Callable[[], float]) -> None:
    """``watch_silent_seconds``, ``watches_blind_total``. ``now``: seconds of the clock that ``signs`` goes by."""
    metrics.gauge_of(
        "watch_silent_seconds",
        "Longest time for which a watch of the API server has given no sign of life; 0 without a watch",
        lambda: signs.silent_s(now()),
    )
    metrics.counter_of(
        "watches_blind_total",
        "Watches of the API server that gave no sign of life when one was due, and were opened again",
        lambda: signs.blind,
    )


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


async def check_etcd(upkeep: EtcdUpkeep, settings: ProcessSettings) -> None:
    """Look at the etcd that answers; a release that is unsafe is told, or refused (``ConfigError``)."""
    await upkeep.look()
    for member in upkeep.state.members:
        text = unsafe_text(member.version)
        if text and settings.etcd_unsafe == "refuse":
            raise ConfigError(f"{text}, or allow it by --etcd-unsafe=warn")
        if text:
            log.warning("etcd_unsafe", version=member.version, problem=text)
