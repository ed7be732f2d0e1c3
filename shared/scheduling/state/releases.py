"""By which release of kube-scheduler rules answer where releases differ: about an empty label selector, and devices.

policy/v1 and core/v1 say of ``{}``: it selects all pods of the namespace. kube-scheduler did otherwise until 1.38: a
PodDisruptionBudget with ``{}``, and any budget over pods without labels, protected nobody from preemption
(kubernetes#141785), and a spread constraint with ``{}`` counted nobody (kubernetes#141339). What an affinity term's
namespaceSelector without a wanted label means is decided with it (``Namespaces.release``). What of claims for devices
was mended since 1.36 is told where it is decided (``devices/allocator.py``, ``pools.py``, ``constraints.py``,
``capacity.py``; ``tests/unit/shared/scheduling/devices/test_releases.py`` has one test for each).
"""

from __future__ import annotations

from enum import StrEnum


class Release(StrEnum):
    """A minor release. The mesh decides by the newest, whatever the cluster runs: no budget is broken unawares."""

    V1_36 = "1.36"
    V1_38 = "1.38"
