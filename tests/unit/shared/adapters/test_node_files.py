"""The kernel's files, from where they are mounted."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from shared.adapters import node_files
from shared.adapters.node_files import MOST_TRIES, NodeFiles
from shared.agent.counters import parse


def test_this_machines_files_are_read_and_agree_with_psutil() -> None:
    looked = NodeFiles(Path("/proc"), Path("/sys")).look()
    found = parse(0.0, looked.files, looked.speeds)
    assert found.problems == ()
    assert found.busy_ticks is not None
    assert found.cpus == psutil.cpu_count()
    assert found.memory_total == psutil.virtual_memory().total
    assert found.links is not None
    assert set(found.links) <= set(psutil.net_io_counters(pernic=True))


def test_a_container_reads_the_interfaces_of_the_nodes_first_process(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    for folder in ("1/net", "net", "pressure"):
        (proc / folder).mkdir(parents=True)
    (proc / "1/net/dev").write_text("node0: 1 0 0 0 0 0 0 0 2 0\n")
    (proc / "net/dev").write_text("pod0: 3 0 0 0 0 0 0 0 4 0\n")
    cgroup = tmp_path / "sys/fs/cgroup"
    cgroup.mkdir(parents=True)
    (cgroup / "io.pressure").write_text("some avg10=50.00 avg60=0.00 avg300=0.00 total=0\n")
    speed = tmp_path / "sys/class/net/node0"
    speed.mkdir(parents=True)
    (speed / "speed").write_text("1000\n")
    looked = NodeFiles(proc, tmp_path / "sys").look()
    found = parse(0.0, looked.files, looked.speeds)
    assert found.links is not None
    assert {name: link.bits_per_s for name, link in found.links.items()} == {"node0": 1_000_000_000}
    assert found.pressure == {"io": 0.5}, "of the root cgroup, where /proc has none"


def test_interfaces_that_are_not_the_nodes_are_not_read() -> None:
    looked = NodeFiles(Path("/proc"), Path("/sys"), network=False).look()
    found = parse(0.0, looked.files, looked.speeds)
    assert found.links is None
    assert [problem for problem in found.problems if problem.startswith("network:")]


def test_a_mount_that_is_not_there_is_nothing_but_problems(tmp_path: Path) -> None:
    looked = NodeFiles(tmp_path / "none", tmp_path / "none").look()
    assert looked.files == {}
    assert len(parse(0.0, looked.files, looked.speeds).problems) == 4


def moving(monkeypatch: pytest.MonkeyPatch, proc: Path, clock: list[float]) -> None:
    """Each read of the node's clock shows the next of these, the last for ever; its counters follow it."""
    proc.mkdir()
    read = node_files._read

    def fake(path: Path) -> str | None:
        if path != proc / "uptime":
            return read(path)
        now = clock.pop(0) if len(clock) > 1 else clock[0]
        (proc / "vmstat").write_text(f"oom_kill {now:.0f}\n")
        return f"{now:.2f} 0.00\n"

    monkeypatch.setattr(node_files, "_read", fake)


def test_a_look_that_had_to_wait_for_a_cpu_is_taken_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    moving(monkeypatch, tmp_path / "proc", [7.0, 9.0, 9.0, 9.01])
    found = parse(0.0, NodeFiles(tmp_path / "proc", tmp_path).look().files, {})
    assert (found.uptime_s, found.oom_kills) == (9.0, 9), "of one moment"


def test_a_node_on_which_every_look_has_to_wait_is_read_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = [float(second) for second in range(100)]
    moving(monkeypatch, tmp_path / "proc", clock)
    found = parse(0.0, NodeFiles(tmp_path / "proc", tmp_path).look().files, {})
    assert found.uptime_s == 2.0 * (MOST_TRIES - 1)
