"""The devices of a cluster as coordinator and binder hold them: what is published, what claims were given, what is
assumed for pods on their way; and the rule of kube-scheduler's plugin DynamicResources made from it.

Pods whose claims ask alike are judged alike (``alike``): claims that were made from templates have a name each, and no
rule reads it. A claim that exists for others too, or was given devices already, is known by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count

import numpy as np
from msgspec.structs import replace

from shared.model.constraints import PodClass
from shared.model.devices import Consumer, DeviceClaim, DeviceClass, DevicePod, DeviceSlice, ExtendedClaim, TaintRule
from shared.model.gpu_shares import GpuShares
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_title
from shared.scheduling.devices import extended
from shared.scheduling.devices.accounts import ClaimAccounts
from shared.scheduling.devices.backed import BackedResources
from shared.scheduling.devices.cel.selectors import Selectors
from shared.scheduling.devices.census import Census
from shared.scheduling.devices.claims import held_by, holders, may_be_freed, pod_claims
from shared.scheduling.devices.dynamic_resources import Devices, PodDevices
from shared.scheduling.devices.inventory import Inventory
from shared.scheduling.devices.search.wanted import NodeOffer
from shared.scheduling.devices.shares import asked_shares, free_shares
from shared.scheduling.framework import Rejection
from shared.scheduling.state.node_table import IntArray, NodeTable
from shared.scheduling.state.releases import Release

Claimed = tuple[int | str, ...]

MOST_COUNTED = 4096
"""Pod classes whose claims are remembered as GPUs."""
MOST_FREE = 1024
"""Devices of a node that agents are told of."""
MOST_ASKED = 64
"""Kinds of nodes that are asked what a claim comes to."""


class ClaimedDevices:
    """See the module. ``wall``: seconds since the epoch at the event being handled, which its owner sets.

    ``version`` counts changes of whatever the rules read here. ``new_share`` names one more user of a shared device: by
    a UUID where it is written, by a number where it is only assumed. ``groups``: pod groups by their keys, as the watch
    shows them; None: nobody follows them.
    """

    def __init__(
        self, table: NodeTable, release: Release = Release.V1_38, new_share: Callable[[], str] | None = None,
        groups: Mapping[str, PodGroup] | None = None,
    ) -> None:  # fmt: skip
        self._groups: Mapping[str, PodGroup] = groups if groups is not None else {}
        self.knows_groups = False
        """Whether a pod is to wait until the group is known that it is a member of, of Kubernetes' own: its owner says
        so once they are listed."""
        self.inventory = Inventory(release)
        self.accounts = ClaimAccounts(self.inventory)
        self.devices = Devices(self.inventory, Selectors(release), fullest_first=True, reuse=True)
        self.census = Census(self.inventory)
        self.wall = 0.0
        self.version = 0
        numbers = count(1)
        self.new_share = new_share or (lambda: f"assumed-{next(numbers)}")
        self._table = table
        self._nodes: list[Node] = []
        self._rows: IntArray = np.zeros(0, np.int64)
        self._nodes_at = -1
        self._kinds: dict[object, int] = {}
        self._samples: dict[int, tuple[object, DeviceClaim]] = {}
        self._kind_of: dict[str, int] = {}
        self._claims_of: Counter[int] = Counter()
        self._kinds_seen = 0
        self._shares: GpuShares | None = None
        self._gpus: dict[tuple[PodClass, Claimed], PodClass] = {}
        self.backed = BackedResources(self.inventory.classes)

    # --- what the API server shows --------------------------------------------------------------------------------

    def put(self, kind: str, key: str, item: object) -> object | None:
        """Take over one object as it is now; what it was before, None if it is new."""
        self.version += 1
        match item:
            case DeviceClaim():
                before = self.accounts.shown.get(key)
                self.accounts.observe(item)
                self._count_kind(key)
                return before
            case DeviceSlice():
                self.inventory.put_slice(item)
            case DeviceClass():
                known = self.inventory.classes.get(key)
                self.inventory.classes[key] = item
                self.backed.class_changed(known, item)
                return known
            case TaintRule():
                self.inventory.put_taint_rule(item)
            case _:
                raise TypeError(f"{kind}: {type(item).__name__} is no object of devices")
        return None

    def drop(self, kind: str, key: str) -> None:
        """It is gone; an unknown key is fine."""
        self.version += 1
        match kind:
            case "resourceclaims":
                self.accounts.gone(key)
                self._count_kind(key)
            case "resourceslices":
                self.inventory.remove_slice(key)
            case "deviceclasses":
                self.backed.class_changed(self.inventory.classes.pop(key, None), None)
            case _:
                self.inventory.remove_taint_rule(key)

    def _count_kind(self, key: str) -> None:
        """Keep what the claim asks while there is one that asks so."""
        claim, known = self.accounts.shown.get(key), self._kind_of.get(key)
        asked = (claim.requests, claim.constraints, claim.config, claim.problem) if claim is not None else None
        if known is not None and asked == self._samples[known][0]:
            return
        if known is not None:
            del self._kind_of[key]
            self._claims_of[known] -= 1
            if not self._claims_of[known]:
                del self._claims_of[known], self._kinds[_hashable(self._samples.pop(known)[0])]
        if claim is None:
            return
        number = self._kinds.get(_hashable(asked))
        if number is None:
            self._kinds_seen += 1
            number = self._kinds[_hashable(asked)] = self._kinds_seen
            like = DeviceClaim(claim.namespace, claim.name, requests=claim.requests, constraints=claim.constraints,
                               config=claim.config, problem=claim.problem)  # fmt: skip
            self._samples[number] = asked, like
        self._kind_of[key] = number
        self._claims_of[number] += 1

    # --- what pods claim ------------------------------------------------------------------------------------------

    def asks(self, pod: Pod) -> DevicePod:
        """What the pod claims, and which of its claims its pod group has for all members."""
        asks = pod.asks
        assert asks is not None
        group = self._groups.get(pod.group) if pod.group else None
        return held_by(asks, group, self.inventory.claims) if group is not None and group.claims else asks

    def holders(self, pod: Pod) -> dict[str, Consumer]:
        """The pod group that has a claim of the pod for all members, by the claim's key; of the others nothing."""
        return holders(self.asks(pod)) if pod.group and pod.asks is not None else {}

    def lacking(self, pod: Pod) -> str:
        """Why the pod is not tried at all (PreEnqueue): a claim is missing, going, or not its own; "" for nothing."""
        found = pod_claims(self.asks(pod), self.inventory.claims) if pod.asks is not None else ""
        return found if isinstance(found, str) else ""

    def alike(self, pod: Pod) -> Claimed:
        """What tells the pod's claims, as they are now, from those of others for the rules."""
        if pod.asks is None:
            return ()
        if not pod.uid:
            return pod.claimed
        found = pod_claims(self.asks(pod), self.inventory.claims)
        if isinstance(found, str):
            return (pod.uid,)
        own = tuple(
            self._kind_of[claim.key] if claim.owner == pod.uid and claim.allocation is None else claim.key
            for claim in found
        )
        left = self.inventory.left_over.get(pod.uid)
        if left is not None:
            return *own, left.key
        return (*own, self.backed.number(pod.extended)) if pod.pod_class.by_class else own

    def described(self, pod: Pod) -> Pod:
        """The pod with what its claims ask, and its extended resources of device classes: for the rules, and as GPUs
        for policies that see them. The pod as it is where it asks for nothing of that."""
        if pod.extended:
            pod = self._extended(pod)
        if pod.asks is None:
            return pod
        claimed = self.alike(pod)
        return replace(pod, claimed=claimed, pod_class=self._counted(pod, claimed))

    def _extended(self, pod: Pod) -> Pod:
        pod_class, asks = self.backed.marked(pod.pod_class), pod.asks
        if asks is None or not asks.claims:
            asks = None
            if pod_class.by_class or pod.uid in self.inventory.left_over:
                asks = DevicePod(pod.namespace, pod.name, pod.uid, (), pod.extended, pod_class.requests)
        if asks is pod.asks is None and pod_class is pod.pod_class:
            return pod
        return replace(pod, pod_class=pod_class, asks=asks, claimed=())

    def _counted(self, pod: Pod, claimed: Claimed) -> PodClass:
        if self._shares is None:
            return pod.pod_class
        key = (pod.pod_class, claimed)
        known = self._gpus.get(key)
        if known is None:
            if len(self._gpus) >= MOST_COUNTED:
                self._gpus.clear()
            asked = self._asked(self.wanted(pod), self._shares)
            known = replace(pod.pod_class, claimed=asked)
            if asked[0]:  # of nothing: a node that has such devices may come yet
                self._gpus[key] = known
        return known

    def _asked(self, claims: tuple[DeviceClaim, ...], shares: GpuShares) -> tuple[int, int]:
        """By the first node, of those that differ, that has what is asked for."""
        if all(claim.allocation is not None for claim in claims):
            return 0, 0
        self._follow_nodes()
        _, firsts = np.unique(self.inventory.groups(self._nodes), return_index=True)
        for first in firsts[:MOST_ASKED].tolist():
            node = self._nodes[first]
            offer = NodeOffer(
                self.inventory.of(node).pools, self.inventory.usage, self.devices.selectors, self.inventory.classes,
                self.inventory.release, node.name, node.labels,
            )  # fmt: skip
            asked = asked_shares(offer, claims, shares)
            if asked[0]:
                return asked
        return 0, 0

    def wanted(self, pod: Pod) -> tuple[DeviceClaim, ...]:
        """The pod's claims, and the one that is to be made for its extended resources where nodes offer none."""
        claims = self.claims(pod)
        if not pod.pod_class.by_class or pod.uid in self.inventory.left_over:
            return claims
        asks, classes = self.asks(pod), self.inventory.classes
        return *claims, extended.template(asks, extended.claimed(asks, extended.backed(asks, classes))[0])

    def count_free(self, shares: GpuShares | None) -> None:
        """Tell the table what claims leave of each node's devices, for policies that see them; None: none does."""
        inventory = self.inventory
        if shares is None or shares != self._shares:
            self._gpus.clear()
            inventory.all_touched = True
            self._shares = shares
        self._tell()

    def _tell(self) -> None:
        """Of the nodes whose devices, or their use, may be others since the last time."""
        inventory, table, shares = self.inventory, self._table, self._shares
        if shares is None or not (inventory.all_touched or inventory.touched):
            return
        self._follow_nodes()
        touched = [node.name for node in self._nodes] if inventory.all_touched else inventory.touched
        inventory.touched, inventory.all_touched = set(), False
        for name in touched:
            row = table.row_of.get(name)
            node = table.nodes[row] if row is not None else None
            if row is not None and node is not None:
                free = free_shares(inventory.of(node).pools, inventory.usage, shares)
                table.set_claimed(row, free[:MOST_FREE])

    def prepare(self, pod: Pod) -> PodDevices | Rejection | None:
        """PreFilter; see ``Devices.prepare``. A pod without a uid stands for all whose claims ask as it says."""
        if pod.asks is None:
            return None
        self._follow_nodes()
        asks, claims = self.asks(pod), None
        if not pod.uid:
            claims, owner = self._like(pod.claimed)
            if pod.extended:
                asks = replace(asks, uid=owner)
        return self.devices.prepare(asks, self.wall, claims)

    def _like(self, claimed: Claimed) -> tuple[tuple[DeviceClaim, ...] | str, str]:
        """Such claims, or which there is not; and whose claim for extended resources is there: a uid."""
        found, owner = [], ""
        for one in claimed:
            if isinstance(one, int) and one < 0:
                continue  # what containers request
            claim = self.inventory.claims.get(one) if isinstance(one, str) else self._sample(one)
            if claim is None:
                return f'could not find ResourceClaim "{one}"', owner
            if claim.for_extended:
                owner = claim.owner
            else:
                found.append(claim)
        return tuple(found), owner

    def _sample(self, number: int) -> DeviceClaim | None:
        found = self._samples.get(number)
        return found[1] if found is not None else None

    def claims(self, pod: Pod) -> tuple[DeviceClaim, ...]:
        """The pod's claims with what is assumed in them; none while one is missing. That for its extended resources
        is the last, once it is there or to be made."""
        found = pod_claims(self.asks(pod), self.inventory.claims) if pod.asks is not None else ""
        if isinstance(found, str):
            return ()
        made = self.inventory.left_over.get(pod.uid)
        return found if made is None else (*found, made)

    def has_devices(self, key: str) -> bool:
        """Whether the claim was given devices, or is about to be."""
        claim = self.inventory.claims.get(key)
        return claim is not None and claim.allocation is not None

    def freeable(self, pod: Pod) -> list[tuple[DeviceClaim, Consumer]]:
        """The pod's claims that have devices, and which nobody uses but the pod, or its group; and who that is."""
        held = self.holders(pod)
        found = ((claim, held.get(claim.key, Consumer(pod.name, pod.uid))) for claim in self.claims(pod))
        return [
            (claim, user) for claim, user in found if claim.allocation is not None and may_be_freed(claim, user.uid)
        ]

    def extended_claim(self, pod: Pod, node_name: str) -> ExtendedClaim | None:
        """What the pod's status is to tell of the claim for its extended resources on a node; None: it needs none
        there."""
        found = self.prepare(pod) if pod.extended else None
        node = self._node(node_name)
        if not isinstance(found, PodDevices) or node is None or not (mapped := found.mapped(node)):
            return None
        assert found.special is not None
        return ExtendedClaim(found.special.name, mapped)

    def unfit(self, pod: Pod, node_name: str) -> str:
        """Why the claim that is there is not what the pod's extended resources need on the node; "" where it is."""
        found = self.prepare(pod) if pod.extended else None
        node = self._node(node_name)
        return found.unfit(node) if isinstance(found, PodDevices) and node is not None else ""

    def name_taken(self, pod: Pod) -> bool:
        """Whether the claim for the pod's extended resources cannot be made: another one has its name."""
        if not pod.pod_class.by_class or pod.uid in self.inventory.left_over:
            return False
        return f"{pod.namespace}/{extended.claim_name(pod.name, pod.uid)}" in self.inventory.claims

    # --- what is assumed ------------------------------------------------------------------------------------------

    def assume(self, pod: Pod, node_name: str, now: float) -> str:
        """Count the pod's claims as given to it on the node. Why that cannot be ("": it is done)."""
        self.forget(pod.uid)
        if self._group_unknown(pod):
            return f"pod group {group_title(pod.group)} is not known here, which may have claims for it"
        found = self.prepare(pod)
        if found is None:
            return ""
        if isinstance(found, Rejection):
            return ", ".join(found.reasons)
        node = self._node(node_name)
        if node is None:
            return "node does not exist"
        if why := found.unfit(node):
            return why
        self.version += 1
        given = {claim.key: allocation for claim, allocation in found.allocations(node, self.new_share)}
        special, held = found.special_on(node), holders(found.pod) if pod.group else {}
        for claim in (*found.claims, *((special,) if special is not None else ())):
            allocation = given.get(claim.key)
            if allocation is not None and any(result.bound_on for result in allocation.results):
                allocation = replace(allocation, at=self.wall)
            why = self.accounts.assume(
                pod.uid, claim.key, allocation, now, made=claim if claim is special else None,
                group_uid=held[claim.key].uid if held and claim.key in held else "",
            )  # fmt: skip
            if why:
                self.accounts.forget(pod.uid)
                return why
        self._tell()  # now: the next decision of this turn is made on it
        return ""

    def _group_unknown(self, pod: Pod) -> bool:
        """Whether the pod is of a group of Kubernetes' own that the watch has not shown, or shows no more."""
        if not pod.group or pod.asks is None or not pod.asks.claims:
            return False
        native = pod.group.startswith(f"{GroupSource.NATIVE.value}:")
        return native and self.knows_groups and pod.group not in self._groups

    def forget(self, uid: str) -> None:
        """The pod is placed no more: what was assumed for it is free, but for what may have been written."""
        if self.accounts.holds(uid):
            self.version += 1
            self.accounts.forget(uid)
            self._tell()

    def take_freed(self) -> bool:
        """Whether devices were given back since this was last asked, by claims or by pods that are placed no more."""
        freed, self.inventory.freed = self.inventory.freed, False
        return freed

    def written(self, claim: DeviceClaim) -> None:
        """The API server has answered with the claim as it is now, after a write of ours or a read."""
        self.version += 1
        self.accounts.written(claim)
        self._count_kind(claim.key)

    def settle(self, key: str) -> None:
        """It is known that no allocation of ours is written."""
        self.version += 1
        self.accounts.settle(key)

    def contested(self, key: str, *, joined: bool = False) -> str:
        """Which device of the claim is another claim's too, or is shared by more than it bears; "" for none.
        ``joined``: pods run with it, of which one more takes nothing."""
        return self.accounts.contested(key, joined=joined)

    def validate(self) -> Iterator[str]:
        """What is broken of claims; nothing while all is well."""
        yield from self.accounts.validate()
        if self._kind_of.keys() != self.accounts.shown.keys():
            yield "claims-kinds: claims that are known by what they ask are not those that there are"

    # --- nodes ----------------------------------------------------------------------------------------------------

    def nodes(self) -> tuple[list[Node], IntArray]:
        """Those that there are, and the row of each. One list while the same nodes are there."""
        self._follow_nodes()
        return self._nodes, self._rows

    def _node(self, name: str) -> Node | None:
        row = self._table.row_of.get(name)
        return self._table.nodes[row] if row is not None else None

    def _follow_nodes(self) -> None:
        table = self._table
        if table.static_stamp == self._nodes_at:
            return
        self._nodes_at = table.static_stamp
        self.devices.nodes_changed()
        rows = table.live_rows()
        there = [node for row in rows.tolist() if (node := table.nodes[row]) is not None]
        before = {node.name: node for node in self._nodes}
        for node in there:
            known = before.pop(node.name, None)
            if known is not node and (known is None or known.labels != node.labels):
                self.inventory.forget_node(node.name)
        for name in before:
            self.inventory.forget_node(name)
        if [node.name for node in there] == [node.name for node in self._nodes]:
            self._nodes[:] = there
        else:
            self._nodes, self._rows = there, rows


def _hashable(asked: object) -> object:
    """``config`` holds opaque JSON."""
    assert isinstance(asked, tuple)
    requests, constraints, config, problem = asked
    return requests, constraints, repr(config), problem
