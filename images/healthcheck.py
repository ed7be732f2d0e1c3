#!/opt/conclave/bin/python -IS
"""Whether the service of this container answers: exit code 0 when it does, 1 with one line when not.

``healthcheck [PORT [PATH]]``; without a port that of CONCLAVE_LISTEN, and ``/healthz``. It asks over a plain socket and
loads next to nothing, because ten containers on a laptop run it every few seconds. It does not speak TLS: of a listener
that does it asks only whether the port is open, and it does not say whether a service is ready or leads.
"""

import os
import socket
import sys

DEADLINE_S = 2.5
"""Shorter than the timeout of the checks that call this, so that the reason is told."""


LOOPBACK = ("127.0.0.1", "::1")
"""Asked in turn: a listener may be on an address of either family alone."""


def connected(port: int) -> socket.socket:
    """``OSError`` of the first address: nothing listens on any."""
    refused = None
    for host in LOOPBACK:
        try:
            return socket.create_connection((host, port), timeout=DEADLINE_S)
        except OSError as error:
            refused = refused or error
    raise refused or OSError("no address")


def problem(port: int, path: str) -> str:
    """What is wrong, or ""."""
    try:
        with connected(port) as connection:
            if os.environ.get("CONCLAVE_TLS_CERT"):
                return ""
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            with connection.makefile("rb") as answer:
                status = answer.readline(256).decode("latin-1").split()
    except OSError as error:
        return f"127.0.0.1:{port}: {error}"
    if len(status) < 2 or status[1] != "200":
        return f"127.0.0.1:{port}{path}: {' '.join(status) or 'closed without an answer'}"
    return ""


def main() -> int:
    """The exit code."""
    words = sys.argv[1:]
    port = words[0] if words else os.environ.get("CONCLAVE_LISTEN", ":8700").rpartition(":")[2]
    if not port.isdecimal() or len(words) > 2:
        print("usage: healthcheck [PORT [PATH]]", file=sys.stderr)
        return 2
    found = problem(int(port), words[1] if len(words) == 2 else "/healthz")
    if found:
        print(found, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
