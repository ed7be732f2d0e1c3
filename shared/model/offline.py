"""What an offline pod says of giving way: whether it may, since when its work is saved, what it costs to begin anew."""

from __future__ import annotations

from msgspec import Struct

CHECKPOINT_ANNOTATION = "conclave.io/last-checkpoint"
"""On an offline pod: when it saved its work last, RFC 3339 with a zone ("2026-11-29T01:00:00Z")."""

INTERVAL_ANNOTATION = "conclave.io/checkpoint-interval-seconds"
"""On an offline pod: how often it saves its work at the least, so that no more is lost. Pods of a TrainingJob bear it.
"""

RESTART_ANNOTATION = "conclave.io/restart-seconds"
"""On an offline pod: how long it works in vain when it begins anew, before it goes on."""

MIN_RUNTIME_ANNOTATION = "conclave.io/min-runtime-seconds"
"""On an offline pod: for so long after its start it does not give way, in place of ``offline_min_runtime_s``."""

EVICTION_LABEL = "koordinator.sh/eviction-enabled"
"""On a pod, as Koordinator reads it: "true": it may be evicted, "false": it may not."""

GIVE_WAY = "offline pods give way: less is lent on the node than they hold"
"""How its DisruptionTarget condition ends where it was asked to leave since less is lent."""


class OfflineTerms(Struct, frozen=True, gc=False):
    """``returns``: it may be evicted, since a controller makes it anew, or it says so. ``saved``: when it saved its
    work last, seconds since 1970; 0.0: it does not say. ``restart_s``: what beginning anew costs. ``saves_every_s``: no
    more than that is lost beside; None: it may be. ``min_runtime_s``: it does not give way sooner; None: the setting
    says. ``doubt``: what of this cannot be read, and counts as not said. ``lowered``: by a setting, the pod stands one
    below its priority, so that online ones of the same go before it. ``gives_way``: it was asked to leave since less is
    lent, as its mark says.
    """

    returns: bool = False
    saved: float = 0.0
    restart_s: float = 0.0
    saves_every_s: float | None = None
    min_runtime_s: float | None = None
    doubt: str = ""
    lowered: bool = False
    gives_way: bool = False
