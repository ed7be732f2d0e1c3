"""What an offline pod says of giving way, read from its owner, labels and annotations. Pure.

A value that cannot be read counts as not said, and is named in ``OfflineTerms.doubt``: the pod runs, and must be
counted as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from shared.kube.objects import ObjectMeta
from shared.model.offline import (
    CHECKPOINT_ANNOTATION,
    EVICTION_LABEL,
    GIVE_WAY,
    INTERVAL_ANNOTATION,
    MIN_RUNTIME_ANNOTATION,
    RESTART_ANNOTATION,
    OfflineTerms,
)
from shared.model.pod import PREEMPTIBLE_ANNOTATION

SAID = (CHECKPOINT_ANNOTATION, INTERVAL_ANNOTATION, RESTART_ANNOTATION, MIN_RUNTIME_ANNOTATION)

MOST_S = 30 * 86_400.0
"""A restart or a least run time above 30 days is none."""

LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""What is later is no time: with its zone's hours it may be of a year that cannot be written."""

NODES_OWN = "Node"
"""Kind of the owner of a mirror pod, which the kubelet runs whatever the API server says."""

COMMON = {returns: OfflineTerms(returns) for returns in (False, True)}
"""Of pods that say nothing more, as nearly all do."""


def offline_terms_of(meta: ObjectMeta, owner: tuple[str, str, str], marked: str = "") -> OfflineTerms:
    """The terms of an offline pod. ``owner``: (apiVersion, kind, name) of its controller, empty where it has none;
    ``marked``: why it is a victim, as its condition says."""
    annotations, labels = meta.annotations or {}, meta.labels or {}
    returns = _returns(annotations.get(PREEMPTIBLE_ANNOTATION), labels.get(EVICTION_LABEL), owner)
    gives_way = marked.endswith(GIVE_WAY)
    if annotations.keys().isdisjoint(SAID) and not gives_way:
        return COMMON[returns]
    saved, no_time = _time(annotations, CHECKPOINT_ANNOTATION)
    restart_s, no_restart = _seconds(annotations, RESTART_ANNOTATION)
    min_runtime_s, no_runtime = _seconds(annotations, MIN_RUNTIME_ANNOTATION)
    saves_every_s, no_interval = _seconds(annotations, INTERVAL_ANNOTATION)
    doubt = "; ".join(filter(None, (no_time, no_interval, no_restart, no_runtime)))
    return OfflineTerms(
        returns, saved or 0.0, restart_s or 0.0, saves_every_s, min_runtime_s, doubt, gives_way=gives_way
    )


def _returns(preemptible: str | None, eviction: str | None, owner: tuple[str, str, str]) -> bool:
    if owner[1] == NODES_OWN or "false" in (preemptible, eviction):
        return False
    return owner[1] != "" or "true" in (preemptible, eviction)


def _time(annotations: Mapping[str, str], name: str) -> tuple[float | None, str]:
    text = annotations.get(name)
    if text is None:
        return None, ""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None and 0 < (at := found.timestamp()) < LATEST:
            return at, ""
    except (ValueError, OverflowError):
        pass
    return None, f"metadata.annotations[{name}]: {text[:64]!r} is no time; write for instance 2026-11-29T01:00:00Z"


def _seconds(annotations: Mapping[str, str], name: str) -> tuple[float | None, str]:
    text = annotations.get(name)
    if text is None:
        return None, ""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if 0 <= found <= MOST_S:  # not so for a NaN
        return found, ""
    return None, f"metadata.annotations[{name}]: {text[:64]!r} is no number of seconds from 0 to {MOST_S:.0f}"
