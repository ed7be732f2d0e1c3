"""frag places by its learned value where that wins in rehearsals, and by FGD where it does not."""

from __future__ import annotations

import numpy as np
import pytest

from lab.evaluation.seeds import parse_seeds
from lab.worlds.placement.trace_run import parse_lists, play
from shared.errors import ConfigError
from shared.policy.frag.scorers import Fgd
from shared.policy.rehearsal import rehearsal
from shared.policy.rehearsal.episode import RehearsedEpisode
from shared.policy.rehearsal.rehearsal import FIRST_SEED, Rehearsal, RehearsalTrace, rehearse
from shared.policy.weights import shipped
from tests.small_trace import PODS_HEADER, node_list, small_trace


@pytest.mark.parametrize(
    ("late", "early", "who"),
    [
        (0.5, 0.0, "frag"),
        (0.1, 0.0, "frag"),
        (0.09, 3.0, "fgd"),
        (0.0, 0.0, "fgd"),
        (-0.01, 3.0, "fgd"),
        (0.5, -1.0, "frag"),
        (0.2, -1.0, "fgd"),
    ],
)
def test_the_learned_value_places_only_where_it_is_clearly_ahead(late, early, who):
    assert Rehearsal(late, early, played=2).policy == who


def test_it_says_who_places_and_why():
    assert "FGD places, since in 2 rehearsals" in Rehearsal(-1.25, 0.5, played=2).told()
    assert "-1.25 points beside FGD at 130 % demand and +0.50 at 100 %" in Rehearsal(-1.25, 0.5, played=2).told()


def test_no_order_of_a_rehearsal_can_be_evaluated():
    with pytest.raises(ConfigError, match="is no seed"):
        parse_seeds(str(FIRST_SEED))


def scripted(monkeypatch, allocated):
    """Episodes that end at ``allocated[policy]`` percent; the seeds they were asked for."""
    asked: dict[str, list[int]] = {"frag": [], "fgd": []}

    def play(trace: RehearsalTrace, scorer: object, seed: int, **_: object) -> RehearsedEpisode:
        policy = "fgd" if isinstance(scorer, Fgd) else "frag"
        asked[policy].append(seed)
        one = np.array([0])
        return RehearsedEpisode(seed, one, one, ((),), np.array([allocated[policy]]), np.array([50]), 100, 0.0)

    monkeypatch.setattr(rehearsal, "play", play)
    return asked


@pytest.mark.parametrize(("nodes", "times"), [(2426, 2), (1213, 2), (303, 8), (12, 12)])
def test_short_lists_are_rehearsed_more_often_and_both_play_the_same_orders(monkeypatch, nodes, times):
    asked = scripted(monkeypatch, {"frag": 40, "fgd": 42})
    found = rehearse(small_trace(nodes=nodes), shipped("frag"))
    assert (found.gain_130, found.gain_100, found.played, found.policy) == (-2.0, -2.0, times, "fgd")
    assert asked["frag"] == asked["fgd"] == list(range(FIRST_SEED, FIRST_SEED + times))


def test_the_learned_value_places_where_it_wins(monkeypatch):
    scripted(monkeypatch, {"frag": 42, "fgd": 40})
    assert rehearse(small_trace(), shipped("frag")).policy == "frag"


BULK = ("4000,16384,1,1000", "2000,8192,1,250", "88000,327680,8,1000", "16000,65536,0,0", "32000,131072,4,1000")
"""CPU, memory, devices, thousandths: five kinds in equal numbers; in openb shares and single GPUs prevail."""


def test_pods_unlike_openbs_are_not_left_to_the_learned_value_which_would_place_fewer_of_them():
    rows = "".join(f"pod-{index},{BULK[index % 5]},,LS,Running,0,1,0\n" for index in range(400))
    trace, weights = parse_lists(PODS_HEADER + rows, "p.csv", node_list(60), "n.csv"), shipped("frag")
    found = rehearse(trace, weights)
    assert found.policy == "fgd"
    by = {
        who: [play(trace, who, seed, weights=weights).allocation(1.0) for seed in (42, 43)] for who in ("frag", "fgd")
    }
    assert np.mean(by["frag"]) < np.mean(by["fgd"]) - 1
