"""The ground truth is another cluster than the file says, the same each time, and shows it by its readings alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lab.autoscaling.episode import Setup
from lab.worlds.services.hidden import Hidden
from lab.worlds.services.topology import default_topology

WRITTEN = default_topology()
SETUP = Setup(WRITTEN, "calm", seconds=400)


def seen(hidden: Hidden | None, seed: int = 5):
    world = replace(SETUP, hidden=hidden).world(seed)
    found = []
    while not world.over:
        found.append(world.observe())
        world.apply({"a": 2 + len(found) % 3})
        world.run(10)
    return world, found


def test_parameters_differ_by_service_and_what_the_api_server_tells_does_not():
    real = Hidden().topology(WRITTEN)
    factors = {real.services[name].throughput / WRITTEN.services[name].throughput for name in WRITTEN.order}
    assert len(factors) == len(WRITTEN.order)
    assert all(0.85 <= factor <= 1.15 for factor in factors)
    assert real.calls == WRITTEN.calls
    assert [real.bounds(name) for name in real.order] == [WRITTEN.bounds(name) for name in WRITTEN.order]
    assert Hidden().topology(WRITTEN) == real
    assert Hidden(seed=8).topology(WRITTEN) != real


def test_the_traffic_is_that_of_the_written_graph():
    hidden, plain = seen(Hidden())[0], seen(None)[0]
    assert hidden.seconds.offered == plain.seconds.offered


def test_readings_go_missing_and_without_that_none_does():
    def missing(hidden: Hidden) -> int:
        late = [one for moment in seen(hidden)[1][4:] for one in moment.services.values()]
        return sum(one.arrivals is None for one in late)

    assert missing(Hidden()) > 0
    assert missing(Hidden(sensing=replace(Hidden().sensing, missing=0.0))) == 0


def test_starts_take_unequally_long_and_without_jitter_alike():
    def starts(hidden: Hidden) -> set[float]:
        world = replace(SETUP, hidden=hidden).world(5)
        world.run(10)
        world.apply({"a": 5, "d": 6})
        world.run(1)
        pods = [(name, pod) for name, own in zip(world.fleet.names, world.fleet.pods, strict=True) for pod in own]
        return {pod.until_s for name, pod in pods if name == "d" and np.isfinite(pod.until_s)}

    assert len(starts(Hidden())) > 1
    assert len(starts(replace(Hidden(), start_jitter=0.0))) == 1
