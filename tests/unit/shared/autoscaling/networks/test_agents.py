"""Who decides: rows and actions of many agents and of one, and graphs of a size that the weights are not for."""

from __future__ import annotations

import numpy as np
import pytest

from shared.autoscaling.networks.agents import KarmaAgents, check_size
from shared.autoscaling.networks.features import HOLD, STEPS
from shared.errors import ConfigError

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_many_agents_have_a_row_each_and_one_has_all_in_one():
    assert KarmaAgents.MULTI.joined(ROWS) is ROWS
    assert KarmaAgents.SINGLE.joined(ROWS).tolist() == [[0, 1, 2, 3, 4, 5]]


def test_an_action_of_one_agent_is_one_service_and_its_step():
    assert KarmaAgents.MULTI.steps(np.array([0, 2, 4]), 3).tolist() == [0, 2, 4]
    assert KarmaAgents.SINGLE.steps(np.array([len(STEPS) + 4]), 3).tolist() == [HOLD, 4, HOLD]


def test_one_agent_earns_the_mean_of_what_the_services_do():
    assert KarmaAgents.MULTI.shared(np.array([1.0, 3.0])).tolist() == [1.0, 3.0]
    assert KarmaAgents.SINGLE.shared(np.array([1.0, 3.0])).tolist() == [2.0]


def test_a_graph_of_another_size_is_refused_where_the_weights_are_for_one():
    check_size("karma", 0, 7)
    check_size("dqn", 4, 4)
    with pytest.raises(ConfigError, match="policy dqn: its weights are for 4 services, the graph has 7; train again"):
        check_size("dqn", 4, 7)
