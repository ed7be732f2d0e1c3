"""The Store on a real etcd: the port's calls as etcd's messages over grpc.aio.

Why: everything that must survive a process (leadership, membership, intents) is a key in etcd, and every rule about
it (compare the term, one revision per transaction) is a field of these messages. Contract: ``shared.ports.Store``,
held by ``tests/contract/test_store*.py`` together with ``tests/memory_store.py``.

It does not cache, retry writes or decide anything. Connections are ``channel.py``, watches
``watch.py``, renewals ``lease.py``, the message definitions ``protocol.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NoReturn

import grpc.aio

from shared.adapters.etcd import protocol as etcd_protocol
from shared.adapters.etcd.channel import EtcdConnection, EtcdMember, EtcdSettings, being_cancelled, explain
from shared.adapters.etcd.lease import KeepAliveStream
from shared.adapters.etcd.watch import EtcdWatch, range_end, range_start, to_key_value
from shared.errors import StoreRejected, StoreUnknown
from shared.ports import (
    MAX_TXN_OPS,
    Compare,
    CreateRevisionIs,
    KeyValue,
    LeaseGrant,
    Listing,
    MemberState,
    Op,
    Put,
    StoreState,
    TxnResult,
    WatchBatch,
)

ALARMS = {"NOSPACE": 1, "CORRUPT": 2}
ALARM_GET, ALARM_DEACTIVATE = 0, 2

_COMPACTED = "required revision has been compacted"


class EtcdStore:
    """``shared.ports.Store`` on etcd. Construct it in the event loop that will use it, after any fork."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._protocol = etcd_protocol.load()
        self._connection = EtcdConnection(settings)
        self._keep_alive = KeepAliveStream(self._protocol)

    async def get(self, key: str, *, timeout_s: float = 2.0) -> KeyValue | None:
        answer = await self._read(self._protocol.range.request(key=key.encode()), f"get {key}", timeout_s)
        return to_key_value(answer.kvs[0]) if answer.kvs else None

    async def keep_history(self) -> NoReturn:
        """Eternal. ``StoreRolledBack`` once etcd is of another history than what was read before, whoever met it: most
        callers cannot tell that from an outage, and would ask for ever."""
        await self._connection.keep_history()

    async def state(self, *, timeout_s: float = 2.0) -> StoreState:
        found = await asyncio.gather(*(self._status(member, timeout_s) for member in self._connection.members))
        told = [(member, status) for member, status in zip(self._connection.members, found, strict=True) if status]
        if not told:
            raise StoreUnknown(f"etcd: ask for its state: no member has answered within {timeout_s:.3g} s")
        errors = " ".join(error for _, status in told for error in status.errors)
        return StoreState(
            tuple(
                MemberState(
                    member.endpoint, status.version, status.db_size, status.db_size_in_use, status.db_size_quota
                )
                for member, status in told
            ),
            frozenset(alarm for alarm in ALARMS if f"alarm:{alarm}" in errors),
            max(status.header.revision for _, status in told),
        )

    async def _status(self, member: EtcdMember, timeout_s: float) -> Any:
        """A member's own answer, not the cluster's: its revision may lag and is not looked at. None: it gave none."""
        status = etcd_protocol.status()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            if not await member.ready(deadline, patient=False):
                return None
            return await member.unary(status)(status.request(), timeout=deadline - loop.time())
        except (grpc.aio.AioRpcError, grpc.aio.UsageError):
            return None
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            return None

    async def list_prefix(self, prefix: str, *, timeout_s: float = 5.0) -> Listing:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            try:
                return await self._list_once(prefix, deadline)
            except StoreRejected as error:
                # The history under a slow listing was compacted: the pages already read are of no use.
                if _COMPACTED not in str(error) or loop.time() >= deadline:
                    raise

    async def _list_once(self, prefix: str, deadline: float) -> Listing:
        loop = asyncio.get_running_loop()
        items: list[KeyValue] = []
        start, end, revision = range_start(prefix), range_end(prefix), 0
        while True:
            request = self._protocol.range.request(
                key=start, range_end=end, limit=self._connection.settings.page_size, revision=revision
            )
            answer = await self._read(request, f"list {prefix}", max(0.0, deadline - loop.time()))
            revision = revision or answer.header.revision
            items.extend(to_key_value(kv) for kv in answer.kvs)
            if not answer.more:
                return Listing(tuple(items), revision)
            start = answer.kvs[-1].key + b"\0"

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        if len(compares) > MAX_TXN_OPS or len(ops) > MAX_TXN_OPS:
            raise StoreRejected(
                f"etcd: transaction of {len(compares)} compares and {len(ops)} operations; the limit is {MAX_TXN_OPS}"
            )
        request = self._protocol.txn.request(
            compare=[self._compare(compare) for compare in compares], success=[self._op(op) for op in ops]
        )
        answer = await self._connection.unary(
            self._protocol.txn, request, "transaction", timeout_s=timeout_s, repeatable=False
        )
        return TxnResult(answer.succeeded, answer.header.revision)

    async def grant_lease(self, ttl_s: int, *, timeout_s: float = 2.0) -> LeaseGrant:
        answer = await self._connection.unary(
            self._protocol.grant,
            self._protocol.grant.request(TTL=ttl_s),
            "grant a lease",
            timeout_s=timeout_s,
            repeatable=False,
        )
        return LeaseGrant(answer.ID, float(answer.TTL))

    async def keep_alive(self, lease_id: int, *, timeout_s: float = 2.0) -> float:
        async def attempt(member: EtcdMember, left_s: float) -> float:
            answer = await self._keep_alive.ask(member, lease_id, left_s)
            # Answered from this member's own revision, which may lag: only the cluster is compared.
            self._connection.guard.check_cluster(answer.header)
            return float(max(answer.TTL, 0))

        # A renewal may be repeated: whoever counts its validity counts from before this call.
        ttl_s: float = await self._connection.run(attempt, "keep a lease alive", timeout_s=timeout_s, repeatable=True)
        return ttl_s

    async def revoke_lease(self, lease_id: int, *, timeout_s: float = 2.0) -> None:
        request = self._protocol.revoke.request(ID=lease_id)
        try:
            await self._connection.unary(
                self._protocol.revoke, request, "revoke a lease", timeout_s=timeout_s, repeatable=True
            )
        except StoreRejected as error:
            if "lease not found" not in str(error):
                raise

    def watch(self, prefix: str, *, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        return EtcdWatch(self._connection, self._protocol, prefix, start_revision).batches()

    async def compact(self, revision: int, *, timeout_s: float = 2.0) -> None:
        # physical: answered when what is free can be used again, so that the sizes told afterwards are true
        request = self._protocol.compact.request(revision=revision, physical=True)
        await self._connection.unary(self._protocol.compact, request, "compact", timeout_s=timeout_s, repeatable=False)

    async def defragment(self, endpoint: str, *, timeout_s: float = 60.0) -> None:
        """Make the file of this member as small as what is in it; it answers nobody meanwhile."""
        member = next(one for one in self._connection.members if one.endpoint == endpoint)
        call = etcd_protocol.method("Maintenance", "Defragment")
        doing = f"defragment {endpoint}"
        try:
            await member.unary(call)(call.request(), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise explain(error, doing) from error
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            if being_cancelled():
                raise
            raise StoreUnknown(f"etcd: {doing}: the connection was closed meanwhile") from error

    async def disarm(self, alarm: str, *, timeout_s: float = 5.0) -> None:
        """End this alarm (``NOSPACE``) at every member that has it."""
        call = etcd_protocol.method("Maintenance", "Alarm")
        kind = ALARMS[alarm]

        async def ask(**fields: Any) -> Any:
            request = call.request(alarm=kind, **fields)

            async def attempt(member: EtcdMember, left_s: float) -> Any:
                return await member.unary(call)(request, timeout=left_s)

            return await self._connection.run(attempt, f"disarm {alarm}", timeout_s=timeout_s, repeatable=True)

        found = await ask(action=ALARM_GET)
        for one in found.alarms:
            await ask(action=ALARM_DEACTIVATE, memberID=one.memberID)

    async def close(self) -> None:
        self._keep_alive.drop()
        await self._connection.close()

    async def _read(self, request: Any, doing: str, timeout_s: float) -> Any:
        return await self._connection.unary(self._protocol.range, request, doing, timeout_s=timeout_s, repeatable=True)

    def _compare(self, compare: Compare) -> Any:
        message = self._protocol.compare
        if isinstance(compare, CreateRevisionIs):
            return message(
                key=compare.key.encode(),
                result=message.EQUAL,
                target=message.CREATE,
                create_revision=compare.revision,
            )
        return message(
            key=compare.key.encode(), result=message.EQUAL, target=message.MOD, mod_revision=compare.revision
        )

    def _op(self, op: Op) -> Any:
        if isinstance(op, Put):
            put = {"key": op.key.encode(), "value": op.value, "lease": op.lease_id}
            return self._protocol.request_op(request_put=put)
        return self._protocol.request_op(request_delete_range={"key": op.key.encode()})
