"""Kills on a schedule, carried out and judged: did the mesh recover, and when.

SIGKILL to the process that really holds the role at that moment: the leader by etcd, a registered agent by lot
(seeded), the leading binder, or etcd itself. When nobody holds the role just then it waits a while for somebody to: a
kill that finds no victim has not happened and is reported as such.

``Recovery`` judges, from what the demo saw alone. A kill has recovered when the killed place is filled again (its
process, or etcd, is back and ready) and a bind that needed it was seen:

- of a pod created after the kill, or any bind after another authority had taken over (a new term, a new incarnation of
  the agent, etcd answering again), which the dead process cannot have caused;
- for an agent, such a bind on one of the nodes that were its own, or any of a pod created after the kill once it is
  back: nobody may want its nodes just now.

``recovery_s`` is the time from the kill to that bind.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lab.cli.demo.board import PlacedOnBoard
from lab.cli.demo.viewed_mesh import ViewedMesh
from services.cli.etcd import MeshView
from services.cli.local.etcd_keeper import EtcdKeeper
from shared.errors import ConfigError
from shared.scheduling.partition import assign

VICTIMS = ("leader", "agent", "binder", "etcd")
MAX_KILLS = 1000


@dataclass(frozen=True, slots=True, order=True)
class Kill:
    """SIGKILL to ``victim``, ``at_s`` seconds after the first pod was submitted (real seconds)."""

    at_s: float
    victim: str


def parse_kill(text: str) -> Kill:
    """``leader@5`` as a Kill. ``ConfigError`` names the flag and the remedy."""
    victim, at, seconds = text.partition("@")
    try:
        at_s = float(seconds)
    except ValueError:
        at_s = math.nan
    if victim not in VICTIMS or not at or not (0 <= at_s < 86_400):
        raise ConfigError(f"--kill: {text[:64]!r} is not {'|'.join(VICTIMS)}@SECONDS, such as leader@5")
    return Kill(at_s, victim)


def schedule(texts: tuple[str, ...]) -> list[Kill]:
    """All kills in the order of their times. ``ConfigError``: one is malformed, or there are too many."""
    if len(texts) > MAX_KILLS:
        raise ConfigError(f"--kill: {len(texts)} kills; give at most {MAX_KILLS}")
    return sorted(parse_kill(text) for text in texts)


@dataclass(slots=True)
class Recovery:
    """One kill and what followed. Times are seconds of one monotonic clock; None: not yet."""

    kill: Kill
    process: str = ""
    nodes: frozenset[str] = field(default_factory=frozenset)
    killed_s: float | None = None
    turned_s: float | None = None
    back_s: float | None = None
    bound_s: float | None = None
    error: str = ""

    def happened(self, now_s: float, process: str, nodes: frozenset[str] = frozenset()) -> None:
        """The process was killed; ``nodes`` were an agent's own."""
        self.killed_s, self.process, self.nodes = now_s, process, nodes

    def failed(self, why: str) -> None:
        """There was nothing to kill."""
        self.error = why

    def turned(self, now_s: float) -> None:
        """Another authority than the killed one has taken over."""
        if self.killed_s is not None and self.turned_s is None:
            self.turned_s = now_s

    def back(self, now_s: float) -> None:
        """The killed place is filled and ready again."""
        if self.killed_s is not None and self.back_s is None:
            self.back_s = now_s

    def bound(self, now_s: float, created_s: float, node: str) -> None:
        """A pod was bound to ``node`` at ``now_s``; it had been created at ``created_s``."""
        if self.killed_s is None or self.bound_s is not None or now_s <= self.killed_s:
            return
        new_pod = created_s > self.killed_s
        after_turn = self.turned_s is not None and now_s >= self.turned_s
        if self.kill.victim == "agent" and node not in self.nodes:
            needed = new_pod and self.back_s is not None and now_s >= self.back_s
        else:
            needed = new_pod or after_turn
        if needed:
            self.bound_s = now_s

    @property
    def done(self) -> bool:
        """Whether the kill happened and the mesh recovered from it."""
        return self.bound_s is not None and self.back_s is not None

    def to_json(self) -> dict[str, Any]:
        """For the demo's JSON; ``recovery_s`` None: not recovered."""
        recovery = self.bound_s - self.killed_s if self.done and self.bound_s and self.killed_s is not None else None
        back = self.back_s - self.killed_s if self.back_s is not None and self.killed_s is not None else None
        return {
            "victim": self.kill.victim,
            "at_s": self.kill.at_s,
            "process": self.process,
            "killed": self.killed_s is not None,
            "recovery_s": None if recovery is None else round(recovery, 3),
            "back_s": None if back is None else round(back, 3),
            **({"error": self.error} if self.error else {}),
        }


FIND_VICTIM_S = 15.0
GIVE_UP_S = 60.0
"""A kill that is not recovered from after so long never will be: the run ends and says so."""
POLL_S = 0.05


class Kills:
    """The schedule of one run. ``first_pod_s`` starts its clock (``time.monotonic``). ``nodes``: name -> kind."""

    def __init__(
        self,
        plan: Sequence[Kill],
        mesh: ViewedMesh,
        etcd: EtcdKeeper,
        *,
        nodes: Mapping[str, str],
        rng: Random,
        note: Callable[[str], None],
        before_kill: Callable[[], Awaitable[None]],
    ) -> None:
        self.recoveries = [Recovery(kill) for kill in plan]
        self._mesh = mesh
        self._etcd = etcd
        self._nodes = nodes
        self._rng = rng
        self._note = note
        self._before_kill = before_kill
        self._watches: dict[int, Callable[[MeshView], tuple[bool, bool]]] = {}

    @property
    def settled(self) -> bool:
        """Whether nothing more is to come: every kill has recovered, failed, or been given up."""
        return all(r.done or r.error or self._given_up(r) for r in self.recoveries)

    def _given_up(self, recovery: Recovery) -> bool:
        return recovery.killed_s is not None and time.monotonic() - recovery.killed_s > GIVE_UP_S

    def bound(self, bound: PlacedOnBoard) -> None:
        """A pod was bound."""
        for recovery in self.recoveries:
            was_done = recovery.done
            recovery.bound(bound.seen_s, bound.submitted_s, bound.node)
            self._tell(recovery, was_done)

    def _tell(self, recovery: Recovery, was_done: bool) -> None:
        if recovery.done and not was_done:
            figures = recovery.to_json()
            text = f"next bind after {figures['recovery_s']:.2f} s, back after {figures['back_s']:.2f} s"
            self._note(f"{recovery.process} ({recovery.kill.victim}): {text}")

    async def run(self, first_pod_s: float) -> None:
        """Kill on schedule and watch until everything is settled."""
        due = list(enumerate(self.recoveries))
        while not self.settled:
            while due and time.monotonic() >= first_pod_s + due[0][1].kill.at_s:
                number, recovery = due.pop(0)
                await self._kill(number, recovery)
            if self._watches:
                view = await self._mesh.refresh()
                self._look(view)
            await asyncio.sleep(POLL_S)

    def _look(self, view: MeshView) -> None:
        now_s = time.monotonic()
        for number, watch in list(self._watches.items()):
            recovery = self.recoveries[number]
            turned, back = watch(view)
            was_done = recovery.done
            if turned:
                recovery.turned(now_s)
            if back:
                recovery.back(now_s)
            self._tell(recovery, was_done)
            if recovery.done:
                del self._watches[number]

    async def _kill(self, number: int, recovery: Recovery) -> None:
        victim = recovery.kill.victim
        await self._before_kill()
        deadline_s = time.monotonic() + FIND_VICTIM_S
        while time.monotonic() < deadline_s:
            if victim == "etcd":
                killed = await self._kill_etcd(number, recovery)
            else:
                killed = self._kill_holder(number, recovery, await self._mesh.refresh())
            if killed:
                self._note(f"killed {recovery.process} ({victim})")
                return
            await asyncio.sleep(POLL_S)
        recovery.failed(f"nobody held the role of {victim} for {FIND_VICTIM_S:g} s")

    async def _kill_etcd(self, number: int, recovery: Recovery) -> bool:
        now_s = time.monotonic()
        if not await self._etcd.kill():
            return False
        recovery.happened(now_s, "etcd")
        self._watches[number] = lambda _view: (self._etcd.healthy.is_set(), self._etcd.healthy.is_set())
        return True

    def _kill_holder(self, number: int, recovery: Recovery, view: MeshView) -> bool:
        victim, nodes = recovery.kill.victim, frozenset[str]()
        if victim == "agent":
            names = [name for name in sorted(view.agents) if self._alive(name)]
            if not names:
                return False
            name = self._rng.choice(names)
            owners = assign(self._nodes, {agent: record.node for agent, record in view.agents.items()})
            nodes = frozenset(node for node, owner in owners.items() if owner == name)
        elif victim == "leader":
            name = view.coordinator.record.identity if view.coordinator else ""
        else:
            name = next((leading.record.identity for _, leading in sorted(view.binders.items())), "")
        if not self._alive(name):
            return False
        before = _authority(victim, name, view)
        incarnation = self._mesh.supervisor.children[name].incarnation
        if not self._mesh.supervisor.kill(name):
            return False
        recovery.happened(time.monotonic(), name, nodes)

        def look(now: MeshView) -> tuple[bool, bool]:
            child = self._mesh.supervisor.children[name]
            back = child.incarnation > incarnation and child.ready.is_set()
            after = _authority(victim, name, now)
            return after != before and (after != "" or victim == "agent"), back

        self._watches[number] = look
        return True

    def _alive(self, name: str) -> bool:
        child = self._mesh.supervisor.children.get(name)
        return child is not None and child.pid != 0 and child.ready.is_set()


def _authority(victim: str, name: str, view: MeshView) -> str:
    """Who holds the role, in a form that differs once somebody else does; empty: nobody."""
    if victim == "agent":
        record = view.agents.get(name)
        return record.incarnation if record is not None else ""
    if victim == "leader":
        return view.coordinator.record.incarnation if view.coordinator else ""
    return ",".join(leading.record.incarnation for _, leading in sorted(view.binders.items()))
