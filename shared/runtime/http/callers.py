"""Who asks: a role and a name, from the caller's certificate or from the token file.

    CN = ROLE:NAME           of a certificate that the listener's CA has signed; ROLE:* is shared by a role
    TOKEN [ROLE [NAME]]      one line per token

Between services the role is a service's; on the admin API it is viewer, operator or admin, each of which may do what
those before it may, and a coordinator's certificate says nothing itself: it vouches for the caller whose request it
passes on. A caller is never made up: without accepted credentials there is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, Protocol

from shared.adapters.peers.credentials import TokenFile
from shared.adapters.peers.identity import split_common_name

PROXIED = "X-Conclave-Proxied"
"""Names the standby that passes a request on; such a request is never passed on again."""
VOUCHED = "X-Conclave-Caller"
"""``ROLE:NAME`` of the one whose request it is; believed from a coordinator's certificate alone."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class CallerRequest(Protocol):
    """What a request shows of who sends it: aiohttp's, or a call between services (``calls.py``)."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By name."""
        ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Of the connection; ``peercert`` where TLS has checked one."""
        ...


class Role(IntEnum):
    """What a caller of the admin API may do; each may do what those below it may."""

    VIEWER = 1
    """Look at everything but a dump."""
    OPERATOR = 2
    """Pause, resume, drain, and change which policy decides."""
    ADMIN = 3
    """Change settings and log levels, take dumps."""

    @property
    def title(self) -> str:
        """As in files, certificates and answers."""
        return self.name.lower()


ROLES = {role.title: role for role in Role}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request; both empty: anybody. ``name``: the person, or the one process that a certificate was made
    for; empty where a credential is shared. ``certified``: known by a certificate."""

    role: str = ""
    name: str = ""
    certified: bool = False
    address: str = ""
    """From where the call came; "" where the route does not ask for it."""

    @property
    def title(self) -> str:
        """``ROLE:NAME`` or ``ROLE``: what logs and limits go by."""
        return f"{self.role}:{self.name}" if self.name else self.role


@dataclass(frozen=True, slots=True)
class Authenticator:
    """How services are known: by bearer token, or by the certificate that ``ssl`` has checked. Neither: loopback only.

    With both, whoever shows a certificate is who it says; a token is for those who have none (Prometheus), and opens
    what every known caller may read, never a route with ``roles``. With tokens alone, one without a role (a secret
    shared by the whole mesh) passes every route's ``roles``; tokens with roles and certificates are held to them.
    """

    tokens: TokenFile | None = None
    mutual_tls: bool = False

    def caller(self, request: CallerRequest) -> Caller | None:
        """Who calls, or None when it cannot be told (401)."""
        if self.mutual_tls:
            if request.get_extra_info("peercert"):
                name = certificate_name(request)
                return Caller(*split_common_name(name), certified=True) if name else None
            if self.tokens is None:
                return None
        if self.tokens is not None:
            role = self.tokens.role_of(request.headers.get("Authorization", ""))
            return None if role is None else Caller(role)
        return Caller()


@dataclass(frozen=True, slots=True)
class AdminAuthenticator(Authenticator):
    """How people and their tools are known. A certificate with a role counts before a token."""

    def caller(self, request: CallerRequest) -> Caller | None:
        """Who asks, or None when it cannot be told (401)."""
        if self.mutual_tls and (name := certificate_name(request)):
            if name.startswith("coordinator:") and PROXIED in request.headers:
                vouched = request.headers.get(VOUCHED, "")
                if vouched:
                    return caller_of(vouched)
            # one without a name is no person's: an etcd user may be called admin too
            elif ":" in name and (known := caller_of(name)) is not None:
                return known
        if self.tokens is not None:
            known_as = self.tokens.role_of(request.headers.get("Authorization", ""))
            return None if known_as is None else caller_of(":".join(known_as.split()))
        return None


@lru_cache(maxsize=1024)
def caller_of(title: str) -> Caller | None:
    """The caller of the admin API that ``ROLE:NAME`` names; None for any other text."""
    role, _, name = title.partition(":")
    if role not in ROLES or (name and NAME.fullmatch(name) is None):
        return None
    return Caller(role, name)


def check_role(text: str) -> str:
    """What is wrong with the part of an admin token's line after the token; empty when nothing is."""
    parts = text.split()
    if len(parts) in (1, 2) and parts[0] in ROLES and all(NAME.fullmatch(name) for name in parts[1:]):
        return ""
    return "after the token there must be viewer, operator or admin, then at most a name (letters, digits, . _ @ -)"


def certificate_name(request: CallerRequest) -> str:
    """The CN of the caller's certificate, which TLS has checked; empty where there is none."""
    certificate: Any = request.get_extra_info("peercert") or {}
    for pairs in certificate.get("subject", ()):
        for key, value in pairs:
            if key == "commonName":
                return str(value)
    return ""
