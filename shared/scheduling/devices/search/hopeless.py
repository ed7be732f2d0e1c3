"""Constraints that no choice can satisfy, seen without trying any: by counting.

Eight devices on one PCIe root where every root has four: a search would try every four of them first, and give up. For
each request that a constraint concerns some value must be had by as many devices as are wanted (``matchAttribute``), or
so many different values must be there (``distinctAttribute``). That is necessary, not enough: the search decides.

Nothing is concluded where the answer of a search could be another: where ``All`` is asked for, where a claim may get
too many devices, or where some selector fails on some device (a search that comes to it ends the whole cycle).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shared.model.devices import MOST_RESULTS, AttributeConstraint, DeviceClaim
from shared.scheduling.devices.search.constraints import concerns
from shared.scheduling.devices.search.outcomes import SearchEnded
from shared.scheduling.devices.search.wanted import NodeOffer, Place, WantedDevices
from shared.scheduling.devices.taints import barred

Requests = Sequence[Sequence[WantedDevices]]


def hopeless(node: NodeOffer, claims: Sequence[DeviceClaim], wanted: Sequence[Requests]) -> bool:
    """Whether some constraint of some claim cannot be satisfied on the node, and a search would come to that end."""
    if not any(claim.constraints for claim in claims):
        return False
    for requests in wanted:
        most = sum(max((one.count for one in asks), default=0) for asks in requests)
        if most > MOST_RESULTS or any(one.everything is not None for asks in requests for one in asks):
            return False
    try:
        unsatisfied = any(
            _unsatisfied(node, c, constraint, wanted[c])
            for c, claim in enumerate(claims)
            for constraint in claim.constraints
        )
        return unsatisfied and _no_selector_fails(node, wanted)
    except SearchEnded:
        return False


def _unsatisfied(node: NodeOffer, c: int, constraint: AttributeConstraint, requests: Requests) -> bool:
    needed = 0
    having: list[tuple[int, Counter[tuple[str, int | bool | str]]]] = []
    for asks in requests:
        concerned = [one for one in asks if concerns(constraint, one.request, one.alternative)]
        if len(concerned) < len(asks):
            continue  # an alternative that it does not concern may be taken
        least = min((one.count for one in concerned), default=0)
        places = {place for one in concerned for place in _places(node) if _possible(node, c, one, place)}
        counted: Counter[tuple[str, int | bool | str]] = Counter()
        for place in places:
            counted.update(node.values(constraint.attribute, place) or ())
        having.append((least, counted))
        needed += least
    values = {value for _, counted in having for value in counted}
    if constraint.distinct:
        return len(values) < needed
    return needed > 0 and not any(all(counted[value] >= least for least, counted in having) for value in values)


def _places(node: NodeOffer) -> list[Place]:
    return [(p, d) for p, pool in enumerate(node.pools) for d in range(len(pool.devices))]


def _possible(node: NodeOffer, c: int, wanted: WantedDevices, place: Place) -> bool:
    one = node.pools[place[0]].devices[place[1]]
    in_use = one.id in node.usage.exclusive and not wanted.ask.admin
    if in_use or barred(one.device, wanted.ask.tolerations):
        return False
    return node.selectable(c, wanted, place)


def _no_selector_fails(node: NodeOffer, wanted: Sequence[Requests]) -> bool:
    """Raises ``SearchEnded`` where one does."""
    for c, requests in enumerate(wanted):
        for asks in requests:
            for one in asks:
                for place in _places(node):
                    node.selectable(c, one, place)
    return True
