"""Latency to the users, from the annotations of pods and nodes. Pure; a bad value is refused by name (``ObjectError``).

A node says how far it is (``conclave.io/latency-ms``), a pod what it would like and what it bears
(``latencySoftConstraint``, ``latencyHardConstraint``), all in milliseconds. Kubernetes has no field for either.
"""

from __future__ import annotations

import re

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.model.node import LATENCY_ANNOTATION, UNKNOWN_LATENCY
from shared.model.pod import LATENCY_HARD_ANNOTATION, LATENCY_SOFT_ANNOTATION

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
