"""The audit's rules for devices by claim: what a pod claims is given to it, for itself, within its node's reach.

Claims as the API server had them when a Binding arrived. It shares no code with the scheduler, and does not judge which
devices a claim ought to have got: only that it has some that no other claim has, shared devices and admin access aside,
and that what the mesh wrote into a claim does not outlive the pods that it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.audit.relations import FOREVER
from lab.audit.rules import Json, NodeFacts, selector_holds

KIND = "ResourceClaim"
MARK = "conclave.io/cause-id"
"""The annotation of a claim that the mesh wrote. ADR 0010: the words are repeated here, not imported."""
PROTECTION = "resource.kubernetes.io/delete-protection"


class DevicesAudit:
    """Claims by ``namespace/name``, and who has which device."""

    def __init__(self) -> None:
        self._claims: dict[str, Json] = {}
        self._holders: dict[tuple[str, str, str], set[str]] = {}
        self._changed_s: dict[str, float] = {}

    def change(self, key: str, claim: Json | None, time_s: float = 0.0) -> None:
        """A claim came, changed or (None) went."""
        self._changed_s[key] = time_s
        for device in _alone(self._claims.get(key)):
            self._holders[device].discard(key)
        self._claims.pop(key, None)
        if claim is not None:
            self._claims[key] = claim
        for device in _alone(claim):
            self._holders.setdefault(device, set()).add(key)

    def refusal(self, pod: Json, node: NodeFacts) -> str:
        """The rule by which a pod bound to the node now should not be there; empty when there is none."""
        for key in claims_of(pod):
            claim = self._claims.get(key) if key else None
            status = (claim or {}).get("status") or {}
            if claim is None:
                return f"its claim {key or 'of a template'} does not exist"
            if not status.get("allocation"):
                return f"its claim {key} has no devices"
            if not any(_is_for(user, pod) for user in status.get("reservedFor") or ()):
                return f"its claim {key} is not reserved for it"
            selector = status["allocation"].get("nodeSelector")
            if selector is not None and not selector_holds(selector, node):
                return f"the node does not reach the devices of its claim {key}"
            for device in _alone(claim):
                if others := self._holders[device] - {key}:
                    return f"device {'/'.join(device)} of its claim {key} is that of {min(others)} too"
        return ""

    def twice(self) -> Iterator[str]:
        """Devices that several claims have for themselves now, and those."""
        for device, holders in self._holders.items():
            if len(holders) > 1:
                yield f"{'/'.join(device)} is given to {', '.join(sorted(holders))}"

    def leaked(
        self, uses: Callable[[str], bool], awaits: Callable[[str], bool], before_s: float = FOREVER,
        there: Callable[[str], bool] = lambda _: True,
    ) -> Iterator[str]:  # fmt: skip
        """Claims that the mesh wrote, and that have devices, consumers or its finalizer, though none of those for whom
        they are reserved uses it. ``uses``: whether a pod, by its uid, runs with what it claims; ``awaits``: whether it
        is there, which is enough where the devices have binding conditions; ``there``: whether a pod group is, by
        ``namespace/name``, or a pod of it runs; ``before_s``: what changed later is on its way."""
        for key, claim in self._claims.items():
            if self._changed_s[key] > before_s:
                continue
            meta, status = claim.get("metadata") or {}, claim.get("status") or {}
            kept = {
                "devices": bool(status.get("allocation")), "consumers": bool(status.get("reservedFor")),
                "a finalizer": PROTECTION in (meta.get("finalizers") or ()),
            }  # fmt: skip
            left = [what for what, there in kept.items() if there]
            if not left or MARK not in (meta.get("annotations") or {}):
                continue
            users, holds = status.get("reservedFor") or (), awaits if _awaits_driver(claim) else uses
            namespace = key.partition("/")[0]
            if not any(
                there(f"{namespace}/{user['name']}") if _is_group(user) else _holds(user, holds) for user in users
            ):
                yield f"{key} has {' and '.join(left)}, and no pod that uses it"


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


def _is_for(user: Json, pod: Json) -> bool:
    """Whether a claim's consumer is the pod, or its pod group, of which the pod knows the name alone."""
    if _is_group(user):
        group = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
        return group is not None and bool(user.get("name") == group)
    return bool(user.get("uid") == pod["metadata"]["uid"])


def _is_group(user: Json) -> bool:
    return user.get("apiGroup") == "scheduling.k8s.io" and user.get("resource") == "podgroups"


def _holds(user: Json, holds: Callable[[str], bool]) -> bool:
    """Whether a consumer that is no pod group uses what it is reserved: of what is no pod nobody knows."""
    return bool(user.get("apiGroup")) or user.get("resource") != "pods" or holds(user["uid"])


def _given(claim: Json | None) -> list[Json]:
    """What the claim was given, device by device."""
    devices = (((claim or {}).get("status") or {}).get("allocation") or {}).get("devices") or {}
    return list(devices.get("results") or ())


def _awaits_driver(claim: Json) -> bool:
    """Whether its driver has to say first that a device is ready: until then its pod is not bound."""
    return any(one.get("bindingConditions") for one in _given(claim))


def _alone(claim: Json | None) -> list[tuple[str, str, str]]:
    """The devices that the claim has for itself."""
    return [
        (one["driver"], one["pool"], one["device"])
        for one in _given(claim)
        if not one.get("shareID") and not one.get("adminAccess")
    ]
