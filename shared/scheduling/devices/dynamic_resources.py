"""kube-scheduler's plugin DynamicResources for one pod: PreEnqueue, PreFilter, Filter, Score and PostFilter.

    before_queueing(pod, inventory)        why the pod is not queued; None: it may be
    Devices(inventory, selectors)
      .prepare(pod, now)  -> None          it claims nothing: skipped
                          -> Rejection     no node takes it (PreFilter)
                          -> PodDevices    judges nodes one by one, as they come
           .rejection(node)                why it does not get its devices there; None: it does
           .allocations(node)              what its claims would be given there
           .score(node)                    how early the alternatives come that it got
           .unblock()                      what to take back when no node took it (PostFilter)

Answers about equal claims on equal nodes (``inventory.py``: groups) are remembered by ``Devices``: they follow from the
claims' requests, the classes' selectors and the group alone. One pod's searches share a budget of steps: where it ends
the nodes that are left refuse with that reason, and nothing is remembered of it.

Source: kube-scheduler 1.36 ``plugins/dynamicresources``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shared.model.constraints import SelectorTerm
from shared.model.devices import Allocation, DeviceClaim, DeviceClass, DevicePod, DeviceRequest, Mapped
from shared.model.resources import is_extended
from shared.scheduling.devices import extended
from shared.scheduling.devices.answers import (
    FAILED,
    GIVEN,
    NOTHING_ASKED,
    REFUSED,
    UNASKED,
    Answer,
    DeviceAnswers,
    as_said,
)
from shared.scheduling.devices.cel.selectors import Selectors
from shared.scheduling.devices.claims import holders, may_be_freed, pod_claims, usable
from shared.scheduling.devices.inventory import Inventory, NamedNode
from shared.scheduling.devices.search.allocator import STEPS_PER_NODE, allocate
from shared.scheduling.devices.search.outcomes import AllocationFailure
from shared.scheduling.devices.search.results import allocation_of
from shared.scheduling.devices.search.tried import TriedDevices
from shared.scheduling.devices.search.wanted import NodeOffer
from shared.scheduling.framework import Code, Rejection
from shared.scheduling.matching.selectors import node_matches
from shared.scheduling.state.node_table import BoolArray, IntArray

NAME = "DynamicResources"
WEIGHT = 2
NOT_AVAILABLE = "resourceclaim not available on the node"
STALE = "cannot schedule extended resource claim"
NO_RESOURCE = "cannot fit resource"
OVER_BUDGET = "gave up the search for devices: the searches on other nodes used up the steps of this attempt"
DEALLOCATED = "deallocation of ResourceClaim completed"
DELETED = "deletion of ResourceClaim completed"
NOTHING_TO_FREE = "still not schedulable"

STEPS_PER_POD = 100_000
"""Devices that are looked at again for one pod on all nodes together. To look at each once for every request is free,
so that a large cluster without room is answered in full."""

MOST_ALTERNATIVES = 8
"""``FirstAvailableDeviceRequestMaxSize``: the first alternative scores so much, each further one less by one."""

MOST_KINDS, MOST_ANSWERS = 256, 65_536
"""Kinds of claims that are remembered, and answers about all of them; when full, all are forgotten."""


class Offering(NamedNode, Protocol):
    """A node, with what device plugins offer on it."""

    @property
    def allocatable(self) -> Mapping[str, int]: ...


class Unblock(NamedTuple):
    """What PostFilter would do: ``deallocate`` any one of these claims, or ``delete`` that one. ``message`` says it."""

    message: str
    deallocate: tuple[DeviceClaim, ...] = ()
    delete: DeviceClaim | None = None


Matches = Callable[[tuple[SelectorTerm, ...]], BoolArray]
"""``[len(nodes)]``: which of the nodes that are asked about some terms select."""

_Kind = tuple[object, ...]


def before_queueing(pod: DevicePod, inventory: Inventory) -> Rejection | None:
    """Why the pod is not tried at all (PreEnqueue): a claim is missing, going, or not its own."""
    found = pod_claims(pod, inventory.claims)
    return _refused(found) if isinstance(found, str) else None


def _refused(reason: str, code: Code = Code.UNRESOLVABLE) -> Rejection:
    return Rejection(NAME, code, (reason,))


class Devices:
    """What is remembered from pod to pod."""

    def __init__(
        self, inventory: Inventory, selectors: Selectors, *, fullest_first: bool = False, reuse: bool = False
    ) -> None:
        """``fullest_first``: of devices that can be shared the one with the least left is given, not the first.
        ``reuse``: a claim for extended resources that an attempt has left is used where it says what is needed, and
        none is made that asks for nothing; kube-scheduler 1.36 deletes every one first, and makes such."""
        self.inventory, self.selectors, self.fullest_first, self.reuse = inventory, selectors, fullest_first, reuse
        self._answers: dict[_Kind, DeviceAnswers] = {}
        self._epoch = 0
        self._split: tuple[Sequence[Offering], dict[tuple[str, ...], list[_Part]]] = ((), {})

    def prepare(
        self, pod: DevicePod, now: float, claims: tuple[DeviceClaim, ...] | str | None = None
    ) -> PodDevices | Rejection | None:
        """PreFilter. ``now``: seconds since the epoch, for claims whose devices take too long to bind. ``claims``:
        those that it is to be judged by, or why there are none; None: its own."""
        inventory = self.inventory
        if claims is None:
            claims = pod_claims(pod, inventory.claims)
        if isinstance(claims, str):
            return _refused(claims)
        backed = extended.backed(pod, inventory.classes)
        left, special = inventory.left_over.get(pod.uid), None
        if backed or (self.reuse and left is not None):
            special = left or extended.template(pod, name=self._name(pod))
        if not claims and special is None:
            return None
        for claim in claims:
            problem = None if claim.allocation is not None else self._unknown_class(claim)
            if problem is not None:
                return problem
        return PodDevices(self, pod, claims, special, special is not None and left is not None, backed, now)

    def _name(self, pod: DevicePod) -> str:
        return extended.claim_name(pod.name, pod.uid) if self.reuse else extended.CLAIM_NAME

    def parts(self, nodes: Sequence[Offering], names: tuple[str, ...]) -> list[_Part]:
        """The nodes by which of these resources they offer none of, or do not know. Kept for the same sequence."""
        if self._split[0] is not nodes:
            self._split = (nodes, {})
        found = self._split[1].get(names)
        if found is None:
            places: dict[tuple[int | None, ...], list[int]] = {}
            for i, node in enumerate(nodes):
                allocatable = node.allocatable
                offers = tuple(None if (n := allocatable.get(name)) is None else min(n, 1) for name in names)
                places.setdefault(offers, []).append(i)
            found = self._split[1][names] = [
                _Part(
                    frozenset(name for name, n in zip(names, offers, strict=True) if not n),
                    frozenset(name for name, n in zip(names, offers, strict=True) if n is None),
                    np.array(at, np.int64),
                )
                for offers, at in places.items()
            ]
        return found

    def nodes_changed(self) -> None:
        """A node of the sequence that was last asked about offers something else."""
        self._split = ((), {})

    def _unknown_class(self, claim: DeviceClaim) -> Rejection | None:
        """A class that does not exist: no node is looked at, also where only an unused alternative names it."""
        for request in claim.requests:
            if not request.asks:
                return _refused(f"resource claim {claim.key}, request {request.name}: unknown request type")
            for ask in request.asks:
                name = f"{request.name}/{ask.name}" if request.alternatives else request.name
                if not ask.class_name:
                    return _refused(f"request {name}: unsupported request type", Code.ERROR)
                if ask.class_name not in self.inventory.classes:
                    return _refused(f"request {name}: device class {ask.class_name} does not exist")
        return None

    def answers(self, claims: Sequence[DeviceClaim]) -> DeviceAnswers:
        """What is known about these claims; to be added to."""
        if self._epoch != self.inventory.epoch or sum(map(len, self._answers.values())) >= MOST_ANSWERS:
            self._answers.clear()
            self._epoch = self.inventory.epoch
        kind = tuple((claim.requests, claim.constraints, claim.problem) for claim in claims)
        names = {ask.class_name for claim in claims for request in claim.requests for ask in request.asks}
        classes = tuple(sorted((name, self._selectors_of(name)) for name in names))
        key = (kind, classes)
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= MOST_KINDS:
                self._answers.clear()
            found = self._answers[key] = DeviceAnswers()
        return found

    def _selectors_of(self, name: str) -> tuple[str, ...]:
        class_ = self.inventory.classes.get(name)
        return class_.selectors if class_ is not None else ()


class _Part(NamedTuple):
    """Nodes (``places``) that offer nothing of the resources ``none``, and do not know those of ``unknown``."""

    none: frozenset[str]
    unknown: frozenset[str]
    places: IntArray


@dataclass(slots=True)
class _Variant:
    """The claims to allocate on nodes that offer the same of the pod's extended resources by device plugins. ``stale``:
    the claim that an attempt left asks for something else."""

    claims: tuple[DeviceClaim, ...]
    mapped: tuple[Mapped, ...]
    stale: bool
    answers: DeviceAnswers
    epoch: int
    """Of the inventory, for which the groups of ``answers`` mean what they say."""


@dataclass(slots=True)
class PodDevices:
    """One pod in one cycle. Nothing of the inventory is changed; ``_unavailable`` grows as nodes are judged."""

    of: Devices
    pod: DevicePod
    claims: tuple[DeviceClaim, ...]
    special: DeviceClaim | None
    """The claim for extended resources: one that was left over, or the template of the one to be made."""
    left_over: bool
    """Whether it is there already."""
    backed: Mapping[str, DeviceClass]
    now: float
    tried: TriedDevices | None = None
    """What others get beside it, in thought."""
    _unavailable: set[int] = field(default_factory=set)
    _variants: dict[frozenset[str] | None, _Variant] = field(default_factory=dict)
    _usable: dict[str, bool] = field(default_factory=dict)
    _steps: int = 0
    _beside: dict[object, Answer] = field(default_factory=dict)
    """Answers about nodes where others get something in thought."""

    def with_others(self, tried: TriedDevices) -> PodDevices:
        """The same pod, beside what others get in thought."""
        claims = tuple(tried.shown_in(claim, self.pod.uid) for claim in self.claims)
        return PodDevices(self.of, self.pod, claims, self.special, self.left_over, self.backed, self.now, tried)

    @property
    def searches(self) -> bool:
        """Whether there is a claim to allocate."""
        return self.special is not None or any(claim.allocation is None for claim in self.claims)

    @property
    def refuses_any(self) -> bool:
        """Whether a node that is not there yet is refused too: a claim has devices that it cannot reach, or that may
        not be used now."""
        given = (claim for claim in (*self.claims, self.special) if claim is not None and claim.allocation is not None)
        return any(not self._usable_now(claim) or _names_nodes(claim) for claim in given)

    def delegated(self, node: Offering) -> frozenset[str]:
        """The extended resources that are the classes' business on this node, and not NodeResourcesFit's."""
        return frozenset(one for one in self.backed if not node.allocatable.get(one))

    def rejection(self, node: Offering) -> Rejection | None:
        """Filter, on a node that every filter before passes."""
        if self.special is not None:
            delegated = self.delegated(node)
            if self._stale(delegated):
                return _refused(STALE)
            if any(one not in self.backed and one not in node.allocatable for one in self._extended_alike()):
                return _refused(NO_RESOURCE)
            if not self.claims and not delegated and not self.left_over:
                return None
            if not self._usable_there(self.special, node):
                return _refused(NOT_AVAILABLE)
        unavailable = [index for index, claim in enumerate(self.claims) if not self._usable_there(claim, node)]
        if self.searches:
            answer, variant = self._answer(node)
            if isinstance(answer, AllocationFailure):
                text = answer.say(variant.claims, self.of.inventory.of(node).pools)
                return _refused(text, answer.code)
        if unavailable:
            self._unavailable.update(unavailable)
            return _refused(NOT_AVAILABLE)
        return None

    def _extended_alike(self) -> list[str]:
        """The extended resources that it requests, whoever gives them."""
        return [name for name, amount in self.pod.requests if amount and is_extended(name)]

    def _stale(self, delegated: frozenset[str]) -> bool:
        """Whether the claim for extended resources that is there is not the one that nodes of this kind need."""
        if not self.left_over or self.special is None:
            return False
        return self._variant_of(delegated).stale if self.of.reuse else bool(self.special.requests)

    def mask(self, nodes: Sequence[Offering], matches: Matches | None = None) -> BoolArray:
        """``[len(nodes)]``: True where ``rejection`` has nothing to say. Each group of nodes is asked once.
        ``matches``: by columns of labels, where there are some."""
        found: BoolArray = self._said(nodes) == GIVEN
        for claim in (*self.claims, *((self.special,) if self.special is not None else ())):
            if claim.allocation is not None:
                found &= self._usable_now(claim)
                if claim.allocation.terms is not None:
                    found &= (matches or _one_by_one(nodes))(claim.allocation.terms)
        return found

    def fails(self, nodes: Sequence[Offering]) -> BoolArray:
        """``[len(nodes)]``: True where ``rejection`` is an error."""
        failing: BoolArray = self._said(nodes) == FAILED
        return failing

    def tally(self, nodes: Sequence[Offering], places: IntArray) -> Counter[str]:
        """How often ``rejection`` gives each reason over ``nodes[places]``, all of which it refuses: said once per
        group where the reason names nothing of the node."""
        found = Counter[str]()
        if self.special is None and self.searches and self.tried is None and len(places):
            self._said(nodes)
            variant, groups = self._variant_of(None), self.of.inventory.groups(nodes)[places]
            alone = np.zeros(len(places), np.bool_)
            for group, count in zip(*np.unique(groups, return_counts=True), strict=True):
                answer = variant.answers.get(int(group))
                if isinstance(answer, AllocationFailure) and answer.pool < 0:
                    found[answer.say(variant.claims, ())] += int(count)
                else:
                    alone |= groups == group
            places = places[alone]
        for i in places.tolist():
            refused = self.rejection(nodes[i])
            found.update(refused.reasons if refused is not None else ())
        return found

    def _said(self, nodes: Sequence[Offering]) -> npt.NDArray[np.int8]:
        """``[len(nodes)]``: what each node's group says to the claims that are to be allocated."""
        if self.special is None:
            return self._said_by(nodes, None, np.arange(len(nodes)))
        said = np.full(len(nodes), REFUSED, np.int8)
        for part in self.of.parts(nodes, tuple(self._extended_alike())):
            delegated = part.none.intersection(self.backed)
            if not self._stale(delegated) and part.unknown <= self.backed.keys():
                said[part.places] = self._said_by(nodes, delegated, part.places)
        return said

    def _said_by(self, nodes: Sequence[Offering], key: frozenset[str] | None, places: IntArray) -> npt.NDArray[np.int8]:
        """``[len(places)]``: the same of some of the nodes, on which the same is delegated."""
        if not self._variant_of(key).claims:
            return np.full(len(places), GIVEN, np.int8)
        groups = self.of.inventory.groups(nodes)[places]
        answers = self._variant_of(key).answers  # after that: it may have begun a new epoch
        answers.grow(int(groups.max(initial=-1)) + 1)
        said: npt.NDArray[np.int8] = answers.takes[groups]
        for i in np.flatnonzero(said == UNASKED).tolist():
            said[i] = answers.takes[groups[i]]
            if said[i] == UNASKED:
                said[i] = as_said(self._answer(nodes[places[i]])[0])
        if self.tried is not None and (others := self.of.inventory.seeing(self.tried.pools)):
            for i, place in enumerate(places.tolist()):
                if nodes[place].name in others:
                    said[i] = as_said(self._answer(nodes[place])[0])
        return said

    def allocations(self, node: Offering, new_share: Callable[[], str]) -> list[tuple[DeviceClaim, Allocation]]:
        """What the claims that have nothing yet would be given on a node that takes the pod, in the pod's order."""
        if not self.searches or self._by_plugins_alone(node):
            return []
        answer, variant = self._answer(node)
        if isinstance(answer, AllocationFailure):
            return []
        pools, classes = self.of.inventory.of(node).pools, self.of.inventory.classes
        return [
            (claim, allocation_of(claim, given, chosen, pools, classes, node.name, new_share))
            for claim, given, chosen in zip(variant.claims, answer.given, answer.chosen, strict=True)
        ]

    def mapped(self, node: Offering) -> tuple[Mapped, ...]:
        """Which container's extended resource is served by which request of the claim made for them."""
        return self._variant(node).mapped if self.special is not None else ()

    def special_on(self, node: Offering) -> DeviceClaim | None:
        """The claim for extended resources as the pod needs it there; None: none, or the one that is there is stale."""
        variant = self._variant(node)
        if self.left_over:
            return None if variant.stale else self.special
        return variant.claims[-1] if variant.claims and variant.claims[-1].for_extended else None

    def unfit(self, node: Offering) -> str:
        """Why the claim that is there is not the one that the pod's extended resources need on the node: it asks for
        something else, it is going, or it only has the name and is not the pod's; "" where it is, or none is there."""
        if self.left_over and self.special is not None:
            if self.special.deleting:
                return f"claim {self.special.key} is being deleted"
            return STALE if self._variant(node).stale else ""
        special = self.special_on(node) if self.special is not None else None
        if special is None or special.key not in self.of.inventory.claims:
            return ""
        return f"claim {special.key} was not made for pod {self.pod.name}; delete it"

    def _by_plugins_alone(self, node: Offering) -> bool:
        """Whether it claims nothing on the node."""
        return self.special is not None and not self.claims and not self.delegated(node)

    def score(self, node: Offering) -> int:
        """Before normalisation: of each alternative that was taken, how early it came, over all claims."""
        if not self.searches or self._by_plugins_alone(node):
            return 0
        answer, variant = self._answer(node)
        if isinstance(answer, AllocationFailure):
            return 0
        total = 0
        for claim, chosen in zip(variant.claims, answer.chosen, strict=True):
            for request, index in zip(claim.requests, chosen, strict=True):
                total += MOST_ALTERNATIVES - index if request.alternatives else 0
        for claim in self.claims:
            if claim.allocation is not None:
                taken = {result.request for result in claim.allocation.results}
                total += sum(_position(request, taken) for request in claim.requests)
        return total

    def unblock(self) -> Unblock:
        """PostFilter: an allocation that keeps the pod from every node, and that nobody else uses, is dropped."""
        groups = holders(self.pod)
        found = (self.claims[i] for i in sorted(self._unavailable))
        free = tuple(
            one for one in found if may_be_freed(one, groups[one.key].uid if one.key in groups else self.pod.uid)
        )
        if free:
            return Unblock(DEALLOCATED, free)
        if self.special is not None and self.left_over:
            return Unblock(DELETED, delete=self.special)
        return Unblock(NOTHING_TO_FREE)

    def _usable_there(self, claim: DeviceClaim, node: Offering) -> bool:
        """Whether a claim that is allocated may be used there; one that is not, may."""
        if claim.allocation is None:
            return True
        terms = claim.allocation.terms
        if terms is not None and not node_matches(node.name, node.labels, terms):
            return False
        return self._usable_now(claim)

    def _usable_now(self, claim: DeviceClaim) -> bool:
        if claim.key not in self._usable:
            self._usable[claim.key] = usable(claim, self.now)
        return self._usable[claim.key]

    def _variant(self, node: Offering) -> _Variant:
        return self._variant_of(None if self.special is None else self.delegated(node))

    def _variant_of(self, key: frozenset[str] | None) -> _Variant:
        """``key``: what is delegated; None: the pod asks for nothing that could be."""
        found = self._variants.get(key)
        if found is None:
            claims = tuple(claim for claim in self.claims if claim.allocation is None)
            mapped: tuple[Mapped, ...] = ()
            stale, special = False, self.special
            if key is not None and special is not None:
                requests, mapped = extended.claimed(self.pod, {name: self.backed[name] for name in key})
                if self.of.reuse and self.left_over:
                    stale = special.deleting or special.requests != requests
                    claims = (*claims, special) if special.allocation is None and not stale else claims
                elif requests or not self.of.reuse:
                    claims = (*claims, extended.template(self.pod, requests, special.name))
            found = _Variant(claims, mapped, stale, self.of.answers(claims), self.of.inventory.epoch)
            self._variants[key] = found
        elif found.epoch != self.of.inventory.epoch:
            found.answers, found.epoch = self.of.answers(found.claims), self.of.inventory.epoch
        return found

    def _answer(self, node: Offering) -> tuple[Answer, _Variant]:
        devices = self.of.inventory.of(node)  # first: it may begin a new epoch
        variant = self._variant(node)
        if not variant.claims:
            return NOTHING_ASKED, variant
        key = self.tried.touches(devices.pools) if self.tried is not None else ()
        beside = (devices.group, variant.mapped, key)
        answer = self._beside.get(beside) if key else variant.answers.get(devices.group)
        if answer is None:
            left = STEPS_PER_POD - self._steps
            if left <= 0:
                return AllocationFailure(Code.UNRESOLVABLE, OVER_BUDGET), variant
            inventory = self.of.inventory
            usage = inventory.usage
            if key and self.tried is not None:
                usage = self.tried.beside(usage, devices.pools)
            offer = NodeOffer(
                devices.pools, usage, self.of.selectors, inventory.classes, inventory.release, node.name,
                node.labels, self.of.fullest_first,
            )  # fmt: skip
            answer = allocate(offer, variant.claims, min(left, STEPS_PER_NODE))
            asks = sum(len(request.asks) for claim in variant.claims for request in claim.requests)
            once = sum(len(pool.devices) for pool in devices.pools) * asks
            self._steps += max(0, answer.steps - once)
            if isinstance(answer, AllocationFailure) and answer.exhausted and left < STEPS_PER_NODE:
                return AllocationFailure(Code.UNRESOLVABLE, OVER_BUDGET), variant
            if key:
                self._beside[beside] = answer
            else:
                variant.answers.put(devices.group, answer)
        return answer, variant


def _one_by_one(nodes: Sequence[Offering]) -> Matches:
    return lambda terms: np.fromiter((node_matches(n.name, n.labels, terms) for n in nodes), np.bool_, len(nodes))


def _names_nodes(claim: DeviceClaim) -> bool:
    """Whether it was given what only nodes reach that are named."""
    terms = claim.allocation.terms if claim.allocation is not None else None
    if terms is None:
        return False
    return all(any(one.key == "metadata.name" and one.operator == "In" for one in term.fields) for term in terms)


def _position(request: DeviceRequest, taken: set[str]) -> int:
    names = (f"{request.name}/{ask.name}" for ask in request.alternatives)
    return sum(MOST_ALTERNATIVES - index for index, name in enumerate(names) if name in taken)


def normalised(scores: Sequence[int]) -> list[int]:
    """0..100, the best node 100; all 0 where nobody scores."""
    greatest = max(scores, default=0)
    return [100 * one // greatest if greatest else 0 for one in scores]
