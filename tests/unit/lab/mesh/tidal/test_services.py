"""Online services of the tidal day: the HPA's rule, the latency proxy, and that offline use can break it."""

from __future__ import annotations

import numpy as np
import pytest

from lab.mesh.tidal.levels import TidalLevels
from lab.mesh.tidal.services import TidalService, moment, services_of
from lab.traces.tidal import built_in

LEVELS = TidalLevels(nodes=2, cores=10, replica_cores=4)


def test_a_scaled_service_follows_its_use_up_at_once_and_down_after_five_minutes():
    service = TidalService("a", scaled=True, peak_cores=40.0, replicas=10)
    assert service.follow(0.0, 0.52, 10, LEVELS) == 10  # within the tolerance
    assert service.follow(15.0, 0.8, 10, LEVELS) == 16
    assert service.follow(30.0, 0.2, 16, LEVELS) == 16
    assert service.follow(15.0 + LEVELS.down_after_s, 0.2, 16, LEVELS) == 16
    assert service.follow(16.0 + LEVELS.down_after_s, 0.2, 16, LEVELS) == 7


def test_a_scaled_service_at_most_doubles_at_once_and_keeps_two_replicas():
    service = TidalService("a", scaled=True, peak_cores=40.0, replicas=10)
    assert service.follow(0.0, 5.0, 10, LEVELS) == 20
    assert TidalService("a", scaled=True, peak_cores=4.0, replicas=2).follow(0.0, 0.01, 2, LEVELS) == 2


def test_a_fixed_service_stays_as_it_is():
    assert TidalService("a", scaled=False, peak_cores=40.0, replicas=10).follow(0.0, 5.0, 10, LEVELS) == 10


@pytest.mark.parametrize(("offline", "violated"), [(0.0, 0.0), (3.9, 0.0), (4.1, 4.0), (50.0, 4.0)])
def test_requests_on_a_node_beyond_the_line_are_violated_whoever_keeps_it_busy(offline, violated):
    """Four cores of ten are used online on node 0; 8 are the line."""
    ready = np.array([[2.0, 2.0]])
    now = moment(np.array([8.0]), ready, np.array([offline, 0.0]), LEVELS)
    assert now.violated == pytest.approx(violated)
    assert now.demanded == 8.0
    assert now.online.tolist() == [4.0, 4.0]


def test_jobs_get_what_is_left_and_advance_so_much_slower():
    now = moment(np.array([8.0]), np.array([[2.0, 2.0]]), np.array([12.0, 3.0]), LEVELS)
    assert now.offline.tolist() == [6.0, 3.0]
    assert now.speed.tolist() == [0.5, 1.0]


def test_a_replica_uses_its_limit_at_most_and_is_violated_above_the_line_of_it():
    below, above = (moment(np.array([cores]), np.array([[1.0, 0.0]]), np.zeros(2), LEVELS) for cores in (6.3, 6.5))
    assert (below.violated, above.violated) == (0.0, 6.5)
    assert moment(np.array([30.0]), np.array([[1.0, 0.0]]), np.zeros(2), LEVELS).online.tolist() == [8.0, 0.0]


def test_requests_that_nobody_answers_are_violated():
    now = moment(np.array([3.0, 1.0]), np.array([[0.0, 0.0], [1.0, 0.0]]), np.zeros(2), LEVELS)
    assert (now.violated, now.demanded) == (3.0, 4.0)


def test_services_request_their_share_of_the_pool_at_the_peak():
    """Of three of requests and four of use, as the real ones are; replicas are whole."""
    web, _, _, store = built_in().tides
    tides, levels = (web, web, web, store, store, store, store), TidalLevels()
    services = services_of(tides, np.ones(len(tides)), levels)
    cores = sum(service.replicas for service in services) * levels.replica_cores
    assert cores / (levels.nodes * levels.cores) == pytest.approx(0.60, abs=0.005)
    assert {service.scaled for service in services} == {True, False}
