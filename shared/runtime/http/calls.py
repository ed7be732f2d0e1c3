r"""A call between services as our own client writes it, read and answered without aiohttp.

    bytes of one read --POST of a known route, our headers and no other--> ``Call`` --guard, handler--> ``CallAnswer``
          \--anything else--> None: the connection is aiohttp's, with these bytes, from then on

aiohttp takes three times as long for such a call as everything that is done about it; a lone pod's way is two of them.
There is nothing to be read in two ways here: a request that differs in one byte from what is written above is not
understood, and aiohttp reads it from the beginning. No I/O: the connection is ``listener.py``'s.
"""

from __future__ import annotations

import re
import time
from asyncio import BaseTransport
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from shared.adapters.peers.client import MEDIA_TYPE
from shared.runtime.http.refusals import RequestRefused, told

_CALL = re.compile(
    rb"POST (/[a-z0-9/_-]+) HTTP/1\.1\r\nHost: [!-~]+\r\nContent-Type: %s\r\n"
    rb"(?:Authorization: ([ -~]+)\r\n)?Content-Length: ([0-9]{1,9})\r\n\r\n" % re.escape(MEDIA_TYPE).encode()
)
"""As ``shared.adapters.peers.client`` writes it, without headers of the caller's own."""


@dataclass(slots=True)
class Call:
    """One call. It is asked what ``Authenticator`` and the guard ask of any request."""

    path: str
    authorization: str
    body: bytes
    transport: BaseTransport

    @property
    def headers(self) -> Mapping[str, str]:
        """The one that is read."""
        return {"Authorization": self.authorization}

    @property
    def remote(self) -> str | None:
        """The caller's address."""
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if peer else None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Of the connection."""
        return self.transport.get_extra_info(name, default)


class CallAnswer(Struct, frozen=True):
    """What a call is answered with. ``more``: headers beside those that every answer has."""

    status: int
    body: bytes
    more: Mapping[str, str] | None = None

    def text(self) -> bytes:
        """As it is written."""
        more = "".join(f"{name}: {value}\r\n" for name, value in self.more.items()) if self.more else ""
        head = f"HTTP/1.1 {_status_line(self.status)}\r\nContent-Type: {MEDIA_TYPE}\r\n{more}"
        return f"{head}Content-Length: {len(self.body)}\r\nDate: {_date(int(time.time()))}\r\n\r\n".encode() + self.body


CallHandler = Callable[[Call], Awaitable[CallAnswer]]
"""Never raises but for a fault of ours: the guard answers for the route."""


class CallRoute(Struct, frozen=True):
    """``knows`` says whether the caller may come in at all, before more than one read of its body is held."""

    handle: CallHandler
    knows: Callable[[Call], bool]
    max_body_bytes: int


class CallRoutes:
    """By path."""

    def __init__(self) -> None:
        self._routes: dict[bytes, CallRoute] = {}
        self.gathering = 0
        """Calls whose body comes in pieces, of all connections."""

    def add(self, path: str, route: CallRoute) -> None:
        """One more."""
        self._routes[path.encode()] = route

    def begun(self, data: bytes, transport: BaseTransport) -> tuple[CallRoute, Call, int] | None:
        """The call that ``data`` begins, and how many bytes of its body are still to come; None: no such call."""
        found = _CALL.match(data)
        if found is None or (route := self._routes.get(found[1])) is None:
            return None
        missing = int(found[3]) - (len(data) - found.end())
        if missing < 0 or int(found[3]) > route.max_body_bytes:
            return None
        call = Call(found[1].decode(), (found[2] or b"").decode(), data[found.end() :], transport)
        return (route, call, missing) if not missing or route.knows(call) else None


def address_of(call: Call) -> str | None:
    """As the guard tells callers apart."""
    return call.remote


def refused_call(call: Call, refused: RequestRefused) -> CallAnswer:  # noqa: ARG001  the guard's ``refuse`` is shown both
    """The answer that a refusal is."""
    error, headers = told(refused)
    return CallAnswer(refused.status, msgspec.msgpack.encode(error), headers)


@lru_cache(maxsize=64)
def _status_line(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}"


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
