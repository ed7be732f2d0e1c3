"""A CA for tests and what it signs, by the product's own builder."""

from __future__ import annotations

import datetime as dt
import ssl
import uuid
from pathlib import Path

from shared.adapters.peers.certificates import CertificateWanted, issue, make_authority, pem_of


class TestCa:
    """One CA, of a name of its own."""

    __test__ = False

    def __init__(self) -> None:
        self._now = dt.datetime.now(dt.UTC)
        self._authority = make_authority(f"test-ca-{uuid.uuid4().hex}", days=3, now=self._now)

    def write(self, file: Path) -> Path:
        """Its certificate, in PEM."""
        file.write_bytes(pem_of(self._authority.certificate))
        return file

    def issue(self, folder: Path, common_name: str, *hosts: str) -> tuple[Path, Path]:
        """(certificate, key) files of a new pair for both sides of a connection, called by the common name."""
        wanted = CertificateWanted(common_name, hosts, server=True, client=True)
        pair = issue(self._authority, wanted, days=1, now=self._now)
        cert, key = folder / f"{common_name}.pem", folder / f"{common_name}.key"
        cert.write_bytes(pair[0])
        key.write_bytes(pair[1])
        return cert, key

    def contexts(self, folder: Path, host: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """(a server's for ``host``, a client's that trusts this CA)."""
        inbound = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        inbound.load_cert_chain(*self.issue(folder, host, host))
        return inbound, ssl.create_default_context(cafile=str(self.write(folder / f"{host}-ca.pem")))
