"""Bearer tokens between services, read from a file and re-read when it changes; TLS contexts for mutual TLS.

A token file holds one token per line, each with the role of its holder if roles are used: ``TOKEN [ROLE]``. The
first line is the one we send; every line is accepted, so a token is changed without a gap by putting the new one
first. Tokens are never logged, and an error names the file, never its text.
"""

from __future__ import annotations

import hmac
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct

from shared.errors import ConfigError

log = structlog.get_logger()

RECHECK_S = 1.0
"""How often the file's status is looked at; a stat call costs 1 us, so this bounds nothing but habit."""

MIN_TOKEN_CHARS = 16
"""Shorter tokens can be guessed; ``conclave up`` makes them with 256 bits."""


class TokenEntry(Struct, frozen=True):
    """One accepted token and the role of who holds it (empty: any)."""

    token: bytes
    role: str


class TokenFile:
    """The tokens in one file, followed as the file changes (Secrets are re-mounted, not signalled)."""

    def __init__(self, path: Path, *, check_role: Callable[[str], str] = lambda _: "") -> None:
        """``check_role``: says what is wrong with what follows a token, "" for nothing; such a file is refused."""
        self._path = path
        self._check_role = check_role
        self._checked = float("-inf")
        self._seen: tuple[int, int, int] | None = None
        self._unusable = _Unusable()
        self._entries: tuple[TokenEntry, ...] = ()
        self._header = ""
        self._refresh(time.monotonic())

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
                self._unusable.over()
                return
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            if self._entries:
                self._unusable.see(self._path, reason, f"{self._path}: cannot be read ({reason})")
                return  # a Secret being re-mounted is absent for a moment: the old token stays good
            raise ConfigError(
                f"{self._path}: token file cannot be read ({reason}); create it or fix its mode"
            ) from error
        try:
            entries = tuple(self._entry(line) for line in text.splitlines() if line.strip())
            if not entries:
                raise ConfigError(
                    f"{self._path}: no token in this file; write one line with a token of 16 characters or more"
                )
        except ConfigError as error:
            if not self._entries:
                raise
            self._unusable.see(self._path, seen, str(error))
            return  # caught half-written: the old tokens stay good until the file is whole
        self._entries, self._seen = entries, seen
        self._unusable.over()
        self._header = f"Bearer {entries[0].token.decode()}"

    def _entry(self, line: str) -> TokenEntry:
        token, _, role = line.strip().partition(" ")
        if len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable():
            raise ConfigError(
                f"{self._path}: a token needs at least {MIN_TOKEN_CHARS} printable ASCII characters; make a new one"
            )
        if problem := self._check_role(role.strip()):
            raise ConfigError(f"{self._path}: {problem}; correct the line")
        return TokenEntry(token.encode(), role.strip())


class _Unusable:
    """Tells once that a file cannot be used, when a second look finds it so: what is half-written, or away for a moment
    while a Secret is re-mounted, is not told.

    Without this the old content would go on being good, a token that was taken away too, and nobody would know.
    """

    def __init__(self) -> None:
        self._status: object = None
        self._told = False

    def see(self, file: Path, status: object, why: str) -> None:
        """The file is in this state and cannot be used."""
        if status != self._status:
            self._status, self._told = status, False
        elif not self._told:
            self._told = True
            log.warning("credentials_not_followed", file=str(file), error=why, in_force="what was there before")

    def over(self) -> None:
        """The file is as it should be."""
        self._status, self._told = None, False


def client_tls(*, ca_file: Path, cert_file: Path, key_file: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer towards peers: their certificate is checked against ``ca_file``, ours is shown."""
    context = _FollowingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.follow(ca_file, cert_file, key_file)
    return context


def server_tls(*, ca_file: Path, cert_file: Path, key_file: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer for a listener: a certificate that ``ca_file`` did not sign is refused in the handshake.

    A caller without any gets through it, because a kubelet's probe has none: health is all that it can ask then, the
    authenticator refuses the rest (401).
    """
    context = _FollowingContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.follow(ca_file, cert_file, key_file)
    return context


class _FollowingContext(ssl.SSLContext):
    """A context whose certificate, key and CA follow their files: short-lived certificates are re-mounted in place.

    asyncio and uvloop call ``wrap_bio`` for each connection, on both sides; that is where a change is noticed. A
    new CA is added to the old one, which stays good until the process ends, so that peers may change at their own pace.
    """

    def follow(self, ca_file: Path, cert_file: Path, key_file: Path) -> None:
        """Load the files (``ConfigError`` when they cannot be used) and remember what they were."""
        self.minimum_version = ssl.TLSVersion.TLSv1_2
        self._ca_file, self._cert_file, self._key_file = ca_file, cert_file, key_file
        self._checked = time.monotonic()
        self._seen: tuple[tuple[int, int], ...] = ()
        with suppress(OSError):  # what is missing is named by the load
            self._seen = self._status()
        self._unusable = _Unusable()
        _load(self, ca_file, cert_file, key_file)

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """One connection, with the files as they are now."""
        self._refresh(time.monotonic())
        return super().wrap_bio(*arguments, **options)

    def _refresh(self, now: float) -> None:
        if now - self._checked < RECHECK_S:
            return
        self._checked = now
        files = (self._ca_file, self._cert_file, self._key_file)
        try:
            status = self._status()
        except OSError as error:
            self._unusable.see(self._cert_file, str(error), f"{error.filename}: cannot be read ({_reason(error)})")
            return  # being re-mounted, perhaps: the old pair stays good
        if status == self._seen:
            self._unusable.over()
            return
        try:
            # a certificate whose key is not there yet would leave this context with neither: try on another first
            _load(ssl.SSLContext(self.protocol), *files)
            # a rename between the two is met again at the next look; raised, it would end the process that calls
            _load(self, *files)
        except ConfigError as error:
            self._unusable.see(self._cert_file, status, str(error))
            return  # caught between two renames: the old pair stays good until the files match
        self._seen = status
        self._unusable.over()

    def _status(self) -> tuple[tuple[int, int], ...]:
        found = [path.stat() for path in (self._ca_file, self._cert_file, self._key_file)]
        return tuple((status.st_mtime_ns, status.st_ino) for status in found)


def _load(context: ssl.SSLContext, ca_file: Path, cert_file: Path, key_file: Path) -> None:
    try:
        context.load_verify_locations(str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{ca_file}: not usable as a CA bundle ({_reason(error)}); give a PEM file") from error
    try:
        context.load_cert_chain(str(cert_file), str(key_file))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{cert_file}, {key_file}: not usable as certificate and key ({_reason(error)}); give a matching PEM pair"
        ) from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
