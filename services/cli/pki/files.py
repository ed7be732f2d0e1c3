"""Where certificates and keys lie: a CA's folder (``ca.crt``, ``ca.key``) and a holder's (``tls.*``, ``ca.crt``).

The holder's names are those of a Kubernetes Secret of type ``kubernetes.io/tls``. Each file is written whole and then
renamed; a service that follows them (``shared.adapters.peers.credentials``) waits for a pair that matches. Keys are
0600.

Refuses to overwrite a CA: with its key, everything it has signed would be lost.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shared.adapters.peers.certificates import Authority, key_pem, pem_of
from shared.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509

CA_CERT, CA_KEY, CERT, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


def write_file(file: Path, content: bytes, mode: int) -> None:
    """The whole file or none of it. ``ConfigError``: it cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).chmod(mode)
            Path(temporary).replace(file)
        finally:
            Path(temporary).unlink(missing_ok=True)  # still there where something went wrong
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror}); give a folder of yours") from error


@dataclass(frozen=True, slots=True)
class AuthorityFolder:
    """A CA on disk."""

    path: Path

    def create(self, authority: Authority) -> None:
        """Write a new CA. ``ConfigError``: there is one, which is left as it is."""
        for name in (CA_KEY, CA_CERT):
            if (self.path / name).exists():
                raise ConfigError(
                    f"{self.path / name}: there is a CA here and it stays; choose another folder, or replace it step "
                    "by step with conclave pki rotate"
                )
        self.replace(authority, trusted=())

    def replace(self, authority: Authority, *, trusted: tuple[bytes, ...]) -> None:
        """Sign with ``authority`` from now on; ``trusted``: older CAs (PEM) that go on being trusted beside it.

        Its key last: where this breaks off in between, the old key still signs for a CA that is trusted.
        """
        self.trust((pem_of(authority.certificate), *trusted))
        write_file(self.path / CA_KEY, key_pem(authority.key), 0o600)

    def trust(self, bundle: tuple[bytes, ...]) -> None:
        """The CAs that holders are to trust, the one that signs first."""
        write_file(self.path / CA_CERT, b"".join(bundle), 0o644)

    def bundle(self) -> tuple[bytes, ...]:
        """The CAs that are trusted, in PEM, the one that signs first. ``ConfigError``: there is none."""
        return tuple(pem_of(one) for one in read_certificates(self.path / CA_CERT, "run conclave pki init first"))

    def load(self) -> Authority:
        """The CA that signs: the trusted one whose key we have. ``ConfigError``: missing, unreadable, or none is."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        trusted = read_certificates(self.path / CA_CERT, "run conclave pki init first")
        file = self.path / CA_KEY
        try:
            key = load_pem_private_key(file.read_bytes(), None)
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read ({error.strerror}); it is needed to sign") from error
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{file}: not a PEM key without a password; restore it from your copy") from error
        if isinstance(key, ec.EllipticCurvePrivateKey):
            for certificate in trusted:
                if key.public_key() == certificate.public_key():
                    return Authority(certificate, key)
        raise ConfigError(f"{file}: not the key of {self.path / CA_CERT}; restore the pair from your copy")


@dataclass(frozen=True, slots=True)
class HolderFolder:
    """A certificate, its key and the CAs it is used with."""

    path: Path

    def create(self, pair: tuple[bytes, bytes], bundle: tuple[bytes, ...]) -> None:
        """Write the first certificate. ``ConfigError``: there is one already, or a CA, which would lose its own."""
        if (self.path / CA_KEY).exists():
            raise ConfigError(f"{self.path / CA_KEY}: there is a CA here and it stays; choose another folder")
        for name in (CERT, KEY):
            if (self.path / name).exists():
                raise ConfigError(
                    f"{self.path / name}: there is a certificate here; choose another folder, or run conclave pki renew"
                )
        self.replace(pair, bundle)

    def replace(self, pair: tuple[bytes, bytes], bundle: tuple[bytes, ...]) -> None:
        """Write certificate and key, the CAs first: who trusts too much for a moment loses nothing."""
        self.trust(bundle)
        write_file(self.path / KEY, pair[1], 0o600)
        write_file(self.path / CERT, pair[0], 0o644)

    def trust(self, bundle: tuple[bytes, ...]) -> None:
        """Write the CAs alone."""
        write_file(self.path / CA_CERT, b"".join(bundle), 0o644)

    def certificate(self) -> x509.Certificate:
        """The certificate. ``ConfigError``: there is none."""
        return read_certificates(self.path / CERT, "run conclave pki issue first")[0]


def read_certificates(file: Path, remedy: str) -> list[x509.Certificate]:
    """The certificates in a PEM file. ``ConfigError``: missing or not PEM."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); {remedy}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: no PEM certificate in it; {remedy}") from error
