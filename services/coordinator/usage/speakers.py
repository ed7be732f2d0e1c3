"""Who may tell of which node: the agent that is registered for it, else one sensor on it. Pure.

A sensor is not registered: it decides nothing, and a thousand of them would cost etcd a thousand leases. It says the
node, which boot of it it reads and how long after that boot it began; nothing of that comes from a clock that can be
set. Of two on one node the later counts, of two boots the one that was heard of last, and one before it only when that
has been silent for long. A new term knows none of the past. Where the node's own agent tells, a sensor is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from services.coordinator.agents.views import AgentView
from shared.wire.messages import Readings
from shared.wire.readings import Boot

LEAST_SILENCE_S = 30.0
"""Who has been silent for so long, and for three of its messages, speaks for its node no more: another boot, or a
sensor in an agent's place, may."""
PAST_BOOTS = 4
"""Of one node that are remembered, so that none of them is believed beside the one that spoke after it."""
RETURN = 10
"""So many times the silence after which another boot may speak, one that has spoken before may again: two machines had
one name, and the other has ended."""
FORGET_S = 3600.0
MOST = 20_000
"""Nodes that are remembered."""


class ReadingsRefused(Exception):
    """The message does not count. ``code``: for the answer."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class _Speaker:
    """``boot``: a sensor's; None: the node's agent speaks."""

    agent: str
    boot: Boot | None
    at_s: float
    past: list[str] = field(default_factory=list)


class Speakers:
    """One term's. ``present``: whether the cluster has a node of that name."""

    def __init__(self, present: Callable[[str], bool]) -> None:
        self._present = present
        self._of: dict[str, _Speaker] = {}

    def node_of(self, message: Readings, agents: Mapping[str, AgentView], now_s: float, *, every_s: float) -> str:
        """The node that the message may speak of; ``every_s``: how often one comes. Raises ``ReadingsRefused``."""
        node = self._registered(message, agents) if message.boot is None else message.agent
        if not node or any(reading.node != node for reading in message.readings):
            raise ReadingsRefused(f"{message.agent} serves {node or 'no node of its own'}", "forbidden")
        if message.boot is not None:
            self._admit(node, message.boot, now_s, max(LEAST_SILENCE_S, 3 * every_s))
        known = self._of.pop(node, None)
        past = known.past if known is not None else []
        before = known.boot if known is not None else None
        if message.boot is not None:
            heard = [*past, before.boot_id] if before is not None else past
            past = [one for one in heard if one != message.boot.boot_id][-PAST_BOOTS:]
        self._of[node] = _Speaker(message.agent, message.boot, now_s, past)  # the last to speak at the end
        if len(self._of) > MOST:
            del self._of[next(iter(self._of))]
        return node

    def forget(self, now_s: float) -> None:
        """Leave out nodes of which nobody has spoken for long."""
        while self._of:
            node, speaker = next(iter(self._of.items()))
            if now_s - speaker.at_s <= FORGET_S:
                return
            del self._of[node]

    @staticmethod
    def _registered(message: Readings, agents: Mapping[str, AgentView]) -> str:
        view = agents.get(message.agent)
        if view is None or view.record.incarnation != message.incarnation:
            raise ReadingsRefused(f"agent {message.agent} is not registered under that incarnation", "not_ready")
        return view.record.node

    def _admit(self, node: str, boot: Boot, now_s: float, silence_s: float) -> None:
        if not self._present(node):
            raise ReadingsRefused(f"there is no node {node}; give the sensor its node's name", "node_unknown")
        known = self._of.get(node)
        if known is None:
            return
        if boot.boot_id in known.past and now_s - known.at_s < RETURN * silence_s:
            raise ReadingsRefused(f"another boot or machine has spoken for node {node} since", "past_boot")
        if now_s - known.at_s >= silence_s or known.boot == boot:
            return
        if known.boot is None:
            raise ReadingsRefused(
                f"agent {known.agent} on node {node} measures it; one of the two is enough", "superseded"
            )
        if boot.boot_id != known.boot.boot_id:
            raise ReadingsRefused(
                f"another machine or boot spoke for node {node} within {silence_s:g} s; it must fall silent first",
                "superseded",
            )
        if boot.began_ms < known.boot.began_ms:
            raise ReadingsRefused(f"a sensor that began later speaks for node {node}", "superseded")
