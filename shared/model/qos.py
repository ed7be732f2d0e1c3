"""The QoS class of a pod, for online and offline in one pool, and the resources that are lent to offline pods."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

CPU_NAMES = ("batch-cpu", "reclaimed_millicpu")
MEMORY_NAMES = ("batch-memory", "reclaimed_memory")
"""What comes after the domain in the names of lent resources: of Koordinator, Volcano's agent and us (``kubernetes.io``
or a domain of the cluster's own), and of Katalyst. Milli-cores and bytes, whole numbers all."""

LENT_DOMAIN = "kubernetes.io"
KATALYST_DOMAIN = "resource.katalyst.kubewharf.io"


class Qos(StrEnum):
    """Which side of the pool a pod is on. From the one that gives way to the one that is protected most."""

    OFFLINE = "offline"
    """Runs on what online pods leave, and gives way to them."""
    ONLINE = "online"
    """What every pod is that says nothing."""
    SYSTEM = "system"
    """Of the node's own running: counts like an online pod, and is part of no trade."""
    EXCLUSIVE = "exclusive"
    """Online on CPUs of its own: what it requests of CPU is never lent, used or not."""


PROTECTION = {qos: rank for rank, qos in enumerate(Qos)}
"""Of two that a pod claims at once the greater counts: it is never evicted, nor its room lent, by mistake."""


def lent_cpu(domain: str = LENT_DOMAIN) -> str:
    """The name under which CPU is lent, in milli-cores."""
    return f"{domain}/{CPU_NAMES[0]}"


def lent_memory(domain: str = LENT_DOMAIN) -> str:
    """The name under which memory is lent, in bytes."""
    return f"{domain}/{MEMORY_NAMES[0]}"


def differ_in_lent_alone(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Whether a node names the same resources and has as much of each, but for how much it lends."""
    return before.keys() == after.keys() and all(
        before[name] == amount or is_lent(name) for name, amount in after.items()
    )


def is_lent(resource: str) -> bool:
    """Whether it is a resource that is lent, by whoever lends it."""
    domain, _, name = resource.partition("/")
    if name in (CPU_NAMES[1], MEMORY_NAMES[1]):
        return domain == KATALYST_DOMAIN
    return name in (CPU_NAMES[0], MEMORY_NAMES[0])
