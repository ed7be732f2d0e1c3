"""Why windows are lost: every request that was not in time is counted once, and what hangs is told before all else."""

from __future__ import annotations

import pytest

from bench.policies.autoscaling_losses import CAUSES, losses
from lab.autoscaling.episode import Setup, play
from lab.autoscaling.policies import make
from lab.worlds.services.topology import default_topology


def test_all_that_is_lost_has_one_cause():
    setup = Setup(default_topology(), "mixed", 1.0, seconds=600)
    found = losses(make("demand"), setup, (100,))
    figures = play(setup, make("demand"), 100).figures
    assert found.windows == 60
    assert 100 * sum(found.bad.values()) / found.windows == pytest.approx(100 - figures["availability"])
    assert 100 * sum(found.late.values()) / found.requests == pytest.approx(100 - figures["latency_compliance"])
    assert set(found.bad) <= set(CAUSES)


def test_on_a_calm_day_nothing_hangs_and_no_surge_is_blamed():
    found = losses(make("demand"), Setup(default_topology(), "calm", seconds=300), (100,))
    assert found.bad["hung"] == found.bad["surge"] == found.late["hung"] == 0
    assert len(found.lines()) == 1 + len(CAUSES)
