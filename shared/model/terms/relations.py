"""What a pod demands beyond the node itself: other pods, topology domains and volumes.

Apart from ``PodClass`` on purpose: a class is judged by agents and the binder from the node alone, and most pods have
none of this. The coordinator turns relations into masks and scores over nodes, or small tables per domain.
"""

from __future__ import annotations

from msgspec import Struct

from shared.model.terms.labels import LabelSelector


class AffinityTerm(Struct, frozen=True, array_like=True, gc=False):
    """Pods of ``namespaces``, or of namespaces that ``namespace_selector`` matches, which ``selector`` matches, in the
    same domain of ``topology_key``. ``namespaces`` holds the pod's own where the spec names neither."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class WeightedTerm(Struct, frozen=True, array_like=True, gc=False):
    """``weight`` 1-100 for preferring, -1 to -100 for avoiding."""

    weight: int
    term: AffinityTerm


class SpreadConstraint(Struct, frozen=True, array_like=True, gc=False):
    """Pods that ``selector`` matches differ by at most ``max_skew`` between domains of ``topology_key``.

    ``hard``: DoNotSchedule. ``honor_affinity`` and ``honor_taints``: nodes that the pod's node affinity or an
    untolerated taint excludes are no part of any domain.
    """

    max_skew: int
    topology_key: str
    hard: bool
    selector: LabelSelector | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class ClaimUse(Struct, frozen=True, array_like=True, gc=False):
    """A volume by claim ``name``; ``ephemeral``: the claim is made for this pod."""

    name: str
    ephemeral: bool = False


class DiskUse(Struct, frozen=True, array_like=True, gc=False):
    """A disk named in the pod itself, usable by one pod per node unless all read only. ``kind``: gce, ebs, iscsi or
    rbd; ``monitors`` (rbd): two disks are the same only if they share one."""

    kind: str
    identity: tuple[str, ...]
    read_only: bool = False
    monitors: tuple[str, ...] = ()


class Relations(Struct, frozen=True, array_like=True, gc=False):
    """All demands of one pod; ``preferences`` are preferred affinity (positive) and anti-affinity (negative)."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferences: tuple[WeightedTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    claims: tuple[ClaimUse, ...] = ()
    disks: tuple[DiskUse, ...] = ()


NO_RELATIONS = Relations()
