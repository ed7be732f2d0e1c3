"""Certificates for a mesh: a CA, and what it signs for services, people and etcd. Pure but for random keys.

ECDSA P-256 with SHA-256 throughout: every client here and etcd itself take it, and a handshake costs a tenth of RSA's.
Keys are made where the certificate is, and leave this module only as PEM. ``cryptography`` is imported late: the
command line needs it for these commands alone, and no service has it at all.

Refuses to do: files (``files.py``), lifetimes without end, names under the identity domain that are not the role's
own: a certificate must not be able to be two roles.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.adapters.peers.identity import IDENTITY_DOMAIN, SERVICE_ROLES, common_name, identity_of
from shared.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_DAYS = 3650
DEFAULT_DAYS = 90
BACKDATED = dt.timedelta(minutes=5)
"""A certificate holds from five minutes ago, so that a clock a little behind takes it."""

USER_ROLES = ("viewer", "operator", "admin")
ETCD_KINDS = ("etcd-server", "etcd-peer", "etcd-client")
KINDS = (*SERVICE_ROLES, *USER_ROLES, *ETCD_KINDS)

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?")
LONGEST_COMMON_NAME = 64
"""X.520's upper bound; longer ones are refused by every verifier."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be certified. ``names``: DNS names and addresses; ``server``, ``client``: for which side it holds."""

    common_name: str
    names: tuple[str, ...]
    server: bool
    client: bool


def wanted_of(kind: str, name: str, names: Sequence[str]) -> Wanted:
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
        made = Wanted(common_name(kind, name), (identity_of(kind), *LOOPBACK, *names), server=True, client=True)
    elif kind in USER_ROLES:
        if not name or ":" in name:
            raise ConfigError(f"name: a certificate for a {kind} needs the person's name, such as {kind} alice")
        made = Wanted(common_name(kind, name), (), server=False, client=True)
    elif kind == "etcd-client":
        if not name:
            raise ConfigError("name: an etcd client's certificate names its etcd user, such as etcd-client binder")
        made = Wanted(name, (), server=False, client=True)
    elif kind == "etcd-server":
        # etcd's own gateway is a client of its server, with this certificate
        made = Wanted(name or "conclave-etcd", (*LOOPBACK, *names), server=True, client=True)
    else:
        if not names:
            raise ConfigError("--san: a certificate between etcd members names the members; give each")
        made = Wanted(name or "conclave-etcd-peer", tuple(names), server=True, client=True)
    if len(made.common_name) > LONGEST_COMMON_NAME:
        raise ConfigError(
            f"name: {made.common_name[:80]} has more than {LONGEST_COMMON_NAME} characters; shorten it, or leave it "
            "out for a certificate that all processes of the role share"
        )
    return made


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that can sign: its certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_authority(name: str, *, days: int, now: dt.datetime) -> Authority:
    """A CA that signs certificates of processes and people, and no further CA. ``ConfigError``: no name for one."""
    if not (name.isprintable() and name.strip() and len(name.encode()) <= LONGEST_COMMON_NAME):
        raise ConfigError(
            f"--name: {name[:80]!r} is no name for a CA; give 1 to {LONGEST_COMMON_NAME} bytes of text in one line"
        )
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def issue(authority: Authority, wanted: Wanted, *, days: int, now: dt.datetime) -> tuple[bytes, bytes]:
    """(certificate, key) in PEM. ``ConfigError``: it would hold longer than the CA that signs it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    ends = now + dt.timedelta(days=days)
    if ends > authority.certificate.not_valid_after_utc:
        left = (authority.certificate.not_valid_after_utc - now).days
        raise ConfigError(f"--days: the CA itself ends in {left} days; ask for fewer, or run conclave pki rotate")
    key = ec.generate_private_key(ec.SECP256R1())
    sides = [ExtendedKeyUsageOID.SERVER_AUTH] * wanted.server + [ExtendedKeyUsageOID.CLIENT_AUTH] * wanted.client
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(wanted.common_name))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(sides), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_issuer_key(authority.certificate), critical=False)
    )
    if wanted.names:
        names = [general_name(name) for name in dict.fromkeys(wanted.names)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return pem_of(builder.sign(authority.key, hashes.SHA256())), key_pem(key)


def wanted_again(certificate: x509.Certificate) -> tuple[Wanted, int]:
    """What a certificate says, and for how many days it was made: what its successor must say."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        sides = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        sides = []
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    wanted = Wanted(
        name_of(certificate),
        tuple(names_of(certificate)),
        server=ExtendedKeyUsageOID.SERVER_AUTH in sides,
        client=ExtendedKeyUsageOID.CLIENT_AUTH in sides,
    )
    return wanted, max(1, life.days)


def name_of(certificate: x509.Certificate) -> str:
    """The common name; empty where there is none."""
    from cryptography.x509.oid import NameOID

    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def names_of(certificate: x509.Certificate) -> Iterable[str]:
    """DNS names and addresses."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def pem_of(certificate: x509.Certificate) -> bytes:
    """The certificate in PEM."""
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key in PEM, PKCS 8, not encrypted: services start without anybody to type a password."""
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def general_name(name: str) -> Any:
    """A subject alternative name. ``ConfigError``: neither an address nor a DNS name."""
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not re.fullmatch(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", name):
        raise ConfigError(f"--san: {name[:64]!r} is neither a DNS name nor an IP address") from None
    return x509.DNSName(name)


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _issuer_key(certificate: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    from cryptography import x509

    found = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)
