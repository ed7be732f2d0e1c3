"""Methods that the HTTP parser does not know.

A real server reads any token as a method and answers 405; aiohttp's parser answers 400 in its own words before anybody
is asked. Where a request begins with such a token it is read as ``TRACE``, which no resource has either.
"""

from __future__ import annotations

import re
from http import HTTPMethod

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) \S+ HTTP/1\.[01]\r\n")
_KNOWN = frozenset(one.value.encode() for one in HTTPMethod)


class _AnyMethod(RequestHandler):
    """One connection. A chunk is looked at only where it can be the beginning of a request."""

    def data_received(self, data: bytes) -> None:
        if self._current_request is None and not self._messages:
            line = _LINE.match(data)
            if line is not None and line[1] not in _KNOWN:
                data = b"TRACE" + data[line.end(1) :]
        super().data_received(data)


class AnyMethodServer(web.Server):
    """``web.Server`` whose connections read any method."""

    def __call__(self) -> RequestHandler:
        return _AnyMethod(self, loop=self._loop, **self._kwargs)
