"""Room that is being made, or kept, for one pod or for members of one group: who is to go where, and who leaves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from shared.model.pod import Pod
from shared.wire.messages import EvictionReason


@dataclass(slots=True, eq=False)
class MadeRoom:
    """Room for ``pods``, by uid, each nominated to its node, that ``victims`` leave, by uid with where each stands.

    ``group``: the pod group whose members they are; "": there is one, and it is alone. ``forced``: victims whose budget
    is broken; ``reason``: what victims are told. ``patient``: nobody is asked to leave, they may end by themselves.
    ``held``: its nodes are closed to other schedulers meanwhile. ``stored``: those whose nomination etcd has;
    ``shown``: whose status has it, as the watch has shown; ``before``: who were nominated already. ``unsure``: victims
    of which the binder could not say whether they were asked; ``unknown``: by victim, how often that was.
    """

    pods: dict[str, Pod]
    victims: dict[str, tuple[Pod, str]]
    forced: frozenset[str]
    group: str = ""
    reason: EvictionReason = EvictionReason.PREEMPTION
    patient: bool = False
    held: bool = False
    stored: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    unknown: Counter[str] = field(default_factory=Counter)
    open: dict[str, None] = field(default_factory=dict)
    """Nodes that were not yet seen closed, once all is stored."""
    evicting: bool = False
    asked: bool = False
    """A victim was asked to leave."""
    counted: bool = False
    """Somebody is known to leave for it."""
    left: dict[str, None] = field(default_factory=dict)
    """Victims that stood where they were when somebody looked last."""
