"""A learned twin is judged by hours that it never saw; who has none, or missed its goals, is no go."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from lab.autoscaling.fitting import CapturedScaler, CapturedService, graph_of
from lab.autoscaling.judging import TwinGoals, judge, measured, not_judged, rates_of
from lab.worlds.learned.series import MEASURES, REQUIRED, parse_series
from lab.worlds.learned.splitting import held_back
from lab.worlds.services.topology import default_topology, parse_topology
from shared.errors import ConfigError
from tests.learned_twins import lesson, recorded, recorded_bytes, twin_that_says

TOPOLOGY = default_topology()
CPU = MEASURES.index("cpu_cores")
GOOD, BAD = (12, 12, 23, 0, 0, 12), (12, 12, 0, 23, 23, 12)
CHAIN = CapturedScaler(
    object="shop/chain",
    services={
        name: CapturedService(one.replicas.minimum, one.replicas.maximum, tuple(one.calls))
        for name, one in TOPOLOGY.services.items()
    },
)


@pytest.fixture(scope="module")
def found():
    return lesson()


def test_a_twin_that_promises_too_little_is_less_accurate_and_misses_its_goals(found):
    series = recorded(("mixed",), 300)
    twins = [twin_that_says(found, change=0, levels=levels) for levels in (GOOD, BAD)]
    sound, broken = (judge(one, series, TOPOLOGY) for one in twins)
    assert sound.recorded == broken.recorded  # what was recorded is reckoned alike, whatever the twin says
    assert broken.accuracy < sound.accuracy
    assert set(sound.gaps) == {"mixed"}
    checks = {one.name: one for one in broken.checks(TwinGoals())}
    assert not checks["twin accuracy"].met
    assert {one.met for one in broken.checks(TwinGoals(accuracy=0, gap=100, errors=10, measured=0))} == {True}


def test_a_twin_is_not_judged_by_what_it_was_trained_on(found):
    twin = found.twin(twin_arrays(found), series_digest="abc", trained={})
    with pytest.raises(ConfigError, match="--series: the twin was trained on just these"):
        judge(twin, recorded(), TOPOLOGY, series_digest="abc")
    assert [one.met for one in not_judged()] == [False]


def twin_arrays(found):
    twin = twin_that_says(found, change=0, levels=GOOD)
    return {name: twin.arrays[name] for name in ("l0.w", "l0.b")}


def test_what_is_held_back_is_never_learned_from_and_nothing_is_lost():
    data = recorded_bytes()
    train, held = (part.decode().splitlines() for part in held_back(data, "series.csv", share=0.5))
    assert train[0] == held[0]
    assert sorted(train[1:] + held[1:]) == sorted(data.decode().splitlines()[1:])
    kept = parse_series("\n".join(held).encode(), "held.csv")
    assert {one.scenario for one in kept.episodes} == {"calm", "mixed"}


@pytest.mark.parametrize("lengths", [(100, 2), (3, 100), (50, 50), (20, 20, 20, 20, 20)])
def test_a_short_stretch_at_either_end_is_not_all_that_is_judged_or_learned(lengths):
    rows = [
        f"live,e{part},{10 * at},a,2,2,0,0,5,5,0,0,0.1,1" for part, count in enumerate(lengths) for at in range(count)
    ]
    data = "\n".join((",".join(REQUIRED), *rows)).encode()
    train, held = (len(part.splitlines()) - 1 for part in held_back(data, "series.csv"))
    assert train + held == sum(lengths)
    assert 0.2 * sum(lengths) <= held + 1 <= 0.5 * sum(lengths) + 1


def test_of_a_single_stretch_the_end_is_held_back_and_too_short_a_one_is_refused():
    lines = recorded_bytes(("calm",), 300).decode().splitlines()
    alone = [lines[0], *(line for line in lines[1:] if "demand-1000" in line)]
    with pytest.raises(ConfigError, match="31 moments of 'calm' are too few to hold some back"):
        held_back("\n".join(alone).encode(), "series.csv")
    train, held = held_back("\n".join(alone).encode(), "series.csv", share=0.4)
    before, after = (parse_series(part, "x").episodes for part in (train, held))
    assert len(before[0].counts) + len(after[0].counts) == 31


def test_readings_that_are_missing_are_counted_by_service():
    series = recorded(("calm",), 300)
    for one in series.episodes:
        one.measures[10:20, 0, :] = one.measures[10:20, 1:3, CPU] = np.nan
        one.counts[10:20, 2] = 0
    shares = measured(series)
    assert shares["a"] == shares["b"] == pytest.approx(18 / 28)
    assert shares["c"] > shares["b"]  # nobody ran, whose cpu could have been read
    assert shares["d"] > shares["a"]


def test_a_graph_is_made_of_series_where_nobody_gave_one():
    series = recorded()
    text = graph_of(CHAIN, series, {"a": 0.5})
    graph = parse_topology(text)
    assert graph.entries == {"a": 1.0}
    assert graph.calls == TOPOLOGY.calls
    assert graph.services["a"].calls["b"] == pytest.approx(1.0, abs=0.1)
    assert graph.services["a"].requests == {"cpu": "500m"}
    assert yaml.safe_load(text)["name"] == "shop/chain"
    assert (rates_of(series.episodes[0], series.services, graph)[3:] > 0).all()
