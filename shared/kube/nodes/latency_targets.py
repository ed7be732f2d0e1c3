"""LatencyTarget objects (``conclave.io/v1alpha1``): what users name whose latency matters to pods. Pure.

A target is a TCP port that every node's agent tries, or a region: then the delay to the nodes of that region stands for
it, as agents' probes of each other have it, and nothing is tried. One that cannot be used raises ``ObjectError`` naming
the field.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

from shared.errors import ObjectError
from shared.kube.objects import Json, ObjectMeta
from shared.kube.resources import Resource

DEFAULT_EVERY_S = 10.0
LEAST_EVERY_S, MOST_EVERY_S = 1.0, 3600.0
_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.:]{0,250}[A-Za-z0-9])?\.?")
"""With its last dot no longer than a text of the wire: a longer one made agents refuse the leader's whole answer."""


class LatencyTargetSpec(Json, frozen=True):
    host: Any = None
    port: Any = None
    service: Any = None
    region: Any = None
    every_seconds: Any = None


class LatencyTargetObject(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: LatencyTargetSpec = field(default_factory=LatencyTargetSpec)
    status: Any = None
    """As it stands: the leader's own, read back so that it writes only what has changed."""


LATENCY_TARGETS = Resource("LatencyTarget", "conclave.io", "v1alpha1", "latencytargets", False, LatencyTargetObject)


class LatencyTarget(Struct, frozen=True):
    """``region``: of the nodes meant, by their label topology.kubernetes.io/region; else ``host`` and ``port``."""

    name: str
    host: str = ""
    port: int = 0
    every_s: float = DEFAULT_EVERY_S
    region: str = ""


def latency_target_from_api(item: LatencyTargetObject) -> LatencyTarget:
    """The target. Raises ``ObjectError``."""
    name, spec = item.metadata.name, item.spec
    given = [what for what in ("host", "service", "region") if getattr(spec, what) is not None]
    if len(given) != 1:
        raise _refused("", f"names {' and '.join(given) or 'nothing'}; give one of host, service, region")
    every_s = _every(spec.every_seconds)
    if spec.region is not None:
        if not isinstance(spec.region, str) or not 0 < len(spec.region) <= 63:
            raise _refused("region", "must be a value of the nodes' label topology.kubernetes.io/region")
        return LatencyTarget(name, region=spec.region, every_s=every_s)
    if spec.service is not None:
        host, port = _service(spec.service)
        return LatencyTarget(name, host, port, every_s)
    if not isinstance(spec.host, str) or _HOST.fullmatch(spec.host) is None:
        raise _refused("host", "must be a host name or an IP address")
    return LatencyTarget(name, spec.host, _port("port", spec.port), every_s)


def _service(service: Any) -> tuple[str, int]:
    """(host, port) under which a Service is reached from inside its cluster."""
    if not isinstance(service, dict):
        raise _refused("service", "must have namespace, name and port")
    names = [service.get(key) for key in ("name", "namespace")]
    if not all(isinstance(name, str) and re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in names):
        raise _refused("service", "must have the namespace and name of a Service")
    return f"{names[0]}.{names[1]}.svc", _port("service.port", service.get("port"))


def _port(where: str, port: Any) -> int:
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= 65535:
        raise _refused(where, "must be a TCP port, 1 to 65535")
    return port


def _every(seconds: Any) -> float:
    if seconds is None:
        return DEFAULT_EVERY_S
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise _refused("everySeconds", "must be a number of seconds")
    if not LEAST_EVERY_S <= seconds <= MOST_EVERY_S:
        raise _refused("everySeconds", f"must be from {LEAST_EVERY_S:g} to {MOST_EVERY_S:g}")
    return float(seconds)


def _refused(name: str, why: str) -> ObjectError:
    return ObjectError(why, field=f"spec.{name}" if name else "spec")
