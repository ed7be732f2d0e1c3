"""Who asks: a role and a name, from a line of the token file or from a client certificate.

    TOKEN ROLE [NAME]        one line per token; ROLE is viewer, operator or admin
    CN = ROLE:NAME           of a certificate that the admin listener's CA has signed

A higher role may do what a lower one may. A certificate of a coordinator (CN ``coordinator:ID``) says nothing itself:
it vouches for the caller whose request it passes on. It refuses to make up a caller: without credentials there is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from aiohttp import web

from shared.adapters.peers.credentials import TokenFile
from shared.runtime.http.listener import certificate_name

PROXIED = "X-Conclave-Proxied"
"""Names the standby that passes a request on; such a request is never passed on again."""
VOUCHED = "X-Conclave-Caller"
"""``ROLE:NAME`` of the one whose request it is; believed from a coordinator's certificate alone."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class Role(IntEnum):
    """What a caller may do; each may do what those below it may."""

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
    """Who sent a request. ``name`` is for the audit log; empty where the token file gives none."""

    role: Role
    name: str = ""

    @property
    def title(self) -> str:
        """``ROLE:NAME`` or ``ROLE``: what the audit log and the rate limit go by."""
        return f"{self.role.title}:{self.name}" if self.name else self.role.title


@lru_cache(maxsize=1024)
def caller_of(title: str) -> Caller | None:
    """The caller that ``ROLE:NAME`` names; None for any other text."""
    role, _, name = title.partition(":")
    if role not in ROLES or (name and NAME.fullmatch(name) is None):
        return None
    return Caller(ROLES[role], name)


@dataclass(frozen=True, slots=True)
class Doorkeeper:
    """How callers are known. A certificate with a role counts before a token."""

    tokens: TokenFile | None = None
    mutual_tls: bool = False

    def caller(self, request: web.BaseRequest) -> Caller | None:
        """Who asks; None when it cannot be told (401)."""
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


def check_role(text: str) -> str:
    """What is wrong with the part of a token's line after the token; empty when nothing is."""
    parts = text.split()
    if len(parts) in (1, 2) and parts[0] in ROLES and all(NAME.fullmatch(name) for name in parts[1:]):
        return ""
    return "after the token there must be viewer, operator or admin, then at most a name (letters, digits, . _ @ -)"
