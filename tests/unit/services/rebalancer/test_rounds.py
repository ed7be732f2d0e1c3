"""Who may be moved when, when a goal is given up, and what a dead leader has left."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any, cast

import pytest

from services.rebalancer.app import planner, stay
from services.rebalancer.core.rounds import PlanGuard, judged, scope, trouble
from services.rebalancer.io.sweeping import run_of, sweep
from services.rebalancer.settings import RebalancerSettings
from shared.decide.guard import Guard
from shared.decide.judging import Judge
from shared.decide.pair import PolicyPair
from shared.decide.rollout import Rollout, begin, promoted
from shared.decide.stages import Stage
from shared.errors import ConfigError, InvalidValue, TooFewWindows
from shared.kube.objects import KubePod, ObjectMeta
from shared.kube.reservations import RESERVATIONS, ReservationObject
from shared.kube.resources import PODS, ObjectList
from shared.rebalance.board import RebalanceBoard, RoundTold, with_round
from shared.rebalance.domain import POLICIES, REBALANCE
from shared.rebalance.history import MoveHistory
from shared.rebalance.plan import GoalName, MovePlan
from shared.rebalance.windows import open_for_s, parse_windows
from shared.runtime.kube.moves.carry import LABEL, POD_LABEL
from shared.runtime.process.settings import load
from tests.builders import make_node
from tests.unit.shared.rebalance.worlds import NOW, owned, world

SPACES = [f"team-{number}" for number in range(10)]
STEP = "2026-11-29T00:00:00.000Z"


def rollout(stage: Stage, percent: int = 10) -> Rollout:
    return Rollout(stage=stage, candidate="empty-nodes", percent=percent, since=STEP)


def told(before: float, made: int = 2, failed: int = 0, since: str = STEP) -> RoundTold:
    return RoundTold(
        at=0.0, goal="load", stage="active", since=since, unit="u", before=before, made=made, failed=failed
    )


def test_in_shadow_nobody_is_moved_in_the_canary_a_few_namespaces_then_all() -> None:
    assert not scope(rollout(Stage.SHADOW), SPACES, (), (), "", NOW).moves
    few = scope(rollout(Stage.CANARY), SPACES, (), (), "", NOW)
    more = scope(rollout(Stage.CANARY, 50), SPACES, (), (), "", NOW)
    assert few.moves
    assert len(few.namespaces) == 1
    assert set(few.namespaces) < set(more.namespaces)
    assert len(more.namespaces) == 5
    every = scope(rollout(Stage.ACTIVE), SPACES, (), (), "", NOW)
    assert (every.moves, every.namespaces, every.for_s) == (True, (), inf)
    assert not scope(rollout(Stage.ACTIVE), SPACES, (), (), "by ann: upgrade", NOW).moves
    named = scope(rollout(Stage.CANARY, 50), SPACES, ("team-1", "team-2"), (), "", NOW)
    assert set(named.namespaces) < {"team-1", "team-2"}


@pytest.mark.parametrize(
    ("text", "at", "left_s"),
    [
        ("22:00-06:00", "2026-11-27T23:00", 7 * 3600),
        ("22:00-06:00", "2026-11-27T05:00", 3600),
        ("22:00-06:00", "2026-11-27T06:00", 0),
        ("Fri 22:00-06:00", "2026-11-28T05:30", 1800),
        ("Fri 22:00-06:00", "2026-11-28T23:00", 0),
        ("Sat-Mon 00:00-24:00", "2026-11-30T12:00", 12 * 3600),
        ("Mon 01:00-02:00, Fri 10:00-12:00", "2026-11-27T11:00", 3600),
        ("22:00-24:00, 00:00-06:00", "2026-11-27T23:50", 6 * 3600 + 600),
        ("00:00-24:00", "2026-11-27T23:50", 7 * 86_400 + 600),
        ("", "2026-11-27T11:00", inf),
    ],
)
def test_a_window_is_of_its_days_and_may_pass_midnight(text: str, at: str, left_s: float) -> None:
    wall = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
    assert open_for_s(parse_windows(text), wall) == left_s
    assert scope(rollout(Stage.ACTIVE), SPACES, (), parse_windows(text), "", wall).moves is (left_s > 0)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"windows": "Mon 25:00-26:00"}, "'25:00' is no time of day"),
        ({"windows": "Mo 22:00-23:00"}, "'Mo' is not one of Mon, Tue"),
        ({"windows": "22:00"}, "windows: '22:00'"),
        ({"windows": "22:00-22:00"}, "is no window"),
        ({"namespaces": "Team A"}, "namespaces: 'Team A' names no namespace"),
        ({"namespaces": ","}, "namespaces: ',' names no namespace"),
        ({"max_per_hour": "2001"}, "--max-per-hour: '2001' cannot be used"),
        ({"unprotect": "DaemonSetPods"}, "unprotect: 'DaemonSetPods' is not one of"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(flags: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(RebalancerSettings, service="rebalancer", flags=flags)


def test_a_goal_that_comes_no_nearer_is_given_up() -> None:
    rounds = [told(10.0), told(9.0), told(9.5), told(9.5, made=0)]
    assert trouble(rounds, STEP, 9.9, 3) == ""
    assert "no nearer: 3 rounds moved 6 pods, and it went from 10 to 10 u" in trouble(rounds, STEP, 10.0, 3)
    assert trouble(rounds[:2], STEP, 10.0, 3) == ""
    assert trouble(rounds, "another step", 10.0, 3) == "", "what was moved before counts for another step"
    nights = RebalanceBoard()
    for _ in range(3):
        nights = with_round(nights, told(10.0, made=20), new=True)
        for _ in range(143):
            nights = with_round(nights, told(10.0, made=0), new=True)
    assert "3 rounds moved 60 pods" in trouble(nights.rounds, STEP, 10.0, 3), "looks push out no round that moved"
    assert "most moves failed" in trouble([told(9, 1, 2), told(8, 0, 1)], STEP, 1.0, 3)


def pair_of(guard: PlanGuard) -> PolicyPair[PlanGuard]:
    pair: PolicyPair[PlanGuard] = PolicyPair(stay(), make=lambda _: guard, judge=partial(Judge, REBALANCE, length_s=60))
    pair.read(rollout(Stage.ACTIVE), 7)
    return pair


def test_a_candidate_is_taken_back_by_itself_and_has_good_windows_where_nothing_is_wrong() -> None:
    plan = MovePlan("load", "u", 10.0, 8.0)
    pair = pair_of(Guard(lambda *_: plan, REBALANCE.limits))
    assert judged(pair, [], plan, 3, 0.0) is None
    assert judged(pair, [], plan, 3, 61.0) is None, "nobody was moved at this step: that proves nothing"
    assert judged(pair, [told(10.0)], plan, 3, 61.0) is None
    good = judged(pair, [told(10.0)], plan, 3, 122.0)
    assert good is not None
    assert (good.stage, good.good) == (Stage.ACTIVE, 1)
    back = judged(pair, [told(10.0)] * 3, plan, 3, 123.0)
    assert back is not None
    assert back.stage is Stage.NONE
    assert "no nearer" in back.reason


def test_a_planner_that_fails_rests_and_is_taken_back() -> None:
    def broken(*_: Any) -> MovePlan:
        raise ValueError("a bug")

    guard: PlanGuard = Guard(broken, REBALANCE.limits)
    pair, there = pair_of(guard), world([make_node("a")], [])
    asked = RebalancerSettings().request(GoalName.LOAD, (), MoveHistory())
    for _ in range(REBALANCE.limits.patience):
        assert guard.ask(there, asked, NOW) is None
    back = judged(pair, [], None, 3, 0.0)
    assert back is not None
    assert (back.stage, "a bug" in back.reason) == (Stage.NONE, True)


def test_the_frame_asks_for_a_good_window_before_anybody_is_moved() -> None:
    held = begin(Rollout(), "load", policies=POLICIES, now=STEP, by="ann", reason="")
    assert held.stage is Stage.SHADOW
    with pytest.raises(TooFewWindows):
        promoted(held, domain=REBALANCE, percent=None, force=False, now=STEP, by="ann", reason="")
    with pytest.raises(InvalidValue):
        begin(Rollout(), "unblock", policies=POLICIES, now=STEP, by="ann", reason="")


def test_each_goal_plans_within_the_namespaces_that_it_is_given() -> None:
    pods = [owned(f"{space}-1", "abc"[n], "500m", namespace=space, uid=space) for n, space in enumerate(SPACES[:3])]
    there = world([make_node(name).allocatable(cpu="4", memory="8Gi") for name in "abc"], pods)
    settings = RebalancerSettings(min_replicas=0, min_pod_age_s=0.0)
    for name in POLICIES:
        found = planner(name).ask(there, settings.request(GoalName(name), ("team-1",), MoveHistory()), NOW)
        assert found is not None
        assert {move.namespace for move in found.moves} <= {"team-1"}
    assert found is not None


class Kept:
    """An API server with these reservations and pods; ``deleted``: which of them were given back."""

    def __init__(self, rooms: list[ReservationObject], *uids: str) -> None:
        self.deleted: list[str] = []
        meta = [ObjectMeta(name=uid, namespace="default", uid=uid) for uid in uids]
        self.shown = {RESERVATIONS.plural: tuple(rooms), PODS.plural: tuple(KubePod(metadata=one) for one in meta)}

    async def list(self, resource: Any, **_: Any) -> ObjectList[Any]:
        return ObjectList(self.shown[resource.plural], "1")

    async def delete(self, _: Any, *, name: str, **__: Any) -> None:
        self.deleted.append(name)


def room(run: str, pod: str, phase: str = "Available") -> ReservationObject:
    meta = ObjectMeta(
        name=f"{run}.{pod}", namespace="default", uid=f"u-{run}-{pod}", labels={LABEL: run, POD_LABEL: pod}
    )
    return ReservationObject(meta, {"resources": {"cpu": "1"}, "owners": [{"pod": "x"}]}, {"phase": phase, "node": "a"})


async def test_rooms_of_dead_leaders_are_given_back_unless_their_pod_has_left() -> None:
    dead, mine = run_of("/a/", 4, 1), run_of("/a/", 5, 1)
    rooms = [room(dead, "stands"), room(dead, "left"), room(mine, "stands"), room("a-command", "stands")]
    rooms += [
        room(run_of("/a/", 6, 1), "stands"),
        room(run_of("/b/", 4, 1), "stands"),
    ]
    server = Kept([*rooms, room(dead, "stands", "Succeeded")], "stands")
    assert await sweep(cast("Any", server), "/a/", 5, lambda: False) == 0
    assert await sweep(cast("Any", server), "/a/", 5) == 1
    assert server.deleted == [f"{dead}.stands"]
