"""The one place where certificates are made and read: a CA, what it signs, names and dates. Pure but for random keys.

ECDSA P-256 with SHA-256 throughout: every client here and etcd itself take it, and a handshake costs a tenth of RSA's.
Keys are made where the certificate is, and leave this module only as PEM. ``cryptography`` costs a process 8 MB and
30 ms, so it is imported when the first certificate is made or read: a service without TLS never does.

It writes no files; whose name may be in a certificate is the caller's matter.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from shared.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

BACKDATED = dt.timedelta(minutes=5)
"""A certificate holds from five minutes ago, so that a clock a little behind takes it."""

LONGEST_COMMON_NAME = 64
"""X.520's upper bound; longer ones are refused by every verifier."""


class Dates(Struct, frozen=True):
    """From when until when a certificate holds, in seconds since the epoch."""

    not_before: float
    not_after: float


def dates_in(file: Path) -> list[Dates]:
    """The dates of every certificate in the PEM file, in its order. ``ValueError``: none, or not one; ``OSError``."""
    from cryptography import x509

    found = x509.load_pem_x509_certificates(file.read_bytes())
    return [Dates(one.not_valid_before_utc.timestamp(), one.not_valid_after_utc.timestamp()) for one in found]


class CertificateWanted(Struct, frozen=True):
    """What is to be certified. ``names``: DNS names and addresses; ``server``, ``client``: for which side it holds."""

    common_name: str
    names: tuple[str, ...]
    server: bool
    client: bool


class Authority(Struct, frozen=True):
    """A CA that can sign: its certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_authority(name: str, *, days: int, now: dt.datetime) -> Authority:
    """A CA that signs certificates of processes and people, and no further CA. ``ConfigError``: no name for one."""
    if not (name.isprintable() and name.strip() and len(name.encode()) <= LONGEST_COMMON_NAME):
        raise ConfigError(
            f"--name: {name[:80]!r} is no name for a CA; give 1 to {LONGEST_COMMON_NAME} bytes of text in one line"
        )
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = _begun(subject, subject, key, ends=now + dt.timedelta(days=days), now=now, signs=True)
    return Authority(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Authority, wanted: CertificateWanted, *, days: int, now: dt.datetime) -> tuple[bytes, bytes]:
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
    issuer = authority.certificate
    issuer_key = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _begun(_subject(wanted.common_name), issuer.subject, key, ends=ends, now=now, signs=False)
        .add_extension(x509.ExtendedKeyUsage(sides), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key),
            critical=False,
        )
    )
    if wanted.names:
        names = [general_name(name) for name in dict.fromkeys(wanted.names)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return pem_of(builder.sign(authority.key, hashes.SHA256())), key_pem(key)


def wanted_again(certificate: x509.Certificate) -> tuple[CertificateWanted, int]:
    """What a certificate says, and for how many days it was made: what its successor must say."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        sides = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        sides = []
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    wanted = CertificateWanted(
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


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    ends: dt.datetime,
    now: dt.datetime,
    signs: bool,
) -> x509.CertificateBuilder:
    """What every certificate says; ``signs``: it is a CA's."""
    from cryptography import x509

    usage = x509.KeyUsage(
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
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
