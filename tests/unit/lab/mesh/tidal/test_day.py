"""A tidal day through the mesh in small: what is lent is used, whoever holds too much leaves when demand rises, and
without anybody who gives way the same day is a bad one for the services."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lab.mesh.placement import NamedPolicy
from lab.mesh.tidal import suite
from lab.mesh.tidal.day import ALONE, LENT, ONE, POOLS, Arrangement, Day
from lab.mesh.tidal.jobs import OfflineJob
from lab.mesh.tidal.lending import PLAIN, Lending, giving_way
from lab.mesh.tidal.levels import TidalLevels
from lab.mesh.tidal.played import PlayedDay
from lab.mesh.world import Agents
from lab.suites.suites import SuiteInput
from lab.traces.tidal import DAY_S, TidalTraces, Tide, TracedJob, built_in
from services.cli.__main__ import run
from shared.errors import ConfigError
from shared.scheduling.lending.rule import LendingRule

LEVELS = TidalLevels(
    nodes=3, hours=0.5, warm_up_s=600.0, backlog=3, rule=LendingRule(cpu_percent=75.0, window_s=60.0)
)  # fmt: skip
RISE_S = 900
RISEN = slice(int((RISE_S + 90) / LEVELS.step_s), int((RISE_S + 270) / LEVELS.step_s))
"""Steps after the rise, grace and two readings apart."""
ONE_AGENT, FOUR = Agents(1), Agents(4)


def rising() -> TidalTraces:
    """One service of use whose demand leaps from a tenth of its requests to more than all of them after a quarter of an
    hour."""
    shares = np.full(DAY_S // 60, 0.1)
    shares[RISE_S // 60 : 60] = 1.2
    return TidalTraces((Tide("leaping", 60.0, shares, (0,), of_use=True),), built_in().jobs)


def play(
    how: Arrangement, *, agents: Agents = ONE_AGENT, gives_way: bool = True, seed: int = 1, uses_share: float = 0.3
) -> PlayedDay:
    levels = dataclasses.replace(LEVELS, uses_share=uses_share)
    settings = dataclasses.replace(giving_way(levels), offline_eviction=gives_way) if how.lends else PLAIN
    world = NamedPolicy("kube-default").world(levels.pool(), agents, seed, settings=settings)
    played = Day(rising(), levels, how, world, seed).play()
    assert world.core.validate() == []
    return played


def used(played: PlayedDay) -> list[float]:
    return [on + off for on, off in zip(played.series.online, played.series.offline, strict=True)]


def violated(played: PlayedDay) -> float:
    return sum(played.series.violated) / sum(played.series.demanded)


@pytest.mark.parametrize("agents", [ONE_AGENT, FOUR], ids=str)
def test_what_services_do_not_use_is_lent_and_given_back_as_demand_rises(agents):
    alone, lent = play(ALONE), play(LENT, agents=agents)
    quiet = slice(0, int(RISE_S / LEVELS.step_s) - 4)
    assert np.mean(used(lent)[quiet]) > 0.4 > np.mean(used(alone)[quiet])
    assert lent.evictions > 0
    assert len(lent.gave_way) > 0
    assert max(lent.gave_way) <= 5.0
    assert lent.series.offline[-1] < max(lent.series.offline)
    assert max(used(lent)[RISEN]) <= LEVELS.line
    assert violated(lent) < violated(play(LENT, gives_way=False)) - 0.05


def test_where_nobody_gives_way_nodes_stay_over_what_they_lend_and_services_pay_for_it():
    stubborn = play(LENT, gives_way=False)
    assert max(stubborn.gave_way) > suite.WITHIN_S
    assert violated(stubborn) > 0.1
    assert min(used(stubborn)[RISEN]) > LEVELS.line


def test_services_alone_and_in_a_pool_of_their_own_are_served_alike():
    alone, pools = play(ALONE), play(POOLS)
    assert alone.evictions == alone.done == 0
    assert pools.done > 0
    assert pools.series.online == pytest.approx(alone.series.online)
    assert len(alone.waits) == len(pools.waits)


def test_without_lending_what_is_requested_and_not_used_is_used_by_nobody():
    """Services request 90 % and use a tenth of it."""
    one, lent = (play(how, uses_share=0.9) for how in (ONE, LENT))
    quiet = slice(0, int(RISE_S / LEVELS.step_s) - 4)
    assert np.mean(used(one)[quiet]) < 0.3 < np.mean(used(lent)[quiet])
    assert one.done < lent.done


def test_who_gives_way_hears_of_demand_a_step_late():
    """The leap is counted as violated for at least the step in which nobody could know of it."""
    heard = []

    class Spied(Lending):
        def read(self, nodes, pods, at_s):
            heard.append((self._world.now, at_s))
            super().read(nodes, pods, at_s)

    levels = dataclasses.replace(LEVELS, uses_share=0.3)
    world = NamedPolicy("kube-default").world(levels.pool(), ONE_AGENT, 1, settings=giving_way(levels))
    day = Day(rising(), levels, LENT, world, 1)
    day._lending = Spied(levels, world)
    day.play()
    assert {round(now - at_s, 3) for now, at_s in heard} == {levels.step_s}


def test_a_node_that_still_holds_too_much_at_the_end_of_the_day_is_told():
    levels = dataclasses.replace(LEVELS, uses_share=0.3)
    world = NamedPolicy("kube-default").world(levels.pool(), ONE_AGENT, 1, settings=giving_way(levels))
    day = Day(rising(), levels, LENT, world, 1)
    day._over[0] = world.now
    day._read = lambda lending: None
    assert max(day.play().gave_way) == LEVELS.warm_up_s + 3600 * LEVELS.hours - LEVELS.step_s


def test_cores_count_as_used_only_where_a_whole_gang_is_at_work():
    day = Day(rising(), LEVELS, ONE, NamedPolicy("kube-default").world(LEVELS.pool(), ONE_AGENT, 1, settings=PLAIN), 1)
    job = OfflineJob("j", TracedJob(1000.0, 2, 0, 4000, 1), 1.0, 2, 2000.0)
    first, second = job.new_worker(), job.new_worker()
    day._jobs["j"] = job
    job.placed(first, 0, 0.0, LEVELS)
    assert day._useful_cores([1.0] * 3) == 0.0
    job.placed(second, 1, 0.0, LEVELS)
    assert day._useful_cores([0.5] * 3) == 4.0
    job.left_by(first, LEVELS)
    assert day._useful_cores([1.0] * 3) == 0.0


def test_the_same_seed_is_the_same_day_and_another_seed_another():
    first, again, other = play(LENT), play(LENT), play(LENT, seed=2)
    assert first == again
    assert first.series.offline != other.series.offline


def test_the_suite_tells_every_arrangement_and_holds_lending_to_its_promises(monkeypatch):
    monkeypatch.setattr(suite, "TidalLevels", lambda: dataclasses.replace(LEVELS, hours=0.25))
    result = suite.run_suite(SuiteInput((500, 501), ""), agents=FOUR)
    assert set(result.policies) == {"online-alone", "two-pools", "kube-default", "lending"}
    assert set(result.policies["lending"]) == {*suite.UNITS, *suite.UNITS_BESIDE_ALONE}
    assert set(result.policies["online-alone"]) == set(suite.UNITS)
    assert {goal.target for goal in result.goals} == {">= 60", ">= 45", ">= 95", "<= 3", "<= 5", "<= 0.1"}
    assert set(result.over_day["CPU used, percent"]) == set(result.policies)
    assert result.notes[0].startswith("no traces were given")


def test_an_arrangement_that_there_is_not_is_refused_in_one_line(capsys):
    with pytest.raises(ConfigError, match="'three-pools' is no arrangement of the pool; choose of online-alone"):
        suite.run_suite(SuiteInput((42,), "", ("three-pools",)))
    assert run(["evaluate", "--suite", "tidal", "--trace-dir", "/nowhere", "--seeds", "42"]) == 2
    assert "--trace-dir: /nowhere/http: No such file or directory" in capsys.readouterr().err
