"""Hosts, ports and URLs as text, of IPv4, IPv6 and names: the one way to write them and to read them. No I/O.

An IPv6 address stands in brackets wherever a port may follow it (RFC 3986), and its zone behind ``%25`` in a URL (RFC
6874). Kubernetes writes ``status.podIP`` and KUBERNETES_SERVICE_HOST bare, whatever the family, so what a template puts
together from them lacks the brackets: ``fd00::7:8700``. Where a port must follow, that has one reading, and gets it;
anything else without brackets is refused.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

EVERY_HOST = ""
"""Listened on: every address of this machine, of either family."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(?:[^/?#]*@)?([^/?#@]*)(.*)", re.DOTALL)
_NAME = re.compile(r"[^\x00-\x20\x7f:/?#@%\\<>\"{}|^`\[\]]+")
"""No more than what would be read as another part of a URL is kept out: the resolver knows which names there are."""


class ServerUrl(NamedTuple):
    """Where a URL leads. ``host`` is bare: no brackets, a zone behind a single ``%``. ``path``: all that follows."""

    scheme: str
    host: str
    port: int | None
    path: str = ""

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return url_of(self.scheme, self.host, self.port)


def join_host_port(host: str, port: int) -> str:
    """``HOST:PORT``, an IPv6 address in brackets, its zone as the system writes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def url_of(scheme: str, host: str, port: int | None = None) -> str:
    """``SCHEME://HOST[:PORT]``."""
    named = f"[{host.replace('%', '%25')}]" if ":" in host else host
    return f"{scheme}://{named}" if port is None else f"{scheme}://{named}:{port}"


def split_host_port(text: str, setting: str = "listen") -> tuple[str, int]:
    """(host, port) of ``HOST:PORT``; ``EVERY_HOST`` for ``:PORT``. ``ValueError`` naming the setting."""
    host, colon, port = text.rpartition(":")
    if host:
        host = bare_host(host)
        colon = colon if host else ""
    if not colon or not _is_port(port):
        raise ValueError(
            f"{setting}: {text!r} is not HOST:PORT, such as 127.0.0.1:7070, [::1]:7070, or :7070 for every address"
        )
    return host, int(port)


def server_of(url: str) -> ServerUrl:
    """Where ``url`` leads; who is named in it is left out. ``ValueError``: neither http nor https, no host, a port
    that cannot be one."""
    found = _URL.fullmatch(url)
    scheme = found[1].lower() if found is not None else ""
    if found is None or scheme not in ("http", "https"):
        raise ValueError(f"{url!r} does not begin with http:// or https://")
    place, port = found[2], ""
    if ":" in place and not place.endswith("]"):
        place, _, port = place.rpartition(":")
    host = bare_host(place)
    if not host or (port and not (_is_port(port) and int(port))):
        raise ValueError(f"{url!r} is not {scheme}://HOST:PORT (an IPv6 address in brackets)")
    return ServerUrl(scheme, host, int(port) if port else None, found[3])


def host_part(text: str) -> str:
    """The host of ``HOST`` or ``HOST:PORT``, as series name their instance; "" where there is none."""
    return bare_host(text) or bare_host(text.rpartition(":")[0])


def bare_host(text: str) -> str:
    """The host in ``text``: a name, an IPv4 address, or one of IPv6 with or without brackets; "" where it is none."""
    inner = text
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1]
        if ":" not in inner:
            return ""
    if ":" not in inner:
        return inner if _NAME.fullmatch(inner) else ""
    inner = inner.replace("%25", "%")
    try:
        ipaddress.IPv6Address(inner)
    except ValueError:
        return ""
    return inner


def is_every_address(host: str) -> bool:
    """Whether it is what a socket is bound to for every address (0.0.0.0, ::), and leads nobody anywhere."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535
