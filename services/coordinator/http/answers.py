"""Answers and refusals as JSON, with stable codes. The strings of codes never change once released.

It refuses to tell a caller more of a failure than its code where the text may hold anything (500).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from services.coordinator.http.routing import Answer
from shared.errors import (
    ConclaveError,
    ConfigError,
    Conflict,
    InvalidValue,
    KubeRejected,
    StoreFenced,
    StoreRejected,
    StoreUnknown,
)
from shared.runtime.http.listener import Refused

MESSAGE_CHARS = 512

_encoder = msgspec.json.Encoder()


class ErrorAnswer(Answer, frozen=True, kw_only=True):
    """The body of every 4xx and 5xx. ``code`` is stable, ``message`` is for people."""

    code: str
    message: str


def as_json(answer: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A response."""
    if isinstance(answer, ErrorAnswer):
        # may quote what the caller sent: half a surrogate pair would stop the encoder, a line break splits the line
        shown = "".join(char if char.isprintable() else "?" for char in answer.message[:MESSAGE_CHARS])
        answer = ErrorAnswer(code=answer.code, message=shown)
    return web.Response(status=status, body=encoded(answer), content_type="application/json", headers=headers)


def encoded(answer: Any) -> bytes:
    """The body."""
    return _encoder.encode(answer) + b"\n"


def refusal(message: str) -> Refused:
    """400: the request does not fit its schema."""
    return Refused(message, code="invalid_request", status=400)


def invalid(message: str) -> Refused:
    """422: it fits the schema, and a value in it cannot be."""
    return Refused(message, code="invalid_value", status=422)


def unknown(what: str, message: str) -> Refused:
    """404 ``WHAT_unknown``."""
    return Refused(message, code=f"{what}_unknown", status=404)


def conflict(message: str) -> Refused:
    """409: something else is the case than the caller thought."""
    return Refused(message, code="conflict", status=409)


def error_of(error: Exception) -> Refused:
    """What a failure is answered with. Unknown outcomes are 503, with the code of the error."""
    match error:
        case Refused():
            return error
        case StoreFenced():
            return Refused("this process does not lead any more", code="no_leader", status=503, retry_after_s=1)
        case StoreRejected() | KubeRejected():
            return Refused(str(error), code=error.code, status=409)
        case InvalidValue():
            return invalid(str(error))
        case ConfigError() | Conflict():
            return conflict(str(error))
        case StoreUnknown():
            return Refused(str(error), code=error.code, status=503, retry_after_s=1)
        case TimeoutError():
            return Refused("no answer in time; look before trying again", code="timeout", status=503, retry_after_s=1)
        case ConclaveError():
            return Refused(str(error), code=error.code, status=503, retry_after_s=1)
        case _:
            return Refused("internal error", code="internal", status=500)
