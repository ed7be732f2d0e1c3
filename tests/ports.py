"""Ports to listen on later, and again after an end: below those that the system gives away meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import socket

_EACH_ONCE = iter(random.Random(os.getpid()).sample(range(20_000, 32_000), 12_000))


def free_port() -> int:
    """One that nobody listens on, and that this process has not been given before."""
    for port in _EACH_ONCE:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
