"""Rehearses where the pointer names a policy instead of which another may place, and keeps the verdict in the pointer.

    pods that stand and wait, nodes --Situation--> a process of the lowest priority --Verdict--> pointer, under the term

The first time there is enough to go by, and again when the demand or the nodes have changed; what a rehearsal took is
followed by a pause of many times as long. Where one fails, nothing is known of this demand: a verdict that stood for
another one is withdrawn, and the policy places by itself. A new leader goes by the pointer and rehearses anew.

Not its job: who places (``shared/policy/rehearsal``), what agents make of it (``shared/agent/variants.py``).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

import services
from services.coordinator.core.core import Core
from services.coordinator.rollout import pointer as pointers
from shared.errors import StoreError
from shared.model.constraints import PodClass
from shared.policy.registry import rehearsed_beside
from shared.policy.rehearsal.situation import (
    GpuAsk,
    RehearsalOrder,
    RehearsalVerdict,
    Situation,
    asked_of,
    nodes_of,
)
from shared.policy.rollout.rollout import rehearse, rehearsed_of
from shared.ports import Store
from shared.runtime.records.policies import get_weights
from shared.scheduling.profiles import own_policy
from shared.wire.keys import Keys
from shared.wire.records import PolicyPointer, PolicyRef, Rehearsed

log = structlog.get_logger()

BY = "rehearsal"
OFF_S = 10.0
"""While rehearsals are off it is looked for what they said before, so often."""
RETRY_S = 600.0
"""After a rehearsal that failed, the next one is tried so much later at the earliest."""
MOST_REASON = 500
CHILD = ("-m", "services.coordinator.rehearsal.child")
OURS = Path(services.__file__).parents[1]
"""Where it runs: Python looks for modules there first, and we may stand in a folder with other ``services``."""
MOST_S = 900.0
"""A rehearsal that takes longer is ended; at this priority a busy machine makes it wait."""
PAUSE = 30.0
"""How many times as long as a rehearsal took nothing is rehearsed after it: at most 3 % of a core."""
NODES_AT_ONCE = 50
"""Nodes whose pods are counted before others have the loop."""
CLASSES_AT_ONCE = 500
"""Classes of pods, likewise: some 5 ms."""

Play = Callable[[RehearsalOrder], Awaitable[RehearsalVerdict]]


async def in_a_process(order: RehearsalOrder) -> RehearsalVerdict:
    """Play it in a process beside us; one that cannot be started, dies or takes too long is a problem like others."""
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable, *CHILD, str(os.getpid()), cwd=OURS,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        return RehearsalVerdict(problem=f"no process can be started: {error}")
    try:
        async with asyncio.timeout(MOST_S):
            told, _ = await child.communicate(msgspec.msgpack.encode(order))
        return msgspec.msgpack.decode(told, type=RehearsalVerdict)
    except TimeoutError:
        return RehearsalVerdict(problem=f"the rehearsal took more than {MOST_S:.0f} s", cpu_s=MOST_S)
    except msgspec.DecodeError:
        return RehearsalVerdict(
            problem=f"the process that rehearses ended with {child.returncode}; see its error output"
        )
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


class _Known(NamedTuple):
    """What was rehearsed last of some weights. ``said`` None: it failed, so nothing is known of this demand."""

    situation: Situation
    said: Rehearsed | None
    reason: str


class Rehearser:
    """One term's. ``play``: what carries an order out; ``clock``: seconds."""

    def __init__(
        self, core: Core, store: Store, keys: Keys, *, clock: Callable[[], float], play: Play = in_a_process
    ) -> None:
        self._core = core
        self._store = store
        self._keys = keys
        self._clock = clock
        self._play = play
        self._known: dict[str, _Known] = {}
        """By the digest of the weights."""
        self._not_before_s = float("-inf")

    async def run(self, every_s: Callable[[], float]) -> None:
        """Look now and then; eternal. ``every_s`` 0: rehearsals are off, and what they said is withdrawn."""
        while True:
            await asyncio.sleep(every_s() or OFF_S)
            try:
                await (self.look() if every_s() else self.withdraw())
            except Exception:  # a term does not end for this: the policy goes on as it is
                log.exception("rehearsal_broken", retry_s=RETRY_S)
                self._not_before_s = self._clock() + RETRY_S

    async def look(self) -> None:
        """Rehearse what is due, and see to it that the pointer says what is known."""
        if not self._core.state.started:
            return
        refs = self._refs()
        self._known = {ref.sha256: self._known[ref.sha256] for ref in refs if ref.sha256 in self._known}
        if refs and self._clock() >= self._not_before_s:
            situation = await self._situation()
            for ref in refs if situation.enough else ():
                known = self._known.get(ref.sha256)
                if known is None or known.said is None or situation.moved(known.situation):
                    await self._rehearse(ref, situation)
        pointer = self._core.variants.pointer
        for ref in self._refs():
            if pointer is None or (known := self._known.get(ref.sha256)) is None:
                continue
            before = rehearsed_of(pointer, ref)
            if _placing(before) != _placing(known.said):
                others = [one for one in pointer.rehearsed if one is not before]
                said = [*others, *([known.said] if known.said is not None else [])]
                await self._write(pointer, said, known.reason)
                return  # the next one at the next look, when the watch has shown this one

    async def withdraw(self) -> None:
        """Let every policy place by itself."""
        pointer = self._core.variants.pointer
        self._known.clear()
        if pointer is not None and pointer.rehearsed:
            await self._write(pointer, [], "rehearsals are off: each policy places by itself")

    async def _rehearse(self, ref: PolicyRef, situation: Situation) -> None:
        try:
            weights = await get_weights(self._store, self._keys, ref.sha256)
        except StoreError as error:
            log.info("rehearsal_put_off", policy=ref.title, error=error)
            return
        began_s = self._clock()
        if weights is not None:
            verdict = await self._play(RehearsalOrder(ref.name, weights, situation))
            if not verdict.problem and verdict.places not in (ref.name, rehearsed_beside(ref.name)):
                verdict = RehearsalVerdict(
                    problem=f"{verdict.places[:50]!r} is to place, which cannot be", cpu_s=verdict.cpu_s
                )
        else:
            verdict = RehearsalVerdict(problem="its weights are not in etcd")
        took_s = self._clock() - began_s
        facts = {
            "policy": ref.title,
            "gpu_pods": situation.gpu_pods,
            "gpus": situation.gpus,
            "took_s": round(took_s, 1),
        }
        if verdict.problem:
            self._not_before_s = self._clock() + max(PAUSE * took_s, RETRY_S)
            self._known[ref.sha256] = _Known(situation, None, f"{ref.title}: no rehearsal: {verdict.problem}")
            log.warning("rehearsal_failed", problem=verdict.problem, effect="the policy places by itself", **facts)
            return
        self._not_before_s = self._clock() + PAUSE * took_s
        said = Rehearsed(policy=ref.title, sha256=ref.sha256, places=verdict.places, told=verdict.told)
        self._known[ref.sha256] = _Known(situation, said, verdict.told)
        log.info("rehearsed", places=verdict.places, told=verdict.told, cpu_s=round(verdict.cpu_s, 1), **facts)

    async def _write(self, pointer: PolicyPointer, said: list[Rehearsed], reason: str) -> None:
        change = rehearse(pointer, said, reason=reason[:MOST_REASON], by=BY)
        await pointers.write(self._store, self._keys, change, self._core.state.term)

    def _refs(self) -> list[PolicyRef]:
        pointer = self._core.variants.pointer
        named = [] if pointer is None else [pointer.active, pointer.candidate]
        return [ref for ref in named if ref is not None and ref.sha256 and rehearsed_beside(ref.name)]

    async def _situation(self) -> Situation:
        """The demand and the nodes; counted in parts, between which the loop is others'."""
        state, asked = self._core.state, Counter[GpuAsk]()
        table, shares = state.cache.table, state.settings.profile.gpu_shares
        classes = list((await self._asked()).items())
        for first in range(0, len(classes), CLASSES_AT_ONCE):
            asked.update(asked_of(table, classes[first : first + CLASSES_AT_ONCE], shares))
            await asyncio.sleep(0)
        return Situation(nodes_of(table, shares), tuple(asked.items()))

    async def _asked(self) -> Counter[PodClass]:
        """Our pods that stand or wait, by class, but for those whose profile names a policy."""
        state, found = self._core.state, Counter[PodClass]()
        names = list(state.cache.table.row_of)
        for first in range(0, len(names), NODES_AT_ONCE):
            for name in names[first : first + NODES_AT_ONCE]:
                pods = state.cluster.index.pods_on(name)
                found.update(
                    pod.pod_class for pod in pods
                    if pod.scheduler_name in state.ours and not own_policy(pod.pod_class)
                )  # fmt: skip
            await asyncio.sleep(0)
        waiting = [entry.pod for entry in state.queue.entries.values()]
        for number, pod in enumerate(waiting):
            if state.cluster.index.get(pod.uid) is None and not own_policy(pod.pod_class):
                found[pod.pod_class] += 1
            if number % 500 == 0:
                await asyncio.sleep(0)
        return found


def _placing(said: Rehearsed | None) -> str:
    return "" if said is None else said.places
