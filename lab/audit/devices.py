"""The audit's rules for devices by claim: what a pod claims is given to it, for itself, within its node's reach.

Claims as the API server had them when a Binding arrived. It shares no code with the scheduler, and does not judge which
devices a claim ought to have got: only that it has some that no other claim has, shared devices and admin access aside.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.audit.rules import Json, NodeFacts, selector_holds

KIND = "ResourceClaim"


class Devices:
    """Claims by ``namespace/name``, and who has which device."""

    def __init__(self) -> None:
        self._claims: dict[str, Json] = {}
        self._holders: dict[tuple[str, str, str], set[str]] = {}

    def change(self, key: str, claim: Json | None) -> None:
        """A claim came, changed or (None) went."""
        for device in _alone(self._claims.get(key)):
            self._holders[device].discard(key)
        self._claims.pop(key, None)
        if claim is not None:
            self._claims[key] = claim
        for device in _alone(claim):
            self._holders.setdefault(device, set()).add(key)

    def refusal(self, pod: Json, node: NodeFacts) -> str:
        """The rule by which a pod bound to the node now should not be there; empty when there is none."""
        meta = pod["metadata"]
        for key in claims_of(pod):
            claim = self._claims.get(key) if key else None
            status = (claim or {}).get("status") or {}
            if claim is None:
                return f"its claim {key or 'of a template'} does not exist"
            if not status.get("allocation"):
                return f"its claim {key} has no devices"
            if meta["uid"] not in {user.get("uid") for user in status.get("reservedFor") or ()}:
                return f"its claim {key} is not reserved for it"
            selector = status["allocation"].get("nodeSelector")
            if selector is not None and not selector_holds(selector, node):
                return f"the node does not reach the devices of its claim {key}"
            for device in _alone(claim):
                if others := self._holders[device] - {key}:
                    return f"device {'/'.join(device)} of its claim {key} is that of {min(others)} too"
        return ""


def claims_of(pod: Json) -> Iterator[str]:
    """Its claims, "" for one that was not made, that for its extended resources last; those that it turned out not to
    need are left out."""
    namespace = pod["metadata"].get("namespace") or ""
    told = {one["name"]: one for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    for one in (pod.get("spec") or {}).get("resourceClaims") or ():
        name = one.get("resourceClaimName")
        if name is None and one["name"] in told:
            name = told[one["name"]].get("resourceClaimName")
            if name is None:
                continue
        yield f"{namespace}/{name}" if name else ""
    made = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if made is not None:
        yield f"{namespace}/{made.get('resourceClaimName')}"


def _alone(claim: Json | None) -> list[tuple[str, str, str]]:
    """The devices that the claim has for itself."""
    given = (((claim or {}).get("status") or {}).get("allocation") or {}).get("devices") or {}
    return [
        (one["driver"], one["pool"], one["device"])
        for one in given.get("results") or ()
        if not one.get("shareID") and not one.get("adminAccess")
    ]
