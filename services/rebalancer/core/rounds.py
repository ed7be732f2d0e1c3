"""Round by round: may pods be moved now and whose, how does the goal do, and when is it given up.

    no candidate: nothing is looked at
    shadow:  a plan over all, nobody is moved                                         --operator--> canary
    canary:  a plan over some namespaces, carried out in the windows                  --operator--> active
    active:  a plan over all, carried out in the windows

A candidate goes back by itself where its planner fails, where moves fail in two rounds in a row, and where it has moved
pods for ``most_fruitless`` rounds and its goal is no nearer than before them: others move against it, or the cluster
decays as fast. What it did counts from the record in etcd, also for the next leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from shared.decide.canary import first_of
from shared.decide.guard import Guard
from shared.decide.judging import Gap
from shared.decide.pair import PolicyPair
from shared.decide.rollout import Rollout
from shared.decide.stages import Stage
from shared.rebalance.board import RoundTold
from shared.rebalance.plan import MovePlan
from shared.rebalance.planner import ClusterSituation, PlanRequest
from shared.rebalance.windows import MoveWindow, open_for_s

PlanGuard = Guard[[ClusterSituation, PlanRequest, float], MovePlan]
MOST_FAILING = 2
"""Rounds in a row that were ended because of failed moves."""


class RoundScope(Struct, frozen=True):
    """``namespaces``: whose pods are looked at, () all; ``moves``: whether the plan is carried out; ``why``: why not;
    ``for_s``: for so long at most."""

    goal: str
    namespaces: tuple[str, ...] = ()
    moves: bool = False
    why: str = ""
    for_s: float = 0.0


def scope(
    rollout: Rollout,
    there: Iterable[str],
    only: Sequence[str],
    windows: tuple[MoveWindow, ...],
    paused: str,
    wall: float,
) -> RoundScope:
    """What the next round is about. ``there``: namespaces with pods that may move; ``only``: those that the settings
    name; ``paused``: why scheduling is, "" where it is not; ``wall``: seconds since 1970."""
    known = sorted(set(there) & set(only) if only else set(there))
    goal, allowed = rollout.candidate, tuple(only)
    if rollout.stage not in (Stage.CANARY, Stage.ACTIVE):
        return RoundScope(goal, allowed, why="in shadow nobody is moved: 'conclave policy promote --for rebalance'")
    if rollout.stage is Stage.CANARY:
        allowed = tuple(sorted(first_of(known, goal, rollout.percent)))
    if not known:
        return RoundScope(goal, allowed, why="no namespace has pods that may move")
    if paused:
        return RoundScope(goal, allowed, why=f"scheduling is paused: {paused}")
    left = open_for_s(windows, wall)
    if not left:
        return RoundScope(goal, allowed, why="no window is open")
    return RoundScope(goal, allowed, moves=True, for_s=left)


def trouble(rounds: Sequence[RoundTold], step: str, value: float | None, most_fruitless: int) -> str:
    """Why the goal is to be given up, as its rounds at this step show; "": it is not. ``value``: its measure now, None:
    not known."""
    mine = [one for one in rounds if one.since == step and (one.made or one.failed)]
    last = mine[-MOST_FAILING:]
    if len(last) == MOST_FAILING and all(one.failed > one.made for one in last):
        return f"most moves failed in {MOST_FAILING} rounds in a row, the last: {last[-1].why or 'see its moves'}"
    moved = [one for one in mine if one.made][-most_fruitless:]
    if value is None or len(moved) < most_fruitless or value < moved[0].before:
        return ""
    made = sum(one.made for one in moved)
    return (
        f"the goal comes no nearer: {len(moved)} rounds moved {made} pods, and it went from {moved[0].before:.4g} to "
        f"{value:.4g} {moved[0].unit}"
    )


def judged(
    pair: PolicyPair[PlanGuard], rounds: Sequence[RoundTold], plan: MovePlan | None, most_fruitless: int, now: float
) -> Rollout | None:
    """What the rollout becomes after a plan, None: what it is. A step that may move pods has its good windows from the
    first of its rounds on that has moved one. ``now``: of a clock that only goes on."""
    guard, rollout = pair.candidate, pair.rollout
    if guard is None or not rollout.on:
        return None
    wrong = guard.problem if guard.resting else ""
    value = plan.before if plan is not None else None
    wrong = wrong or trouble(rounds, rollout.since, value, most_fruitless)
    proven = rollout.stage is Stage.SHADOW or any(one.since == rollout.since and one.made for one in rounds)
    gap = Gap(plan.before, max(0.0, plan.before - plan.after), 0.0) if plan is not None and proven else None
    return pair.judge.look(rollout, now, gap, wrong)
