"""What a certificate of each kind says: of services, people and etcd. Pure.

Refuses names under the identity domain that are not the role's own: a certificate must not be able to be two roles.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shared.adapters.peers.certificates import LONGEST_COMMON_NAME, CertificateWanted
from shared.adapters.peers.identity import CALLING_ROLES, IDENTITY_DOMAIN, SERVICE_ROLES, common_name, identity_of
from shared.errors import ConfigError

CA_DAYS = 3650
DEFAULT_DAYS = 90

USER_ROLES = ("viewer", "operator", "admin")
ETCD_KINDS = ("etcd-server", "etcd-peer", "etcd-client")
KINDS = (*SERVICE_ROLES, *CALLING_ROLES, *USER_ROLES, *ETCD_KINDS)

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def wanted_of(kind: str, name: str, names: Sequence[str]) -> CertificateWanted:
    """What a certificate of this kind says. ``ConfigError``: a name is missing, too long, or another role's."""
    for given in names:
        plain = given.lower()  # names of hosts are compared without regard to case
        if plain == IDENTITY_DOMAIN or plain.endswith(f".{IDENTITY_DOMAIN}"):
            raise ConfigError(f"--san: {given} is a service's identity; it comes with the kind, leave it out")
    if name and not NAME.fullmatch(name):
        raise ConfigError(
            f"name: {name[:64]!r} has characters beyond letters, digits and . _ - : within; choose another"
        )
    if kind in ETCD_KINDS and ":" in name and not (kind == "etcd-client" and name.startswith("agent:")):
        # where one CA signs for etcd and for us, ROLE:NAME opens our doors too; an agent's etcd user is that agent
        raise ConfigError(f"name: {name[:64]!r} would name a role of ours; of etcd's users only agent:ID is called so")
    if kind in SERVICE_ROLES:
        made = CertificateWanted(
            common_name(kind, name), (identity_of(kind), *LOOPBACK, *names), server=True, client=True
        )
    elif kind in CALLING_ROLES:
        made = CertificateWanted(common_name(kind, name), (), server=False, client=True)
    elif kind in USER_ROLES:
        if not name or ":" in name:
            raise ConfigError(f"name: a certificate for a {kind} needs the person's name, such as {kind} alice")
        made = CertificateWanted(common_name(kind, name), (), server=False, client=True)
    elif kind == "etcd-client":
        if not name:
            raise ConfigError("name: an etcd client's certificate names its etcd user, such as etcd-client binder")
        made = CertificateWanted(name, (), server=False, client=True)
    elif kind == "etcd-server":
        # etcd's own gateway is a client of its server, with this certificate
        made = CertificateWanted(name or "conclave-etcd", (*LOOPBACK, *names), server=True, client=True)
    else:
        if not names:
            raise ConfigError("--san: a certificate between etcd members names the members; give each")
        made = CertificateWanted(name or "conclave-etcd-peer", tuple(names), server=True, client=True)
    if len(made.common_name) > LONGEST_COMMON_NAME:
        raise ConfigError(
            f"name: {made.common_name[:80]} has more than {LONGEST_COMMON_NAME} characters; shorten it, or leave it "
            "out for a certificate that all processes of the role share"
        )
    return made
