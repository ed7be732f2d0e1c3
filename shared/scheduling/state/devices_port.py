"""What a ``ClusterState`` needs to know of whoever keeps devices and claims for it (``devices/claimed.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from shared.model.pod import Pod

DEVICE_KINDS = frozenset({"resourceclaims", "resourceslices", "deviceclasses", "devicetaintrules"})
"""The kinds that it keeps."""


class KeepsDevices(Protocol):
    """Slices, classes and claims, and what is assumed of claims. ``version`` counts all changes of any of it."""

    version: int

    def put(self, kind: str, key: str, item: object) -> object | None:
        """Take over one object as it is now; what it was before, None if it is new."""
        ...

    def drop(self, kind: str, key: str) -> None:
        """It is gone; an unknown key is fine."""
        ...

    def assume(self, pod: Pod, node_name: str, now: float) -> str:
        """Count the pod's claims as given to it on the node. Why that cannot be ("": it is done)."""
        ...

    def forget(self, uid: str) -> None:
        """The pod is placed no more: what was assumed for it is free, but for what may have been written."""
        ...

    def described(self, pod: Pod) -> Pod:
        """The pod with what its claims ask, and its extended resources of device classes: for the rules."""
        ...

    def alike(self, pod: Pod) -> tuple[int | str, ...]:
        """What tells the pod's claims, as they are now, from those of others for the rules."""
        ...

    def has_devices(self, key: str) -> bool:
        """Whether the claim was given devices, or is about to be."""
        ...

    def validate(self) -> Iterator[str]:
        """What is broken of claims."""
        ...
