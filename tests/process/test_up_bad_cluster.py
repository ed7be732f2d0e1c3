"""``conclave up`` against a server that refuses us, or without an etcd: one line on stderr and exit code 2; and what it
has started by the time that it knows."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from typing import Any

import psutil
import pytest

from tests.patience import PATIENCE_S
from tests.process.twin_process import TOKEN, RunningTwin, running_twin

pytestmark = pytest.mark.process

UP = [sys.executable, "-m", "services.cli", "up"]


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    with running_twin(tmp_path_factory.mktemp("twin")) as server:
        yield server


def up(twin: RunningTwin, *arguments: str) -> str:
    done = subprocess.run(
        [*UP, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    return line


def test_a_token_that_is_refused_is_named(twin, tmp_path):
    wrong = tmp_path / "kubeconfig"
    text = twin.kubeconfig.read_text()
    wrong.write_text(
        "\n".join(f"{line.split('token:')[0]}token: wrong" if "token:" in line else line for line in text.splitlines())
    )
    line = up(twin, "--kubeconfig", str(wrong))
    assert "401" in line
    assert twin.url in line


def test_a_user_without_rights_is_told_which(twin, tmp_path):
    """Known to the server, so /version answers; without a role, so nothing can be scheduled."""
    accounts = f"{twin.url}/api/v1/namespaces/default/serviceaccounts"
    admin = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

    def post(url: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        request = urllib.request.Request(url, json.dumps(body).encode(), admin)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    post(accounts, {"metadata": {"name": "nobody"}})
    token = post(f"{accounts}/nobody/token", {"spec": {}})["status"]["token"]
    weak = tmp_path / "kubeconfig"
    weak.write_text(re.sub(r"token: .*", f"token: {token}", twin.kubeconfig.read_text()))
    line = up(twin, "--kubeconfig", str(weak))
    assert "403" in line
    assert "nodes is forbidden" in line


def kubeconfig_of(url: str, user: dict[str, Any]) -> str:
    return json.dumps(
        {
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": user}],
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
    )  # fmt: skip


@pytest.mark.etcd
def test_services_load_while_the_cluster_is_checked_and_end_with_it(tmp_path):
    """A server that answers nobody before services have been started, and then hangs up."""
    logs, kubeconfig = tmp_path / "state" / "logs", tmp_path / "kubeconfig"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        kubeconfig.write_text(kubeconfig_of(url, {}))
        command = [*UP, "--kubeconfig", str(kubeconfig), "--keep", str(tmp_path / "state"), "--single"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            try:
                asked, _ = server.accept()
                up_itself, children = psutil.Process(running.pid), []
                while len(children) < 3 and running.poll() is None:  # two services and etcd
                    time.sleep(0.01)
                    children = up_itself.children(recursive=True)
                names = {file.name for file in logs.glob("*.log")}
                asked.close()
                server.close()
                out, said = running.communicate(timeout=PATIENCE_S)
                left = [child for child in children if child.is_running()]
            finally:
                running.kill()
    assert names == {"single-0.log", "single-1.log"}
    assert len(children) == 3
    assert not left
    assert (running.returncode, out) == (2, "")
    [line] = said.strip().splitlines()
    assert url in line


PLUGIN = """#!/bin/sh
# Whoever finds no credential asks a person, who talks to one caller alone, and leaves what it is told to the others.
cd "$(dirname "$0")"
if [ ! -e cached ]; then
    mkdir asking || exit 1
    cat person > told && mv told cached
fi
cat cached
"""


@pytest.mark.etcd
def test_a_credential_plugin_that_asks_a_person_has_been_told_before_a_service_runs_it(twin, tmp_path):
    state, plugin, person = tmp_path / "state", tmp_path / "plugin", tmp_path / "person"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    os.mkfifo(person)
    kind = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    asked = {"apiVersion": kind["apiVersion"], "command": str(plugin), "interactiveMode": "IfAvailable"}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kubeconfig_of(twin.url, {"exec": asked}))
    command = [*UP, "--kubeconfig", str(kubeconfig), "--keep", str(state), "--single"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            while not (tmp_path / "asking").exists() and running.poll() is None:
                time.sleep(0.01)
            assert running.poll() is None
            started = list(state.glob("logs/*"))
            person.write_text(json.dumps(kind | {"status": {"token": TOKEN}}))  # read by the one that asks
            assert running.stdout is not None
            ready = running.stdout.readline()
            running.terminate()
            _, said = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert not started
    assert ready.startswith("ready "), said
    assert running.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--etcd", "http://127.0.0.1:1"), ("http://127.0.0.1:1", "--etcd")),
        (("--etcd", "nonsense"), ("nonsense", "host:port")),
        (("--etcd-prefix", "relative"), ("relative", "absolute")),
        (("--policy", "crystal-ball"), ("crystal-ball", "kube-default")),
        (("--context", "elsewhere"), ("elsewhere",)),
    ],
)
def test_what_cannot_be_used_is_named(twin, arguments, words):
    line = up(twin, "--kubeconfig", str(twin.kubeconfig), *arguments)
    for word in words:
        assert word in line
