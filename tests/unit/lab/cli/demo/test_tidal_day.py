"""The demo's tidal day: its workload, and what is told of it from audit entries alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from lab.audit.log import LogEntry
from lab.cli.demo.tidal import (
    CORES,
    DAY_S,
    PARTS,
    Tides,
    idle,
    mesh_flags,
    tidal_jobs,
    tidal_nodes,
    tidal_pods,
    tidal_rows,
)
from lab.cli.demo.workload import load_workload
from services.coordinator.settings import CoordinatorSettings
from shared.errors import ConfigError
from shared.model.qos import lent_cpu
from twin.model.usage import USAGE_ANNOTATION, UsageNow, UsageProfile, profile_from_json

SPEED = 10.0


def test_services_come_and_go_within_the_day_and_end_with_it():
    for arrival in tidal_pods(3, 8):
        profile = profile_from_json(arrival.pod["metadata"]["annotations"][USAGE_ANNOTATION])
        assert profile.duration_s is not None
        assert arrival.at_s + profile.duration_s <= DAY_S
        assert 0 < len(profile.steps) <= PARTS
    assert {arrival.at_s for arrival in tidal_pods(3, 8)} > {0.0}


def test_jobs_ask_for_what_is_lent_and_run_whole_beside_a_gpu_else_half():
    for job in tidal_jobs(3, 8):
        spec = job["spec"]
        [container] = spec["template"]["spec"]["containers"]
        asked = container["resources"]["requests"]
        assert lent_cpu() in asked
        assert "cpu" not in asked
        least = int(job["metadata"]["annotations"]["conclave.io/gang-min-count"])
        workers = spec["parallelism"]
        assert least == (workers if "conclave.io/gpu-milli" in asked else -(-workers // 2))


def test_the_same_seed_is_the_same_workload_and_it_counts_the_pods_of_jobs():
    one, again, other = (load_workload("tidal", seed=seed, nodes=None, trace_dir=None) for seed in (1, 1, 2))
    assert one == again != other
    assert one.expected == len(one.pods) + sum(job["spec"]["parallelism"] for job in one.before)


def test_a_pool_without_a_node_with_gpus_is_refused_in_one_line():
    with pytest.raises(ConfigError, match=r"--nodes: 2; .* give 3 or more"):
        load_workload("tidal", seed=0, nodes=2, trace_dir=None)


@pytest.mark.parametrize("speed", [0.1, 1.0, 10.0, 100.0, 5000.0])
def test_the_flags_of_the_coordinator_are_ones_that_it_takes_at_any_speed(speed):
    flags = mesh_flags(speed)
    said = dict(zip(flags[::2], flags[1::2], strict=True))
    known = {field.name for field in dataclasses.fields(CoordinatorSettings)}
    assert {name.removeprefix("--").replace("-", "_") for name in said} <= known
    assert 1 <= float(said["--lend-window-s"]) <= 86_400


def node(name: str, at_s: float, lent_cores: int) -> LogEntry:
    allocatable = {"cpu": str(CORES), lent_cpu(): str(1000 * lent_cores)}
    return LogEntry(
        1, at_s, "update", "Node", "", name, "", {"metadata": {"name": name}, "status": {"allocatable": allocatable}}
    )


def pod(
    name: str, at_s: float, verb: str, *, cores: int, offline: bool = False, phase: str = "", **meta: Any
) -> LogEntry:
    requests = {lent_cpu(): str(1000 * cores)} if offline else {"cpu": str(cores)}
    used = UsageProfile(((0.0, UsageNow(cpu_millis=1000 * cores)),), 100_000.0).to_json()
    metadata = {"name": name, "uid": name, "annotations": {USAGE_ANNOTATION: used}, **meta}
    spec = {"containers": [{"resources": {"requests": requests}}], "nodeName": "" if verb == "create" else "n"}
    obj = {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
    return LogEntry(1, at_s, verb, "Pod", "default", name, "", obj)


def told(*entries: LogEntry) -> dict[str, Any]:
    tides = Tides(SPEED)
    for entry in (node("n", 0.0, 8), *entries):
        tides.feed(entry)
    return tides.figures()


def test_use_is_told_of_the_whole_pool_and_of_services_apart():
    figures = told(
        pod("web", 1000.0, "create", cores=4), pod("web", 1000.5, "bind", cores=4),
        pod("web", 1000.5, "update", cores=4, phase="Running"),
        pod("job", 1000.5, "update", cores=8, offline=True, phase="Running"),
    )  # fmt: skip
    assert figures["cpu_day"] == pytest.approx(12 / CORES, abs=0.01)
    assert figures["online_cpu_day"] == pytest.approx(4 / CORES, abs=0.01)
    assert figures["longest_wait_s"] == 0.5
    assert (figures["violated"], figures["violated_alone"]) == (0.0, 0.0)


def test_requests_on_a_node_that_jobs_keep_busy_beyond_the_line_are_violated_and_would_not_be_alone():
    figures = told(
        pod("web", 1000.0, "update", cores=4, phase="Running"),
        pod("job", 1000.0, "update", cores=10, offline=True, phase="Running"),
    )
    assert figures["violated"] == pytest.approx(1.0, abs=0.02)
    assert figures["violated_alone"] == 0.0


def test_a_worker_that_is_asked_to_leave_loses_its_work_and_one_that_ends_by_itself_does_not():
    figures = told(
        pod("a", 1000.0, "update", cores=2, offline=True, phase="Running"),
        pod("b", 1000.0, "update", cores=2, offline=True, phase="Running"),
        pod("a", 1030.0, "update", cores=2, offline=True, phase="Running", deletionTimestamp="now"),
        pod("a", 1030.0, "delete", cores=2, offline=True, phase="Running", deletionTimestamp="now"),
        pod("b", 1090.0, "update", cores=2, offline=True, phase="Succeeded"),
    )
    assert figures["evictions"] == 1
    assert figures["lost"] == 0.25
    assert figures["offline_pods"] == 2
    assert idle(figures) == []
    assert len(tidal_rows(figures)) == 5


def test_a_day_on_which_nothing_was_lent_is_a_problem():
    assert idle(told(pod("web", 1000.0, "update", cores=4, phase="Running"))) == [
        "tidal: no offline pod ran, so nothing was lent"
    ]
    assert idle({}) == []


def test_every_third_node_has_gpus():
    has = ["conclave.io/gpu-milli" in one["status"]["allocatable"] for one in tidal_nodes(6)]
    assert has == [False, False, True, False, False, True]
