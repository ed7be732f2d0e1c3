"""A service's readings as bounded numbers, without any estimate: what the learned baselines see (``dqn``, ``aware``).

A reading that is missing is 0 and told by ``missing``. Rates are logarithms, so that no largest rate need be known.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, log1p

import numpy as np
from numpy.typing import NDArray

from shared.autoscaling.networks.features import CLIP, HOLD, STEPS, Floats
from shared.autoscaling.observation import ScalingObservation, ServiceObservation

READINGS = (
    "replicas", "ready", "starting", "pending", "cpu", "memory", "arrivals", "change", "served", "latency", "missing",
)  # fmt: skip
LOG_SCALE = 7.0
"""log1p of a thousand requests per second."""


class RawEyes:
    """Readings and bounds of one graph; remembers the arrivals of the decision before."""

    def __init__(self) -> None:
        self._arrivals: dict[str, float] = {}
        self.replicas: dict[str, int] = {}

    def reset(self) -> None:
        """Forget everything."""
        self._arrivals.clear()

    def look(self, seen: ScalingObservation) -> tuple[Floats, NDArray[np.bool_]]:
        """(readings float32 [services, ``READINGS``] within +-``CLIP``, which steps are within the bounds bool
        [services, steps]), in the order of ``seen.services``."""
        rows = [self._row(name, one, seen.latency_objective_s) for name, one in seen.services.items()]
        self.replicas = {name: one.replicas for name, one in seen.services.items()}
        found: Floats = np.clip(np.array(rows), -CLIP, CLIP).astype(np.float32)
        return found, np.array([_allowed(one) for one in seen.services.values()])

    def wanted(self, steps: NDArray[np.int64]) -> dict[str, int]:
        """Replicas by service, for the index of each one's step."""
        taken = zip(self.replicas.items(), steps.tolist(), strict=True)
        return {name: replicas + STEPS[at] for (name, replicas), at in taken}

    def _row(self, name: str, one: ServiceObservation, objective_s: float | None) -> tuple[float, ...]:
        most = max(one.bounds.maximum, 1)
        arrivals = number(one.arrivals)
        before = self._arrivals.get(name, arrivals)
        self._arrivals[name] = arrivals
        return (
            one.replicas / most,
            one.ready / most,
            one.starting / most,
            one.pending / most,
            used(one, "cpu"),
            used(one, "memory"),
            log1p(arrivals) / LOG_SCALE,
            log1p(arrivals) - log1p(before),
            min(number(one.served) / arrivals, 1.0) if arrivals > 0 else 1.0,
            number(one.latency_s) / objective_s if objective_s else 0.0,
            float(one.arrivals is None or one.served is None),
        )


def used(one: ServiceObservation, resource: str) -> float:
    """Mean use over what a pod requests; 0 where either is not known."""
    asked = one.requests.get(resource, 0.0)
    return number(one.usage.get(resource)) / asked if asked > 0 else 0.0


def number(value: float | None) -> float:
    """0 for what is missing, negative or no number."""
    return value if value is not None and isfinite(value) and value >= 0 else 0.0


def held(wanted: Mapping[str, int], seen: ScalingObservation) -> dict[str, int]:
    """The same, but that nothing is taken from a service without readings."""
    return {
        name: max(count, one.replicas) if (one := seen.services[name]).arrivals is None or one.served is None else count
        for name, count in wanted.items()
    }


def _allowed(one: ServiceObservation) -> list[bool]:
    found = [one.bounds.minimum <= one.replicas + step <= one.bounds.maximum for step in STEPS]
    if not any(found):
        found[HOLD] = True
    return found
