"""The guard on what a pod costs in each scene: counts that are the same on every machine, against those recorded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.in_process.counts import python
from bench.scenes import __main__ as command
from bench.scenes import counts
from bench.scenes.counts import COUNTED, SLACK, TOLERANCE, counted, of_scene, problems, read
from bench.scenes.page import named, rewritten
from bench.scenes.world import COORDINATOR, NODES, STAGES
from services.coordinator.core.core import Core
from shared.model.resources import MAX_INT64
from shared.scheduling.state.attach_limits import AttachLimits
from shared.scheduling.state.node_table import IntArray

REMEDY = (
    "A scene costs another amount than is recorded. If that is meant, python -m bench.scenes --record writes what it "
    "costs now; otherwise python -m bench.preemption core --profile FILE and its like tell where the time goes."
)
GROWING = ("like", "unlike", "deployments", "zone-spread", "affinity", "anti-affinity", "running", "gangs-3", "volumes")
"""Scenes whose nodes can be more without more pods."""
GROWTH = 1.04
same_python = pytest.mark.skipif(
    python() != read()["python"], reason="opcodes are those of the Python that recorded them"
)


@same_python
@pytest.mark.parametrize("scene", COUNTED)
def test_one_of_a_scene_costs_what_is_recorded(scene: str) -> None:
    assert problems({scene: counted(scene)}, read()["counts"]) == [], REMEDY


def test_every_scene_is_recorded_and_no_other() -> None:
    assert read()["counts"].keys() == COUNTED.keys()


@same_python
@pytest.mark.parametrize("scene", GROWING)
def test_one_of_a_scene_costs_the_same_on_four_times_as_many_nodes(scene: str) -> None:
    few, many = (sum(of_scene(scene, nodes=nodes).values()) for nodes in (NODES, 4 * NODES))
    assert many <= GROWTH * few


@pytest.mark.parametrize("mix", ["colocated-lone", "colocated-gangs", "colocated"])
def test_a_mix_of_online_and_offline_units_costs_within_a_quarter_of_lone_pods(mix: str) -> None:
    recorded = read()["counts"]
    assert sum(recorded[mix].values()) <= 1.25 * sum(recorded["like"].values())


@same_python
def test_ablation_a_filter_that_asks_every_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def each(limits: AttachLimits) -> IntArray:
        return np.array([min(limits.of(name).values(), default=MAX_INT64) for name in limits.table.names])

    monkeypatch.setattr(AttachLimits, "least", each)
    with pytest.raises(AssertionError):
        test_one_of_a_scene_costs_the_same_on_four_times_as_many_nodes("volumes")


@same_python
def test_ablation_a_core_made_a_twentieth_slower_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, handle = read()["counts"], Core.handle
    more = [recorded["like"][COORDINATOR] * 64 / 20]

    def slower(core: Core, *arguments: Any) -> Any:
        if sys.gettrace() is not None:
            for _ in range(round((more.pop() if more else 0.0) / 3)):  # a turn of this loop takes three
                pass
        return handle(core, *arguments)

    monkeypatch.setattr(Core, "handle", slower)
    (line,) = problems({"like": counted("like")}, recorded)
    assert line.startswith("like: ")
    assert COORDINATOR in line


@pytest.mark.parametrize("within", [1 - TOLERANCE, 1.0, 1 + TOLERANCE])
def test_a_twentieth_more_of_a_stage_is_found_wherever_within_the_tolerance_it_begins(within: float) -> None:
    recorded = {"like": dict.fromkeys(STAGES, 10_000.0)}
    for stage in STAGES:
        assert problems({"like": {**recorded["like"], stage: within * 10_000.0}}, recorded) == []
        (line,) = problems({"like": {**recorded["like"], stage: 1.05 * within * 10_000.0}}, recorded)
        assert stage in line


def test_a_stage_that_is_new_or_gone_and_a_scene_that_is_not_recorded_are_found() -> None:
    assert len(problems({"like": {}}, {"like": {"binder": 2 * SLACK}})) == 1
    assert len(problems({"like": {"binder": 2 * SLACK}}, {"like": {}})) == 1
    assert len(problems({"new": {"binder": 2 * SLACK}}, {})) == 1


def test_the_command_prints_compares_and_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, out, page = tmp_path / "counts.json", tmp_path / "out.json", tmp_path / "page.md"
    page.write_text("| changes | `status` 1 |\n")
    monkeypatch.setattr(command, "PAGE", page)
    record.write_text(json.dumps({"python": python(), "counts": {"status": {COORDINATOR: 1.0}, "gone": {}}}))
    monkeypatch.setattr(counts, "RECORDED", record)
    monkeypatch.setattr(command, "RECORDED", record)
    monkeypatch.setattr(sys, "argv", ["scenes", "--scene", "status", "--json", str(out)])
    with pytest.raises(SystemExit, match=r"status: .* opcodes of the coordinator for one, recorded are 1"):
        command.main()
    assert "opcodes of one" in capsys.readouterr().out
    assert page.read_text() == "| changes | `status` 1 |\n"
    monkeypatch.setattr(sys, "argv", ["scenes", "--scene", "status", "--record"])
    command.main()
    assert json.loads(record.read_text())["counts"] == json.loads(out.read_text())
    assert page.read_text() == f"| changes | `status` {sum(json.loads(out.read_text())['status'].values()):,.0f} |\n"
    monkeypatch.setattr(sys, "argv", ["scenes", "--scene", "status"])
    command.main()


def test_tables_of_the_page_get_the_figures_of_the_scenes_that_they_name_and_nothing_else_changes() -> None:
    page = (
        "`like` 7 in the text stays\n"
        "| a `like` row | `like` 7 | `like` 8 of agents | `gone` 9 | `--single` 10 |\n"
        "| two | `gangs-3` 1,000; `policy-ee` 11 of agents, 7 |\n"
    )
    counts = {"like": {"binder": 1_000.4, "agents": 234_567.2}, "gangs-3": {"binder": 99.6}, "policy-ee": {"binder": 5}}
    assert rewritten(page, counts) == (
        "`like` 7 in the text stays\n"
        "| a `like` row | `like` 235,568 | `like` 234,567 of agents | `gone` 9 | `--single` 10 |\n"
        "| two | `gangs-3` 100; `policy-ee` 0 of agents, 7 |\n"
    )
    assert rewritten(rewritten(page, counts), counts) == rewritten(page, counts)
    assert named(page) == {"like", "gone", "gangs-3", "policy-ee"}


def test_an_unknown_scene_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scenes", "--scene", "statu"])
    with pytest.raises(SystemExit):
        command.main()
    assert "'statu' is no scene; there are unlike, " in capsys.readouterr().err
