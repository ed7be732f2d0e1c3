"""A listener on every address is reached by both families, also where the kernel has one alone."""

from __future__ import annotations

import socket

import pytest

from shared.adapters.http.sockets import bound_socket
from tests.patience import PATIENCE_S

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this kernel has no IPv6")


def reached(listening: socket.socket, host: str) -> bool:
    listening.listen()
    listening.settimeout(5)
    try:
        with socket.create_connection((host, listening.getsockname()[1]), timeout=PATIENCE_S):
            listening.accept()[0].close()
    except ConnectionRefusedError:
        return False
    return True


@needs_ipv6
@pytest.mark.parametrize("host", ["", "::"])
def test_every_address_is_of_both_families(host: str) -> None:
    with bound_socket(host, 0) as listening:
        assert reached(listening, "127.0.0.1")
        assert reached(listening, "::1")


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "v4", "v6"), [("0.0.0.0", True, False), ("::1", False, True), ("127.0.0.1", True, False)]
)
def test_an_address_is_of_its_own_family(host: str, v4: bool, v6: bool) -> None:
    with bound_socket(host, 0) as listening:
        assert (reached(listening, "127.0.0.1"), reached(listening, "::1")) == (v4, v6)


def test_without_ipv6_in_the_kernel_every_address_is_one_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with bound_socket("", 0) as listening:
        assert listening.family == socket.AF_INET
        assert reached(listening, "127.0.0.1")


def test_a_port_is_had_again_at_once_and_never_twice() -> None:
    with bound_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert reached(first, "127.0.0.1")
        with pytest.raises(OSError, match="in use"):
            bound_socket("127.0.0.1", port)
    bound_socket("127.0.0.1", port).close()
