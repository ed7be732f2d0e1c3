"""Bodies to responses: JSON, YAML, gzip, pretty printing, Warning headers.

Why: one place knows how an answer leaves, so handlers deal in bytes and codes only.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from twin.api.requests.negotiation import PLAIN, YAML, Form
from twin.registry.status import ApiError, Json

GZIP_ABOVE_BYTES = 128 * 1024
"""``defaultGzipThresholdBytes`` of the API server."""

encode = msgspec.json.Encoder().encode


def warning_headers(warnings: Iterable[str]) -> list[str]:
    """RFC 7234 Warning values, each text once."""
    out: list[str] = []
    for text in dict.fromkeys(warnings):
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        out.append(f'299 - "{quoted}"')
    return out


class ResponseMaker:
    """Makes the response of one request; knows what that request accepts."""

    __slots__ = ("_gzip", "_pretty", "form", "warnings")

    def __init__(self, headers: Mapping[str, str], query: Mapping[str, str], form: Form = PLAIN) -> None:
        self.form = form
        self.warnings: list[str] = []
        """Sent with whatever is answered."""
        self._gzip = "gzip" in headers.get("Accept-Encoding", "")
        self._pretty = query.get("pretty", "false") not in ("false", "0", "")

    def raw(
        self,
        body: bytes,
        code: int = 200,
        *,
        warnings: Iterable[str] = (),
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> web.Response:
        """``body`` is JSON; it is converted where the client wants it otherwise."""
        content_type = content_type or self.form.content_type
        if self.form.media == YAML:
            body = to_yaml(body)
        elif self._pretty:
            body = msgspec.json.format(body, indent=2) + b"\n"
        else:
            body += b"\n"
        out: CIMultiDict[str] = CIMultiDict(headers or {})
        out["Content-Type"] = content_type
        for value in warning_headers([*self.warnings, *warnings]):
            out.add("Warning", value)
        if self._gzip and len(body) > GZIP_ABOVE_BYTES:
            body = gzip.compress(body, compresslevel=1)
            out["Content-Encoding"] = "gzip"
            out["Vary"] = "Accept-Encoding"
        return web.Response(body=body, status=code, headers=out)

    def json(self, obj: Json, code: int = 200, *, warnings: Iterable[str] = ()) -> web.Response:
        """An object that is not stored: a Status, a discovery document."""
        return self.raw(encode(obj), code, warnings=warnings)

    def error(self, error: ApiError, *, warnings: Iterable[str] = ()) -> web.Response:
        """A refusal."""
        headers = dict(error.headers)
        retry = error.body.get("details", {}).get("retryAfterSeconds")
        if retry and "Retry-After" not in headers:
            headers["Retry-After"] = str(retry)
        told = [*warnings, *error.warnings]
        return self.raw(encode(error.body), error.code, warnings=told, headers=headers)


def to_yaml(body: bytes) -> bytes:
    """The same document as YAML, keys sorted as the real server's serializer does."""
    import yaml

    text: str = yaml.safe_dump(msgspec.json.decode(body), default_flow_style=False, allow_unicode=True)
    return text.encode()


def text(body: str, code: int = 200) -> web.Response:
    """A text answer (health, unknown paths)."""
    return web.Response(
        body=body.encode(),
        status=code,
        headers={"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"},
    )


def page_not_found() -> web.Response:
    """What Go's mux says of a path that nobody serves."""
    return text("404 page not found\n", 404)
