"""Nodes that are closed to other schedulers while room is made or kept there for ours, from before anybody is asked.

    wanted --HoldNode--> HELD (victims may go) --placed, given up, or for too long--> HoldNode(False) --> open
             --refused--> the room is made all the same, and may go to somebody else

Other schedulers do not count the nominations of ours (kube-scheduler reads those of its own pods alone), so what a
victim leaves goes to whichever of their pods is tried next, or to both at once. A taint is what they all know (ADR
0054). To ours it is none. What an earlier leader left closed stays so while pods of ours are nominated there.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.coordinator.core.due import Due
from services.coordinator.core.instructions import HoldNode
from services.coordinator.core.state import CoordinatorState
from shared.model.pod import Pod

OTHERS_S = 60.0
"""So long after the last pending pod of another scheduler was placed that one is taken to be at work."""

AT_MOST_S = 120.0
"""No node is closed for longer at a time: victims may take an hour, and what else is free there is for others too."""

AGAIN_S, LONGEST_AGAIN_S = 2.0, 60.0
"""Pause before a node that could not be opened is opened again, doubling; the first is also that between looks at what
an earlier leader left."""


class Holds:
    """One term's. ``wanted``: by node, how many pods room is made for there."""

    def __init__(self, state: CoordinatorState) -> None:
        self._state = state
        self.wanted: dict[str, int] = {}
        self.held: set[str] = set()
        """Nodes that bear the taint, as far as is known."""
        self._until: dict[str, float] = {}
        self._without: set[str] = set()
        """Wanted nodes that could not be closed."""
        self._out: set[str] = set()
        self._pause_s: dict[str, float] = {}
        """Of nodes that could not be opened, the next pause."""
        self._due = Due()

    def contended(self, victims: Iterable[Pod]) -> bool:
        """Whether another scheduler may want what these leave: it places pods here, or one of them is its own, for
        which a controller makes another at once. Nodes may also be closed always (``hold_nodes``), for autoscalers."""
        state = self._state
        if state.settings.hold_always or state.others or state.now < state.others_at + OTHERS_S:
            return True
        return any(victim.scheduler_name not in state.ours for victim in victims)

    def take(self, node: str) -> None:
        """Close it, for one pod more."""
        if node not in self.wanted:
            self._until[node] = self._state.now + AT_MOST_S
            self._due.later(node, self._until[node])
        self.wanted[node] = self.wanted.get(node, 0) + 1
        self._settle(node)

    def leave(self, node: str) -> None:
        """For one pod less."""
        self.wanted[node] -= 1
        if not self.wanted[node]:
            del self.wanted[node], self._until[node]
            self._without.discard(node)
        self._settle(node)

    def stands(self, node: str) -> bool:
        """Whether victims may be asked to leave: it is closed, or will not be."""
        return node in self.held or node in self._without or not self._wants(node)

    def seen(self, node: str, held: bool, *, marked: bool = False) -> None:
        """The watch shows the node; what it shows may be older than our own write, which is then made once more.
        ``marked``: it bears annotations of ours, which are to go with the taint, or after it: an older leader, or
        somebody by hand, takes the taint alone away."""
        held = held or (marked and node not in self.wanted)
        if held is (node in self.held) or node in self._out:
            return
        (self.held.add if held else self.held.discard)(node)
        self._settle(node)

    def gone(self, node: str) -> None:
        """There is no such node any more."""
        self.held.discard(node)
        self._pause_s.pop(node, None)
        if node in self.wanted:
            self._without.add(node)

    def answered(self, node: str, *, hold: bool, ok: bool, gone: bool) -> None:
        """A write has ended."""
        self._out.discard(node)
        if gone:
            self.gone(node)
        elif ok:
            (self.held.add if hold else self.held.discard)(node)
            self._pause_s.pop(node, None)
            if not hold and node not in self.wanted:
                self._until.pop(node, None)
        elif hold and node in self.wanted:
            self._without.add(node)
        else:
            pause_s = self._pause_s.get(node, AGAIN_S)
            self._pause_s[node] = min(2 * pause_s, LONGEST_AGAIN_S)
            self._due.later(node, self._state.now + pause_s)
            return
        self._settle(node)

    def step(self) -> None:
        """Open what was closed for long enough."""
        for node in self._due.take(self._state.now):
            self._settle(node)

    def wake_at(self) -> float | None:
        """When that is."""
        return self._due.next_at()

    def _wants(self, node: str) -> bool:
        state = self._state
        if node in self.wanted:
            return state.now < self._until[node]
        if node not in self.held or not state.started:
            return node in self.held
        nominated = state.cluster.nominated.get(node, {})
        left = any(uid in state.queue.entries for uid in nominated)  # by an earlier leader, for these
        if left and node not in self._until:
            self._until[node] = state.now + AT_MOST_S
        return left and state.now < self._until[node]

    def _settle(self, node: str) -> None:
        wants = self._wants(node)
        if wants and node not in self.wanted:
            self._due.later(node, self._state.now + AGAIN_S)
        if node in self._out or wants is (node in self.held) or (wants and node in self._without):
            return
        self._out.add(node)
        self._state.out.append(HoldNode(node, wants))
