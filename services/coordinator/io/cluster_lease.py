"""Keeps other meshes out of our cluster's scheduler name, and us out of theirs: the Lease in the cluster.

Why and when is ``shared.election.cluster_lease``; here are the calls. The leader asks before it does anything else; as
long as another mesh holds the Lease it stands by, says so once in the log and among its warnings (``conclave status``),
and looks again. Then it renews; a Lease that somebody else took meanwhile ends the term. An API server that does not
answer is waited for: nothing can be placed without it.

At an orderly end the Lease is made short, so that our own next leader still comes first; the last coordinator of a
mesh gives it back, so that a mesh started next begins at once. Not its job: deciding about pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import uuid
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

import structlog

from shared.election.cluster_lease import CreateLease, HeldLease, Keep, StayOut, TakeLease, WatchedLease, decide
from shared.errors import ConfigError, KubeError, KubeRejected, LeadershipLost, StoreError
from shared.kube.leases import LEADER_ANNOTATION, LEASES, Lease, lease_body
from shared.ports import Clock, CreateRevisionIs, KubeApi, Put, Store
from shared.wire.keys import Keys

log = structlog.get_logger()

NAMESPACE = "kube-system"
"""There in every cluster, and the same for meshes inside and outside of it."""

RETRY_S = 2.0
LAST_CALLS_S = 1.0
LAST_S = 3
"""What a leader that ends in order leaves on the Lease: enough for its own successor."""


def lease_name(scheduler_name: str) -> str:
    """The Lease of a scheduler name; long names by a digest, since an object's name has 253 characters."""
    name = f"conclave.{scheduler_name}"
    return name if len(name) <= 253 else f"conclave.{hashlib.sha256(scheduler_name.encode()).hexdigest()}"


async def mesh_id(store: Store, keys: Keys) -> str:
    """The id of the mesh of this etcd and prefix; made once, by whoever asks first."""
    found = await store.get(keys.mesh_id)
    if found is None:  # read first: an etcd that is full refuses even to write what is there
        await store.txn([CreateRevisionIs(keys.mesh_id, 0)], [Put(keys.mesh_id, uuid.uuid4().hex.encode())])
        found = await store.get(keys.mesh_id)
    if found is None:
        raise ConfigError(f"etcd: {keys.mesh_id} is gone as soon as it is written; who deletes under our prefix?")
    return found.value.decode(errors="replace")


async def alone(store: Store, keys: Keys, own_id: str) -> bool:
    """Whether no other coordinator of the mesh is registered; where etcd does not say so at once, one may be."""
    try:
        listing = await store.list_prefix(keys.members_prefix("coordinator"), timeout_s=LAST_CALLS_S)
    except StoreError:
        return False
    return all(kv.key == keys.member("coordinator", own_id) for kv in listing.items)


def held_of(lease: Lease) -> HeldLease:
    """Who holds it and for how long; one without a duration is over at once."""
    meta, spec = lease.metadata, lease.spec
    return HeldLease(
        holder=spec.holder_identity or "",
        duration_s=spec.lease_duration_seconds or 0,
        version=meta.resource_version,
        transitions=spec.lease_transitions or 0,
        leader=(meta.annotations or {}).get(LEADER_ANNOTATION, ""),
    )


class ClusterLease:
    """One candidate's view of the Lease. ``tell``: what a person should know, "" when it is over."""

    def __init__(
        self, api: KubeApi, *, scheduler_name: str, holder: str, leader: str, duration_s: int, clock: Clock,
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._api = api
        self._name = lease_name(scheduler_name)
        self.scheduler_name = scheduler_name
        self._holder = holder
        self._leader = leader
        self.duration_s = duration_s
        self._clock = clock
        self._tell = tell
        self._watched: WatchedLease | None = None
        self.told = ""
        self._look_at = 0.0
        self.ours = False
        self.rival = ""
        """The mesh that holds it, where it is not ours; "" where that is not known."""
        self.before = ""
        """The mesh that held it before it became ours."""

    @property
    def now(self) -> float:
        """On its clock, in seconds."""
        return self._clock()

    @property
    def seen(self) -> str:
        """The version of another mesh's Lease as last read; "" where none is watched."""
        return self._watched.held.version if self._watched is not None else ""

    @property
    def wait_s(self) -> float:
        """Until the next look is worth it."""
        return RETRY_S if self.ours else min(RETRY_S, max(0.05, self._look_at - self._clock()))

    async def acquire(self) -> None:
        """Return once the scheduler name is ours; until then stand by. ``ConfigError``: we have no right to ask."""
        while True:
            if await self.take():
                return
            await asyncio.sleep(self.wait_s)

    async def take(self) -> bool:
        """Look once; whether the scheduler name is ours."""
        if not await self._step():
            return False
        self._say("")
        return True

    async def keep(self) -> None:
        """Renew; eternal. ``LeadershipLost``: another mesh has taken the Lease, which we could not renew in time."""
        pause_s = 0.0
        while True:
            await asyncio.sleep(pause_s)
            pause_s = self.duration_s / 3 if await self._step() else RETRY_S

    async def leave(self, *, last: bool) -> None:
        """At an orderly end: another mesh need not wait long, our own successor does not wait at all.

        ``last``: there is no successor, and nobody waits."""
        if self.ours:
            self.ours = False
            with contextlib.suppress(KubeError, TimeoutError):
                async with asyncio.timeout(LAST_CALLS_S):
                    await self._ask(LAST_S, holder="" if last else self._holder)

    async def _step(self) -> bool:
        """Look, and do what follows; whether the Lease is ours now."""
        try:
            return await self._ask(self.duration_s)
        except KubeRejected as error:
            if error.status == 403 or (error.status == 404 and not self.ours):
                raise ConfigError(
                    f"lease {NAMESPACE}/{self._name}: the API server does not let us ({error}); grant get, create and "
                    "patch of leases (coordination.k8s.io) as k8s/base/rbac.yaml does, with "
                    f"resourceNames: [{self._name}], or give --cluster-lease-s=0"
                ) from error
            if error.status != 409:  # somebody was faster: look again
                log.info("cluster_lease_failed", lease=self._name, error=error)
        except KubeError as error:
            log.info("cluster_lease_failed", lease=self._name, error=error)
        self._look_at = self._clock() + RETRY_S
        return False

    async def _ask(self, duration_s: int, *, holder: str | None = None) -> bool:
        found = await self._api.get(LEASES, namespace=NAMESPACE, name=self._name)
        held = held_of(found) if found is not None else None
        decision, self._watched = decide(self._holder, held, self._watched, self._clock())
        match decision:
            case StayOut():
                self.rival = decision.held.holder
                if self.ours:
                    raise LeadershipLost(f"another mesh ({decision.held.holder}) holds the lease {self._name}")
                self._stay_out(decision)
                return False
            case CreateLease():
                body = self._body(duration_s, 0, taken=True)
                await self._api.create(LEASES, namespace=NAMESPACE, body=body)
            case TakeLease():
                if self.ours and decision.before:
                    raise LeadershipLost(f"another mesh has held the lease {self._name} meanwhile")
                body = self._body(duration_s, decision.transitions, taken=True, version=decision.version)
                await self._patch(body)
                self.rival, self.before = "", decision.before
                log.info("cluster_lease_taken", lease=self._name, before=decision.before)
            case Keep() if self.ours or duration_s != self.duration_s:
                body = self._body(duration_s, decision.transitions, version=decision.version, holder=holder)
                await self._patch(body)
            case Keep():
                pass  # a predecessor of our own mesh: go on at once, ``keep`` renews it
        self.ours = duration_s == self.duration_s
        return True

    async def _patch(self, body: dict[str, object]) -> None:
        await self._api.patch(LEASES, namespace=NAMESPACE, name=self._name, patch=body, strategy="merge")

    def _body(
        self, duration_s: int, transitions: int, *, taken: bool = False, version: str = "", holder: str | None = None
    ) -> dict[str, object]:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return lease_body(
            name=self._name, namespace=NAMESPACE, holder=self._holder if holder is None else holder,
            leader=self._leader, duration_s=duration_s, transitions=transitions,
            now=now, taken=taken, version=version,
        )  # fmt: skip

    def _stay_out(self, decision: StayOut) -> None:
        self._look_at = decision.until
        who = f"{decision.held.holder}, led by {decision.held.leader}" if decision.held.leader else decision.held.holder
        self._say(
            f"another mesh ({who}) schedules for {self.scheduler_name} in this cluster: this one is a standby for it; "
            "stop one of them, or give it another name (--scheduler-name, or schedulerName in its profiles)"
        )

    def _say(self, text: str) -> None:
        if text == self.told:
            return
        self.told = text
        self._tell(text)
        if text:
            log.warning("cluster_taken", lease=f"{NAMESPACE}/{self._name}", problem=text)
        else:
            log.info("cluster_free", lease=f"{NAMESPACE}/{self._name}")


class ClusterLeases:
    """The Leases of all schedulerNames that a mesh serves. It leads with those that are free; pods of the others are
    left to the mesh that holds them. ``stands_by``: what a person should know while none is ours."""

    def __init__(self, leases: Sequence[ClusterLease], stands_by: Callable[[str], None] = lambda _: None) -> None:
        self._leases = leases
        self._stands_by = stands_by

    async def acquire(self) -> frozenset[str]:
        """Return the names that are ours once there are any.

        Where one was taken over from a mesh that is gone, its other Leases are waited for: else each of them would cost
        a term of its own. Not longer than our own duration, and not for a mesh that is seen to renew: it merely gave a
        name up, and would keep the one it gave up from being served for as long as it lives.
        """
        left: dict[ClusterLease, str] = {}
        until = math.inf
        while True:
            for lease in self._leases:
                await self._look(lease)
            ours = [lease for lease in self._leases if lease.ours]
            heirs_of = {lease.before for lease in ours} - {""}
            waited_for = [lease for lease in self._leases if not lease.ours and lease.rival in heirs_of]
            if waited_for and until == math.inf:
                until = self._leases[0].now + self._leases[0].duration_s
            alive = {lease.rival for lease in waited_for if left.setdefault(lease, lease.seen) != lease.seen}
            gone = [lease for lease in waited_for if lease.rival not in alive]
            if ours and (not gone or self._leases[0].now >= until):
                self._stands_by("")
                return frozenset(lease.scheduler_name for lease in ours)
            if not ours:
                self._stands_by(next((lease.told for lease in self._leases if lease.told), ""))
            await asyncio.sleep(max(0.05, min(lease.wait_s for lease in self._leases)))

    @staticmethod
    async def _look(lease: ClusterLease) -> None:
        try:
            await lease.take()
        except LeadershipLost as error:
            log.warning("cluster_lease_lost", problem=str(error))
            lease.ours = False

    def keeping(self) -> list[Coroutine[Any, Any, None]]:
        """Eternal tasks: renewing each that is ours, and one that waits for those of other meshes."""
        others = [lease for lease in self._leases if not lease.ours]
        kept = [lease.keep() for lease in self._leases if lease.ours]
        return [*kept, self._await(others)] if others else kept

    @staticmethod
    async def _await(others: Sequence[ClusterLease]) -> None:
        """``LeadershipLost`` once some are ours: a core knows whom it serves from the start of its term.

        One end for all that a mesh leaves behind: see ``acquire``."""
        names = sorted(await ClusterLeases(others).acquire())
        which, them = (f"name {names[0]} is", "it") if len(names) == 1 else (f"names {', '.join(names)} are", "them")
        raise LeadershipLost(f"scheduler {which} free: the next term serves {them} too")

    async def leave(self, *, last: bool) -> None:
        """As of each."""
        await asyncio.gather(*(lease.leave(last=last) for lease in self._leases))
