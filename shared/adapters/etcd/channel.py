"""Connections to the members of one etcd cluster: which member to ask, deadlines, and what an error means.

Why: gRPC can balance over several addresses itself, but then nobody can say *which* member gave an answer that went
back in time, nor leave a member that is paused (its TCP connection stays healthy). So there is one channel per
endpoint, one of them current, and every failure moves on to the next.

Three rules are kept here for every call:

1. A deadline on everything; reads and renewals are repeated within it on another member, writes never are.
2. An error is *refused* only where etcd's code proves that nothing was applied (``explain``); all else is *unknown*.
3. An answer from another cluster id, or with a revision below one this process had already seen when it asked, is
   refused (``StoreRolledBack``): a stale member, or a cluster restored from a backup. Patroni's StaleEtcdNodeGuard is
   the idea; we compare revisions rather than raft terms because they are what every watch and fence rests on.

It does not interpret answers, keep state about keys or retry writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

# Before grpc is loaded: its fork handlers abort about one child in twenty that is forked while calls are under way
# (epoll_wait: Bad file descriptor). Our children exec at once and never use a channel of their parent.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import grpc.aio

from shared.adapters.etcd.protocol import Method
from shared.errors import ConfigError, StoreError, StoreFull, StoreRejected, StoreRolledBack, StoreUnknown
from shared.hostport import ServerUrl, join_host_port, server_of

HAS_LEADER = (("hasleader", "true"),)
"""A member that has lost its quorum refuses such a call and cancels such a watch, instead of serving old data."""

_DEFINITE = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Codes etcd answers before anything is applied. UNAVAILABLE is none of them: "etcdserver: request timed out" and
"leader changed" arrive with it while the proposal may still be applied."""

_CHANNEL_OPTIONS = (
    # Not below etcd's --grpc-keepalive-min-time (5 s), or the server answers GOAWAY too_many_pings.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    # etcd's server allows no ping without a call in flight (its policy has PermitWithoutStream off) and answers the
    # third with GOAWAY too_many_pings. A watch is a call in flight; who has none renews its lease every second.
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # gRPC's own default goes up to 120 s, far above any bound on recovery.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", 64 << 20),
    # Transparent retries would repeat writes behind our back.
    ("grpc.enable_retries", 0),
    # By default gRPC asks a proxy that the environment names, for loopback too; no other client of ours does.
    ("grpc.enable_http_proxy", 0),
    # Channels to the same address must not share a connection: the lease thread has its own on purpose.
    ("grpc.use_local_subchannel_pool", 1),
)


class EtcdTls(Struct, frozen=True, kw_only=True):
    """Files for TLS; with ``cert_file`` and ``key_file`` it is mutual."""

    ca_file: Path
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str = ""
    """SAN to expect instead of the endpoint's host; empty: the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """Where etcd is and how patient we are."""

    endpoints: tuple[str, ...]
    """``http://host:port``, ``https://host:port`` or ``host:port``; asked in this order."""
    tls: EtcdTls | None = None
    """None: plain text. Needed where an endpoint says ``https``."""
    connect_timeout_s: float = 0.5
    """How long one member may take to accept a connection before the next is tried (only where there are several)."""
    page_size: int = 500
    """Keys per answer of a listing; 500 intents of 1 KiB stay far below the 64 MiB message limit."""
    ask_after_s: float = 4.0
    """Silence on a watch after which progress is asked for. A paused etcd says nothing at all. Longer than the interval
    at which our own etcd tells progress by itself (3 s), since being told is cheaper than asking."""
    silent_limit_s: float = 9.0
    """Silence on a watch after which it is opened anew, on the next member."""

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ConfigError("etcd endpoints: none given; name at least one, such as http://127.0.0.1:2379")
        for endpoint in self.endpoints:
            scheme, _ = split_endpoint(endpoint)
            if scheme == "https" and self.tls is None:
                raise ConfigError(f"etcd endpoint {endpoint}: https needs a CA file")
        if not 0 < self.ask_after_s < self.silent_limit_s:
            raise ConfigError("etcd watch: ask_after_s must be positive and below silent_limit_s")
        if self.page_size < 1 or self.connect_timeout_s <= 0:
            raise ConfigError("etcd: page_size and connect_timeout_s must be positive")


def split_endpoint(endpoint: str) -> tuple[str, str]:
    """(scheme, ``host:port``) of an endpoint. Refused: ``ConfigError`` naming the endpoint."""
    server: ServerUrl | None = None
    with contextlib.suppress(ValueError):
        server = server_of(endpoint if "://" in endpoint else f"http://{endpoint}")
    if server is None or server.port is None or server.path not in {"", "/"}:
        raise ConfigError(f"etcd endpoint {endpoint!r}: expected http(s)://host:port (an IPv6 address in brackets)")
    return server.scheme, join_host_port(server.host, server.port)


def explain(error: grpc.aio.AioRpcError, doing: str) -> StoreError:
    """Our error for a gRPC error: ``StoreRejected`` only where etcd cannot have applied the request."""
    code, details = error.code(), (error.details() or "")[:256]
    text = f"etcd: {doing}: {code.name}: {details}"
    # RESOURCE_EXHAUSTED is also what *our* side says about an answer that is too large, after the fact; etcd's own
    # words are these two (the second is grpc-go's, about a request above its limit).
    exhausted = code is grpc.StatusCode.RESOURCE_EXHAUSTED and details.startswith(("etcdserver:", "grpc: received"))
    if exhausted and "space exceeded" in details:
        return StoreFull(text)
    if code in _DEFINITE or exhausted:
        return StoreRejected(text)
    return StoreUnknown(text)


@dataclass(slots=True)
class RollbackGuard:
    """The highest revision and the cluster id seen by this process; see rule 3 of the module."""

    cluster_id: int = 0
    revision: int = 0

    def check_cluster(self, header: Any) -> None:
        """Refuse (``StoreRolledBack``) an answer of another cluster."""
        if self.cluster_id == 0:
            self.cluster_id = header.cluster_id
        if header.cluster_id != self.cluster_id:
            raise StoreRolledBack(f"etcd: answer of cluster {header.cluster_id:x}, not of {self.cluster_id:x}")

    def check(self, header: Any, floor: int) -> None:
        """Refuse an answer to a linearizable call that is older than ``floor``, the revision seen when it was sent."""
        self.check_cluster(header)
        if header.revision < floor:
            raise StoreRolledBack(f"etcd: revision went back from {floor} to {header.revision}")
        self.revision = max(self.revision, header.revision)


class EtcdMember:
    """One endpoint and its channel, opened on first use (after any fork, in the loop that uses it).

    Certificates are short-lived, processes are not, and gRPC reads files once: where there is no connection and the
    files have changed since, the channel is opened anew with them. One that stands keeps what it was opened with.
    """

    def __init__(self, endpoint: str, tls: EtcdTls | None) -> None:
        self.endpoint = endpoint
        scheme, self._target = split_endpoint(endpoint)
        self._tls = tls if scheme == "https" else None
        self._seen = _status(self._tls)
        self._channel = self._open()
        self._calls: dict[str, Any] = {}
        self._watching: asyncio.Future[None] | None = None
        self._left: set[asyncio.Task[None]] = set()

    def _open(self) -> Any:
        options: list[tuple[str, Any]] = list(_CHANNEL_OPTIONS)
        if self._tls is None:
            return grpc.aio.insecure_channel(self._target, options=options)
        if self._tls.server_name:
            options.append(("grpc.default_authority", self._tls.server_name))
        return grpc.aio.secure_channel(self._target, _credentials(self._tls), options=options)

    def _follow_files(self) -> None:
        if self._tls is None or self._channel.get_state() is grpc.ChannelConnectivity.READY:
            return
        seen = _status(self._tls)
        if seen is None or seen == self._seen:
            return
        try:
            channel = self._open()
        except ConfigError:
            return  # caught between two renames: the old files stay good until these can be read
        closing = asyncio.ensure_future(self._channel.close())
        self._left.add(closing)
        closing.add_done_callback(self._left.discard)
        self._channel, self._seen, self._watching = channel, seen, None
        self._calls.clear()

    async def ready(self, deadline: float, *, patient: bool) -> bool:
        """Whether the connection stands before ``deadline``. Impatient: a failed attempt ends the wait."""
        loop = asyncio.get_running_loop()
        self._follow_files()
        while (state := self._channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and not patient:
                return False
            if self._watching is None or self._watching.done():
                self._watching = asyncio.ensure_future(self._state_changes(state))
            # Shared and never cancelled: gRPC goes on with an abandoned one, and answers it after its loop is closed.
            await asyncio.wait((self._watching,), timeout=max(0.0, deadline - loop.time()))
            if not self._watching.done():
                return False
        return True

    async def _state_changes(self, state: grpc.ChannelConnectivity) -> None:
        # Closing the channel ends the wait with an assertion inside gRPC.
        with contextlib.suppress(AssertionError, grpc.aio.UsageError):
            await self._channel.wait_for_state_change(state)

    def unary(self, method: Method) -> Any:
        return self._call(method, self._channel.unary_unary)

    def stream(self, method: Method) -> Any:
        return self._call(method, self._channel.stream_stream)

    def _call(self, method: Method, make: Callable[..., Any]) -> Any:
        call = self._calls.get(method.path)
        if call is None:
            call = self._calls[method.path] = make(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return call

    async def close(self) -> None:
        await self._channel.close()
        await asyncio.gather(*self._left, return_exceptions=True)
        if self._watching is not None:
            await asyncio.wait((self._watching,), timeout=1.0)


def _status(tls: EtcdTls | None) -> tuple[tuple[int, int], ...] | None:
    """What tells that a file has changed; None while one is missing, or without TLS."""
    if tls is None:
        return None
    try:
        found = [path.stat() for path in (tls.ca_file, tls.cert_file, tls.key_file) if path is not None]
    except OSError:
        return None
    return tuple((status.st_mtime_ns, status.st_ino) for status in found)


def _credentials(tls: EtcdTls) -> Any:
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


class EtcdConnection:
    """All members of one cluster; one of them is current. Bound to the event loop that constructed it."""

    def __init__(self, settings: EtcdSettings) -> None:
        self.settings = settings
        self.guard = RollbackGuard()
        self._rolled_back: StoreRolledBack | None = None
        self._history_over = asyncio.Event()
        self._closed = False
        self._members = tuple(EtcdMember(endpoint, settings.tls) for endpoint in settings.endpoints)
        self._current = 0

    def is_closed(self) -> bool:
        return self._closed

    @property
    def current(self) -> EtcdMember:
        return self._members[self._current]

    @property
    def members(self) -> tuple[EtcdMember, ...]:
        return self._members

    def leave(self, member: EtcdMember) -> None:
        """The next call goes to the next member, unless another failure has moved on already."""
        if member is self.current:
            self._current = (self._current + 1) % len(self._members)

    async def unary(self, method: Method, request: Any, doing: str, *, timeout_s: float, repeatable: bool) -> Any:
        """One answer to one linearizable request.

        Refused: ``StoreRejected``. Unknown: ``StoreUnknown`` (also ``StoreRolledBack``), after ``timeout_s`` at the
        latest; at once where the request is not ``repeatable``.
        """

        async def attempt(member: EtcdMember, left_s: float) -> Any:
            floor = self.guard.revision
            answer = await member.unary(method)(request, timeout=left_s, metadata=HAS_LEADER)
            self.guard.check(answer.header, floor)
            return answer

        return await self.run(attempt, doing, timeout_s=timeout_s, repeatable=repeatable)

    async def run(
        self, attempt: Callable[[EtcdMember, float], Awaitable[Any]], doing: str, *, timeout_s: float, repeatable: bool
    ) -> Any:
        """Run ``attempt(member, seconds left)`` under one deadline, on further members where ``repeatable``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        several = len(self._members) > 1
        error: StoreError = StoreUnknown(f"etcd: {doing}: no member could be reached within {timeout_s:.3g} s")
        other: set[EtcdMember] = set()
        """Those that are of another history."""
        pause_s = 0.02
        while (left_s := deadline - loop.time()) > 0:
            if self.is_closed():
                raise StoreRejected(f"etcd: {doing}: the store is closed")
            member = self.current
            try:
                # Nothing has been sent yet, so even a write may look for a member that can be reached.
                patience_s = min(left_s, self.settings.connect_timeout_s) if several else left_s
                if await member.ready(loop.time() + patience_s, patient=not several):
                    left_s = deadline - loop.time()
                    # Half of what is left keeps time for another member, should this one be paused.
                    return await attempt(member, left_s / 2 if several and repeatable else left_s)
            except grpc.aio.AioRpcError as rpc_error:
                error = explain(rpc_error, doing)
                error.__cause__ = rpc_error
                if isinstance(error, StoreRejected) or not repeatable:
                    self._leave_after(member, error)
                    raise error from rpc_error
            except StoreUnknown as unknown:
                error = unknown
                if isinstance(unknown, StoreRolledBack):
                    other.add(member)
                    self._tell(unknown, other)
                # A store that went back will not come forward by being asked again, another member may be right.
                if not repeatable or (isinstance(unknown, StoreRolledBack) and not several):
                    self.leave(member)
                    raise
            except (asyncio.CancelledError, grpc.aio.UsageError) as cancelled:
                # Closing a channel cancels its calls: to the waiting task that looks like its own cancellation. One is
                # closed with the store, or for another with new certificates.
                closed = self.is_closed()
                if being_cancelled() or not (closed or isinstance(cancelled, asyncio.CancelledError)):
                    raise
                error = StoreUnknown(f"etcd: {doing}: the {'store' if closed else 'connection'} was closed meanwhile")
                if closed or not repeatable:
                    raise error from cancelled
            self.leave(member)
            await asyncio.sleep(max(0.0, min(pause_s, deadline - loop.time())))
            pause_s = min(pause_s * 2, 0.25)
        raise error

    def _tell(self, error: StoreRolledBack, other: set[EtcdMember]) -> None:
        """A majority, since the rest may be out for a while, and a stale member is not to end anybody."""
        if 2 * len(other) > len(self._members):
            self._rolled_back = error
            self._history_over.set()

    async def keep_history(self) -> NoReturn:
        """Eternal. ``StoreRolledBack`` once a majority of members is of another history than was seen, in one call."""
        await self._history_over.wait()
        assert self._rolled_back is not None
        raise self._rolled_back

    def _leave_after(self, member: EtcdMember, error: StoreError) -> None:
        if isinstance(error, StoreUnknown):
            self.leave(member)

    async def close(self) -> None:
        self._closed = True
        for member in self._members:
            await member.close()


def being_cancelled() -> bool:
    """Whether the task that asks is itself asked to end, rather than a call it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
