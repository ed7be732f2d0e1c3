"""Who a service is to its peers: the name in a certificate, which says the role and never the address.

Why: a pod's certificate is made before the pod has an address, so the address cannot be in it. What a caller must know
is that it speaks to *an agent* (or *the binder*), not on which machine; so every service's certificate carries the DNS
name ``ROLE.conclave.internal``, and a client asks for that name whatever URL it calls. The other direction is the
common name: ``ROLE:ID`` for one process, ``ROLE:*`` for a certificate that all processes of a role share.

Pure names: files and sockets are not known here, nor who may call what (``shared.runtime.http.callers``).
"""

from __future__ import annotations

IDENTITY_DOMAIN = "conclave.internal"
"""Under ``internal``, which no public name server will ever answer for (ICANN, 2024-07-29)."""

SHARED = "*"
"""In place of a name: whoever holds the certificate is one of the role's processes, and no one of them."""

SERVICE_ROLES = ("coordinator", "binder", "agent", "learner", "jobs", "autoscaler", "rebalancer")
"""Every role that listens to peers."""

CALLING_ROLES = ("sensor",)
"""Roles that call peers and listen to none."""


def identity_of(role: str) -> str:
    """The DNS name that every certificate of this role carries."""
    return f"{role}.{IDENTITY_DOMAIN}"


def common_name(role: str, name: str = "") -> str:
    """``ROLE:NAME``, or ``ROLE:*`` for a certificate that is shared by the role."""
    return f"{role}:{name or SHARED}"


def split_common_name(text: str) -> tuple[str, str]:
    """(role, name) of a common name; the name is empty for a certificate that is shared by the role.

    A common name without ``:`` has no role: an etcd user is called ``coordinator`` too (``wire/etcd_roles.py``), and
    its certificate is nobody's here, also where one CA has signed both.
    """
    role, colon, name = text.partition(":")
    return (role, "" if name == SHARED else name) if colon and name else ("", "")
