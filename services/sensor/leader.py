"""Calls to the leading coordinator: one connection that is kept, HTTP/1.1, mutual TLS where there are certificates.

A name may lead to several coordinators, of which one leads. Whoever answered last is asked first; who says
``not_leader``, or does not answer, makes room for the next. It blocks, within a deadline: the sensor has one thread for
it, and the client of the other services would cost more memory than the rest of the process.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from services.sensor.log import SensorLog
from shared.adapters.peers.identity import identity_of
from shared.errors import PeerRejected, PeerUnknown
from shared.hostport import join_host_port, split_host_port

READINGS = "/v1/readings"
MEDIA_TYPE = "application/vnd.conclave.v1+msgpack"
CONNECT_S = 2.0
ANSWER_S = 3.0
MOST_HEAD = 16 << 10
MOST_BODY = 1 << 20
MOST_ADDRESSES = 16
ROUND_S = 8.0
"""No further coordinator is asked after so long: the next reading is due."""
TOLERATED_S = 5.0
"""A header has whole seconds and is as old as the answer's way."""
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
NEXT = frozenset({"not_leader", "peer_unreachable", "peer_untrusted", "peer_unknown"})
"""After these another coordinator is asked."""

Files = tuple[Path, Path, Path]
"""CA, certificate, key."""


class _Error(msgspec.Struct):
    code: str = ""
    message: str = ""


class LeaderCaller:
    """``call`` finds who leads. ``clock``: monotonic seconds."""

    def __init__(
        self,
        coordinators: Sequence[str],
        log: SensorLog,
        *,
        token_file: Path | None = None,
        tls: Files | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``OSError``: the certificates cannot be used."""
        self._coordinators = [split_host_port(one, "coordinators") for one in coordinators]
        self._log = log
        self._token_file = token_file
        self._tls = tls
        self._clock = clock
        self._wall = wall
        self._context: ssl.SSLContext | None = None
        self._seen: object = None
        self._connection: socket.socket | None = None
        self._at: tuple[str, int] | None = None
        """Who answered last."""
        if tls is not None:
            self._context, self._seen = _context(tls), _status(tls)

    @property
    def from_address(self) -> str:
        """The address of ours from which the last connection was made; "" before the first."""
        if self._connection is None:
            return ""
        return str(self._connection.getsockname()[0]).partition("%")[0].removeprefix("::ffff:")

    @property
    def connected(self) -> bool:
        """Whether a connection is open."""
        return self._connection is not None

    def open(self) -> None:
        """Connect to whoever answered last, or the first that takes a connection. ``PeerRejected``: nobody does."""
        refused: PeerRejected | None = None
        for at in self._candidates():
            try:
                self._dial(at)
                return
            except PeerRejected as error:
                refused = refused or error
        raise refused or PeerRejected("no coordinator has an address", code="peer_unreachable")

    def call(self, route: str, body: bytes) -> bytes:
        """POST to the coordinator that leads; the answer's body. Refused: ``PeerRejected`` (its ``code`` is the
        peer's; ``not_leader`` where none of them leads); ``PeerUnknown``."""
        told: PeerRejected | PeerUnknown | None = None
        for at in self._candidates():
            try:
                return self._post(at, route, body)
            except (PeerRejected, PeerUnknown) as error:
                if error.code not in NEXT:
                    raise
                # who is no leader is well, who does not answer is not: the latter is what people must know
                if told is None or told.code == "not_leader":
                    told = error
        raise told or PeerRejected("no coordinator has an address", code="peer_unreachable")

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _candidates(self) -> Iterator[tuple[str, int]]:
        """Addresses to ask, whoever answered last first: names are resolved when that one will not do."""
        first, until = self._at, self._clock() + ROUND_S
        if first is not None:
            yield first
        for at in self._addresses():
            if at != first and self._clock() < until:
                yield at

    def _addresses(self) -> list[tuple[str, int]]:
        found: dict[tuple[str, int], None] = {}
        for host, port in self._coordinators:
            try:
                for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                    found[str(one[4][0]), int(one[4][1])] = None
            except (OSError, UnicodeError) as error:
                self._log.tell("warning", "coordinator_unresolved", kind=host, host=host, error=str(error))
        return list(found)[:MOST_ADDRESSES]

    def _dial(self, at: tuple[str, int]) -> socket.socket:
        """A connection to this address, the one that is open if it is. ``PeerRejected``: none came about."""
        if self._connection is not None and self._at == at and not _ended(self._connection):
            return self._connection
        self.close()
        self._at = None
        where = join_host_port(*at)
        try:
            made = socket.create_connection(at, timeout=CONNECT_S)
        except OSError as error:
            raise PeerRejected(f"{where}: no connection ({_brief(error)})", code="peer_unreachable") from error
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                made = self._secured().wrap_socket(made, server_hostname=identity_of("coordinator"))
        except OSError as error:  # SSLError is one
            made.close()
            raise PeerRejected(f"{where}: no trust between us: {_brief(error)}", code="peer_untrusted") from error
        self._connection, self._at = made, at
        return made

    def _secured(self) -> ssl.SSLContext:
        """The context of the files as they are; one that cannot be used now leaves the one before."""
        assert self._tls is not None
        assert self._context is not None
        try:
            seen = _status(self._tls)
            if seen != self._seen:
                self._context, self._seen = _context(self._tls), seen
        except OSError as error:
            self._log.tell("warning", "credentials_not_followed", error=_brief(error), in_force="what was there before")
        return self._context

    def _post(self, at: tuple[str, int], route: str, body: bytes) -> bytes:
        where, connection = join_host_port(*at), self._dial(at)
        lines = f"POST {route} HTTP/1.1\r\nHost: {where}\r\nContent-Type: {MEDIA_TYPE}\r\n{self._authorization()}"
        request = f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
        until = self._clock() + ANSWER_S
        try:
            connection.settimeout(ANSWER_S)
            connection.sendall(request)
            status, heads, answer = _answer(connection, until, self._clock)
        except TimeoutError as error:
            self.close()
            raise PeerUnknown(f"{where}{route}: no answer within {ANSWER_S:g} s") from error
        except (OSError, ValueError) as error:
            self.close()
            alert = isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")
            if alert:  # in TLS 1.3 a server that does not take our certificate says so when we read
                raise PeerRejected(f"{where}: it refuses our certificate: {error}", code="peer_untrusted") from error
            raise PeerUnknown(f"{where}{route}: {_brief(error)}") from error
        if heads.get("connection", "").lower() == "close":
            self.close()
        self._compare(where, heads.get("date", ""))
        if status == 200:
            return answer
        told = _told(answer)
        text = f"{where}: {status} {told.code} {told.message}"[:512]
        if 400 <= status < 500 or status == 503:
            raise PeerRejected(text, code=told.code or f"http_{status}", status=status)
        raise PeerUnknown(text)

    def _compare(self, where: str, date: str) -> None:
        """Tell by how much the clocks differ: no reading depends on it, but certificates are judged by it."""
        told_s = seconds_of(date)
        off_s = told_s - self._wall() if told_s is not None else 0.0
        if abs(off_s) > TOLERATED_S:
            self._log.tell(
                "warning", "clock_differs", kind=where, url=where, seconds=round(off_s),
                effect="readings carry ages and are in order; certificates may look expired, or not yet valid",
            )  # fmt: skip

    def _authorization(self) -> str:
        if self._token_file is None:
            return ""
        try:
            words = self._token_file.read_text(encoding="ascii").split(maxsplit=1)
        except (OSError, ValueError) as error:
            self._log.tell("warning", "credentials_not_followed", error=str(error), in_force="none")
            return ""
        return f"Authorization: Bearer {words[0]}\r\n" if words and words[0].isprintable() else ""


def _context(files: Files) -> ssl.SSLContext:
    ca, cert, key = files
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and name
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.load_verify_locations(str(ca))
    made.load_cert_chain(str(cert), str(key))
    return made


def _status(files: Files) -> object:
    found = [path.stat() for path in files]
    return tuple((one.st_mtime_ns, one.st_ino) for one in found)


def _ended(connection: socket.socket) -> bool:
    """Whether the other end closed it, or is out of step: a request on it would be lost."""
    connection.settimeout(0.0)
    try:
        connection.recv(1)
        return True  # nothing was asked: whatever it says belongs to no answer
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def _answer(connection: socket.socket, until: float, clock: Callable[[], float]) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body). ``ValueError``: no answer of HTTP/1.1 with a length."""
    read = bytearray()

    def more() -> None:
        left_s = until - clock()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        part = connection.recv(65536)
        if not part:
            raise ValueError("the connection ended before the answer")
        read.extend(part)

    while (end := read.find(b"\r\n\r\n")) < 0:
        if len(read) > MOST_HEAD:
            raise ValueError("the head of the answer is too long")
        more()
    first, *lines = read[:end].decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise ValueError("it does not speak HTTP/1.1")
    heads = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = heads.get("content-length", "")
    if not length.isdigit() or int(length) > MOST_BODY:
        raise ValueError(f"the answer's length is {length[:16] or 'not told'}")
    size = end + 4 + int(length)
    while len(read) < size:
        more()
    return int(words[1]), heads, bytes(read[end + 4 : size])


def seconds_of(date: str) -> float | None:
    """Seconds since the epoch of an HTTP date (RFC 9110, IMF-fixdate); None for anything else."""
    words = date.replace(":", " ").split()
    if len(words) != 8 or words[2] not in MONTHS or not all(words[place].isdigit() for place in (1, 3, 4, 5, 6)):
        return None
    day, year, hour, minute, second = (int(words[place]) for place in (1, 3, 4, 5, 6))
    month = MONTHS.index(words[2]) + 1
    # days since the epoch, the year begun in March (Hinnant, "chrono-compatible low-level date algorithms")
    since_march, year = (month - 3) % 12, year - (month < 3)
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * since_march + 2) // 5 + day - 1 - 719_468
    return float(((days * 24 + hour) * 60 + minute) * 60 + second)


def _told(body: bytes) -> _Error:
    for decode in (msgspec.msgpack.decode, msgspec.json.decode):
        try:
            return decode(body, type=_Error)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return _Error()


def _brief(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:256]
