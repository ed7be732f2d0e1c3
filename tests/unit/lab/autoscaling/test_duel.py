"""Two policies side by side: the same episode for both, and the figures of the suite."""

from __future__ import annotations

import pytest

from lab.autoscaling.duel import Duel, happening
from lab.autoscaling.episode import Setup, play
from lab.autoscaling.policies import make
from lab.worlds.services.disturbances import Disturbance, DisturbanceKind
from lab.worlds.services.topology import default_topology

SETUP = Setup(default_topology(), "mixed", 1.0, seconds=400)


def test_both_sides_play_the_suites_episode_of_the_seed():
    duel = Duel(SETUP, {"hpa": make("hpa"), "karma": make("karma")}, 3)
    moments = list(duel.moments())
    assert [one["hpa"].at_s for one in moments] == list(range(0, 400, 10))
    assert [one["hpa"].load for one in moments] == [one["karma"].load for one in moments]
    for name, played in duel.played().items():
        assert played.figures == play(SETUP, make(name), 3).figures
        assert played.figures["success"] == pytest.approx(100 * duel.past[name][-1].success)


def test_a_role_is_shown_with_its_reason_where_the_policy_has_roles():
    duel = Duel(SETUP, {"hpa": make("hpa"), "karma": make("karma")}, 3)
    acted = {name: [] for name in duel.policies}  # type: ignore[var-annotated]
    for moments in duel.moments():
        for name, moment in moments.items():
            acted[name] += [one.acted for one in moment.services if one.acted is not None]
    assert acted["hpa"] == []
    assert {one.role for one in acted["karma"]} & {"failure-manager", "bottleneck-manager"}
    assert all("above" in one.why or "below" in one.why for one in acted["karma"])


def test_what_happens_is_told_once_while_it_lasts():
    events = (
        Disturbance(DisturbanceKind.SURGE, 10, 20, 1.0, "a"),
        Disturbance(DisturbanceKind.SURGE, 15, 30, 2.0, "a"),
        Disturbance(DisturbanceKind.FAILURES, 15, 99, 0.1),
    )
    assert happening(events, 5) == []
    assert happening(events, 17) == ["surge at a", "failed replicas"]
