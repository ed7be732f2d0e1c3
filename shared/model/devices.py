"""Devices that pods claim (dynamic resource allocation, ``resource.k8s.io/v1``): slices, classes, claims, allocations.

Only what the rules read. Amounts are exact, in billionths (``nanos``), since a capacity may be ``500m``. Names of
attributes and capacities are as their driver wrote them, with or without its own domain before the slash.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct

from shared.model.constraints import SelectorTerm

MOST_RESULTS = 32
"""Devices that one claim may be given (``AllocationResultsMaxSize``)."""

NANO = 10**9

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@lru_cache(maxsize=4096)
def nanos_of(text: str) -> int:
    """A quantity in billionths, what is smaller rounded up. Raises ``ValueError`` for text that is no quantity."""
    match = _QUANTITY.fullmatch(text)
    if match is None or not (match["whole"] or match["fraction"]):
        raise ValueError(f"{text[:64]!r} is not a quantity such as 500m, 2, 1.5Gi or 1e3")
    fraction, suffix = match["fraction"] or "", match["suffix"] or ""
    numerator, exponent = int((match["whole"] or "0") + fraction), 9 - len(fraction)
    if suffix in _BINARY:
        numerator <<= _BINARY[suffix]
    else:
        exponent += _DECIMAL[suffix] + int(match["exponent"] or 0)
    scale: int = 10 ** abs(exponent)
    value = numerator * scale if exponent >= 0 else -(-numerator // scale)
    return -value if match["sign"] == "-" else value


def quantity_text(nanos: int) -> str:
    """An amount as a quantity; exact."""
    whole, rest = divmod(nanos, NANO)
    if rest:
        for suffix, size in (("m", NANO // 10**3), ("u", NANO // 10**6), ("n", 1)):
            if nanos % size == 0:
                return f"{nanos // size}{suffix}"
    for suffix, bits in reversed(_BINARY.items()):
        if whole and whole % (1 << bits) == 0:
            return f"{whole >> bits}{suffix}"
    return str(whole)


class DeviceAttribute(Struct, frozen=True, gc=False):
    """``kind``: int, bool, string or version; ints, bools, strings or versions for a list of them."""

    kind: str
    value: int | bool | str | tuple[int, ...] | tuple[bool, ...] | tuple[str, ...]


class RequestPolicy(Struct, frozen=True, gc=False):
    """How a request for a capacity is rounded and bounded, in nanos. ``values``: the valid ones, ascending."""

    default: int | None = None
    values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None
    ranged: bool = False


class Capacity(Struct, frozen=True, gc=False):
    """What a device has of one thing, in nanos."""

    value: int
    policy: RequestPolicy | None = None


class DeviceTaint(Struct, frozen=True, gc=False):
    """``effect`` is None, NoSchedule or NoExecute; only the last two bar."""

    key: str
    value: str = ""
    effect: str = ""


class DeviceToleration(Struct, frozen=True, gc=False):
    """As of pods: an empty key or effect tolerates any."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class Reach(Struct, frozen=True, gc=False):
    """Which nodes reach a slice or a device: one by name, all, or those that a selector matches."""

    node_name: str = ""
    all_nodes: bool = False
    terms: tuple[SelectorTerm, ...] | None = None

    @property
    def said(self) -> bool:
        """Whether any of the three is given."""
        return bool(self.node_name) or self.all_nodes or self.terms is not None


Counters = tuple[tuple[str, int], ...]
"""(name, nanos), sorted."""


class Device(Struct, frozen=True, gc=False):
    """``consumes``: (counter set, counters) that it takes from its pool while it is used. ``shareable``: may be given
    to several (``allowMultipleAllocations``). ``bound_on``: conditions to await before the pod is bound (None: the
    field is absent, which an empty list is not); ``failed_on``: those that say it never will be."""

    name: str
    attributes: tuple[tuple[str, DeviceAttribute], ...] = ()
    capacity: tuple[tuple[str, Capacity], ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    consumes: tuple[tuple[str, Counters], ...] = ()
    shareable: bool = False
    binds_to_node: bool = False
    bound_on: tuple[str, ...] | None = None
    failed_on: tuple[str, ...] = ()
    reach: Reach = Reach()


class DeviceSlice(Struct, frozen=True, gc=False):
    """Part of a pool. ``count``: how many slices of its generation make the pool whole. ``per_device``: each device
    says which nodes reach it. ``counter_sets``: (name, counters) shared by the devices of the whole pool."""

    name: str
    driver: str
    pool: str
    generation: int = 0
    count: int = 1
    reach: Reach = Reach()
    per_device: bool = False
    devices: tuple[Device, ...] = ()
    counter_sets: tuple[tuple[str, Counters], ...] = ()


class DeviceClass(Struct, frozen=True, gc=False):
    """``selectors``: CEL expressions that all hold. ``config``: opaque, for drivers. ``created``: RFC 3339."""

    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[dict[str, Any], ...] = ()
    extended_resource: str = ""
    created: str = ""


class TaintRule(Struct, frozen=True, gc=False):
    """A DeviceTaintRule: adds ``taint`` to the devices it selects. ``selects`` None: it has no selector and matches
    nothing; an empty text in (driver, pool, device) matches any."""

    name: str
    taint: DeviceTaint
    selects: tuple[str, str, str] | None = None


class DeviceAsk(Struct, frozen=True, gc=False):
    """What one request, or one alternative of it, wants. ``mode``: ExactCount or All. ``capacity``: (name, nanos)."""

    name: str
    class_name: str
    selectors: tuple[str, ...] = ()
    mode: str = "ExactCount"
    count: int = 1
    admin: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: tuple[tuple[str, int], ...] = ()


class DeviceRequest(Struct, frozen=True, gc=False):
    """Either ``exactly`` or ``alternatives``, the first of which that can be had is taken."""

    name: str
    exactly: DeviceAsk | None = None
    alternatives: tuple[DeviceAsk, ...] = ()

    @property
    def asks(self) -> tuple[DeviceAsk, ...]:
        """All of them."""
        return (self.exactly,) if self.exactly is not None else self.alternatives


class AttributeConstraint(Struct, frozen=True, gc=False):
    """Devices of ``requests`` (all of the claim, where empty) share the value of ``attribute``, or differ in it."""

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()


class AllocatedDevice(Struct, frozen=True, gc=False):
    """One device given to a claim. ``request``: ``name`` or ``name/alternative``. ``consumed``: (capacity, nanos).
    ``share``: tells users of a shared device apart; "" for one that is not."""

    request: str
    driver: str
    pool: str
    device: str
    admin: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    bound_on: tuple[str, ...] = ()
    failed_on: tuple[str, ...] = ()
    share: str = ""
    consumed: tuple[tuple[str, int], ...] = ()

    @property
    def id(self) -> tuple[str, str, str]:
        """(driver, pool, device)."""
        return self.driver, self.pool, self.device


class Allocation(Struct, frozen=True, gc=False):
    """What a claim was given. ``terms`` None: usable on every node. ``at``: seconds since the epoch, None where it is
    not known. ``config``: for drivers, as in the API."""

    results: tuple[AllocatedDevice, ...] = ()
    terms: tuple[SelectorTerm, ...] | None = None
    at: float | None = None
    config: tuple[dict[str, Any], ...] = ()


class DeviceClaim(Struct, frozen=True, gc=False):
    """A ResourceClaim. ``owner``: uid of the object that controls it. ``reserved_for``: uids of its consumers.
    ``conditions``: (driver, pool, device) to the conditions of that device by type, with their status. ``config``:
    (requests, opaque). ``for_extended``: made by a scheduler for extended resources. ``problem``: a request or
    constraint of it that nobody here understands. ``protected``: it has the finalizer that keeps it while it is
    allocated."""

    namespace: str
    name: str
    uid: str = ""
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[AttributeConstraint, ...] = ()
    config: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = ()
    owner: str = ""
    deleting: bool = False
    for_extended: bool = False
    allocation: Allocation | None = None
    reserved_for: tuple[str, ...] = ()
    conditions: dict[tuple[str, str, str], dict[str, str]] = {}
    resource_version: str = ""
    problem: str = ""
    protected: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Consumer(NamedTuple):
    """Whom a claim is reserved for: a pod, or a pod group (Kubernetes' own) for all of its members."""

    name: str
    uid: str
    group: bool = False


class ClaimRef(Struct, frozen=True, gc=False):
    """An entry of a pod's ``spec.resourceClaims``, or of its pod group's: the claim by name, or one made from a
    ``template``, whose name the status tells. ``claim`` None: not made yet; "": none was needed. ``holder``: the pod
    group that has the claim for all of its members; None: the pod has it for itself."""

    name: str
    claim: str | None = None
    template: str | None = None
    sourceless: bool = False
    holder: Consumer | None = None


class ContainerAsk(Struct, frozen=True, gc=False):
    """What a container requests, as (resource, whole units). ``ends``: an init container that is no sidecar."""

    name: str
    requests: tuple[tuple[str, int], ...] = ()
    ends: bool = False


class Mapped(NamedTuple):
    """Which request of a claim serves which container's resource."""

    container: str
    resource: str
    request: str


class ExtendedClaim(Struct, frozen=True, gc=False):
    """What a pod's status tells of the claim that was made for its extended resources."""

    name: str
    mapped: tuple[Mapped, ...] = ()


class DevicePod(Struct, frozen=True, gc=False):
    """A pod as the rules about devices see it. ``containers``: init containers first. ``requests``: of all together."""

    namespace: str
    name: str
    uid: str
    claims: tuple[ClaimRef, ...] = ()
    containers: tuple[ContainerAsk, ...] = ()
    requests: tuple[tuple[str, int], ...] = ()
