"""Sockets bound to one address, or to every address of this machine: of both families where the kernel has both.

asyncio and uvloop make a socket on ``::`` deaf to IPv4, and one on ``0.0.0.0`` never hears IPv6; a pod in a cluster of
either family, or of both, is to be reached without being told which. It binds; it does not accept.
"""

from __future__ import annotations

import socket

from shared.hostport import EVERY_HOST

EVERY = (EVERY_HOST, "::")
"""As in Go, ``[::]`` is every address too, and ``0.0.0.0`` those of IPv4 alone."""


def bound_socket(host: str, port: int, *, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """A socket on this address; a host of ``EVERY``: on all. TCP can be listened on at once after a restart.

    ``OSError``: it cannot be had."""
    every = host in EVERY
    both = every and socket.has_dualstack_ipv6()  # not where the kernel has no IPv6 (ipv6.disable=1)
    at = "::" if both else "0.0.0.0" if every else host  # noqa: S104
    found = socket.getaddrinfo(at, port, type=kind, flags=socket.AI_PASSIVE)[0]
    family, address = found[0], found[4]
    made = socket.socket(family, kind)
    try:
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        made.bind(address)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made
