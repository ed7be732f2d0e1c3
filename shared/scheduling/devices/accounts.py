"""Claims as accounted here: what the API server shows of them, and what is allocated or reserved and not shown yet.

    (nothing) --assume--> ASSUMED --send--> SENT --written (the answer)--> ALLOCATED --observe: none, gone--> (nothing)
        ^                   |  |             |
        +--forget by all----+  |             +--settle: it was not written, or is given back--> ASSUMED or (nothing)
                               +--observe: another one, gone--> (nothing), its consumers lost

C1  a claim has one allocation: the one that is shown, else the one that is assumed
C2  no device is in two allocations that this process made, but those that are shared or looked at by admin access; of
    what is shared, and of counters, no more is taken than there is
C3  an assumed allocation has a consumer, or was sent and nobody knows yet whether it was written
C4  a claim is reserved for at most 256 consumers, shown and assumed ones together; all pods that use it through their
    pod group are one

What the rules read is the claim with what is assumed in it (``Inventory.claims``), so that the next pod sees a shared
claim where the first was placed, and every device in use. An older version of a claim that the watch brings later is
not looked at, and a newer one that shows no allocation undoes none that was not shown yet. What was sent is held until
its answer is here, though the watch shows it allocated and free again, and all its consumers are forgotten: the write
may come last, and would be shown when the device is another's. Assumptions do not expire by themselves: whoever assumed
resolves them, ``overdue`` lists those that are late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from shared.model.devices import AllocatedDevice, Allocation, DeviceClaim
from shared.model.versions import newer
from shared.scheduling.devices.capacity import suffices
from shared.scheduling.devices.claims import MOST_CONSUMERS
from shared.scheduling.devices.inventory import Inventory
from shared.scheduling.devices.search import counters
from shared.scheduling.devices.usage import DeviceUsage


@dataclass(slots=True)
class Assumed:
    """Of one claim. ``allocation`` None: it is allocated already, and reserved for more. ``consumers``: since when, by
    pod uid. ``through``: the pod group for which the claim is reserved in a pod's place, by pod uid; ``reserves``: for
    how many pods each is, a pod or a group. ``sent``: since when the allocation may have been written; None: it was
    not."""

    uid: str
    allocation: Allocation | None
    consumers: dict[str, float] = field(default_factory=dict)
    through: dict[str, str] = field(default_factory=dict)
    reserves: dict[str, int] = field(default_factory=dict)
    sent: float | None = None

    def add(self, pod_uid: str, now: float, group_uid: str) -> None:
        """One more pod is to use it, through its group where that has a uid."""
        if pod_uid in self.consumers:
            return
        self.consumers[pod_uid] = now
        if group_uid:
            self.through[pod_uid] = group_uid
        consumer = group_uid or pod_uid
        self.reserves[consumer] = self.reserves.get(consumer, 0) + 1

    def remove(self, pod_uid: str) -> None:
        """The pod is not to use it; an unknown one is fine."""
        if self.consumers.pop(pod_uid, None) is None:
            return
        consumer = self.through.pop(pod_uid, pod_uid)
        self.reserves[consumer] -= 1
        if not self.reserves[consumer]:
            del self.reserves[consumer]

    @property
    def held(self) -> bool:
        """Whether there is somebody to hold it for, or a write to wait for."""
        return bool(self.consumers) or (self.sent is not None and self.allocation is not None)


class ClaimAccounts:
    """See the module. Keys are ``namespace/name``."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.shown: dict[str, DeviceClaim] = {}
        self.imagined: dict[str, DeviceClaim] = {}
        """Claims that are to be made, and that the rules find already; none has a uid."""
        self.assumed: dict[str, Assumed] = {}
        self._of_pod: dict[str, set[str]] = {}
        """The claims that are assumed for a pod."""

    def observe(self, claim: DeviceClaim) -> frozenset[str]:
        """The API server shows the claim so; the uids of pods that assumed it and cannot have it."""
        before = self.shown.get(claim.key)
        lost: frozenset[str] = frozenset()
        if before is not None and before.uid == claim.uid and newer(before.resource_version, claim.resource_version):
            return lost
        if before is not None and before.uid != claim.uid:
            lost = self._drop(claim.key)
            before = None
        self.shown[claim.key] = claim
        ours = self.assumed.get(claim.key)
        imagined = self.imagined.pop(claim.key, None)
        if imagined is not None and ours is not None and made_as(claim, imagined):
            ours.uid = claim.uid
        if ours is not None:
            had = before is not None and before.allocation is not None
            if ours.uid != claim.uid or (claim.allocation is None and had and ours.sent is None):
                lost |= self._drop(claim.key)
            elif claim.allocation is not None:
                if ours.allocation is not None and not same_devices(ours.allocation, claim.allocation):
                    lost |= self._drop(claim.key)
                else:
                    if ours.sent is None:
                        ours.allocation = None
                    reserved = set(claim.reserved_for)
                    users = ours.consumers.keys() & reserved
                    if ours.through:
                        users |= {uid for uid, group in ours.through.items() if group in reserved}
                    for uid in users:
                        self._release(claim.key, uid)
                    self._end_if_over(claim.key)
        self._publish(claim.key)
        return lost

    def gone(self, key: str) -> frozenset[str]:
        """The claim is deleted; the uids of pods that assumed it."""
        self.shown.pop(key, None)
        lost = self._drop(key)
        self._publish(key)
        return lost

    def assume(
        self, pod_uid: str, key: str, allocation: Allocation | None, now: float, *, made: DeviceClaim | None = None,
        group_uid: str = "",
    ) -> str:  # fmt: skip
        """Reserve a claim for a pod, with the allocation that it is to get (None: it has one). Returns why not, and
        then has changed nothing; "" when it is done. ``made``: the claim as it is to be made, where it is not there.
        ``group_uid``: it is reserved for the pod's group."""
        consumer = group_uid or pod_uid
        claim = self.inventory.claims.get(key, made)
        if claim is None:
            return f"claim {key} is gone"
        if claim.deleting:
            return f"claim {key} is being deleted"
        if allocation is None and claim.allocation is None:
            return f"claim {key} is not allocated"
        if allocation is not None and claim.allocation is not None and not same_devices(allocation, claim.allocation):
            return f"claim {key} got allocated elsewhere in the meantime"
        if consumer not in claim.reserved_for and len(claim.reserved_for) >= MOST_CONSUMERS:
            return f"claim {key} is reserved for {MOST_CONSUMERS} consumers already"
        fresh = allocation if claim.allocation is None else None
        if fresh is not None:
            taken = taken_by_others(self.inventory, fresh)
            if taken:
                return f"claim {key}: {taken}"
        shown = self.shown.get(key)
        if shown is not None and consumer in shown.reserved_for:
            return ""
        if shown is None:
            self.imagined.setdefault(key, claim)
        ours = self.assumed.setdefault(key, Assumed(claim.uid, None))
        ours.allocation = fresh or ours.allocation
        ours.add(pod_uid, now, group_uid)
        self._of_pod.setdefault(pod_uid, set()).add(key)
        self._publish(key)
        return ""

    def send(self, key: str, now: float) -> None:
        """The claim is about to be written with what is assumed."""
        ours = self.assumed.get(key)
        if ours is not None and ours.sent is None:
            ours.sent = now

    def written(self, claim: DeviceClaim) -> frozenset[str]:
        """The API server answered the write with the claim as it is now; as ``observe``."""
        ours = self.assumed.get(claim.key)
        if ours is not None:
            ours.sent = None
        lost = self.observe(claim)
        self._end_if_over(claim.key)
        self._publish(claim.key)
        return lost

    def settle(self, key: str) -> None:
        """It is known that no allocation of ours is written: the write was refused, or what it wrote was given back."""
        ours = self.assumed.get(key)
        if ours is not None:
            ours.sent = None
            self._end_if_over(key)
            self._publish(key)

    def forget(self, pod_uid: str) -> frozenset[str]:
        """The pod is not placed after all: the claims whose assumed allocation nobody wants any more, which are free
        again. One that was sent is not among them: it is to be settled, or is shown and somebody's to give back."""
        freed = set()
        for key in sorted(self._of_pod.get(pod_uid, ())):
            ours = self.assumed[key]
            self._release(key, pod_uid)
            if key not in self.assumed and ours.allocation is not None:
                freed.add(key)
            self._publish(key)
        return frozenset(freed)

    def holds(self, pod_uid: str) -> bool:
        """Whether anything is assumed for the pod."""
        return pod_uid in self._of_pod

    def contested(self, key: str, *, joined: bool = False) -> str:
        """Which device of the claim, as it is allocated or to be, is another's as well, or shared beyond what it has;
        "" for none. Two schedulers may choose alike: nobody else tells. ``joined``: pods run with the claim, of which
        one more takes nothing; only what another claim has too counts then."""
        claim = self.inventory.claims.get(key)
        if claim is None or claim.allocation is None:
            return ""
        inventory, usage = self.inventory, self.inventory.usage
        for result in claim.allocation.results:
            alone, shared = usage.exclusive[result.id] - (not result.share), usage.shares[result.id]
            if result.admin:
                continue
            if alone or (shared and not result.share):
                return f"device {'/'.join(result.id)} was given to another claim"
            if joined:
                continue
            device = inventory.published((result.driver, result.pool)).get(result.device) if result.share else None
            used: Mapping[str, int] = usage.consumed.get(result.id, {})
            for name, capacity in device.capacity if device is not None else ():
                if used.get(name, 0) > capacity.value:
                    return f"device {'/'.join(result.id)} has not enough left to share"
        return "" if joined else _counters_left(inventory, claim.allocation)

    def overdue(self, now: float, age_s: float) -> list[tuple[str, str]]:
        """(pod uid, claim) of what was assumed longer than ``age_s`` ago and is not shown; without a uid what was sent
        so long ago for pods that are forgotten."""
        late = [
            (uid, key)
            for key, ours in self.assumed.items()
            for uid, since in ours.consumers.items()
            if now - since > age_s
        ]
        nobodys = ((key, ours) for key, ours in self.assumed.items() if not ours.consumers)
        return late + [("", key) for key, ours in nobodys if ours.sent is not None and now - ours.sent > age_s]

    def validate(self) -> Iterator[str]:
        """What is broken of C1 to C4; nothing while all is well. Costs as much as all claims."""
        usage = DeviceUsage()
        for claim in self.inventory.claims.values():
            if claim.allocation is not None:
                usage.count(claim.allocation)
        mine = self.inventory.usage
        if (usage.exclusive, usage.shares, usage.consumed) != (mine.exclusive, mine.shares, mine.consumed):
            yield "claims-usage: what is counted in use is not the sum of all allocations"
        holders = Counter(
            result.id
            for ours in self.assumed.values()
            for result in (ours.allocation.results if ours.allocation is not None else ())
            if not result.admin and not result.share
        )
        for id_, count in holders.items():
            if count > 1:
                yield f"claims-twice: {'/'.join(id_)} is allocated to more than one claim"
        of_pod: dict[str, set[str]] = {}
        for key, ours in self.assumed.items():
            if not ours.held:
                yield f"claims-held: {key} is assumed for nobody"
            there = self.inventory.claims.get(key)
            if there is None or there.uid != ours.uid:
                yield f"claims-held: {key} is assumed and is not there"
            elif len(there.reserved_for) > MOST_CONSUMERS:
                yield f"claims-consumers: {key} is reserved for {len(there.reserved_for)}"
            for uid in ours.consumers:
                of_pod.setdefault(uid, set()).add(key)
            if ours.reserves != Counter(ours.through.get(uid, uid) for uid in ours.consumers):
                yield f"claims-reserves: {key} is to be reserved for others than those that use it"
        for key in self.imagined.keys() - (self.assumed.keys() - self.shown.keys()):
            yield f"claims-imagined: {key} is to be made, and is there or assumed for nobody"
        if of_pod != self._of_pod:
            yield "claims-of-pods: the claims of each pod are not those that are assumed for it"

    def _publish(self, key: str) -> None:
        """Let the rules read the claim as it is with what is assumed."""
        shown, ours = self.shown.get(key) or self.imagined.get(key), self.assumed.get(key)
        if shown is None:
            self.inventory.remove_claim(key)
            return
        if ours is not None:
            more = tuple(uid for uid in ours.reserves if uid not in shown.reserved_for)
            shown = replace(
                shown, allocation=shown.allocation or ours.allocation, reserved_for=(*shown.reserved_for, *more)
            )
        self.inventory.put_claim(shown)

    def _release(self, key: str, pod_uid: str) -> None:
        ours = self.assumed[key]
        ours.remove(pod_uid)
        claims = self._of_pod.get(pod_uid, set())
        claims.discard(key)
        if not claims:
            self._of_pod.pop(pod_uid, None)
        self._end_if_over(key)

    def _end_if_over(self, key: str) -> None:
        ours = self.assumed.get(key)
        if ours is not None and not ours.held:
            del self.assumed[key]
            self.imagined.pop(key, None)

    def _drop(self, key: str) -> frozenset[str]:
        ours = self.assumed.get(key)
        lost = frozenset(ours.consumers) if ours is not None else frozenset()
        for uid in sorted(lost):
            self._release(key, uid)
        self.assumed.pop(key, None)
        self.imagined.pop(key, None)
        return lost


def made_as(claim: DeviceClaim, imagined: DeviceClaim) -> bool:
    """Whether a claim is the one that was to be made: for this pod's extended resources, and asks for the same."""
    mine = claim.for_extended and claim.owner == imagined.owner and not claim.deleting
    return mine and claim.requests == imagined.requests


def same_devices(one: Allocation, other: Allocation) -> bool:
    """Whether two allocations give the same devices for the same requests: what a claim was given, as we made it and as
    the API server shows it, which may have filled in more."""
    return _given(one) == _given(other)


def _given(allocation: Allocation) -> list[tuple[str, tuple[str, str, str], str]]:
    return [(result.request, result.id, result.share) for result in allocation.results]


def taken_by_others(inventory: Inventory, allocation: Allocation) -> str:
    """Why an allocation cannot be made now, whatever was true when it was chosen; "" when it can. What a driver no
    longer publishes cannot be judged, and is not refused for that: the claim was allocated when it was there."""
    usage = inventory.usage
    wanted: dict[tuple[str, str, str], Counter[str]] = {}
    for result in allocation.results:
        if result.admin:
            continue
        if result.id in usage.exclusive or (not result.share and result.id in usage.shares):
            return f"device {'/'.join(result.id)} was given to another claim"
        if result.share:
            trouble = _too_much(inventory, result, wanted)
            if trouble:
                return trouble
    return _counters_left(inventory, allocation)


def _too_much(inventory: Inventory, result: AllocatedDevice, wanted: dict[tuple[str, str, str], Counter[str]]) -> str:
    device = inventory.published((result.driver, result.pool)).get(result.device)
    more = wanted.setdefault(result.id, Counter())
    more.update(dict(result.consumed))
    if device is None:
        return ""
    known = {name for name, _ in device.capacity}
    amounts = tuple((name, amount) for name, amount in more.items() if name in known)
    used: Mapping[str, int] = inventory.usage.consumed.get(result.id, {})
    return "" if suffices(device, amounts, used) else f"device {'/'.join(result.id)} has not enough left to share"


def _counters_left(inventory: Inventory, allocation: Allocation) -> str:
    for pool in sorted({(result.driver, result.pool) for result in allocation.results}):
        devices = inventory.published(pool)
        free, _ = counters.offered(inventory.current(pool))
        if not free:
            continue
        for name, device in devices.items():
            if inventory.usage.used((*pool, name)):
                counters.take(free, device)
        given = {r.device for r in allocation.results if (r.driver, r.pool) == pool and not r.admin} & devices.keys()
        for name in given:
            if not inventory.usage.used((*pool, name)):
                counters.take(free, devices[name])
        if any(devices[name].consumes for name in given) and counters.overdrawn(free):
            return f"pool {'/'.join(pool)} has not enough counters left"
    return ""
