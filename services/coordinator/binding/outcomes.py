"""What follows from a plan's results: which placements stand, which units go back to the queue, and why.

BOUND and ELSEWHERE stay assumed where they are until the watch confirms, ELSEWHERE without devices; CONFLICT gives
back at once (another node will do), REFUSED after a backoff with its reason; GONE is for the API server to tell,
UNRESOLVED for the binder, which is asked again, or at last for the API server (of a pod group's member that claims
devices for the binder alone: what the group has is not given back before). No pod is dropped on the binder's word
alone: only the watch or a GET ends a pod's place here (I3).

A turn takes in so many results (``CoreSettings.units_per_turn``), further turns the rest of a larger plan's: whatever
happens between, a result counts while its pod is placed by that very plan.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from services.coordinator.binding.borrowing import kept
from services.coordinator.binding.plans import Ledger, OpenPlan, PodOnItsWay
from services.coordinator.core.events import PlanAnswered, PlanFailed, PodFetched
from services.coordinator.core.intake import PodIntake
from services.coordinator.core.state import NEVER, CoordinatorState
from services.coordinator.core.takeover import Takeover
from services.coordinator.cycle.failures import FailureHandler
from services.coordinator.cycle.unblocking import give_way
from services.coordinator.groups.breaking import evicted_with_group
from services.coordinator.preemption.giving_way import GivingWay
from services.coordinator.preemption.nominations import Nominations
from services.coordinator.status.reporter import scheduled_event
from shared.errors import NAMESPACE_ENDS
from shared.model.units.unit import cause_id
from shared.scheduling.story import FACT_CHARS
from shared.wire.messages import Outcome, Placement, PlacementResult, Plan

RETRY_S = 1.0
"""Pause before a lookup that the API server did not answer is made again."""

LONG_POLL_S = 0.5
"""An answer that came sooner did not wait for units on their way: to ask again at once would only spin."""

UNTOLD_S = 60.0
"""For so long after a unit was given back without its binder's word it may be bound yet: longer than a binder takes
over, and a Binding is under way. Who is to be bound later still has its claims marked first."""

NAMES = {int(outcome): outcome.name for outcome in Outcome}


class Outcomes:
    """Applies results to cache, queue and ledger."""

    def __init__(
        self, state: CoordinatorState, ledger: Ledger, pods: PodIntake, takeover: Takeover, failures: FailureHandler,
        nominations: Nominations, giving_way: GivingWay,
    ) -> None:  # fmt: skip
        self._state = state
        self._ledger = ledger
        self._pods = pods
        self._takeover = takeover
        self._failures = failures
        self._nominations = nominations
        self._giving_way = giving_way
        self._answers: deque[tuple[int, Iterator[None]]] = deque()
        self._left = state.settings.units_per_turn

    @property
    def unfinished(self) -> set[int]:
        """Ids of plans that were answered, and of which not every result is taken in yet."""
        return {plan_id for plan_id, _ in self._answers}

    @property
    def busy(self) -> bool:
        """Whether there are results to take in: the loop is to turn at once."""
        return bool(self._answers)

    def step(self) -> None:
        """The end of a turn: take in what there is still time for, and let the next turn take in as much."""
        self._take_in()
        self._left = self._state.settings.units_per_turn
        self._state.agenda.results = self._state.now if self._answers else NEVER

    def answered(self, event: PlanAnswered) -> None:
        """The binder answered a plan; an answer to a plan that is not open changes nothing (I9)."""
        found = self._ledger.answered(event)
        if found is not None:
            plan = found[0]
            results = self._loans(event, *found) if plan.lends_to else self._results(event, *found, self._state.now)
            self._answers.append((event.plan_id, results))
            self._state.agenda.results = self._state.now
            self._take_in()

    def _take_in(self) -> None:
        """Plan after plan, while the turn has time."""
        while self._answers and self._left > 0:
            for _ in self._answers[0][1]:
                self._left -= 1
                if self._left <= 0:
                    break
            else:
                self._answers.popleft()

    def _results(
        self, event: PlanAnswered, open_plan: OpenPlan, results: list[PlacementResult], came_at: float
    ) -> Iterator[None]:
        """What follows from one answer, result by result. ``came_at``: seconds of the clock."""
        plan, stats = open_plan.plan, self._state.stats
        self._tell(plan, results, event.round_trip_s)
        elapsed_s = event.result.elapsed_us / 1e6
        for placement, result, tried in zip(plan.placements, results, open_plan.tried, strict=True):
            self._tell_of(plan.plan_id, placement, result)
            stats.conflicts += result.conflicts
            if result.bind_us:
                # An upper bound: the plan's way back is counted as if it came before the Binding.
                upper_s = placement.waited_us / 1e6 + event.round_trip_s - elapsed_s + result.bind_us / 1e6
                stats.latencies_s.append(max(0.0, upper_s))
            placed = self._ledger.placed.get(placement.uid)
            if result.outcome == Outcome.BOUND:
                first_seen, taken_at, attempt = tried
                settled_s = result.settled_us / 1e6 or elapsed_s
                bound_at = came_at - max(0.0, elapsed_s - settled_s)  # the way back counts: an upper bound
                name = self._state.scheduler_name if placed is None else placed.pod.scheduler_name
                stats.attempts_s.append(("scheduled", max(0.0, bound_at - taken_at), name))
                stats.scheduled_s.append((attempt, max(0.0, bound_at - first_seen)))
                stats.events += 1
                self._state.out.append(scheduled_event(placement, result.node or placement.node, plan.term))
            # By plan: a pod that was given back and planned again since must not be moved by an earlier answer (I9).
            if placed is not None and placed.plan_id == plan.plan_id:
                self._apply(placed, result)
            elif result.outcome == Outcome.BOUND:
                stats.bound += 1  # the watch was faster than the answer
            yield
        if plan.gangs:
            tried_at = zip(plan.placements, open_plan.tried, strict=True)
            self._count_gangs(plan, results, {placement.unit: tried[1] for placement, tried in tried_at})
        if elapsed_s >= LONG_POLL_S:
            self._ask_again(plan)
        asked = {eviction.uid: eviction for eviction in plan.evictions}
        for evicted in event.result.evictions:
            if (eviction := asked.get(evicted.uid)) is None:
                continue
            if not evicted_with_group(self._state, eviction, evicted) and not self._giving_way.answered(
                eviction, evicted
            ):
                self._nominations.evicted(eviction, evicted)

    def _tell(self, plan: Plan, results: list[PlacementResult], round_trip_s: float) -> None:
        """One line per plan; of one that bound all, for who looks closely: a lone pod has one too."""
        state = self._state
        bound = sum(1 for result in results if result.outcome == Outcome.BOUND)
        level = "debug" if bound == len(results) else "info"
        state.log(
            "plan_answered", level=level, plan_id=plan.plan_id, placements=len(results), bound=bound,
            duration_ms=round(round_trip_s * 1000, 3),
        )  # fmt: skip

    def _tell_of(self, plan_id: int, placement: Placement, result: PlacementResult) -> None:
        """One line in the pod's story; of one that was not bound also one for the operator. That it was, its hops say
        (``io/peers.py``), to whoever listens."""
        state, outcome = self._state, NAMES.get(result.outcome, str(result.outcome))
        told = plan_id, outcome, result.node, result.reason[:FACT_CHARS]
        state.queue.story.add(placement.uid, "plan {} answered: {} {} {}", *told)
        if result.outcome == Outcome.BOUND:
            return
        bad = result.outcome in (Outcome.REFUSED, Outcome.UNRESOLVED) and NAMESPACE_ENDS not in result.reason
        state.log(
            "pod_not_placed",
            level="warning" if bad else "debug",
            pod_uid=placement.uid,
            pod=f"{placement.namespace}/{placement.name}",
            node=result.node or placement.node,
            outcome=outcome,
            reason=result.reason,
            cause_id=cause_id(state.term, placement.unit),
        )

    def _count_gangs(self, plan: Plan, results: list[PlacementResult], taken_at: dict[int, float]) -> None:
        """A gang is bound to its minimum, or not at all, unless the API server refuses Bindings for good. ``taken_at``:
        when each unit was taken off the queue."""
        of_unit = {result.unit: result.outcome for result in results}
        settled_us = {r.unit: r.settled_us for r in results if r.outcome == Outcome.BOUND and r.settled_us}
        for gang in plan.gangs:
            outcomes = [of_unit.get(unit, Outcome.UNRESOLVED) for unit in gang.members]
            bound = sum(outcome in (Outcome.BOUND, Outcome.ELSEWHERE) for outcome in outcomes)
            if bound and bound >= gang.min_count:
                ends_us = [settled_us[unit] for unit in gang.members if unit in settled_us]
                stats, began = self._state.stats, min(taken_at[unit] for unit in gang.members)
                stats.gang_attempts_s.append(("scheduled", max(0.0, self._state.now - began)))
                stats.gang_spans_s.append((max(ends_us) - min(ends_us)) / 1e6 if ends_us else 0.0)
            if Outcome.UNRESOLVED not in outcomes and 0 < bound < gang.min_count:
                self._state.stats.gangs_partial += 1
                self._state.log(
                    "gang_partly_bound", level="warning", group=gang.group, bound=bound, lacking=gang.min_count - bound,
                    cause_id=cause_id(plan.term, gang.unit),
                )  # fmt: skip

    def failed(self, event: PlanFailed) -> None:
        """The plan was not answered; if it was refused for what it is, its units go back."""
        opened = self._ledger.plans.get(event.plan_id)
        plan = self._ledger.failed(event)
        # one that was sent before may have been taken up then; one that asks again is for what an earlier plan began
        told = None if opened is not None and opened.sends == 1 and not opened.again else False
        if plan is not None and opened is not None and opened.lends_to:
            self.give_up([found for number, found in self._ledger.plans.items() if number == opened.lends_to])
            return
        for placement in plan.placements if plan is not None else ():
            placed = self._ledger.placed.get(placement.uid)
            if placed is not None and plan is not None and placed.plan_id == plan.plan_id:
                self._give_back(placed, f"the binder refused the plan: {event.code}", failed=True, told=told)
        for eviction in plan.evictions if plan is not None else ():
            if not self._giving_way.not_asked(eviction):
                self._nominations.not_asked(eviction)

    # --- what other shards lend ---------------------------------------------------------------------------------

    def _loans(self, event: PlanAnswered, open_plan: OpenPlan, results: list[PlacementResult]) -> Iterator[None]:
        """A lender's answer, result by result; after the last lender's the plan that it lends to goes out."""
        plan, home = open_plan.plan, open_plan.lends_to
        loans = {(loan.uid, loan.node): loan for loan in event.result.loans}
        for placement, result in zip(plan.placements, results, strict=True):
            placed = self._ledger.placed.get(placement.uid)
            if placed is not None and placed.plan_id == home:
                placed.loan = loans.get((placement.uid, placement.node)) if result.outcome == Outcome.LENT else None
                if placed.loan is None:
                    self._tell_of(plan.plan_id, placement, result)
                    self._not_lent(placed, result, open_plan)
            yield
        opened = self._ledger.lent(open_plan)
        if opened is not None:
            self._borrowed(opened)

    def _not_lent(self, placed: PodOnItsWay, result: PlacementResult, open_plan: OpenPlan) -> None:
        """The unit has no room there: it is given back, unless it turns out to be bound."""
        # Out of its home's plan, which counts by that who stands (`_borrowed`).
        placed.plan_id = open_plan.plan.plan_id
        if result.outcome in (Outcome.LENT, Outcome.UNRESOLVED):
            reason = f"the binder of shard {open_plan.shard} has not said in time whether it lends room"
            self._give_back(placed, reason, failed=self._failures.conflicts.lost(placed.placement.uid), told=None)
        else:
            self._apply(placed, result)

    def _borrowed(self, opened: OpenPlan) -> None:
        """All lenders have answered: what stands goes to the binder, whole gangs or nothing of them."""
        plan, shards, groups = opened.plan, self._state.shards, self._state.groups
        waiting: dict[int, PodOnItsWay] = {}
        for placement in plan.placements:
            placed = self._ledger.placed.get(placement.uid)
            if placed is not None and placed.plan_id == plan.plan_id:
                waiting[placement.unit] = placed
        # members that were bound may have gone while lenders were waited for: then it takes more than was decided
        lacking = {gang.unit: max(gang.min_count, groups.lacking(gang.group)) for gang in plan.gangs}
        together = {unit for gang in plan.gangs for unit in gang.members}
        alone = {
            unit for unit, placed in waiting.items() if unit not in together and groups.lacking(placed.pod.group) > 1
        }
        stand = {
            unit: unit not in alone and (placed.loan is not None or shards.of(placed.placement.node) == opened.shard)
            for unit, placed in waiting.items()
        }
        units, gangs, lost = kept([replace(gang, min_count=lacking[gang.unit]) for gang in plan.gangs], stand)
        self._ledger.borrowed(opened, units, gangs)
        for unit in lost | alone:
            failed = self._failures.conflicts.lost(waiting[unit].placement.uid)
            reason = "too few of its pod group are left: other shards have lent too little room, or members have gone"
            self._give_back(waiting[unit], reason, failed=failed, told=None)

    def give_up(self, plans: Iterable[OpenPlan]) -> None:
        """These have waited for lenders in vain: nothing of them was sent, so all of it is tried anew."""
        for opened in plans:
            shards = ", ".join(sorted(set(opened.borrows.values())))
            self._state.log("loans_awaited", level="warning", plan_id=opened.plan.plan_id, shards=shards)
            self._ledger.drop(opened)
            for placement in opened.plan.placements:
                placed = self._ledger.placed.get(placement.uid)
                if placed is not None and placed.plan_id == opened.plan.plan_id:
                    reason = f"no binder of shard {shards} has said whether it lends room for the pod group"
                    self._give_back(placed, reason, failed=True, told=None)

    def fetched(self, event: PodFetched) -> None:
        """What the API server says about a pod that was looked up."""
        placed = self._ledger.placed.get(event.uid)
        if placed is not None:
            placed.asked = False
            placed.since = self._state.now
        if event.failed:
            if placed is not None:
                # No answer says nothing of the pod: it is late again soon, not after a whole confirm_after_s.
                placed.since = self._state.now - self._state.settings.confirm_after_s + RETRY_S
            return
        if event.pod is None:
            self._pods.delete(event.uid)
            return
        pod = event.pod
        if pod.node_name or pod.finished:
            self._pods.seen(pod)
            return
        # While its plan is open its binder may still bind it: only the answer to that gives it back (I1).
        if placed is not None and placed.plan_id not in self._ledger.plans:
            if placed.unresolved and placed.pod.group and placed.pod.asks is not None:
                self._ledger.ask_later(event.uid)  # what its group has is not given back before its binder has spoken
            else:
                self._give_back(placed, "", failed=True, told=False)
            self._pods.seen(pod)
        elif self._takeover.released(event.uid) is not None:
            self._pods.release(event.uid)
            self._pods.seen(pod)

    def _apply(self, placed: PodOnItsWay, result: PlacementResult) -> None:
        stats, uid = self._state.stats, placed.placement.uid
        placed.answered = True
        placed.since = self._state.now
        match result.outcome:
            case Outcome.BOUND:
                stats.bound += 1
                self._failures.conflicts.forget(uid)
                self._account(placed, result.node or placed.placement.node)
            case Outcome.ELSEWHERE:
                stats.elsewhere += 1
                self._account(placed, result.node or placed.placement.node)
                self._state.devices.forget(uid)  # who bound it chose others, if any: its claims tell
            case Outcome.CONFLICT:
                stats.given_back += 1
                # First: to give it back changes the node's row once, which `avoid` reckons with.
                if result.node:  # without one nothing is wrong with the node: a gang was given back
                    self._failures.conflicts.avoid(uid, result.node)
                self._give_back(placed, result.reason, failed=self._failures.conflicts.lost(uid))
            case Outcome.GONE:
                stats.gone += 1
                self._pods.release(uid)
                self._ledger.look_up(uid)
            case Outcome.REFUSED:
                stats.refused += 1
                self._state.attempted(uid, "error")
                self._give_back(placed, result.reason, failed=True)
            case _:
                stats.unresolved += 1
                placed.unresolved = True

    def _ask_again(self, plan: Plan) -> None:
        """Units of an answered plan that were still on their way: the binder tells their end to another plan."""
        for placement in plan.placements:
            placed = self._ledger.placed.get(placement.uid)
            if placed is not None and placed.plan_id == plan.plan_id and placed.unresolved:
                self._ledger.ask_later(placement.uid)

    def _account(self, placed: PodOnItsWay, node: str) -> None:
        """Count the pod where the binder says it is; the watch confirms it."""
        if placed.pod.group:
            self._state.groups.land(placed.placement.uid, node)
        if node != placed.placement.node:
            self._pods.release(placed.placement.uid)
            self._state.cluster.assume(placed.pod, node, self._state.now)

    def _give_back(self, placed: PodOnItsWay, reason: str, *, failed: bool, told: bool | None = True) -> None:
        """``told``: by a binder's word; else an intent of it may be open yet. None: of this plan there is none, which
        says nothing of those before."""
        uid, pod = placed.placement.uid, placed.pod
        if pod.group and told is not None:
            self._state.groups.given_back(uid, untold_until=None if told else self._state.now + UNTOLD_S)
        # Before `give_way`: what its group has is in use for as long as it counts as on its way (ADR 0076).
        self._ledger.settle(uid)
        self._pods.release(uid)
        if pod.asks is not None:
            give_way(self._state, pod)
        self._failures.not_bound(uid, reason, failed=failed)
        if pod.namespace in self._state.ending:
            self._pods.upsert(pod)
