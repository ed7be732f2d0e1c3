"""Which of pods' extended resources device classes stand for, as classes come and go.

A pod's class of equals says so (``PodClass.by_class``), so that every rule about amounts leaves those to the device
class on nodes that offer none. Worked out once for pods that request the same; pods that wait are described anew where
a class changed what it stands for (``take_remapped``).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from shared.model.constraints import PodClass
from shared.model.devices import ContainerAsk, DeviceClass
from shared.model.resources import IMPLICIT_DEVICE_CLASS, is_extended
from shared.scheduling.devices.extended import class_of

MOST = 4096
"""Kinds of pods that are remembered; when full, all are forgotten."""


class BackedResources:
    """See the module. ``classes``: those there are, by name."""

    def __init__(self, classes: Mapping[str, DeviceClass]) -> None:
        self._classes = classes
        self._known: dict[PodClass, PodClass] = {}
        self._numbers: dict[tuple[ContainerAsk, ...], int] = {}
        self._numbered = 0
        self._remapped: set[str] = set()

    def class_changed(self, before: DeviceClass | None, after: DeviceClass | None) -> None:
        """A class came (``before`` None), changed or went (``after`` None)."""
        said = [(one.extended_resource, one.created) if one is not None else None for one in (before, after)]
        if said[0] == said[1]:
            return
        self._known.clear()
        for one in (before, after):
            if one is not None:
                self._remapped |= {IMPLICIT_DEVICE_CLASS + one.name, one.extended_resource} - {""}

    def take_remapped(self) -> set[str]:
        """The extended resources that classes stand for in another way since this was last asked."""
        remapped, self._remapped = self._remapped, set()
        return remapped

    def marked(self, pod_class: PodClass) -> PodClass:
        """The class with what of its requests device classes stand for; itself where that is what it says already."""
        known = self._known.get(pod_class)
        if known is None:
            if len(self._known) >= MOST:
                self._known.clear()
            names = (name for name, _ in pod_class.requests if is_extended(name))
            by_class = tuple(name for name in names if class_of(name, self._classes) is not None)
            known = pod_class if pod_class.by_class == by_class else replace(pod_class, by_class=by_class)
            self._known[pod_class] = known
        return known

    def number(self, containers: tuple[ContainerAsk, ...]) -> int:
        """A number below 0 for what these containers request; never that of others."""
        if len(self._numbers) >= MOST:
            self._numbers.clear()
        if containers not in self._numbers:
            self._numbered += 1
            self._numbers[containers] = -self._numbered
        return self._numbers[containers]
