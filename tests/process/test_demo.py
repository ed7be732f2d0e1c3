"""``conclave demo`` and ``conclave up`` from end to end: real etcd, real processes, the twin as the cluster.

Judged from outside: by exit code, by the JSON, and by an audit of the API server's file that the command kept.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from lab.traces.workload import node_json, pod_json
from shared.errors import ConfigError
from shared.runtime.process.embedded_etcd import find_etcd
from tests.patience import PATIENCE_S

try:
    find_etcd()
    NO_ETCD = ""
except ConfigError as error:
    NO_ETCD = str(error)

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.skipif(bool(NO_ETCD), reason=NO_ETCD)]

CONCLAVE = [sys.executable, "-m", "services.cli"]


def demo(tmp_path: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict]:
    """Run a demo; its process and its JSON."""
    command = [*CONCLAVE, "demo", "--json", str(tmp_path / "out.json"), "--audit", str(tmp_path / "audit.jsonl")]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path / "state"), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (tmp_path / "out.json").exists(), done.stderr[-2000:]
    return done, json.loads((tmp_path / "out.json").read_text())


def audited(file: Path) -> dict:
    done = subprocess.run(
        [*CONCLAVE, "audit", str(file), "--json"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return json.loads(done.stdout)


def test_a_demo_with_every_kind_of_kill_binds_every_pod_once(tmp_path):
    kills = ("leader@2", "agent@4", "binder@6", "etcd@8")
    done, figures = demo(tmp_path, "--speed", "40", "--seed", "5", *(f"--kill={kill}" for kill in kills))
    assert done.returncode == 0, (figures["problems"], figures["examples"])
    assert figures["pods_submitted"] >= 105
    assert figures["pods_bound"] == figures["pods_submitted"]
    for name in ("double_bound", "overcommitted_nodes", "lost", "misplaced", "pods_unschedulable"):
        assert figures[name] == 0
    assert [failover["victim"] for failover in figures["failovers"]] == ["leader", "agent", "binder", "etcd"]
    assert all(failover["recovery_s"] is not None for failover in figures["failovers"])
    assert figures["bytes_per_decision"] > 0
    assert figures["schedule_latency_ms"]["p50"] > 0
    services = {"twin", "coordinator", "agent", "binder", "etcd"}
    assert set(figures["rss_mb"]) == services
    assert set(figures["cpu_ms_per_pod"]) == services | {"total"}
    assert all(value > 0 for value in figures["rss_mb"].values())
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    report = audited(tmp_path / "audit.jsonl")
    assert report["ok"]
    for name in ("pods_submitted", "pods_bound", "double_bound", "overcommitted_nodes", "pods_unschedulable", "lost"):
        assert report[name] == figures[name]


def test_a_demo_of_gangs_with_a_kill_in_the_middle_leaves_none_in_part(tmp_path):
    done, figures = demo(tmp_path, "--workload", "gangs", "--speed", "80", "--seed", "3", "--kill=binder@3")
    assert done.returncode == 0, (figures["problems"], figures["examples"])
    assert figures["pods_bound"] == figures["pods_submitted"]
    assert (figures["gangs"], figures["gangs_whole"]) == (40, 40)
    for name in ("gangs_partial", "gangs_broken", "gangs_scattered", "over_quota", "double_bound", "lost"):
        assert figures[name] == 0
    assert figures["failovers"][0]["recovery_s"] is not None
    assert figures["shares"]["seconds"] > 0
    report = audited(tmp_path / "audit.jsonl")
    assert report["ok"]
    assert report["gang_bind_ms"] == figures["gang_bind_ms"]


def test_a_demo_of_latency_moves_new_pods_as_soon_as_the_leader_knows_that_delays_changed(tmp_path):
    done, figures = demo(tmp_path, "--workload", "latency", "--seed", "3", "--nodes", "2", "--speed", "15")
    assert done.returncode == 0, (figures["problems"], figures["examples"])
    assert (figures["policy"], figures["agents"], figures["nodes"]) == ("el", 2, 2)
    assert figures["pods_bound"] == figures["pods_submitted"] == 90
    latency = figures["latency"]
    assert latency["decided_knowing"] > 0
    assert latency["within_soft_knowing"] == 1.0
    assert [change["decisions_until_moved"] for change in latency["changes"]] == [1, 1]


def test_a_demo_of_latency_ends_clean_at_ctrl_c(tmp_path):
    command = [*CONCLAVE, "demo", "--workload", "latency", "--nodes", "2", "--keep", str(tmp_path / "state")]
    run = subprocess.Popen(
        [*command, "--picture", str(tmp_path / "p.png")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert run.stderr is not None
    try:
        for line in run.stdout:
            if "running" in line:
                break
        children = children_of(run.pid)
        assert len(children) == 8  # etcd, the twin, 2 coordinators, 2 agents, 2 binders
        run.send_signal(signal.SIGINT)
        assert run.wait(PATIENCE_S) == 130
        assert "Traceback" not in run.stderr.read()
    finally:
        run.kill()
        run.wait()
        run.stdout.close()
        run.stderr.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_demo_with_a_learned_policy_learns_while_it_runs(tmp_path):
    done, figures = demo(tmp_path, "--policy", "marl-dqn", "--speed", "10", "--seed", "3")
    assert done.returncode == 0, (figures["problems"], figures["examples"])
    assert sum(figures["placed_by"].values()) == figures["pods_bound"] == 105
    assert all(name.startswith("marl-dqn@") for name in figures["placed_by"])
    learner = figures["learning"]["learner"]
    assert learner["transitions"] > 0
    assert sum(learner["outcomes"].values()) > 0
    assert figures["learning"]["active"].startswith("marl-dqn@")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["--learner"], "kube-default is a heuristic", id="learner for a heuristic"),
        pytest.param(["--policy", "best"], "choose one of", id="unknown policy"),
    ],
)
def test_a_demo_that_cannot_learn_says_so_before_it_starts(tmp_path, arguments, told):
    done = subprocess.run(
        [*CONCLAVE, "demo", "--json", str(tmp_path / "out.json"), *arguments],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def cut_trace(folder: Path, nodes: int, pods: int) -> Path:
    """The first rows of the given trace, so that it overflows."""
    given = Path(os.environ.get("CONCLAVE_SHARED", "../shared")) / "data" / "openb"
    if not given.is_dir():
        pytest.skip(f"{given} is not there: the trace is not part of the project")
    for name, rows in (("openb_node_list_gpu_node.csv", nodes), ("openb_pod_list_default.csv", pods)):
        lines = (given / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[: rows + 1]))
    return folder


def test_a_trace_that_overflows_leaves_only_pods_that_no_node_fits(tmp_path):
    trace = cut_trace(tmp_path, nodes=20, pods=300)
    done, figures = demo(tmp_path, "--workload", "openb", "--trace-dir", str(trace), "--kill", "leader@1")
    assert done.returncode == 0, (figures["problems"], figures["examples"])
    assert figures["pods_unschedulable"] > 0
    assert figures["pods_bound"] + figures["pods_unschedulable"] == figures["pods_submitted"]
    assert figures["gpu_violations"] == 0
    assert figures["schedulable_but_unbound"] == 0


class Twin:
    """``conclave twin serve`` as a process."""

    def __init__(self, tmp_path: Path) -> None:
        self.kubeconfig = tmp_path / "kubeconfig"
        self.audit = tmp_path / "audit.jsonl"
        self.token = "a-token-for-tests-only"
        command = [*CONCLAVE, "twin", "serve", "--token", self.token, "--kubeconfig-out", str(self.kubeconfig)]
        self.process = subprocess.Popen([*command, "--audit", str(self.audit), "--simulate"], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        said = self.process.stdout.readline().decode()
        assert said.startswith("serving "), "the twin did not start"
        self.url = said.split()[-1]

    def call(self, method: str, path: str, body: dict | None = None) -> dict:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def unbound(self) -> int:
        return len(self.call("GET", "/api/v1/pods?fieldSelector=spec.nodeName=")["items"])

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def twin(tmp_path):
    twin = Twin(tmp_path)
    yield twin
    if twin.process.poll() is None:
        twin.stop()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_up_says_ready_schedules_and_ends_with_nothing_left_behind(tmp_path, twin):
    for number in range(5):
        twin.call("POST", "/api/v1/nodes", node_json(f"n{number}", {"cpu": "4", "memory": "8Gi", "pods": "110"}))
    up = subprocess.Popen(
        [
            *CONCLAVE,
            "up",
            "--kubeconfig",
            str(twin.kubeconfig),
            "--scheduler-name",
            "mine",
            "--keep",
            str(tmp_path / "s"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stdout is not None
    assert up.stderr is not None
    try:
        ready = up.stdout.readline()
        assert ready.startswith("ready "), up.stderr.read()
        children = children_of(up.pid)
        assert len(children) == 7  # etcd, 2 coordinators, 2 agents, 2 binders
        etcd = dict(part.split("=", 1) for part in ready.split()[1:])["etcd"]
        status = subprocess.run(
            [*CONCLAVE, "status", "--etcd", etcd, "-o", "json"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        shown = json.loads(status.stdout)
        assert shown["coordinator"]["term"] > 0
        assert shown["binders"]["0"]["term"] > 0
        assert sorted(shown["agents"]) == ["agent-0", "agent-1"]
        for number in range(40):
            pod = pod_json(f"p{number}", {"cpu": "100m"}, scheduler_name="mine")
            twin.call("POST", "/api/v1/namespaces/default/pods", pod)
        other = pod_json("other", {"cpu": "100m"}, scheduler_name="somebody-else")
        twin.call("POST", "/api/v1/namespaces/default/pods", other)
        deadline = time.monotonic() + PATIENCE_S
        while twin.unbound() > 1 and time.monotonic() < deadline:
            time.sleep(0.1)  # another process's state can only be polled
        assert twin.unbound() == 1
    finally:
        up.send_signal(signal.SIGTERM)
        assert up.wait(PATIENCE_S) == 0
        up.stdout.close()
        up.stderr.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    twin.stop()
    report = audited(twin.audit)
    assert (report["pods_bound"], report["double_bound"], report["overcommitted_nodes"]) == (40, 0, 0)
