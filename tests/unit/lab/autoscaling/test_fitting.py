"""A twin of an object's services: the graph's own numbers, the object's bounds; never a graph of other services."""

from __future__ import annotations

import pytest

from lab.autoscaling.budget import LEAST, rounds_of
from lab.autoscaling.fitting import captured, fitted, graph_of
from lab.cli.autoscale.loop import holds_series
from lab.worlds.learned.series import REQUIRED, parse_series
from lab.worlds.services.topology import parse_topology
from shared.errors import ConfigError
from shared.kube.objects import ObjectMeta
from shared.kube.scaling.autoscaling import AutoscalerObject, autoscaler_from_api

GRAPH = """
nodes: [{name: n, cpu: 8, memory: 32Gi}]
entries: {front: 1}
services:
  front: {throughput: 90, replicas: {minimum: 1, maximum: 9, start: 8}, calls: {cart: 2}}
  cart: {throughput: 50}
"""


def object_of(targets, **more):
    spec = {"targets": targets, **more}
    return captured(autoscaler_from_api(AutoscalerObject(ObjectMeta(name="web", namespace="shop"), spec, None)))


def target(name, **more):
    return {"name": name, "scaleTargetRef": {"name": name}, "minReplicas": 2, "maxReplicas": 5, **more}


def test_the_objects_bounds_and_objectives_take_the_place_of_the_graphs():
    found = object_of(
        [target("front", calls=["cart"]), target("cart")], objectives={"latencySeconds": 0.2, "costLimit": 8}
    )
    twin = parse_topology(fitted(found, GRAPH))
    front = twin.services["front"]
    assert (front.throughput, front.calls) == (90, {"cart": 2})
    assert (front.replicas.minimum, front.replicas.maximum, front.replicas.start) == (2, 5, 5)
    assert (twin.objectives.latency_s, twin.objectives.success) == (0.2, 0.95)
    assert twin.replica_budget == 8


@pytest.mark.parametrize(
    ("targets", "why"),
    [
        ([target("front")], "too many cart"),
        ([target("front", calls=["cart"]), target("cart"), target("mail")], "missing mail"),
        ([target("front"), target("cart")], "services.front.calls: cart, in shop/web none"),
    ],
)
def test_a_graph_of_other_services_is_refused_by_name(targets, why):
    with pytest.raises(ConfigError, match=why):
        fitted(object_of(targets), GRAPH)


def test_an_object_that_cannot_be_used_is_refused_with_its_problem():
    with pytest.raises(ConfigError, match=r"shop/web: spec\.targets"):
        object_of([])


def test_what_a_design_does_not_depend_on_changes_nothing_of_it():
    targets = [target("front", calls=["cart"]), target("cart")]
    assert object_of(targets) == object_of(targets, mode="act-on-scale", go={"by": "ada"}, paused=True)


def test_episodes_are_whole_rounds_and_too_few_are_refused():
    assert [rounds_of(count) for count in (LEAST, LEAST + 1, 512)] == [1, 2, 30]
    with pytest.raises(ConfigError, match=f"--episodes: 40 are too few; give {LEAST}"):
        rounds_of(40)


def told_by(**rates):
    """The graph of two services and an entry beside, as series with (arrivals, served) tell it; "" is never read."""
    rows = [
        f"live,e,{10 * at},{name},2,2,0,0,{came},{done},0,0,0.1,1"
        for at in range(30)
        for name, (came, done) in rates.items()
    ]
    series = parse_series("\n".join((",".join(REQUIRED), *rows, "")).encode(), "f")
    found = object_of([target("front", calls=["cart"]), target("cart"), target("cron")])
    return parse_topology(graph_of(found, series, {}))


def test_who_was_idle_or_rare_is_no_fault_of_the_series_and_what_was_not_read_is_told():
    idle = told_by(front=(10, 10), cart=(0.001, 0.001), cron=(0, 0))
    assert idle.entries == {"front": 1.0}
    assert idle.services["front"].calls["cart"] == pytest.approx(1e-4)
    with pytest.raises(ConfigError, match="arrivals of cart were never read"):
        told_by(front=(10, 10), cart=("", 5), cron=(0, 0))
    with pytest.raises(ConfigError, match="front answered nothing, so how often they call cart"):
        told_by(front=(10, 0), cart=(5, 5), cron=(0, 0))
    with pytest.raises(ConfigError, match="begins as gzip and is none"):
        holds_series(b"\x1f\x8b no gzip at all")
