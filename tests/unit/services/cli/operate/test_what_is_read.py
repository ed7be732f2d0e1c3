"""What operators read: nodes, queue, units, settings, status, decisions, top; from documents of the admin API."""

from __future__ import annotations

from typing import Any

import pytest

from services.cli.listing.wanted import FoundItems, ListQuery
from services.cli.operate.changes import CHANGES
from services.cli.operate.decisions import DECISIONS, decision_line
from services.cli.operate.nodes import NODES, node_lines
from services.cli.operate.pending import QUEUED_PODS, counts_lines
from services.cli.operate.scheduling import scheduling_line
from services.cli.operate.settings import SETTINGS, SETTINGS_CHANGES, TAKEN_BACK, changed_lines, typed
from services.cli.operate.status import overview_lines, status_lines
from services.cli.operate.top.pages import bands, top_lines
from shared.errors import ConfigError

GIB = 2**30
AT = "2026-11-22T02:00:00.000Z"
NODE: dict[str, Any] = {
    "name": "n0", "agent": "agent-0", "schedulable": True, "drained": None, "taints": ["gpu=yes:NoSchedule"], "pods": 3,
    "allocatable": {"cpu_millis": 4000, "memory_bytes": 8 * GIB, "pods": 110, "nvidia.com/gpu": 2},
    "requested": {"cpu_millis": 1000, "memory_bytes": 2 * GIB, "nvidia.com/gpu": 1},
    "used": {"cpu_millis": 500, "memory_bytes": GIB, "age_s": 4.0},
}  # fmt: skip
DRAINED = NODE | {
    "name": "n1", "agent": "", "schedulable": False, "used": None,
    "drained": {"by": "ann", "reason": "disk", "since": AT},
}  # fmt: skip
OVERVIEW: dict[str, Any] = {
    "time": AT, "leader": {"id": "c-0", "url": "http://c", "term": 12, "since": AT},
    "scheduling": {"paused": True, "by": "ann", "reason": "upgrade", "since": AT},
    "queue": {"active": 4, "backoff": 1, "unschedulable": 2, "in_flight": 3}, "pods": {"bound": 100},
    "rates": {"pods_per_s_10s": 12.5, "decisions_per_s_10s": 13.0},
    "latency_ms": {"p50": 8.0, "p99": 40.5}, "round_ms": {"p50": 2.0, "p99": 5.0}, "conflicts": 1, "refusals": 0,
    "members": {"coordinator": 2, "binder": 1, "agent": 2, "learner": 0},
    "nodes": {"total": 2, "drained": 1, "unowned": 1},
    "policy": {"active": "kube-default@1", "candidate": "marl-dqn@7", "stage": "canary", "percent": 10},
}  # fmt: skip
DECISION: dict[str, Any] = {
    "time": AT, "namespace": "d", "name": "p", "uid": "u", "node": "n0", "policy": "kube-default@1", "attempt": 2,
    "considered": [
        {"node": "n0", "score": 61.0, "accepted": True}, {"node": "n1", "score": 0.25, "accepted": False},
        {"node": "n2", "score": 0, "accepted": True}, {"node": "n3", "score": 0, "accepted": True},
    ],
}  # fmt: skip


def test_nodes_show_who_decides_how_full_and_whether_they_take_pods() -> None:
    assert NODES.lines([NODE, DRAINED]) == [
        "NAME  AGENT    STATE             PODS  CPU  MEMORY  GPU",
        "n0    agent-0  Ready            3/110  25%     25%  1/2",
        "n1    none     Drained,Unowned  3/110  25%     25%  1/2",
    ]
    wide = NODES.lines([NODE, DRAINED], wide=True)
    assert "1 of 4" in wide[1]
    assert "gpu=yes:NoSchedule" in wide[1]
    assert f"by ann since {AT}: disk" in wide[2]


def test_gpus_are_counted_in_devices_whatever_their_resource_is_called() -> None:
    shared = NODE | {
        "allocatable": {"cpu_millis": 1000, "memory_bytes": GIB, "conclave.io/gpu-milli": 8000, "nvidia.com/gpu": 8},
        "requested": {"conclave.io/gpu-milli": 2500},
    }
    amd = NODE | {"allocatable": {"amd.com/gpu": 4, "example.com/fpga": 2}, "requested": {"amd.com/gpu": 4}}
    none = NODE | {"allocatable": {"cpu_millis": 1000}, "requested": {}}
    assert [line.split()[-1] for line in NODES.lines([shared, amd, none])] == ["GPU", "2.5/8", "4/4", "-"]
    assert "GPU" not in NODES.lines([none])[0]
    assert "amd.com/gpu 4 of 4, example.com/fpga 0 of 2" in NODES.lines([amd], wide=True)[1]


def test_devices_that_claims_are_given_are_told_by_driver_and_pool_and_count_as_gpus_by_their_name() -> None:
    def pool(**fields: Any) -> dict[str, Any]:
        states = {"free": 5, "allocated": 2, "tainted": 1, "blocked": 0}
        parts = {"devices": 8, "whole": 8, "used": 2.0, "share": 0.25}
        return {"driver": "gpu.example.com", "pool": "n0", **parts, **states, **fields}

    node = NODE | {"name": "n0", "allocatable": {"cpu_millis": 1000}, "requested": {}}
    node |= {"devices": [pool(), pool(driver="nic.example.com", pool="rack", blocked=3)]}
    assert NODES.lines([node])[1].split()[-1] == "2/8"
    partitioned = node | {"devices": [pool(devices=10, whole=1, used=0.5)]}
    assert NODES.lines([partitioned])[1].split()[-1] == "0.5/1"
    told = "gpu.example.com 2 of 8 allocated, 1 tainted; nic.example.com/rack 2 of 8 allocated, 1 tainted, 3 blocked"
    assert told in NODES.lines([node], wide=True)[1]
    pods = [
        {"namespace": "d", "name": "p", "uid": "u", "priority": 5, "ours": True, "devices": ["gpu.example.com/n0/d1"]}
    ]
    lines = node_lines(node | {"pods": pods, "pod_count": 1})
    assert "  devices    gpu.example.com: 2 of 8 allocated, 1 tainted" in lines
    assert lines[-1].split()[-1] == "gpu.example.com/n0/d1"


def test_a_node_that_is_not_ready_or_under_pressure_says_so() -> None:
    bad = NODE | {"ready": False, "cordoned": True, "pressure": ["memory", "disk"], "schedulable": False}
    assert "NotReady,SchedulingDisabled,MemoryPressure,DiskPressure" in NODES.lines([bad])[1]


def test_a_node_is_told_with_its_pods_and_other_resources() -> None:
    pods = [{"namespace": "d", "name": "p", "uid": "u", "priority": 5, "ours": True}]
    lines = node_lines(DRAINED | {"pods": pods, "pod_count": 1})
    assert lines[0] == "n1: Drained,Unowned"
    assert "  agent      none decides for it" in lines
    assert "  pods       1 of 110" in lines
    assert "  nvidia.com/gpu 1 of 2 requested" in lines
    assert lines[-1].split() == ["d", "p", "5", "yes"]
    assert "  used       cpu 0.5, memory 1Gi, measured 4.0s ago" in node_lines(NODE)


def test_the_queue_shows_counts_then_who_waits_for_what() -> None:
    item = {
        "namespace": "d", "name": "big", "uid": "u", "place": "backoff", "priority": 0, "attempts": 3,
        "waiting_s": 12.2, "retry_in_s": 3.5, "plugins": ["NodeResourcesFit"], "nominated_node": "",
    }  # fmt: skip
    counts = {"active": 0, "backoff": 1, "unschedulable": 0, "in_flight": 0}
    wanted = ListQuery(kind=QUEUED_PODS)
    lines = wanted.text(FoundItems([item], {"counts": counts}), counts_lines)
    assert lines[0] == "active 0  backoff 1  unschedulable 0  gated 0  being placed 0"
    assert lines[3].split() == ["d", "big", "backoff", "0", "3", "12s", "3.5s", "NodeResourcesFit"]
    assert wanted.text(FoundItems([], {"counts": counts}), counts_lines) == lines[:1]


def test_status_tells_what_is_not_tried_groups_and_queues_and_counts_units_once() -> None:
    newer = OVERVIEW | {
        "queue": OVERVIEW["queue"] | {"gated": 2, "unsupported": 5},
        "units": {"waiting": 3, "placing": 0, "running": 7, "broken": 1},
        "queues": {"total": 4, "waiting_units": 3, "blocked_units": 2, "problems": 1},
    }
    assert overview_lines(newer)[2:5] == [
        "queue       active 4, backoff 1, unschedulable 2, gated 2, being placed 3, unsupported 5",
        "pod groups  waiting 3, placing 0, running 7, broken 1",
        "queues      4, units held back 2, with a problem 1",
    ]
    assert not [line for line in overview_lines(OVERVIEW) if line.startswith(("pod groups", "queues"))]
    assert "queues      none: units go by priority and arrival" in overview_lines(OVERVIEW | {"queues": {"total": 0}})


def test_status_tells_no_latency_where_nothing_was_placed_and_what_runs_before_what_was_placed() -> None:
    idle = {"latency_ms": {"p50": 0.0, "p99": 0.0}, "round_ms": {"p50": 0.0, "p99": 0.0}}
    lines = overview_lines(OVERVIEW | idle | {"pods": {"bound": 0, "bound_in_term": 0, "running": 1573}})
    assert "latency     none placed in the last minutes" in lines
    assert "pods        running 1573; placed 0, in this term 0" in lines


def test_paused_scheduling_says_by_whom_and_why() -> None:
    assert scheduling_line(OVERVIEW["scheduling"]) == f"scheduling is paused by ann since {AT}: upgrade"
    assert scheduling_line({"paused": False}) == "scheduling is on"


def test_decisions_show_what_else_was_considered() -> None:
    assert DECISIONS.lines([DECISION])[1].endswith("2  n0 61, n1 0.25 (not advised), n2 0, and 1 more")
    assert decision_line(DECISION) == (
        f"{AT}  d/p -> n0  kube-default@1, attempt 2; considered n0 61, n1 0.25 (not advised), n2 0, and 1 more"
    )


SETTING = {
    "name": "batch_units", "value": 64, "default": 128, "source": "runtime", "type": "integer", "minimum": 1,
    "maximum": 1000, "above": False, "choices": [], "help": "Units in one offer.",
}  # fmt: skip
LEVEL = SETTING | {
    "name": "log_level", "value": "info", "default": "info", "type": "string", "minimum": None, "maximum": None,
    "choices": ["debug", "info"],
}  # fmt: skip


def test_settings_show_value_source_and_range() -> None:
    header, number, level = SETTINGS.lines([SETTING, LEVEL])
    assert header.split() == ["NAME", "VALUE", "DEFAULT", "FROM", "MAY-BE"]
    assert number.split() == ["batch_units", "64", "128", "runtime", "1", "to", "1000"]
    assert level.split() == ["log_level", "info", "info", "runtime", "debug,", "info"]


def test_a_value_has_the_settings_type_or_is_refused_with_the_range() -> None:
    assert typed(SETTING, "12") == 12
    assert typed(SETTING | {"type": "number"}, "1.5") == 1.5
    assert typed(LEVEL, "12") == "12"
    with pytest.raises(ConfigError, match=r"batch_units: '1\.5' is no integer; give 1 to 1000"):
        typed(SETTING, "1.5")
    for endless in ("NaN", "inf", "-Infinity", "1e999"):
        with pytest.raises(ConfigError, match=f"{SETTING['name']}: '{endless}' is no number; give "):
            typed(SETTING | {"type": "number"}, endless)


def test_histories_show_who_changed_what_and_why() -> None:
    record = {"number": 3, "values": {"batch_units": 64}, "by": "admin:ann", "reason": "slow", "time": AT}
    assert SETTINGS_CHANGES.lines([record])[1].split() == ["3", AT, "admin:ann", "batch_units=64", "slow"]
    change = {
        "number": 9, "time": AT, "by": "ann", "role": "operator", "route": "POST /v1/scheduling/pause", "target": "",
        "result": "ok", "reason": "r", "request_id": "q",
    }  # fmt: skip
    assert CHANGES.lines([change])[1] == f"     9  {AT}  ann  operator  POST /v1/scheduling/pause  -       ok      r"
    assert CHANGES.lines([change], wide=True)[1].endswith("  q")


def test_status_shows_members_warnings_and_failovers() -> None:
    members = [
        {"service": "coordinator", "id": "c-0", "url": "http://c", "leading": True, "term": 12, "warnings": []},
        {"service": "coordinator", "id": "c-1", "url": "http://d", "warnings": ["certificate ends in 2 d"]},
        {"service": "agent", "id": "a-0", "url": "http://a", "nodes": 5, "suspect": True, "version": "0.1.0"},
    ]
    terms = [{"term": 12, "id": "c-0", "began": AT, "ended_by": ""}, {"term": 3, "id": "c-1", "ended_by": "c-0"}]
    found = {"overview": OVERVIEW, "members": members, "terms": terms}
    lines = status_lines(found)
    text = "\n".join(lines)
    assert f"leader      c-0, term 12, since {AT}" in lines
    assert f"scheduling  paused by ann since {AT}: upgrade" in lines
    assert "rates       12.5 pods/s, 13 decisions/s (over 10 s)" in lines
    assert "policy      kube-default@1; candidate marl-dqn@7, canary, 10 % of the pods" in lines
    assert "warning: coordinator c-1: certificate ends in 2 d" in lines
    assert [line.split()[-1] for line in lines if line.startswith(("coordinator  ", "agent  "))] == [
        "leading", "standby", "suspect",
    ]  # fmt: skip
    assert "ENDED-BY" not in text
    assert "ENDED-BY" in "\n".join(status_lines(found, wide=True))
    assert "\x1b" not in text
    assert "\x1b[33m" in "\n".join(status_lines(found, colour=True))


def test_a_mesh_without_a_leader_is_told_too() -> None:
    assert "leader      nobody leads" in status_lines({"overview": {}, "members": []})


def test_shares_fall_into_ten_bands_and_full_nodes_into_the_last() -> None:
    assert bands([0.0, 0.099, 0.1, 0.95, 1.0, 1.4, -0.1]) == [3, 1, 0, 0, 0, 0, 0, 0, 0, 3]


def test_top_fits_the_terminal_whatever_its_size() -> None:
    nodes = {"names": ["n0", "n1"], "cpu": [0.25, 0.9], "memory": [0.25, 0.25], "flags": [0, 1]}
    found = {"overview": OVERVIEW, "nodes": nodes, "decisions": [DECISION] * 20}
    whole = top_lines(found, width=100, height=60)
    assert sum("d  " in line and "n0 61" in line for line in whole) == 20
    assert any(line.split() == ["20-30%", "#" * 12, "1", "#" * 24, "2"] for line in whole)
    for height in (2, 10, 24, 30):
        assert len(top_lines(found, width=80, height=height)) <= height - 1


def test_a_node_shows_what_its_sensors_measure_and_what_is_not_measured() -> None:
    used = {
        "cpu_millis": 500, "memory_bytes": 1 << 30, "age_s": 0.8, "disk": 0.25, "network": None,
        "sources": {"cpu": "agent", "memory": "agent", "disk": "agent"}, "pressure": {"cpu": 0.5}, "oom_kills": 2,
        "delay_ms": 1.25, "latencies": {"shop": {"median_ms": 9.0, "spread_ms": 0.05}},
        "masked": ["network: nobody measures it"], "missing": ["network: nobody measures it", "disk: sdb vanished"],
    }  # fmt: skip
    lines = node_lines({**NODE, "used": used})
    assert [line for line in lines if line in SENSED] == SENSED


SENSED = [
    "  used       cpu 0.5, memory 1Gi, disk 25%, measured 0.8s ago by agent",
    "  pressure   cpu 50%, 2 processes killed for memory",
    "  delay      1.25 ms to other nodes (median)",
    "  latency    9.00 ms to shop (spread 0.05 ms)",
    "  unmeasured network: nobody measures it",
    "  unmeasured disk: sdb vanished",
]


@pytest.mark.parametrize(("name", "value", "said"), [("lend", "off", True), ("lend", "on", False), ("x", "off", False)])
def test_lending_that_is_switched_off_says_to_wait(name: str, value: str, said: bool) -> None:
    found = {"number": 3, "items": [{"name": name, "value": value, "source": "changed"}]}
    assert (TAKEN_BACK in changed_lines(found, [name])) is said
