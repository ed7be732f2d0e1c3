"""The guard on what a plain pod costs: counts that are the same on every machine, against those that are recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from bench.gangs import load
from bench.in_process import world
from bench.in_process.counts import (
    LEAST,
    MORE_NODES,
    MOST_GROWTH,
    NOTED,
    PODS,
    TOLERANCE,
    Counts,
    growth,
    measured,
    problems,
    python,
    read,
)
from bench.in_process.server import NAMESPACE
from bench.in_process.switches import settings_of
from services.binder.core.core import BinderCore
from services.binder.io.api_calls import ApiCalls
from services.coordinator.core.core import Core
from services.coordinator.core.state import CoreSettings
from shared.agent.core import AgentCore
from shared.kube.objects import ObjectMeta
from shared.kube.reservations import ReservationObject, reserve_pod_from_api
from shared.model.cluster_events import PodUpserted

MOST_FOR_OTHERS = 1.01
"""What reservations for others may make of a plain pod's opcodes."""
REMEDY = (
    "A stage costs another amount than is recorded. If that is meant, python -m bench.in_process.counts --record "
    "writes what it costs now; otherwise python -m bench.in_process tells where the time goes."
)
STAGES = [
    ((world.COORDINATOR_WATCH, world.BINDER_WATCH), world, "pod_events"),
    ((world.COORDINATOR_CORE,), Core, "handle"),
    ((world.AGENT_CORE,), AgentCore, "decide"),
    ((world.BINDER_CORE,), BinderCore, "handle_all"),
    ((world.BINDER_CALLS,), ApiCalls, "bind"),
]
"""Each with a function that runs in it; one that runs in two does so in turns."""


@pytest.fixture(scope="module")
def found() -> Counts:
    return measured()


@pytest.mark.skipif(python() != read()["python"], reason="opcodes are those of the Python that recorded them")
def test_a_pod_costs_what_is_recorded(found: Counts) -> None:
    assert problems(found, read()["counts"]) == [], REMEDY


def test_a_pod_is_written_once_and_read_never(found: Counts) -> None:
    assert {verb: found["calls"][verb] for verb in ("bind", "patch", "get", "create")} == {
        "bind": 1.0, "patch": 0.0, "get": 0.0, "create": 0.0,
    }  # fmt: skip


def test_a_pod_costs_no_more_opcodes_with_ten_times_the_nodes(found: Counts) -> None:
    grown = growth(found, measured(MORE_NODES))
    assert {stage: times for stage, times in grown.items() if times > MOST_GROWTH} == {}


def reserved(owner: dict[str, Any], name: str, number: int) -> PodUpserted:
    """Room that is kept for others on one of the nodes."""
    spec = {"resources": {"cpu": "1m"}, "owners": [owner]}
    meta = ObjectMeta(name=f"kept-{number}", namespace=NAMESPACE, uid=f"kept-{number}", resource_version="1")
    return PodUpserted(reserve_pod_from_api(ReservationObject(meta, spec, {"phase": "Available", "node": name})))


def test_what_is_reserved_for_others_costs_a_plain_pod_a_hundredth_at_most(found: Counts) -> None:
    """The dearer of the ways to say for whom, of as many as a launch has, in the pods' own namespace."""
    names = [load.node(number)["metadata"]["name"] for number in range(20)]
    owner = {"selector": {"matchLabels": {"app": "others"}}}
    kept = measured(beside=[reserved(owner, name, number) for number, name in enumerate(names)])
    assert sum(kept["opcodes"].values()) <= MOST_FOR_OTHERS * sum(found["opcodes"].values())
    assert kept["calls"] == found["calls"]


def test_the_same_mesh_counts_the_same(found: Counts) -> None:
    again = measured()
    for group, names in found.items():
        # a new longest time is an opcode or two more to note: the only clock in it
        noted = NOTED if group == "opcodes" else 0.0
        assert again[group] == pytest.approx(names, rel=0.001, abs=noted)


def test_switches_are_settings_of_either_core_and_others_are_refused() -> None:
    core, binder = settings_of(["batch_units=8", "binder.max_bindings=2"])
    assert (core.batch_units, binder.max_bindings) == (8, 2)
    assert core.plans_in_flight == CoreSettings().plans_in_flight
    for bad in ("batch_unit=8", "batch_units=many", "binder.batch_units=8"):
        with pytest.raises(SystemExit, match=f"--set: {bad}: give NAME=VALUE, of "):
            settings_of([bad])


def test_every_stage_that_is_python_is_in_the_ablation(found: Counts) -> None:
    python_stages = {stage for stage, opcodes in found["opcodes"].items() if opcodes >= LEAST}
    assert python_stages == {stage for stages, *_ in STAGES for stage in stages}


@pytest.mark.parametrize(("stages", "owner", "name"), STAGES, ids=[name for *_, name in STAGES])
def test_ablation_a_stage_made_a_fifth_slower_is_found(
    monkeypatch: pytest.MonkeyPatch, found: Counts, stages: tuple[str, ...], owner: Any, name: str
) -> None:
    more = [found["opcodes"][stage] * PODS / 5 for stage in stages]
    monkeypatch.setattr(owner, name, slower(getattr(owner, name), more))
    told = {line.split(":")[0] for line in problems(measured(), found)}
    assert told >= {f"opcodes of {stage}" for stage in stages}


@pytest.mark.parametrize("within", [1 - TOLERANCE, 1.0, 1 + TOLERANCE])
def test_a_fifth_more_of_anything_is_found_wherever_within_the_tolerance_it_begins(within: float) -> None:
    recorded = {"bytes": {"plan": 1000.0}, "calls": {"bind": 1.0}}
    for group, names in recorded.items():
        for name, value in names.items():
            now = {**recorded, group: {name: value * within}}
            assert problems(now, recorded) == []
            now = {**recorded, group: {name: value * within * 1.2}}
            assert [line.split(":")[0] for line in problems(now, recorded)] == [f"{group} of {name}"]


def test_a_count_that_is_new_or_gone_is_found() -> None:
    assert problems({"calls": {"patch": 1.0}}, {"calls": {"patch": 0.0}}) == [
        "calls of patch: 1.00 per pod, recorded are 0.00"
    ]
    assert problems({"bytes": {}}, {"bytes": {"plan": 9.0}}) == ["bytes of plan: 0.00 per pod, recorded are 9.00"]


def slower(function: Callable[..., Any], opcodes: list[float]) -> Callable[..., Any]:
    """The same; once they are counted, its next calls take so many opcodes more, the first the first of them."""
    more = iter(opcodes)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if sys.gettrace() is not None:
            for _ in range(round(next(more, 0.0) / 3)):  # a turn of this loop takes three
                pass
        return function(*args, **kwargs)

    return wrapped
