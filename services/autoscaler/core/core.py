"""The autoscaler's core: events in, instructions out, for one term of leadership. Pure.

    watches --facts--> cluster, objects
    due --ReadRound--> RoundRead --decide--> Commit --Committed--> Write --Wrote--> idle until due

What is written was decided, allowed and recorded before: the record in etcd is compared with the term and with itself
as it was read, and every write names the resourceVersion that the decision saw. So a leader that was deposed can write
nothing that its successor has not read; a decision whose write is unknown is finished, or made anew, by whoever leads.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from services.autoscaler.core import gates
from services.autoscaler.core.events import (
    KINDS,
    Event,
    Fenced,
    RecordCommitted,
    ReplicasWrote,
    RoundRead,
    ScalerGone,
    ScalerSeen,
    StatusTold,
)
from services.autoscaler.core.gates import Gate
from services.autoscaler.core.instructions import Forget, Instruction, ReadRound, Sweep
from services.autoscaler.core.rounds import Rounds
from services.autoscaler.core.saying import say, tellings
from services.autoscaler.core.state import PolicyMaker, ScalerCoreSettings, ScalerState
from services.autoscaler.core.watched import ScalerStage, WatchedScaler
from shared.autoscaling.approval import weights_of
from shared.autoscaling.domain import AUTOSCALING, RULE
from shared.autoscaling.guard import AutoscalingGuard, guarded
from shared.autoscaling.observation import Policy
from shared.autoscaling.safety.drift import Drift
from shared.decide.guard import GuardLimits
from shared.errors import ConfigError
from shared.model.controllers.autoscaler import Autoscaler
from shared.turns import Stop


class AutoscalerCore:
    """One term. ``now`` of every call: monotonic seconds; wall time comes with what was read."""

    def __init__(
        self,
        term: int,
        settings: ScalerCoreSettings,
        policies: PolicyMaker,
        *,
        now: float,
        stopwatch: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.state = ScalerState(term, settings, now, stopwatch)
        self._rounds = Rounds(self.state)
        self._policies = policies
        self._swept = False

    def handle_all(self, events: Sequence[Event], now: float) -> list[Instruction]:
        """Take the events in, then start what is due."""
        out: list[Instruction] = []
        for event in events:
            if not self.state.cluster.take(event):
                out += self._handle(event, now)
        if self.ready:
            out += self._sweep()
            out += self._due(now)
            out += tellings(self.state, now)
        return out

    @property
    def ready(self) -> bool:
        """Whether everything has been listed once."""
        return self.state.cluster.listed >= set(KINDS)

    @property
    def busy(self) -> bool:
        """Whether a decision is being recorded or written."""
        return any(one.stage in (ScalerStage.COMMITTING, ScalerStage.WRITING) for one in self.state.objects.values())

    def wake_at(self) -> float | None:
        """When something is due next."""
        if not self.ready:
            return None
        objects = self.state.objects
        idle = [one.due_at for one in objects.values() if one.stage is ScalerStage.IDLE]
        if len(objects) - len(idle) >= self.state.settings.most_rounds:
            idle = []  # the end of a round is what they wait for, not the clock
        told = [
            objects[key].told_at + self.state.settings.tell_every_s
            for key in self.state.to_tell
            if key in objects and not objects[key].telling
        ]
        return min(idle + told, default=None)

    def _sweep(self) -> list[Instruction]:
        """Once per term, when all objects are known: what etcd has of others goes. Not known, nothing goes."""
        if self._swept:
            return []
        self._swept = True
        return [] if KINDS[0] in self.state.cluster.refused else [Sweep(frozenset(self.state.objects))]

    # --- objects ------------------------------------------------------------------------------------------------------

    def _handle(self, event: Event, now: float) -> Iterable[Instruction]:
        match event:
            case ScalerSeen(scaler):
                return self._seen(scaler, now)
            case ScalerGone(key):
                self.state.to_tell.pop(key, None)
                self._claim(self.state.objects.get(key), None)
                return [Forget(key)] if self.state.objects.pop(key, None) is not None else []
            case RoundRead():
                return self._rounds.read(event, now)
            case RecordCommitted():
                return self._rounds.committed(event, now)
            case ReplicasWrote():
                return self._rounds.wrote(event, now)
            case StatusTold(key, done):
                if key in self.state.objects:
                    self.state.objects[key].telling = False
                    if not done:
                        self.state.to_tell[key] = None
                return []
            case Fenced(reason):
                return [Stop(reason)]
            case _:
                return []

    def _seen(self, scaler: Autoscaler, now: float) -> list[Instruction]:
        watched = self.state.objects.get(scaler.key)
        self._claim(watched, scaler)
        if watched is not None and watched.scaler.uid != scaler.uid:
            watched = None  # deleted and made anew: nothing of the old one counts
        if watched is None:
            # objects of one list are not all decided at the same moment
            spread = zlib.crc32(scaler.key.encode()) / 2**32 * min(self.state.settings.decide_every_s, 2.0)
            watched = self.state.objects[scaler.key] = WatchedScaler(scaler, now + spread)
            self._choose_policies(watched)
        else:
            before, watched.scaler = watched.scaler, scaler
            if _chosen(before) != _chosen(scaler):
                self._choose_policies(watched)
            if before.generation != scaler.generation and watched.stage is ScalerStage.IDLE:
                watched.due_at = now  # an operator waits for it
        if scaler.problems:
            say(self.state, watched, None, Gate("Invalid", "; ".join(scaler.problems)), {}, frozenset())
        return []

    def _claim(self, watched: WatchedScaler | None, scaler: Autoscaler | None) -> None:
        """Keep who may write what, as an object comes, changes and goes."""
        claims = self.state.claims
        if watched is not None:
            for name in [gates.claim(watched.scaler, target) for target in watched.scaler.targets]:
                claims.get(name, set()).discard(watched.scaler.key)
                if name in claims and not claims[name]:
                    del claims[name]
        if scaler is not None and scaler.mode.acts and not scaler.problems:
            for target in scaler.targets:
                claims.setdefault(gates.claim(scaler, target), set()).add(scaler.key)

    def _choose_policies(self, watched: WatchedScaler) -> None:
        scaler = watched.scaler
        watched.rule_problem, watched.policy_problem, watched.policy, watched.rule = "", "", None, None
        watched.guard = watched.rule_guard = None
        watched.drift, watched.design_due = Drift(), ""
        own = scaler.policy_settings or (scaler.rule_settings if scaler.policy == "hpa" else {})
        watched.rule, why = self._made("hpa", scaler.rule_settings, scaler.seed)
        if why:
            watched.rule_problem = f"spec.hpaRule: {why}"
            return
        watched.rule_guard = self._guarded(watched.rule, RULE)
        watched.policy, why = self._made(scaler.policy, own, scaler.seed)
        if why:
            watched.policy_problem = f"spec.policy: {why}"
        else:
            watched.weights = weights_of(watched.policy)
            watched.guard = self._guarded(watched.policy, AUTOSCALING.limits)

    def _guarded(self, policy: Policy | None, limits: GuardLimits) -> AutoscalingGuard | None:
        return None if policy is None else guarded(policy, limits, clock=self.state.stopwatch)

    def _made(self, name: str, settings: Mapping[str, object], seed: int) -> tuple[Policy | None, str]:
        """(policy, why there is none). Settings come from whoever may make an object: nothing of theirs ends a term."""
        try:
            policy = self._policies(name, settings)
            policy.reset(seed)
        except ConfigError as error:
            return None, str(error)[:200]
        except Exception as error:  # noqa: BLE001  a policy's bug is told on its object
            return None, f"it cannot be made: {type(error).__name__}: {str(error)[:120]}"
        return policy, ""

    def _due(self, now: float) -> list[Instruction]:
        out: list[Instruction] = []
        going = sum(1 for one in self.state.objects.values() if one.stage is not ScalerStage.IDLE)
        for watched in sorted(self.state.objects.values(), key=lambda one: one.due_at):
            if watched.due_at > now or going >= self.state.settings.most_rounds:
                break
            if watched.stage is not ScalerStage.IDLE or not watched.scaler.targets or watched.scaler.problems:
                if watched.stage is ScalerStage.IDLE:
                    watched.due_at = now + self.state.settings.decide_every_s
                continue
            self.state.rounds += 1
            watched.number = self.state.rounds
            watched.read_generation = watched.scaler.generation
            watched.due_at = now + self.state.settings.decide_every_s
            watched.move(ScalerStage.READING, "due")
            going += 1
            self.state.stats.rounds += 1
            hpas = gates.hpas_to_read(watched.scaler, self.state.cluster)
            metrics = tuple(one for rule in (watched.rule, watched.policy) for one in getattr(rule, "metrics", ()))
            out.append(ReadRound(watched.scaler, watched.number, hpas, metrics))
        return out

    def validate(self) -> list[str]:
        """What must hold between two turns, a line each."""
        found = self.state.cluster.validate()
        claimed = {
            (gates.claim(one.scaler, target), key)
            for key, one in self.state.objects.items()
            if one.scaler.mode.acts and not one.scaler.problems
            for target in one.scaler.targets
        }
        if claimed != {(claim, key) for claim, keys in self.state.claims.items() for key in keys}:
            found.append("claims: who may write what is not what the objects say")
        for key, watched in self.state.objects.items():
            if watched.scaler.key != key:
                found.append(f"objects: {watched.scaler.key} is kept as {key}")
            found += watched.validate()
        return found


def _chosen(scaler: Autoscaler) -> tuple[object, ...]:
    """What the policies are made from."""
    return scaler.policy, scaler.seed, scaler.policy_settings, scaler.rule_settings
