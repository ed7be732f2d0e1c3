"""The cluster as accounted here: nodes, and every pod that holds resources, bound or assumed.

    (nothing) --assume--> ASSUMED --confirm (watch)--> BOUND --delete/finish--> (nothing)
                             |                            ^
                             +--forget--> (nothing)       +-- add (bound by anybody)

I2 rests on it: a placement is checked against everything bound by anybody plus everything assumed here. Assumed pods
never expire by themselves: whoever assumed resolves them (reliability.md 3.7); ``overdue`` lists those that are late.
A pod on a node we do not know (yet) is kept and counted when the node appears.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from shared.model.constraints import PodClass, gpu_milli_of
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.resources import GPU_MILLI, MILLI_PER_DEVICE
from shared.scheduling.state.node_table import MAX_DEVICES, NodeTable
from shared.scheduling.state.zones_port import KeepsZones


class Account(Struct, frozen=True, gc=False):
    """What one pod holds on one node. ``assumed_at``: seconds, None once the API server has confirmed it."""

    uid: str
    node_name: str
    pod_class: PodClass
    devices: tuple[int, ...]
    assumed_at: float | None


class ClusterCache:
    """Accounts by pod uid over one ``NodeTable``."""

    def __init__(self) -> None:
        self.table = NodeTable()
        self.accounts: dict[str, Account] = {}
        self.changed: dict[str, None] | None = None
        """Uids of pods that began or ceased to count, or count otherwise; None: nobody asks."""
        self.zones: KeepsZones | None = None
        """Who stands in which zones of the nodes; None: nobody reads them."""
        self._by_node: dict[str, set[str]] = {}

    # --- nodes --------------------------------------------------------------------------------------------------

    def upsert_node(self, node: Node) -> None:
        """A node appeared or changed."""
        table = self.table
        row = table.row_of.get(node.name)
        devices_before = len(table.device_free[row]) if row is not None else -1
        known = table.nodes[row] if row is not None else None
        table.upsert(node)
        if self.zones is not None and (known is None or known.allocatable != node.allocatable):
            self.zones.node_changed(node.name)
        row = table.row_of[node.name]
        devices = min(node.allocatable.get(GPU_MILLI, 0) // MILLI_PER_DEVICE, MAX_DEVICES)
        if devices_before != devices:
            table.clear_usage(row)
            for uid in sorted(self._by_node.get(node.name, ())):
                account = self.accounts[uid]
                table.add_usage(row, account.pod_class, account.devices)

    def remove_node(self, name: str) -> None:
        """A node is gone; the accounts of its pods wait in case it comes back."""
        self.table.remove(name)
        if self.zones is not None:
            self.zones.node_changed(name)

    # --- pods ---------------------------------------------------------------------------------------------------

    def assume(
        self, uid: str, node_name: str, pod_class: PodClass, now: float, *, devices: tuple[int, ...] | None = None
    ) -> Account:
        """Count a pod before the API server knows. Replaces what was assumed for the uid before.

        ``devices``: those it was given already (an inherited intent); None picks them here.
        """
        if uid in self.accounts:
            self.forget(uid)
        row, table = self.table.row_of.get(node_name), self.table
        if devices is None:
            devices = ()
            if row is not None and table.device_free[row]:
                devices = table.pick_devices(row, gpu_milli_of(pod_class))
        account = Account(uid, node_name, pod_class, devices, now)
        self._count(account)
        return account

    def confirm(self, pod: Pod) -> None:
        """The API server shows ``pod`` on a node: count it there, wherever it was assumed."""
        known = self.accounts.get(pod.uid)
        devices = pod.devices
        if known is not None:
            same = known.node_name == pod.node_name and known.pod_class == pod.pod_class
            if same and (not devices or known.devices == devices):
                if known.assumed_at is not None:
                    if self.changed is not None:
                        self.changed[pod.uid] = None
                    self.accounts[pod.uid] = Account(
                        known.uid, known.node_name, known.pod_class, known.devices, None
                    )  # fmt: skip
                return
            self._uncount(known)
        milli = gpu_milli_of(pod.pod_class)
        if milli and not devices:
            row = self.table.row_of.get(pod.node_name)
            devices = self.table.pick_devices(row, milli) if row is not None else ()
        self._count(Account(pod.uid, pod.node_name, pod.pod_class, devices, None))

    def forget(self, uid: str) -> Account | None:
        """Undo: the pod holds nothing any more (refused, deleted, finished). Returns what it held."""
        known = self.accounts.get(uid)
        if known is not None:
            self._uncount(known)
        return known

    def observe(self, pod: Pod) -> None:
        """Take over what the API server shows: bound pods count, finished ones no longer; pending ones do not
        undo an assumption (the watch may be behind the binder)."""
        if pod.finished:
            self.forget(pod.uid)
        elif pod.node_name:
            self.confirm(pod)

    def overdue(self, now: float, age_s: float) -> list[Account]:
        """Accounts assumed longer than ``age_s`` ago and not confirmed."""
        return [a for a in self.accounts.values() if a.assumed_at is not None and now - a.assumed_at > age_s]

    def pods_on(self, node_name: str) -> frozenset[str]:
        """Uids accounted on a node."""
        return frozenset(self._by_node.get(node_name, ()))

    def validate(self) -> Iterator[str]:
        """What is broken in the accounting (I2 rests on it); nothing while all is well. Costs as much as all pods."""
        yield from self.table.validate()
        by_node = {uid: name for name, uids in self._by_node.items() for uid in uids}
        for uid in by_node.keys() ^ self.accounts.keys():
            yield f"accounts-by-node: {uid} is in one of the two only"
        for uid, account in self.accounts.items():
            if account.uid != uid or by_node.get(uid, account.node_name) != account.node_name:
                yield f"accounts-by-node: {uid} is accounted on {account.node_name}, listed on {by_node.get(uid)}"
        for name in recount(self, self.table.row_of):
            yield f"accounts-sum: the amounts of {name} are not the sum of its pods"

    def _count(self, account: Account) -> None:
        if self.changed is not None:
            self.changed[account.uid] = None
        self.accounts[account.uid] = account
        self._by_node.setdefault(account.node_name, set()).add(account.uid)
        row = self.table.row_of.get(account.node_name)
        if row is not None:
            self.table.add_usage(row, account.pod_class, account.devices)
        if (needs := account.pod_class.needs) is not None and self.zones is not None:
            self.zones.count(account.uid, account.node_name, needs, assumed=account.assumed_at is not None)

    def _uncount(self, account: Account) -> None:
        if self.changed is not None:
            self.changed[account.uid] = None
        del self.accounts[account.uid]
        there = self._by_node[account.node_name]
        there.discard(account.uid)
        if not there:
            del self._by_node[account.node_name]
        row = self.table.row_of.get(account.node_name)
        if row is not None:
            self.table.add_usage(row, account.pod_class, account.devices, sign=-1)
        if account.pod_class.needs is not None and self.zones is not None:
            self.zones.uncount(account.uid, account.node_name)


def recount(cache: ClusterCache, names: Iterable[str]) -> list[str]:
    """Those of ``names`` whose amounts differ from the sum of their accounts: none unless the cache is broken. A node
    that is gone is left out."""
    fresh = NodeTable()
    wrong = []
    rows = {name: cache.table.row_of[name] for name in names if name in cache.table.row_of}
    for name, row in rows.items():
        node = cache.table.nodes[row]
        assert node is not None
        other = fresh.upsert(node)
        for uid in sorted(cache.pods_on(name)):
            account = cache.accounts.get(uid)
            if account is not None:
                fresh.add_usage(other, account.pod_class, account.devices)
    for name, row in rows.items():
        other = fresh.row_of[name]
        mine = {n: int(cache.table.requested[c, row]) for n, c in cache.table.column_of.items()}
        theirs = {n: int(fresh.requested[c, other]) for n, c in fresh.column_of.items()}
        same = all(mine.get(key, 0) == theirs.get(key, 0) for key in mine.keys() | theirs.keys())
        if not same or cache.table.device_free[row] != fresh.device_free[other]:
            wrong.append(name)
    return wrong
