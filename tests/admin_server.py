"""A server that answers as it is told, for tests of the command line: canned JSON by method and path, a free port."""

from __future__ import annotations

import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclass
class AdminServer:
    """``with AdminServer({"GET /v1/overview": {...}}) as server``: answers 200 with the document.

    An answer may be (status, document) or raw bytes; a list is answered one after the other. What is not there is 404.
    """

    answers: dict[str, Any]
    tls: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                parts = urlsplit(self.path)
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.loads(raw) if raw else None
                outer.asked.append(
                    Asked(self.command, parts.path, parse_qs(parts.query), dict(self.headers.items()), body)
                )
                found = outer.answers.get(f"{self.command} {parts.path}")
                if isinstance(found, list):
                    found = found.pop(0) if len(found) > 1 else found[0]
                if found is None:
                    found = (404, {"code": "route_unknown", "message": "there is no such route"})
                status, document = found if isinstance(found, tuple) else (200, found)
                data = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_PUT = handle_any  # noqa: N815  the library's names

            def log_message(self, *_: Any) -> None:
                """Nothing on stderr: the tests read it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that breaks off is no error
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"
