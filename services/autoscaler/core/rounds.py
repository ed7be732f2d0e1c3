"""A round: what was read, through the decision, to what is recorded and then written. Pure.

RoundRead > complete? > taken over, foreign writers > decide > gates > writes > Commit > Committed > Write > Wrote
"""

from __future__ import annotations

from collections.abc import Mapping

from services.autoscaler.core import announcing, gates, telling
from services.autoscaler.core.deciding import ScalerDecision, decide, may_grow_at, note_change, note_changes
from services.autoscaler.core.events import HpaFact, RecordCommitted, ReplicasWrote, RoundRead, TargetFact
from services.autoscaler.core.gates import Gate
from services.autoscaler.core.instructions import CommitRecord, Instruction, ScaleTo, SetBounds, Write
from services.autoscaler.core.saying import say
from services.autoscaler.core.state import ScalerState
from services.autoscaler.core.watched import ScalerStage, WatchedScaler
from shared.autoscaling.safety import foreign
from shared.autoscaling.safety.foreign import Earlier, Expected, Foreign
from shared.model.controllers.autoscaler import ForeignWriter, Go, ScalerMode
from shared.turns import Log
from shared.wire.records import AutoscaleRecord, ForeignSeen, ScaledTo

SOON_S = 0.01
"""A deadline is met when it is over, and clocks have ends of bits."""


class Rounds:
    """Takes rounds on from where their reads end."""

    def __init__(self, state: ScalerState) -> None:
        self._state = state

    def _current(self, key: str, number: int, stage: ScalerStage) -> WatchedScaler | None:
        """The object whose round this answers; None: it is gone, or goes on with another round."""
        watched = self._state.objects.get(key)
        return watched if watched is not None and (watched.number, watched.stage) == (number, stage) else None

    def read(self, read: RoundRead, now: float) -> list[Instruction]:
        watched = self._current(read.key, read.number, ScalerStage.READING)
        if watched is None:
            return []
        if watched.read_generation != watched.scaler.generation:
            watched.move(ScalerStage.IDLE, "changed meanwhile")
            watched.due_at = now
            return []
        problem = _incomplete(watched, read)
        if problem.reason:
            self._state.stats.incomplete_rounds += 1
            watched.move(ScalerStage.IDLE, problem.reason)
            say(self._state, watched, None, problem, {}, frozenset())
            return announcing.troubles(self._state, watched, now)
        self._take_over(watched, read)
        facts = {name: one for name, one in read.targets.items() if isinstance(one, TargetFact)}
        note_changes(watched, {name: one.replicas for name, one in facts.items()}, now)
        gate = gates.of_object(watched)
        out = self._find_foreign(watched, read, gate)
        watched.selectors = {
            gates.claim(watched.scaler, one): facts[one.name].selector for one in watched.scaler.targets
        }
        decided = decide(
            watched,
            read,
            self._state.cluster,
            now=now,
            leads_since=self._state.leads_since,
            floors=_floors(watched, read.wall_s),
            others=self._rivals(watched),
        )
        watched.wrote.clear()
        if (grows_at := may_grow_at(watched, decided)) is not None:
            # a period that ends before the next round is not waited out twice
            watched.due_at = min(watched.due_at, grows_at + SOON_S)
        self._count(decided)
        if watched.design_go != watched.scaler.go:
            watched.design_go, watched.design_due = watched.scaler.go, ""
        watched.design_due = watched.design_due or decided.drifting
        out += [Log("rule_broken", (("object", read.key), ("rule", line)), "error") for line in decided.broken]
        by_service = self._gates(watched, read, gate, decided)
        self._settle_foreign(watched, read, decided, by_service)
        writes = self._writes_of(watched, read, decided, by_service)
        acted = frozenset(write.service for write in writes)
        self._remember_expected(watched, read, by_service)
        self._note_history(watched, decided, acted, read.wall_s)
        say(self._state, watched, decided, gate, by_service, acted, wall_s=read.wall_s)
        out += announcing.troubles(self._state, watched, now)
        return [*out, *self._commit(watched, read, decided, writes, by_service, now)]

    def _take_over(self, watched: WatchedScaler, read: RoundRead) -> None:
        """Once per term: what the last leader recorded counts as ours."""
        if watched.inherited:
            return
        watched.inherited = True
        watched.design_go, watched.design_due = watched.scaler.go, telling.design_due(watched.scaler)
        last, watched.trusted = read.last, watched.scaler.go
        if last is not None and last.uid == watched.scaler.uid and watched.policy is None:
            watched.weights = last.weights
        if last is None or last.uid != watched.scaler.uid or Go(*last.go) != watched.scaler.go:
            return  # nothing of this object, or from before a new go, which takes things as they are
        for name, one in last.services.items():
            watched.expected[name] = Expected((one.before, one.wrote))
            if one.wrote > one.before:
                watched.unsure[name] = one.wrote
        for name, seen in last.foreign.items():
            watched.foreign[name] = Foreign(seen.value, seen.by, Go(*seen.go), seen.at, seen.times, seen.kept)
            watched.earlier[name] = Earlier(seen.times, (seen.at,))

    def _find_foreign(self, watched: WatchedScaler, read: RoundRead, gate: Gate) -> list[Instruction]:
        out: list[Instruction] = []
        if gate.reason:
            # nothing of ours is at stake; what people do meanwhile is theirs to do
            watched.expected.clear()
            watched.unsure.clear()
            watched.bounded.clear()
            return out
        if watched.trusted != watched.scaler.go:
            watched.trusted = watched.scaler.go  # a new go takes things as they are
            watched.expected.clear()
            watched.unsure.clear()
            watched.bounded.clear()
            watched.foreign.clear()
            watched.earlier.clear()
        for target in watched.scaler.targets:
            shown, writer = _shown(watched, read, target.name)
            if shown is None:
                continue
            before, expected = watched.foreign.get(target.name), watched.expected.get(target.name)
            earlier = watched.earlier.get(target.name, Earlier())
            found = foreign.seen(
                expected, shown, by=writer, go=watched.scaler.go, before=before, wall_s=read.wall_s, earlier=earlier
            )
            if found is None:
                hpa = read.hpas.get(target.name)
                if target.name not in watched.bounded or not isinstance(hpa, HpaFact) or hpa.maximum == target.maximum:
                    continue
                found = foreign.found(shown, hpa.writer, watched.scaler.go, read.wall_s, earlier)
            watched.foreign[target.name] = found
            if found == before:
                continue
            watched.unsure.pop(target.name, None)
            watched.expected.pop(target.name, None)
            watched.bounded.discard(target.name)
            watched.earlier[target.name] = earlier.then(read.wall_s)
            self._state.stats.foreign_writes += 1
            facts = (("object", watched.scaler.key), ("service", target.name), ("value", found.value))
            out.append(Log("foreign_writer", (*facts, ("by", repr(found.by)[:80])), "warning"))
        return out

    def _settle_foreign(
        self, watched: WatchedScaler, read: RoundRead, decided: ScalerDecision, by_service: Mapping[str, Gate]
    ) -> None:
        """What becomes of others' writes whose grace is over, where we may write at all."""
        for name, found in list(watched.foreign.items()):
            shown, _ = _shown(watched, read, name)
            if shown is None or name not in decided.verdict.allowed or by_service[name].reason:
                continue
            left = foreign.settled(
                found,
                allowed=decided.verdict.allowed[name],
                shown=shown,
                answer=watched.scaler.foreign_writer,
                wall_s=read.wall_s,
            )
            if left is None:
                del watched.foreign[name]
            else:
                watched.foreign[name] = left

    def _rivals(self, watched: WatchedScaler) -> tuple[str, ...]:
        """Selectors of what other objects of the namespace scale; asked only where pods are found by labels alone."""
        cluster, scaler = self._state.cluster, watched.scaler
        if all(cluster.owns(target.ref) for target in scaler.targets):
            return ()
        own = watched.selectors.keys()
        return tuple(
            selector
            for one in self._state.objects.values()
            if one is not watched and one.scaler.namespace == scaler.namespace
            for claim, selector in one.selectors.items()
            if claim not in own
        )

    def _count(self, decided: ScalerDecision) -> None:
        stats = self._state.stats
        stats.decisions += 1
        stats.policy_failures += bool(decided.failed)
        stats.drifting_decisions += bool(decided.drifting)
        stats.bad_readings += bool(decided.bad)
        stats.broken_rules += len(decided.broken)
        for notes in decided.verdict.notes.values():
            for safeguard, _ in notes:
                stats.safeguards[safeguard] = stats.safeguards.get(safeguard, 0) + 1

    def _gates(self, watched: WatchedScaler, read: RoundRead, gate: Gate, decided: ScalerDecision) -> dict[str, Gate]:
        if gate.reason:
            return {target.name: gate for target in watched.scaler.targets}
        if decided.broken:
            broken = Gate("RuleBroken", f"the verdict breaks a rule: {decided.broken[0]}; please report it")
            return {target.name: broken for target in watched.scaler.targets}
        return {
            target.name: gates.of_service(
                watched,
                target,
                self._state,
                read.hpas.get(target.name),
                allowed=decided.verdict.allowed.get(target.name, 0),
                wall_s=read.wall_s,
            )
            for target in watched.scaler.targets
        }

    def _writes_of(
        self, watched: WatchedScaler, read: RoundRead, decided: ScalerDecision, by_service: dict[str, Gate]
    ) -> tuple[ScaleTo | SetBounds, ...]:
        found: list[ScaleTo | SetBounds] = []
        scaler = watched.scaler
        for target in scaler.targets:
            fact, hpa = read.targets[target.name], read.hpas.get(target.name)
            if by_service[target.name].reason or not isinstance(fact, TargetFact):
                continue
            allowed = decided.verdict.allowed[target.name]
            if scaler.mode is ScalerMode.ACT_ON_SCALE and allowed != fact.replicas:
                found.append(
                    ScaleTo(
                        service=target.name, namespace=scaler.namespace, ref=target.ref, uid=fact.uid,
                        resource_version=fact.resource_version, replicas=allowed,
                    )
                )  # fmt: skip
            elif isinstance(hpa, HpaFact):
                low, high = max(allowed, 1), max(target.maximum, 1)  # an HPA has no minimum of zero
                if target.name in watched.foreign:
                    low = max(low, hpa.minimum)
                    high = hpa.maximum if low <= hpa.maximum else high
                if fact.replicas and (hpa.minimum, hpa.maximum) != (low, high):
                    found.append(
                        SetBounds(
                            service=target.name, namespace=scaler.namespace, name=hpa.name, uid=hpa.uid,
                            resource_version=hpa.resource_version, minimum=low, maximum=high,
                        )
                    )  # fmt: skip
        return tuple(found)

    def _remember_expected(self, watched: WatchedScaler, read: RoundRead, by_service: dict[str, Gate]) -> None:
        """What is there now was taken in by this decision: from here on any other number is somebody's."""
        watched.owed = {name: rise for name, rise in watched.unsure.items() if name in by_service}
        for target in watched.scaler.targets:
            hpa = read.hpas.get(target.name)
            if not by_service[target.name].reason and isinstance(hpa, HpaFact) and hpa.maximum == target.maximum:
                watched.bounded.add(target.name)  # as an earlier leader of ours left it
        for name, gate in by_service.items():
            shown, _ = _shown(watched, read, name)
            if gate.reason or shown is None:
                watched.expected.pop(name, None)
                watched.unsure.pop(name, None)
                continue
            watched.expected[name] = Expected((shown,))
            watched.unsure.pop(name, None)
        for name in watched.expected.keys() - by_service.keys():
            del watched.expected[name]
            watched.unsure.pop(name, None)

    def _note_history(
        self, watched: WatchedScaler, decided: ScalerDecision, acted: frozenset[str], wall_s: float
    ) -> None:
        rows = telling.decision_rows(decided, acted, wall_s)
        known = [(row["service"], row["to"], row["by"]) for row in watched.history]
        new = [row for row in rows if row["service"] in acted or (row["service"], row["to"], row["by"]) not in known]
        watched.history = [*new, *watched.history][: telling.DECISIONS]

    def _commit(
        self,
        watched: WatchedScaler,
        read: RoundRead,
        decided: ScalerDecision,
        writes: tuple[ScaleTo | SetBounds, ...],
        by_service: dict[str, Gate],
        now: float,
    ) -> list[Instruction]:
        """Record the decision before anything is written; a repeated one that writes nothing now and then."""
        services = {write.service: _scaled(watched, read, write) for write in writes}
        kept = {
            # what was written before stands until it is let go of
            name: ScaledTo(watched.expected[name].values[0], watched.expected[name].values[0])
            for name, gate in by_service.items()
            if name in watched.expected and name not in services
        }
        found = {
            name: ForeignSeen(one.value, one.by, (one.go.by, one.go.digest, one.go.at), one.at_s, one.times, one.kept)
            for name, one in watched.foreign.items()
        }
        told = {name: gate.reason for name, gate in by_service.items()}
        scope = (
            dict(decided.verdict.allowed), {**kept, **services}, found, decided.by, decided.failed,
            told, watched.scaler.mode, watched.scaler.go, bool(decided.drifting), decided.unmade,
            dict(decided.lacking), dict(decided.unknown),
            {name: reason for name, (reason, _) in decided.refused.items()},
        )  # fmt: skip
        if not writes and scope == watched.recorded and now - watched.recorded_at < self._state.settings.record_every_s:
            watched.move(ScalerStage.IDLE, "as before")
            return []
        watched.move(ScalerStage.COMMITTING, "decided")
        watched.recorded, watched.recorded_at, watched.writes = scope, now, writes
        for write in writes:
            one = services[write.service]
            watched.expected[write.service] = Expected((one.before, one.wrote))
            if one.wrote > one.before:
                watched.unsure[write.service] = one.wrote
        go = watched.scaler.go
        number = (read.last.number if read.last is not None else 0) + 1
        slot = number % self._state.settings.history
        record = AutoscaleRecord(
            uid=watched.scaler.uid, term=self._state.term, number=number, at=read.wall_s,
            go=(go.by, go.digest, go.at), services={**kept, **services}, foreign=found,
            weights=gates.weights(watched), slot=slot,
        )  # fmt: skip
        decision = _decision(
            watched, decided, frozenset(services), self._state.term, number, read.wall_s, gated=by_service
        )
        return [
            CommitRecord(
                key=read.key, number=read.number, record=record, last_revision=read.last_revision,
                slot=slot, decision=decision,
            )
        ]  # fmt: skip

    def committed(self, event: RecordCommitted, now: float) -> list[Instruction]:
        watched = self._current(event.key, event.number, ScalerStage.COMMITTING)
        if watched is None:
            return []
        writes, watched.writes = watched.writes, ()
        if event.outcome != "ok":
            self._state.stats.commits_refused += event.outcome == "refused"
            self._state.stats.commits_unknown += event.outcome == "unknown"
            _let_go(watched, writes)
            watched.move(ScalerStage.IDLE, f"commit {event.outcome}")
            return []
        if watched.read_generation != watched.scaler.generation or gates.of_object(watched).reason:
            # paused, switched over or changed since: it is decided anew
            if writes:
                _let_go(watched, writes)
            watched.move(ScalerStage.IDLE, "changed meanwhile")
            watched.due_at = now
            return []
        if not writes:
            watched.move(ScalerStage.IDLE, "recorded")
            return []
        watched.move(ScalerStage.WRITING, "committed")
        watched.writes = writes
        return [Write(event.key, event.number, writes)]

    def wrote(self, event: ReplicasWrote, now: float) -> list[Instruction]:
        watched = self._current(event.key, event.number, ScalerStage.WRITING)
        if watched is None:
            return []
        writes, watched.writes = watched.writes, ()
        watched.move(ScalerStage.IDLE, "written")
        out: list[Instruction] = []
        for write in writes:
            outcome, text = event.results.get(write.service, ("unknown", "no answer"))
            before, wrote = watched.expected[write.service].values
            watched.unwritten.pop(write.service, None)
            if outcome == "ok":
                self._state.stats.writes += 1
                watched.expected[write.service] = Expected((wrote,))
                watched.unsure.pop(write.service, None)
                if isinstance(write, SetBounds):
                    watched.bounded.add(write.service)
                else:
                    watched.wrote[write.service] = wrote
                    note_change(watched, write.service, before, wrote, now)
                out += announcing.rescaled(self._state, watched, write, before, now)
            elif outcome == "unknown":
                self._state.stats.writes_unknown += 1
            else:
                self._state.stats.conflicts += outcome == "conflict"
                self._state.stats.writes_refused += outcome == "refused"
                _not_written(watched, write.service)
                if outcome == "refused":
                    watched.unwritten[write.service] = text
            if outcome != "ok":
                watched.recorded = None
            level = "info" if outcome in ("ok", "conflict") else "warning"
            facts = (("object", event.key), ("service", write.service), ("before", before), ("after", wrote))
            out.append(Log(f"scale_{outcome}", (*facts, *((("error", text[:200]),) if text else ())), level))
        return out


def _floors(watched: WatchedScaler, wall_s: float) -> dict[str, int]:
    """By service, what somebody else wrote and nothing is to fall below."""
    if watched.scaler.foreign_writer is ForeignWriter.CORRECT:
        return {}
    return {name: one.value for name, one in watched.foreign.items() if not one.stands(wall_s)}


def _incomplete(watched: WatchedScaler, read: RoundRead) -> Gate:
    """Why a round cannot be decided upon; what is not known stays as it is."""
    if read.store_problem:
        return Gate("StoreUnknown", f"etcd: {read.store_problem}")
    for target in watched.scaler.targets:
        fact = read.targets.get(target.name, "it was not read")
        if isinstance(fact, str):
            reason = "TargetUnusable" if fact.startswith("!") else "TargetUnknown"
            return Gate(reason, f"{target.ref}: {fact.lstrip('!')}")
    # the kill switch needs HPA's rule alone
    unmade = watched.rule_problem or ("" if watched.scaler.plain_hpa else watched.policy_problem)
    return Gate("PolicyUnusable", unmade) if unmade else Gate()


def _shown(watched: WatchedScaler, read: RoundRead, name: str) -> tuple[int | None, str]:
    """(what our kind of write would change, who wrote it last)."""
    if watched.scaler.mode is ScalerMode.ACT_ON_BOUNDS:
        hpa = read.hpas.get(name)
        return (hpa.minimum, hpa.writer) if isinstance(hpa, HpaFact) else (None, "")
    fact = read.targets.get(name)
    return (fact.replicas, fact.writer) if isinstance(fact, TargetFact) else (None, "")


def _scaled(watched: WatchedScaler, read: RoundRead, write: ScaleTo | SetBounds) -> ScaledTo:
    shown, _ = _shown(watched, read, write.service)
    assert shown is not None, "only what was read is written"
    return ScaledTo(shown, write.replicas if isinstance(write, ScaleTo) else write.minimum)


def _decision(
    watched: WatchedScaler,
    decided: ScalerDecision,
    acted: frozenset[str],
    term: int,
    number: int,
    wall_s: float,
    *,
    gated: Mapping[str, Gate],
) -> dict[str, object]:
    """The decision with its inputs, as etcd keeps it."""
    return {
        "at": telling.text_of(wall_s),
        "term": term,
        "number": number,
        "object": watched.scaler.key,
        "generation": watched.scaler.generation,
        "mode": watched.scaler.mode.value,
        "policy": watched.scaler.policy,
        "by": decided.by,
        "failed": decided.failed,
        "drifting": decided.drifting,
        "go": {"by": watched.scaler.go.by, "digest": watched.scaler.go.digest},
        "services": telling.rows(decided, acted),
        "seen": decided.seen,
        "bad": decided.bad,
        "unmade": decided.unmade,
        "lacking": decided.lacking,
        "unknown": decided.unknown,
        "refused": decided.refused,
        "safeguards": decided.verdict.notes,
        "gates": {name: (gate.reason, gate.text) for name, gate in gated.items() if gate.reason},
    }


def _let_go(watched: WatchedScaler, writes: tuple[ScaleTo | SetBounds, ...]) -> None:
    """These were decided and are not written: the next decision is recorded anew."""
    watched.recorded = None
    for write in writes:
        _not_written(watched, write.service)


def _not_written(watched: WatchedScaler, service: str) -> None:
    """As it was before this decision: an earlier rise that it was to finish may still come, or has to be finished."""
    before, owed = watched.expected[service].values[0], watched.owed.get(service, 0)
    watched.expected[service] = Expected((before, owed) if owed > before else (before,))
    watched.unsure.pop(service, None)
    if owed > before:
        watched.unsure[service] = owed
