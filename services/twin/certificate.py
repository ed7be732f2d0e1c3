"""A certificate for one run of the twin.

Why: kubectl sends credentials over TLS only, so a twin that kubectl can log in to must speak it. The key lives as
long as the process and is written nowhere but into a file that is deleted before this module returns.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
import tempfile
from pathlib import Path

_VALID = dt.timedelta(days=30)


def _name(host: str) -> object:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _self_signed(hosts: list[str], now: dt.datetime) -> tuple[bytes, bytes]:
    """(certificate, key) in PEM: P-256, its own authority, for ``hosts``."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "conclave-twin")])
    names = x509.SubjectAlternativeName([_name(host) for host in hosts])  # type: ignore[misc]  # a union in the library
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + _VALID)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


def make_server_tls(host: str, now: dt.datetime) -> tuple[ssl.SSLContext, bytes]:
    """A server context for ``host`` and loopback, and the certificate (PEM) that clients are to trust."""
    hosts = list(dict.fromkeys((host, "127.0.0.1", "localhost")))
    certificate, key = _self_signed(hosts, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    handle, temporary = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(certificate + key)
        context.load_cert_chain(temporary)
    finally:
        Path(temporary).unlink()
    return context, certificate
