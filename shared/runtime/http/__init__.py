"""The listening side of every service, once: the peer listener (msgpack between services) and the admin API (REST).

listener      the socket: who connects and asks nothing is cut
guard         what every request passes: caller, limits, errors, counting
callers       who asks                 limits    how often, and how much at once
refusals      every stable code, its status, meaning and remedy: what both listeners answer from
peers         rows of the peer listener and its application
routes        rows of the admin API: role, schemas, handler; with pages, requests, openapi made from them
admin         the admin API's application: kept answers (caching), streams, a standby's way to the leader (proxying)
"""

from __future__ import annotations

from shared.runtime.http import aiohttp_alone  # noqa: F401  before any of them
