"""A service graph for tests of autoscaling policies: one service ``web``, pods that each request one core."""

from __future__ import annotations

from typing import Any

from shared.autoscaling.observation import Bounds, Policy, ScalingObservation, ServiceObservation


def web(replicas: int, *, cpu: float | None = None, **fields: Any) -> ServiceObservation:
    """All replicas ready, ``cpu`` cores used by each on average."""
    given: dict[str, Any] = {
        "replicas": replicas,
        "ready": replicas,
        "bounds": Bounds(1, 50),
        "requests": {"cpu": 1.0},
        "usage": {"cpu": cpu},
    }
    return ServiceObservation(**{**given, **fields})


def moment(now: float, **services: ServiceObservation) -> ScalingObservation:
    """What is seen at ``now``."""
    return ScalingObservation(now=now, services=services)


def asked(policy: Policy, now: float, service: ServiceObservation) -> int | None:
    """What ``policy`` wants of ``web``; None: it does not say."""
    return policy.decide(moment(now, web=service)).get("web")
