"""What a cycle asks about and hears: units, by pod class; and the classes by number.

Numbers are never given twice in a term. A class is other people's text (selectors, affinity terms): one that is too
large for an offer is refused, so that it spoils its own pods and not the cycles of all (I10).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import msgspec

from shared.model.constraints import PodClass
from shared.model.units.unit import Unit
from shared.scheduling.cycle.constraints import Guidance
from shared.scheduling.profiles import own_policy
from shared.wire.messages import Answer

MAX_CLASSES = 8192
"""Classes remembered; then numbers are given anew (agents are told by definition, so that costs bytes only)."""

MAX_CLASS_BYTES = 128 * 1024
"""A larger class is refused. The API server takes objects of 1.5 MiB; real ones are below 2 KiB."""

MAX_ROUND_BYTES = 1024 * 1024
"""All classes of one cycle together, a quarter of a message's limit: the rest is for the view."""

SLOTS_SHARE = 2
"""Each agent is asked for so many times its even share of a class's units: most of what more agents would answer
beyond that is never looked at. A class whose good nodes sit with few agents (a label, bin packing) gets more."""

MAX_WIDENING = 4096


@dataclass(slots=True)
class KnownClass:
    """``size_bytes`` on the wire; ``share``: multiple of an agent's even share that is asked of it; ``for_all``: all
    are asked about it, since one had too few nodes (``dispatch.py``), or a policy of its profile's ``own`` decides, by
    which nobody here knows who is to be asked."""

    id: int
    size_bytes: int
    share: int = SLOTS_SHARE
    for_all: bool = False
    own: str = ""

    def widen(self) -> None:
        """A list that was cut ran dry: ask for more next time."""
        self.share = min(2 * self.share, MAX_WIDENING)


@dataclass(slots=True)
class AgentAnswers:
    """One agent's answers for one class, in its order; ``names``: the node each one's slot meant to it ("": none).

    ``cut``: it was asked for fewer than there are units and gave as many: it may have more. ``policy``: by which it
    judged, ``name@version``; ``variant``: the policy whose turn it was, also where its fallback judged; ``agent``: its
    id.
    """

    answers: list[Answer] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    cut: bool = False
    policy: str = ""
    variant: str = ""
    agent: str = ""

    def keep_accepted(self) -> None:
        """Leave out what the policy rejects."""
        kept = [place for place, answer in enumerate(self.answers) if answer.accept]
        if len(kept) < len(self.answers):
            self.answers = [self.answers[place] for place in kept]
            self.names = [self.names[place] for place in kept]


@dataclass(slots=True)
class OfferedClass:
    """The units of one class in a cycle, and what was said about them. ``asked``: slots wanted of each agent, and
    ``extra`` ones.

    ``unknown``: an agent did not know the class. ``guidance``: of units about which more than the nodes themselves
    decides. ``candidate``: judged by the candidate policy; ``shadow``: asked only to compare the two, never placed
    (``variants.py``). ``workload``: of all its units, where the policy looks at it, and the workload's ``priority``.
    ``sole``: the one agent that is asked about it, "": all are, or the ``few`` that are most promising
    (``promising.py``).
    """

    pod_class: PodClass
    known: KnownClass
    units: list[Unit] = field(default_factory=list)
    lists: list[AgentAnswers] = field(default_factory=list)
    unknown: bool = False
    asked: int = 0
    extra: int = 0
    guidance: Guidance | None = None
    candidate: bool = False
    shadow: bool = False
    workload: str = ""
    priority: int | None = None
    sole: str = ""
    few: bool = False
    template: Hashable | None = None
    seated: bool = False

    @property
    def narrow(self) -> bool:
        """Whether not everybody was asked: that nobody took a unit says nothing of the others."""
        return bool(self.sole) or self.few

    def keep_accepted(self) -> None:
        """Go by accepted nodes alone: others, who were not asked, may accept where these reject."""
        for found in self.lists:
            found.keep_accepted()


class Classes:
    """``PodClass`` to ``KnownClass``."""

    def __init__(self) -> None:
        self._known: dict[Hashable, KnownClass] = {}
        self._numbers = 0

    def of(self, pod_class: PodClass, template: Hashable | None = None) -> KnownClass:
        """The class's number, given at first sight; ``template``: pods of which more than the class counts have one of
        their own."""
        key = pod_class if template is None else template
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_CLASSES:
                self._known.clear()
            self._numbers += 1
            own = own_policy(pod_class)
            known = KnownClass(self._numbers, len(msgspec.msgpack.encode(pod_class)), for_all=bool(own), own=own)
            self._known[key] = known
        return known
