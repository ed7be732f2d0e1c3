"""Bearer tokens between services, read from a file and re-read when it changes; TLS contexts for mutual TLS.

A token file holds one token per line, each with the role of its holder if roles are used: ``TOKEN [ROLE]``. The
first line is the one we send; every line is accepted, so a token is changed without a gap by putting the new one
first. Tokens are never logged, and an error names the file, never its text.
"""

from __future__ import annotations

import hmac
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from shared.errors import ConfigError

RECHECK_S = 1.0
"""How often the file's status is looked at; a stat call costs 1 us, so this bounds nothing but habit."""

MIN_TOKEN_CHARS = 16
"""Shorter tokens can be guessed; ``conclave up`` makes them with 256 bits."""


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """One accepted token and the role of who holds it (empty: any)."""

    token: bytes
    role: str


class TokenFile:
    """The tokens in one file, followed as the file changes (Secrets are re-mounted, not signalled)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checked = float("-inf")
        self._seen: tuple[int, int, int] | None = None
        self._entries: tuple[TokenEntry, ...] = ()
        self._header = ""
        self._refresh(time.monotonic())
        if not self._entries:
            raise ConfigError(f"{path}: no token in this file; write one line with a token of 16 characters or more")

    def authorization(self) -> str:
        """The value of the Authorization header that we send."""
        self._refresh(time.monotonic())
        return self._header

    def role_of(self, authorization: str) -> str | None:
        """The role behind an Authorization header, or None when it is not accepted. Constant time in the token."""
        self._refresh(time.monotonic())
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode("utf-8", "surrogateescape")
        found: str | None = None
        for entry in self._entries:
            if hmac.compare_digest(entry.token, given):
                found = entry.role
        return found if scheme.lower() == "bearer" else None

    def _refresh(self, now: float) -> None:
        if now - self._checked < RECHECK_S:
            return
        self._checked = now
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen == self._seen:
                return
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            if self._entries:
                return  # a Secret being re-mounted is absent for a moment: the old token stays good
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise ConfigError(
                f"{self._path}: token file cannot be read ({reason}); create it or fix its mode"
            ) from error
        try:
            entries = tuple(_entry(self._path, line) for line in text.splitlines() if line.strip())
        except ConfigError:
            if self._entries:
                return  # caught half-written: the old token stays good until the file is whole
            raise
        if entries:
            self._entries, self._seen = entries, seen
            self._header = f"Bearer {entries[0].token.decode()}"


def _entry(path: Path, line: str) -> TokenEntry:
    token, _, role = line.strip().partition(" ")
    if len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"{path}: a token needs at least {MIN_TOKEN_CHARS} printable ASCII characters; make a new one"
        )
    return TokenEntry(token.encode(), role.strip())


def client_tls(*, ca_file: Path, cert_file: Path, key_file: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer towards peers: their certificate is checked against ``ca_file``, ours is shown."""
    context = _context(ssl.Purpose.SERVER_AUTH, ca_file)
    _load_chain(context, cert_file, key_file)
    return context


def server_tls(*, ca_file: Path, cert_file: Path, key_file: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer for a listener: a caller without a certificate of ``ca_file`` is refused in the handshake."""
    context = _context(ssl.Purpose.CLIENT_AUTH, ca_file)
    context.verify_mode = ssl.CERT_REQUIRED
    _load_chain(context, cert_file, key_file)
    return context


def _context(purpose: ssl.Purpose, ca_file: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(purpose, cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{ca_file}: not usable as a CA bundle ({_reason(error)}); give a PEM file") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load_chain(context: ssl.SSLContext, cert_file: Path, key_file: Path) -> None:
    try:
        context.load_cert_chain(str(cert_file), str(key_file))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{cert_file}, {key_file}: not usable as certificate and key ({_reason(error)}); give a matching PEM pair"
        ) from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
