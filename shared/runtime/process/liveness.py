"""Whether this process makes progress, told to a kubelet by a thread of its own: ``GET /livez`` on a port of its own.

Why: an answer from the main loop is late exactly when the loop is busy, and a probe that times out kills a leader that
works. Here the question is answered at once, by the age of the loop's last turn: 200 while turns end, 503 after
``DEAD_AFTER_S`` without the end of one. A leader that hangs gives up its lease long before (``hung_after_s``), so the
restart that follows a 503 hurries for nobody. Readiness is another question, and the listener's to answer.

Not its job: TLS and anything but that one answer. It says nothing that a closed port would not.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from shared.adapters.http.sockets import bound_socket
from shared.errors import ConfigError
from shared.hostport import split_host_port

DEAD_AFTER_S = 60.0
"""Without the end of a turn for so long the process is hung for good; far above any turn of a busy loop."""

CALLER_S = 1.0
"""A caller that takes longer to ask is cut: others wait behind it."""

MOST_BYTES = 4096


class Liveness:
    """``with Liveness(address, age_s):`` answers until the end. ``age_s``: seconds since a turn ended; any thread may
    call it. An empty address: nobody asks, nothing is started. ``ConfigError``: the address cannot be listened on."""

    def __init__(self, address: str, age_s: Callable[[], float], *, dead_after_s: float = DEAD_AFTER_S) -> None:
        self._age_s = age_s
        self._dead_after_s = dead_after_s
        self._socket: socket.socket | None = None
        self._ending = threading.Event()
        if not address:
            return
        try:
            self._socket = bound_socket(*split_host_port(address, "live_listen"))
            self._socket.setblocking(True)
            self._socket.listen(16)
        except OSError as error:
            raise ConfigError(f"live_listen: {address} cannot be listened on ({error})") from error

    @property
    def port(self) -> int:
        """Of the socket; 0 without one."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else 0

    def __enter__(self) -> Self:
        if self._socket is not None:
            threading.Thread(target=self._serve, args=(self._socket,), name="liveness", daemon=True).start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._ending.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread out of accept; close alone does not
            self._socket.close()

    def _serve(self, listening: socket.socket) -> None:
        while not self._ending.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                self._ending.wait(CALLER_S)  # the end, or no file left to open
                continue
            with connection, contextlib.suppress(OSError):
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(CALLER_S)
        asked = b""
        while b"\n" not in asked and len(asked) < MOST_BYTES:
            part = connection.recv(MOST_BYTES)
            if not part:
                return
            asked += part
        age_s = self._age_s()
        if asked.split(b" ", 2)[:2] != [b"GET", b"/livez"]:
            status, text = "404 Not Found", "ask for /livez\n"
        elif age_s < self._dead_after_s:
            status, text = "200 OK", "ok\n"
        else:
            status, text = "503 Service Unavailable", f"the loop has not turned for {age_s:.0f} s\n"
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        )
        connection.sendall((head + text).encode())
