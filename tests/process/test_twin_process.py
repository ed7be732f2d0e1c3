"""The twin as a process: bad input, faults, the audit file, a clean end."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.process.twin_process import ROOT, TOKEN, RunningTwin, running_twin

pytestmark = pytest.mark.process

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}


def call(
    twin: RunningTwin, method: str, path: str, body: Any = None, content: str = "application/json"
) -> tuple[int, Any]:
    """(status, JSON body); the status is 0 when the connection was cut."""
    request = urllib.request.Request(
        twin.url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": content},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")
    except (ConnectionError, urllib.error.URLError):
        return 0, None


def refused_start(*flags: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "twin", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


def test_taken_port_is_named_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in refused_start("--port", str(port))


def uids(folder: Path, seed: int) -> list[str]:
    """The uids that ``conclave twin serve --seed`` gives: those of the system namespaces and of a new pod."""
    folder.mkdir()
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "services.cli", "twin", "serve", "--token", TOKEN, "--seed", str(seed)]
    process = subprocess.Popen(
        [*command, "--kubeconfig-out", str(kubeconfig)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        url = process.stdout.readline().split()[1]
        assert "--simulate plays them" in process.stderr.readline()
        twin = RunningTwin(process, url, kubeconfig, folder / "none")
        created = call(twin, "POST", "/api/v1/namespaces/default/pods", POD)[1]
        namespaces = call(twin, "GET", "/api/v1/namespaces")[1]["items"]
        return [one["metadata"]["uid"] for one in (created, *namespaces)]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def test_a_seed_repeats_uids_and_a_twin_that_plays_nothing_says_so(tmp_path: Path) -> None:
    assert uids(tmp_path / "a", 7) == uids(tmp_path / "b", 7) != uids(tmp_path / "c", 8)


def test_unwritable_files_are_named_in_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "such" / "folder" / "file"
    assert str(missing) in refused_start("--audit", str(missing))
    assert str(missing) in refused_start("--kubeconfig-out", str(missing))


def test_fault_plan_errors_name_the_field(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"rules": [{"kind": "error", "probability": 2}]}')
    assert "rules[0].probability" in refused_start("--faults", str(plan))
    plan.write_text("{")
    assert str(plan) in refused_start("--faults", str(plan))


def test_dropped_reply_was_applied(tmp_path: Path) -> None:
    """The fault that a scheduler must survive: no answer, yet the write happened."""
    with running_twin(tmp_path) as twin:
        rule = {"kind": "drop", "method": "POST", "path": "/pods$", "count": 1}
        assert call(twin, "PUT", "/twin/faults", {"rules": [rule]})[0] == 200
        assert call(twin, "POST", "/api/v1/namespaces/default/pods", POD)[0] == 0
        assert call(twin, "POST", "/api/v1/namespaces/default/pods", POD)[0] == 409
        assert call(twin, "GET", "/api/v1/namespaces/default/pods/p")[0] == 200


def test_refusing_faults_have_no_effect_and_run_out(tmp_path: Path) -> None:
    with running_twin(tmp_path) as twin:
        rules = [
            {"kind": "throttle", "path": "/pods$", "count": 1, "retry_after_s": 3},
            {"kind": "error", "path": "/pods$", "count": 1},
        ]
        call(twin, "PUT", "/twin/faults", {"rules": rules})
        status, body = call(twin, "POST", "/api/v1/namespaces/default/pods", POD)
        assert (status, body["details"]["retryAfterSeconds"]) == (429, 3)
        assert call(twin, "POST", "/api/v1/namespaces/default/pods", POD)[0] == 500
        assert call(twin, "POST", "/api/v1/namespaces/default/pods", POD)[0] == 201


def test_delay_holds_the_answer_back(tmp_path: Path) -> None:
    with running_twin(tmp_path) as twin:
        call(twin, "PUT", "/twin/faults", {"rules": [{"kind": "delay", "path": "/nodes", "delay_s": 0.3, "count": 1}]})
        started = time.monotonic()
        assert call(twin, "GET", "/api/v1/nodes")[0] == 200
        assert time.monotonic() - started >= 0.3


def test_compaction_sends_resuming_clients_to_a_new_list(tmp_path: Path) -> None:
    with running_twin(tmp_path) as twin:
        before = call(twin, "GET", "/api/v1/pods")[1]["metadata"]["resourceVersion"]
        call(twin, "POST", "/api/v1/namespaces/default/pods", POD)
        assert (
            call(twin, "GET", f"/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion={before}")[1]["type"] == "ADDED"
        )
        assert call(twin, "POST", "/twin/compact")[0] == 200
        event = call(twin, "GET", f"/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion={before}")[1]
        assert (event["type"], event["object"]["reason"]) == ("ERROR", "Expired")
        exact = f"/api/v1/pods?resourceVersion={before}&resourceVersionMatch=Exact"
        assert call(twin, "GET", exact)[0] == 410


def test_fields_named_twice_are_reported(tmp_path: Path) -> None:
    with running_twin(tmp_path) as twin:

        def create(mode: str) -> urllib.request.Request:
            return urllib.request.Request(
                f"{twin.url}/api/v1/namespaces/default/configmaps?fieldValidation={mode}",
                data=b'{"metadata":{"name":"c"},"data":{"a":"1","a":"2"}}',
                headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
            )

        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(create("Strict"))
        assert b"duplicate field" in refused.value.read()
        with urllib.request.urlopen(create("Warn")) as answer:
            assert answer.headers["Warning"] == '299 - "duplicate field \\"data.a\\""'


def test_fault_plan_needs_the_administrator(tmp_path: Path) -> None:
    with running_twin(tmp_path) as twin:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{twin.url}/twin/faults", data=b"{}", method="PUT"))
        assert refused.value.code == 403
        refused.value.close()
        assert call(twin, "PUT", "/twin/faults", {"rules": [{"kind": "odd"}]})[0] == 400


def test_audit_holds_every_change_in_order(tmp_path: Path) -> None:
    with running_twin(tmp_path) as twin:
        pods = "/api/v1/namespaces/default/pods"
        call(twin, "POST", pods, POD)
        binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
        call(twin, "POST", f"{pods}/p/binding", binding)
        call(twin, "PATCH", f"{pods}/p/status", {"status": {"phase": "Running"}}, "application/merge-patch+json")
        call(twin, "PATCH", f"{pods}/p/status", {"status": {"phase": "Running"}}, "application/merge-patch+json")
        call(twin, "DELETE", f"{pods}/p?gracePeriodSeconds=0")
    lines = [json.loads(line) for line in twin.audit.read_text().splitlines()]
    mine = [line for line in lines if line["kind"] == "Pod"]
    assert [line["verb"] for line in mine] == ["create", "bind", "patch", "update", "delete"]
    assert [line["rv"] for line in lines] == sorted(line["rv"] for line in lines)
    assert all(line["rv"] == int(line["object"]["metadata"]["resourceVersion"]) for line in lines)
    assert mine[1]["object"]["spec"]["nodeName"] == "n1"
    assert mine[-1]["object"]["metadata"]["deletionGracePeriodSeconds"] == 0
    assert {"rv", "time_s", "verb", "kind", "namespace", "name", "user", "manager", "object"} == set(mine[0])


def test_audit_is_readable_while_the_server_runs(tmp_path: Path) -> None:
    with running_twin(tmp_path) as twin:
        call(twin, "POST", "/api/v1/namespaces/default/pods", POD)
        deadline = time.monotonic() + PATIENCE_S
        while '"kind":"Pod"' not in twin.audit.read_text():
            assert time.monotonic() < deadline, "not flushed while it runs"


def test_kubeconfig_is_private_and_complete(tmp_path: Path) -> None:
    with running_twin(tmp_path, scheme="https") as twin:
        assert twin.kubeconfig.stat().st_mode & 0o077 == 0
        text = twin.kubeconfig.read_text()
        assert re.search(r"server: https://127\.0\.0\.1:\d+", text)
        assert "certificate-authority-data" in text
        assert TOKEN in text


def test_open_watches_do_not_hold_up_the_end(tmp_path: Path) -> None:
    with running_twin(tmp_path) as twin:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        watch = urllib.request.urlopen(urllib.request.Request(f"{twin.url}/api/v1/namespaces?watch=1", headers=headers))
        assert watch.readline().startswith(b'{"type":"ADDED"')
        twin.process.terminate()
        assert twin.process.wait(PATIENCE_S) == 0
        watch.close()
