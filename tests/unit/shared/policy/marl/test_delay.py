"""A node's delay draws no pod to it: the network is shown none, and what it costs only ever lowers the score."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from lab.worlds.placement.thesis_session import Session
from shared.policy.marl.features import CLIP, DELAY_UNIT_MS
from shared.policy.marl.policy import ACCEPT, DELAY, NAME, REJECT, MarlDqn
from shared.policy.networks import Floats, layer_count, mlp
from shared.policy.weights import shipped

DELAYS_MS = (0.0, 0.4, 1.0, 3.0, 3.1, 5.0, 12.0, 20.0, 50.0, 5000.0)
ARRAYS = shipped(NAME).arrays
POLICY = MarlDqn(shipped(NAME))


def states(count: int = 60) -> list[Floats]:
    """What agents see along an episode, all nodes 1 ms away."""
    session, rng, found = Session.of("uniform", 500), Random(1), []
    policy = MarlDqn(shipped(NAME), session.store)
    while not session.over and len(found) < count:
        features = policy.features(session.observation())
        features[:, DELAY] = 1.0 / DELAY_UNIT_MS
        found.append(features)
        session.place(int(rng.choice(session.observation().rows.tolist())))
    return found


def gains(features: Floats, *, shown: bool = False) -> Floats:
    q = mlp(ARRAYS, features[:, : MarlDqn.inputs], layer_count(ARRAYS)) if shown else POLICY.q_values(features)
    found: Floats = q[:, ACCEPT] - q[:, REJECT]
    return found


def drawn(features: Floats, *, shown: bool = False) -> int:
    """How often the choice goes to a node that it did not go to before, once that one is farther away."""
    near, nodes = int(gains(features, shown=shown).argmax()), len(features)
    far = np.tile(features, (len(DELAYS_MS) * nodes, 1))
    cases = [(node, min(ms / DELAY_UNIT_MS, CLIP)) for node in range(nodes) for ms in DELAYS_MS if ms >= 1.0]
    for at, (node, delay) in enumerate(cases):
        far[at * nodes + node, DELAY] = delay
    chosen = gains(far, shown=shown).reshape(-1, nodes).argmax(axis=1)[: len(cases)]
    return sum(one == node != near for one, (node, _) in zip(chosen.tolist(), cases, strict=True))


def test_no_delay_draws_a_pod_to_a_node_and_shown_to_the_network_it_did() -> None:
    seen = states()
    assert sum(map(drawn, seen)) == 0
    assert sum(drawn(one, shown=True) for one in seen) > 20, "else the test would see nothing"


def test_a_score_never_rises_with_the_delay_and_other_nodes_keep_theirs() -> None:
    for features in states(20):
        before = None
        for delay_ms in DELAYS_MS:
            far = features.copy()
            far[2, DELAY] = min(delay_ms / DELAY_UNIT_MS, CLIP)
            found = gains(far)
            if before is not None:
                assert found[2] <= before[2]
                assert np.delete(found, 2) == pytest.approx(np.delete(before, 2), abs=1e-6)
            before = found


def test_of_nodes_that_are_worth_the_same_the_near_one_is_chosen() -> None:
    features = np.repeat(states(1)[0][:1], 4, axis=0)
    features[:, DELAY] = np.array([20.0, 50.0, 1.0, 8.0]) / DELAY_UNIT_MS
    assert gains(features).argmax() == 2


def test_what_is_seen_is_not_written_to() -> None:
    (features,) = states(1)
    kept = features.copy()
    POLICY.q_values(features)
    assert np.array_equal(features, kept)
