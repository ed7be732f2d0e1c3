"""Keeps the NetworkPolicy that lets sensors out to latency targets; what it says is ``usage/target_egress.py``'s.

The object comes with the component ``sensors``; the leader may change this one and no other, and changes its
``spec.egress`` alone. Where there is none, or no right, that is told once and tried rarely: sensors then try targets in
vain, and say so. Names are resolved here as often as sensors resolve them; an address stays open for a while after its
name has left it, since not all resolve at once.

A new leader knows nothing yet, and what the one before it opened is in use: it writes nothing until targets have been
listed, and at first waits for names that nobody has answered for.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

import structlog

from services.coordinator.usage.target_egress import Rule, Selector, names_of, rules
from shared.errors import KubeError, KubeRejected
from shared.kube.nodes.latency_targets import LatencyTarget
from shared.kube.objects import PartialObject
from shared.kube.resources import Resource
from shared.ports import KubeApi

log = structlog.get_logger()

NETWORK_POLICIES = Resource("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies", True, PartialObject)
EVERY_S = 5.0
RESOLVE_S = 60.0
UNANSWERED_S = 10.0
"""How soon a name is asked for again that nobody has ever answered for."""
FIRST_S = 60.0
"""How long a new leader waits for such names before it writes without them."""
KEPT_S = 600.0
"""How long an address stays open that its name does not lead to any more."""
AGAIN_S = 300.0
"""How often it is written though nothing changed: somebody may have put it back."""
REFUSED_S = 300.0
LASTING = frozenset({403, 404, 405})
PROMPT_S = 2.0
AT_ONCE = 2

Resolve = Callable[[str], Awaitable[Collection[str] | None]]
"""All addresses of a host; None: nobody answers now."""
Targets = Callable[[], Iterable[LatencyTarget] | None]
"""All there are; None: that is not known yet."""


class Addresses:
    """Where names lead, with those that they led to lately. A resolver that hangs holds two threads of ours, no more:
    the leader has others to resolve names for."""

    def __init__(self, resolve: Resolve, clock: Callable[[], float]) -> None:
        self._resolve = resolve
        self._clock = clock
        self._seen: dict[str, dict[str, float]] = {}
        self._answered: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def follow(self, names: Collection[str]) -> Mapping[str, Mapping[str, float]]:
        """Addresses, with when each was seen last, by name, asked for where the last answer is too old; those of other
        names are forgotten. What does not come at once is in a later answer; a name that nobody has answered for is in
        none. While nobody answers, a name leads where it led."""
        now, loop = self._clock(), asyncio.get_running_loop()
        late = loop.time() + PROMPT_S
        # who waits longest comes first: names that hang keep no other waiting for ever
        due = [name for name in names if now - self._asked.get(name, -math.inf) >= self._pause_s(name)]
        due = [name for name in due if name not in self._asking]
        due.sort(key=lambda name: (self._asked.get(name, -math.inf), name))
        while (due or self._asking) and loop.time() < late:
            while due and len(self._asking) < AT_ONCE:
                name = due.pop(0)
                self._asked[name] = now
                self._asking[name] = asyncio.create_task(self._ask(name, now))
            waiting = set(self._asking.values())
            await asyncio.wait(waiting, timeout=max(0.0, late - loop.time()), return_when=asyncio.FIRST_COMPLETED)
        self._asked = {name: at for name, at in self._asked.items() if name in names}
        self._answered = {name: at for name, at in self._answered.items() if name in names}
        self._seen = {
            name: {one: at for one, at in self._seen[name].items() if answered - at < KEPT_S}
            for name, answered in self._answered.items()
        }
        return self._seen

    def _pause_s(self, name: str) -> float:
        return RESOLVE_S if name in self._answered else UNANSWERED_S

    async def _ask(self, name: str, now: float) -> None:
        try:
            found = await self._resolve(name)
            if found is not None:
                self._answered[name] = now
                self._seen.setdefault(name, {}).update(dict.fromkeys(found, now))
        finally:
            del self._asking[name]

    def stop(self) -> None:
        """Wait for no answer any more."""
        for task in self._asking.values():
            task.cancel()


async def keep(
    api: KubeApi,
    policy: tuple[str, str],
    targets: Targets,
    selector_of: Callable[[str, str], Selector | None],
    *,
    clock: Callable[[], float],
    resolve: Resolve | None = None,
    every_s: float = EVERY_S,
) -> None:
    """Write the policy (namespace, name) as targets come, go and move; eternal."""
    addresses = Addresses(resolve or resolved, clock)
    try:
        await _keep(api, policy, targets, selector_of, addresses, clock=clock, every_s=every_s)
    finally:
        addresses.stop()


async def _keep(
    api: KubeApi,
    policy: tuple[str, str],
    targets: Targets,
    selector_of: Callable[[str, str], Selector | None],
    addresses: Addresses,
    *,
    clock: Callable[[], float],
    every_s: float,
) -> None:
    written: list[Rule] | None = None
    written_s, again_s, known_s = 0.0, 0.0, math.inf
    told: set[int] = set()
    known_problems: dict[str, str] = {}
    while True:
        listed = targets()
        if listed is None:
            await asyncio.sleep(every_s)
            continue
        named = list(listed)
        known_s = min(known_s, clock())
        names = names_of(named)
        found = await addresses.follow(names)
        wanted, problems = rules(named, found, selector_of)
        for name in problems.keys() - known_problems.keys():
            log.warning("latency_target_not_opened", target=name, problem=problems[name])
        known_problems = problems
        waits = written is None and bool(names - found.keys()) and clock() - known_s < FIRST_S
        if not waits and clock() >= again_s and (wanted != written or clock() - written_s >= AGAIN_S):
            try:
                await api.patch(
                    NETWORK_POLICIES, namespace=policy[0], name=policy[1], patch={"spec": {"egress": wanted}},
                    strategy="merge", wait_when_busy=False,
                )  # fmt: skip
            except KubeRejected as error:
                lasting = error.status in LASTING
                again_s = clock() + (REFUSED_S if lasting else every_s)
                if error.status not in told:
                    remedy = "apply k8s/components/sensors of this version, or leave target_egress out"
                    log.warning(
                        "target_egress_refused", policy="/".join(policy), error=error,
                        remedy=remedy if lasting else "the API server's reason says what is in the way",
                    )  # fmt: skip
                told.add(error.status)
            except KubeError as error:
                log.info("target_egress_failed", policy="/".join(policy), error=error)
            else:
                if wanted != written:
                    log.info("target_egress_written", policy="/".join(policy), rules=len(wanted))
                written, written_s = wanted, clock()
                told.clear()
        await asyncio.sleep(every_s)


async def resolved(host: str) -> Collection[str] | None:
    """All addresses of a host, none where it has none; None: nobody answers now."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return () if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA) else None
    except UnicodeError:
        return ()
    except OSError:
        return None
    return {str(one[4][0]).partition("%")[0] for one in found}
