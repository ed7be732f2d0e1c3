"""Opens the admin listener: settings in, a running application out.

Without credentials there is no admin listener, on loopback too: whoever is on this machine could pause scheduling
otherwise. What others are told as its URL has the host of ``advertise``, where that is set.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from functools import partial

from aiohttp import web

from services.coordinator.http.auditing import recorded
from services.coordinator.http.desk import Desk
from services.coordinator.http.table import ROUTES
from services.coordinator.settings import CoordinatorSettings
from shared.adapters.peers.credentials import TokenFile, client_tls, server_tls
from shared.hostport import split_host_port, url_of
from shared.runtime.http.admin import AdminApp
from shared.runtime.http.callers import AdminAuthenticator, check_role
from shared.runtime.http.listener import Listener, listen
from shared.runtime.http.routes import Route


class AdminListener:
    """The running admin API. ``url``: what other coordinators and people are told."""

    def __init__(self, app: AdminApp, listener: Listener, url: str) -> None:
        self.url = url
        self._app = app
        self._listener = listener

    def stop(self) -> None:
        """End the streams, so that closing need not wait for their readers."""
        self._app.stop()

    async def close(self) -> None:
        """Stop accepting, end what is in flight."""
        self.stop()
        await self._listener.close()
        await self._app.close()


async def open_admin(
    settings: CoordinatorSettings,
    desk: Desk,
    *,
    routes: Sequence[Route] = ROUTES,
    extra: Sequence[web.RouteDef] = (),
) -> AdminListener:
    """Serve where the settings say. ``ConfigError``: no credentials, a file that cannot be used, the port is taken."""
    tokens = None
    if settings.admin_token_file is not None:
        tokens = TokenFile(settings.admin_token_file, check_role=check_role)
    inbound, outbound = _contexts(settings)
    authenticator = AdminAuthenticator(tokens, mutual_tls=inbound is not None)
    app = AdminApp(desk, routes, authenticator, audit=partial(recorded, desk), tls=outbound, extra=extra)
    host, port = split_host_port(settings.admin_listen, "admin_listen")
    listener = await listen(app.app, host=host, port=port, tls=inbound, drain_s=0.5)
    return AdminListener(app, listener, _url(settings, listener))


def _contexts(settings: CoordinatorSettings) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """(for callers, towards the leader). A caller may do without a certificate: browsers do, and show a token."""
    if settings.tls_cert is None or settings.tls_key is None or settings.tls_ca is None:
        return None, None
    files = {"ca_file": settings.tls_ca, "cert_file": settings.tls_cert, "key_file": settings.tls_key}
    return server_tls(**files), client_tls(**files)


def _url(settings: CoordinatorSettings, listener: Listener) -> str:
    """Under the host that peers are told, where one is: the listener itself may be on every address."""
    scheme = listener.url.partition("://")[0]
    return url_of(scheme, settings.advertised_host, listener.port) if settings.advertise else listener.url
