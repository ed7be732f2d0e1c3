"""What every request passes, on every listener: who asks and may they, a place, the handler, and one way out.

    admit (401, 403, 429) --> place (429) --> answer --> response          whatever is raised --> {code, message}

A refusal before the handler runs is always free of effects. How a request ended is told to ``ended`` once, with its
code; a caller who leaves meanwhile is ``gone``. It is the same for aiohttp's requests (``guarded``) and for calls that
are read without it (``calls.py``).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

import structlog
from aiohttp import web

from shared.runtime.http.callers import Caller
from shared.runtime.http.limits import RequestLimit
from shared.runtime.http.refusals import RequestRefused, answer_of, refusal_of

log = structlog.get_logger()

BODY_TIMEOUT_S = 10.0
"""A caller that sends its body slower than this holds a place for nothing."""


class _Response(Protocol):
    @property
    def status(self) -> int: ...


Q = TypeVar("Q")
R = TypeVar("R", bound=_Response)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Ended = Callable[[Q, R | None, str, float], None]
"""(request, response where the handler made one, ``ok`` or a code, seconds)."""


def guarded(
    answer: Callable[[web.Request, Caller], Awaitable[web.StreamResponse]],
    *,
    route: str,
    admit: Callable[[web.Request], Caller],
    places: RequestLimit | None = None,
    by_address: bool = False,
    ended: Ended[web.Request, web.StreamResponse] | None = None,
) -> Handler:
    """``answer`` behind the guard. ``by_address``: one caller's places are counted per address it calls from."""
    address = _address if by_address else None
    return guard(answer, refuse=answer_of, route=route, admit=admit, places=places, address=address, ended=ended)


def guard(
    answer: Callable[[Q, Caller], Awaitable[R]],
    *,
    refuse: Callable[[Q, RequestRefused], R],
    route: str,
    admit: Callable[[Q], Caller],
    places: RequestLimit | None = None,
    address: Callable[[Q], str | None] | None = None,
    ended: Ended[Q, R] | None = None,
) -> Callable[[Q], Awaitable[R]]:
    """As ``guarded``, of any request. ``refuse``: the response that a refusal is; ``address``: where it comes from."""

    async def handle(request: Q) -> R:
        started, outcome, entered = time.perf_counter(), "internal", None
        response: R | None = None
        try:
            caller = admit(request)
            if places is not None:
                who = f"{caller.title}@{address(request)}" if address is not None else caller.title
                if not places.enter(who):
                    raise RequestRefused("too many requests at once", code="overloaded")
                entered = who
            response = await answer(request, caller)
            outcome = "ok" if response.status < 400 else str(response.status)
            return response
        except (ConnectionError, asyncio.CancelledError):
            outcome = "gone"
            raise
        except Exception as error:
            refused = refusal_of(error)
            outcome = refused.code
            if refused.status == 500:
                log.error("request_failed", route=route, exc_info=error)
            return refuse(request, refused)
        finally:
            if places is not None and entered is not None:
                places.leave(entered)
            if ended is not None:
                ended(request, response, outcome, time.perf_counter() - started)

    return handle


def _address(request: web.Request) -> str | None:
    return request.remote


def identified(caller: Caller | None) -> Caller:
    """The caller. Refused: 401 where there is none."""
    if caller is None:
        raise RequestRefused("no accepted token or certificate", code="unauthenticated")
    return caller


async def read_body(request: web.Request, limit: int, *, over: str = "too_large") -> bytes:
    """The body, within its bounds. Refused: 413 with the code ``over``, 408."""
    body = None
    if (request.content_length or 0) <= limit:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await request.read()
        except TimeoutError:
            raise RequestRefused("the body came too slowly", code="body_timeout") from None
        except web.HTTPRequestEntityTooLarge:
            pass  # told while it was read: it came in chunks
    if body is None or len(body) > limit:
        raise RequestRefused(f"body over {limit} bytes", code=over)
    return body


def add_routes(app: web.Application, rows: Iterable[web.RouteDef]) -> None:
    """Each method and path once, whatever its variable parts are called: of two the second would never be asked.
    ``ValueError`` for another one."""
    taken: set[tuple[str, str]] = set()
    for row in rows:
        place = (row.method, re.sub(r"\{[^{}:]*", "{", row.path))
        if place in taken:
            raise ValueError(f"{row.method} {row.path}: this route is registered twice")
        taken.add(place)
        row.register(app.router)
