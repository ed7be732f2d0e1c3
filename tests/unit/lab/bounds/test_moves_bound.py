"""Bounds on what moves could win: exact where the case is small enough to see, never below what a plan reaches."""

from __future__ import annotations

import numpy as np

from lab.bounds.moves_bound import fewest_nodes, least_fragment
from shared.model.gpu import GpuRequest
from shared.policy.frag.fragmentation import Meeting, TypicalDemand, typical_demand
from shared.policy.rehearsal.submission import empty_states


def test_the_fewest_nodes_are_found_and_proven() -> None:
    asked, counts = np.array([[3], [2]]), np.array([2, 3])
    has = np.array([[4], [4], [8], [2]])
    everywhere = np.ones((2, 4), np.bool_)
    assert fewest_nodes(asked, counts, has, everywhere) == (2, True)
    nowhere_large = everywhere.copy()
    nowhere_large[:, 2] = False
    assert fewest_nodes(asked, np.array([2, 1]), has, nowhere_large) == (3, True)


def test_no_placement_of_two_halves_has_less_in_fragments_than_the_bound() -> None:
    half = GpuRequest(1000, 0, 1, 500)
    whole = GpuRequest(1000, 0, 1, 1000)
    states = empty_states(np.array([[8000, 1 << 20, 1, 0]] * 3))
    demand: TypicalDemand = typical_demand([half, whole], np.array([2, 2]))
    bound = least_fragment(states, [half, whole], np.array([2, 0]), demand)
    together = states.take(np.arange(3))
    together.free[0] = 0
    together.cpu[0] -= 2000
    apart = states.take(np.arange(3))
    apart.free[:2] = 500
    apart.cpu[:2] -= 1000
    meeting = Meeting(demand)
    best, worse = (float(meeting.fragment(one).sum()) / 1000 for one in (together, apart))
    assert bound <= best + 1e-6 < worse
    assert abs(bound - best) < 1e-6
