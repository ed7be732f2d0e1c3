"""Which proxy leads to a server: HTTPS_PROXY, HTTP_PROXY and NO_PROXY as Go reads them. No I/O.

Source: golang.org/x/net/http/httpproxy, which client-go and kubectl go by. Each variable may be written in small
letters too. NO_PROXY is a list of names (``example.com`` and what lies below it; ``.example.com`` what lies below it
alone), IP addresses, networks (``10.0.0.0/8``), each but a network with ``:PORT`` where it is for one port; ``*`` is
everything.
Loopback is never asked for through a proxy. Go reads no ALL_PROXY, and neither do we.

For servers outside of the mesh alone: services and etcd are spoken to directly, whatever the environment says.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from shared.errors import ConfigError
from shared.hostport import ServerUrl, server_of

_PORTS = {"http": 80, "https": 443}
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def proxy_from_environment(url: str, environ: Mapping[str, str]) -> str | None:
    """URL of the proxy on the way to ``url``; None: there is none.

    ``ConfigError`` naming the variable: what it holds is no URL of a proxy that we can use."""
    server = server_of(url)
    name, value = _named(environ, f"{server.scheme.upper()}_PROXY")
    if not value or not proxied(server, _named(environ, "NO_PROXY")[1]):
        return None
    return checked_proxy(value if "://" in value else f"http://{value}", name)


def checked_proxy(url: str, setting: str) -> str:
    """``url``, if it is one of a proxy. ``ConfigError`` naming the setting, and never a password."""
    try:
        server_of(url)
    except ValueError:
        shown = f"{url.partition('://')[0]}://{url.rpartition('@')[2]}" if "@" in url else url
        socks = " (SOCKS is not spoken)" if url.lower().startswith("socks") else ""
        raise ConfigError(
            f"{setting}: {shown[:128]!r} is no URL of a proxy{socks}; give an HTTP proxy that takes CONNECT, such as "
            "http://proxy:3128"
        ) from None
    return url


def proxied(server: ServerUrl, no_proxy: str) -> bool:
    """Whether a proxy is to be asked for ``server``, by the rules of NO_PROXY."""
    host = server.host.lower().rstrip(".").partition("%")[0]
    port = server.port or _PORTS[server.scheme]
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    entries = (part.strip().lower() for part in no_proxy.split(","))
    return not any(_excepts(entry, host, address, port) for entry in entries)


def _excepts(entry: str, host: str, address: _Address | None, port: int) -> bool:
    """Whether one entry of NO_PROXY means this server."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            network = ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
        return address is not None and address in network
    name, _, told = entry.rpartition(":")
    if name.count(":") and not name.endswith("]"):
        name, told = entry, ""  # an IPv6 address without a port
    elif not name:
        name, told = entry, ""
    if told and told != str(port):
        return False
    name = name.removeprefix("[").removesuffix("]")
    at = _address(name)
    if at is not None:
        return at == address
    name = name.removeprefix("*") if name.startswith("*.") else name
    if name.startswith("."):
        return host.endswith(name)
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _address(text: str) -> _Address | None:
    """IPv4 in the guise of IPv6 is IPv4."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped: _Address | None = getattr(found, "ipv4_mapped", None)
    return mapped or found


def _named(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """(the variable that is set, its value)."""
    for variable in (name, name.lower()):
        if value := environ.get(variable, "").strip():
            return variable, value
    return name, ""
