"""What a pod asks of nodes beyond resources and selectors, and what nodes say of it: features, latency, and what of
its annotations we cannot honour. Pure; a bad value is refused by name (``ObjectError``).

Features: kube-scheduler 1.36 plugin NodeDeclaredFeatures (``component-helpers/nodedeclaredfeatures``). Latency to the
users comes from annotations, all in milliseconds: a node says how far it is (``conclave.io/latency-ms``), a pod what it
would like and what it bears (``latencySoftConstraint``, ``latencyHardConstraint``), to whom
(``conclave.io/latency-target``), and whether it rather waits than goes beyond (``conclave.io/latency-limit``);
Kubernetes has no field for any of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.model.features import DECIDING_FEATURES, HOST_USERS, RESTART_ALL
from shared.model.node import LATENCY_ANNOTATION, UNKNOWN_LATENCY
from shared.model.pod import (
    LATENCY_HARD_ANNOTATION,
    LATENCY_LIMIT_ANNOTATION,
    LATENCY_SOFT_ANNOTATION,
    LATENCY_TARGET_ANNOTATION,
)


def needed_features(spec: api.PodSpec) -> tuple[str, ...]:
    """What a node must declare to run a pod of this spec, sorted."""
    needed = []
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    if any(rule.action == "RestartAllContainers" for c in containers for rule in c.restart_policy_rules or ()):
        needed.append(RESTART_ALL)
    if spec.host_network and spec.host_users is False:
        needed.append(HOST_USERS)
    return tuple(needed)


def declared_features(status: api.NodeStatus) -> tuple[str, ...]:
    """What the node declares of all that some pod may need, sorted."""
    return tuple(sorted(DECIDING_FEATURES.intersection(status.declared_features or ())))


FOREIGN_SHARES = ("gpu-fraction", "gpu-memory")
"""Annotations by which KAI's pods ask for a part of a GPU. KAI hands the device out itself, by a pod that reserves it:
a pod placed by anybody else would start without one."""


def foreign_share(annotations: Mapping[str, str]) -> str:
    """What of a pod's annotations we cannot honour, for people; "" for nothing."""
    for name in FOREIGN_SHARES if annotations else ():
        if name in annotations:
            return (
                f"the annotation {name}, a share of a GPU that KAI alone hands out (docs/gpus.md says how to ask here)"
            )
    return ""


MAX_LATENCY_US = 3_600_000_000
"""An hour: a latency above it is a mistake of units."""

_MILLISECONDS = re.compile(r"[0-9]{1,7}(\.[0-9]{1,6})?")


def node_latency(meta: api.ObjectMeta) -> int:
    """The node's latency in microseconds, ``UNKNOWN_LATENCY`` without the annotation. Raises ``ObjectError``."""
    return _latency_us(meta, LATENCY_ANNOTATION, absent=UNKNOWN_LATENCY)


def latency_limits(meta: api.ObjectMeta) -> tuple[int, int]:
    """(soft, hard) in microseconds, 0 where the pod names none. Raises ``ObjectError`` naming the annotation."""
    if not meta.annotations:
        return 0, 0
    soft = _latency_us(meta, LATENCY_SOFT_ANNOTATION, absent=0)
    hard = _latency_us(meta, LATENCY_HARD_ANNOTATION, absent=0)
    if soft and hard and soft > hard:
        raise ObjectError(
            f"{soft / 1000:g} ms is above {LATENCY_HARD_ANNOTATION}, {hard / 1000:g} ms; lower it or raise that",
            field=f"metadata.annotations[{LATENCY_SOFT_ANNOTATION}]",
        )
    return soft, hard


STRICT, PREFERRED = "strict", "preferred"


def latency_strict(meta: api.ObjectMeta) -> bool:
    """Whether the pod waits rather than goes beyond its hard limit. Raises ``ObjectError``."""
    text = (meta.annotations or {}).get(LATENCY_LIMIT_ANNOTATION)
    if text is None or text == PREFERRED:
        return False
    field = f"metadata.annotations[{LATENCY_LIMIT_ANNOTATION}]"
    if text != STRICT:
        raise ObjectError(f"{text[:64]!r} is neither {STRICT} nor {PREFERRED}; give one of them", field=field)
    if LATENCY_HARD_ANNOTATION not in (meta.annotations or {}):
        raise ObjectError(f"{STRICT} needs {LATENCY_HARD_ANNOTATION}; give the milliseconds that it bears", field=field)
    return True


def latency_demands(meta: api.ObjectMeta) -> tuple[int, int, str, bool]:
    """(soft, hard, target, strict): all that the pod says of latency. Raises ``ObjectError``."""
    if not meta.annotations:
        return NO_LATENCY
    return *latency_limits(meta), latency_target(meta), latency_strict(meta)


NO_LATENCY = 0, 0, "", False

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def latency_target(meta: api.ObjectMeta) -> str:
    """The LatencyTarget that the pod names; "" without the annotation. Raises ``ObjectError``."""
    name = (meta.annotations or {}).get(LATENCY_TARGET_ANNOTATION)
    if name is None:
        return ""
    if _NAME.fullmatch(name) is None:
        raise ObjectError(
            f"{name[:64]!r} is no name of a LatencyTarget; give one such as branch-office",
            field=f"metadata.annotations[{LATENCY_TARGET_ANNOTATION}]",
        )
    return name


def _latency_us(meta: api.ObjectMeta, annotation: str, *, absent: int) -> int:
    """The milliseconds an annotation gives, as microseconds of at least 1; ``absent`` without it."""
    text = (meta.annotations or {}).get(annotation)
    if text is None:
        return absent
    match = _MILLISECONDS.fullmatch(text.strip())
    latency_us = max(1, round(float(text) * 1000)) if match is not None else 0
    if not 1 <= latency_us <= MAX_LATENCY_US:
        raise ObjectError(
            f"{text[:64]!r} is no latency; give milliseconds such as 20 or 12.5, at most 3600000",
            field=f"metadata.annotations[{annotation}]",
        )
    return latency_us
