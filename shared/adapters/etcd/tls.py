"""The files of TLS to etcd: when they have changed, and what grpc and connections of ours make of them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.errors import ConfigError

ALPN = "h2"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdTls:
    """Files for TLS; with ``cert_file`` and ``key_file`` it is mutual."""

    ca_file: Path
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str = ""
    """SAN to expect instead of the endpoint's host; empty: the host."""


def status_of(tls: EtcdTls | None) -> tuple[tuple[int, int], ...] | None:
    """What tells that a file has changed; None while one is missing, or without TLS."""
    if tls is None:
        return None
    try:
        found = [path.stat() for path in (tls.ca_file, tls.cert_file, tls.key_file) if path is not None]
    except OSError:
        return None
    return tuple((status.st_mtime_ns, status.st_ino) for status in found)


def context_of(tls: EtcdTls) -> ssl.SSLContext:
    """As ``credentials_of``, for a connection of ours. ``OSError``: a file cannot be read, or is none."""
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    context.set_alpn_protocols([ALPN])
    return context


def credentials_of(tls: EtcdTls) -> Any:
    """For a channel of grpc. ``ConfigError``: a file cannot be read."""
    import grpc  # loaded by ``channel.py``, which says how

    def read(path: Path | None) -> bytes | None:
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise ConfigError(f"etcd TLS file {path}: {error.strerror}") from error

    return grpc.ssl_channel_credentials(
        root_certificates=read(tls.ca_file),
        private_key=read(tls.key_file),
        certificate_chain=read(tls.cert_file),
    )
