"""What one schedulerName decides by where it differs from the default: filters left out, weights, arguments, a policy.

It is part of a pod's class (``PodClass.profile``), so it travels with the work, and whoever judges the class judges by
it; a class of the default profile has none. The words and their meaning are those of kube-scheduler 1.36's ``Profile``
and plugin arguments. These structs travel in offers as msgpack arrays: append fields with defaults, never reorder.
"""

from __future__ import annotations

from msgspec import Struct

from shared.model.terms.selector_terms import PreferredTerm, SelectorTerm


class Weighted(Struct, frozen=True, array_like=True, gc=False):
    """A resource, and what it counts in a mean."""

    name: str
    weight: int = 1


class ShapePoint(Struct, frozen=True, array_like=True, gc=False):
    """At this share of use, in percent, a node is worth so much, 0 to 100."""

    utilization: int
    score: int


class FitScoring(Struct, frozen=True, array_like=True, gc=False):
    """How NodeResourcesFit scores: ``strategy`` LeastAllocated, MostAllocated or RequestedToCapacityRatio, the last by
    ``shape``."""

    strategy: str
    resources: tuple[Weighted, ...]
    shape: tuple[ShapePoint, ...] = ()


class SpreadDefault(Struct, frozen=True, array_like=True, gc=False):
    """A spread constraint of pods that have none; whom it counts follows from the pod's services and owner."""

    max_skew: int
    topology_key: str
    hard: bool = False


class SchedulingProfile(Struct, frozen=True, array_like=True, gc=False, cache_hash=True):
    """``name``: the ``schedulerName``. ``policy``: which ranks its pods; "": the mesh's, and its roll-outs.

    ``without``: filters that are left out, sorted. ``weights``: of scores that count otherwise than by default, sorted;
    0: not at all. ``fit`` and ``balanced``: what these scores look at; None: cpu and memory, the least allocated first.
    ``spread``: constraints of pods that have none of their own; None: the system's. ``hard_affinity``: what required
    affinity of pods that stand is worth; ``own_wishes_alone``: preferences of pods that stand count only for pods that
    have some. ``added``: a term of nodes that must match beside the pod's own; None: any. ``wishes``: preferences of
    nodes beside the pod's. ``ignored``: extended resources that no node is asked for, each by name or, with ``/*``, by
    group; they count there.
    """

    name: str
    policy: str = ""
    without: tuple[str, ...] = ()
    weights: tuple[tuple[str, int], ...] = ()
    fit: FitScoring | None = None
    balanced: tuple[str, ...] | None = None
    spread: tuple[SpreadDefault, ...] | None = None
    hard_affinity: int = 1
    own_wishes_alone: bool = False
    added: tuple[SelectorTerm, ...] | None = None
    wishes: tuple[PreferredTerm, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def scores(self) -> bool:
        """Whether it says anything of scores that only kube-default has."""
        return bool(self.weights) or self.fit is not None or self.balanced is not None

    @property
    def plain(self) -> bool:
        """Whether it is the default but for its name."""
        return self == SchedulingProfile(self.name)
