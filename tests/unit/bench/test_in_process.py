"""The mesh in one process: every pod is bound once, and its commands tell what they say they tell."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.in_process import __main__ as in_process
from bench.in_process import counts
from bench.in_process.__main__ import of_processes
from bench.in_process.meters import CpuMeter
from bench.in_process.world import InProcessWorld


def world(agents: int) -> InProcessWorld:
    made = InProcessWorld(nodes=3, agents=agents, meter=CpuMeter())
    made.start()
    return made


@pytest.mark.parametrize("agents", [1, 3])
def test_every_pod_is_bound_by_one_call_and_stays_within_its_node(agents: int) -> None:
    mesh = world(agents)
    mesh.create((f"p{number}" for number in range(100)), shapes=3)
    mesh.run()
    assert (mesh.unbound(), mesh.server.calls["bind"]) == (0, 100)
    nodes = [pod.node for pod in mesh.server.pods.values()]
    assert max(nodes.count(node) for node in set(nodes)) <= 40


def test_pods_that_fit_nowhere_are_told_so_and_the_mesh_comes_to_rest() -> None:
    mesh = world(1)
    mesh.create(f"p{number}" for number in range(130))
    mesh.run()
    assert (mesh.unbound(), mesh.server.calls["patch"]) == (10, 10)


def test_the_busiest_process_is_one_agent_of_several() -> None:
    us = {"agent core": 90.0, "agent wire": 10.0, "binder core": 30.0, "binder calls": 30.0}
    assert of_processes(us, 4) == {"agent": 25.0, "binder": 60.0}


def test_the_command_writes_its_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, profile = tmp_path / "out.json", tmp_path / "profile"
    words = ["--nodes", "10,20", "--agents", "1,2", "--pods", "50", "--rounds", "1", "--set", "batch_units=8"]
    monkeypatch.setattr(sys, "argv", ["in_process", *words, "--json", str(out), "--profile", str(profile)])
    in_process.main()
    runs = json.loads(out.read_text())["runs"]
    assert [(one["nodes"], one["agents"], one["unbound"]) for one in runs] == [
        (10, 1, 0), (10, 2, 0), (20, 1, 0), (20, 2, 0),
    ]  # fmt: skip
    assert profile.stat().st_size
    assert "pods/s" in capsys.readouterr().out


def test_opcodes_are_told_by_file_and_with_a_setting_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    by_file = ("--files", "shared/kube/pods/convert.py")
    for flag, told in (by_file, ("--set=batch_units=1", "opcodes  coordinator core")):
        monkeypatch.setattr(sys, "argv", ["counts", flag])
        counts.main()
        assert told in capsys.readouterr().out
