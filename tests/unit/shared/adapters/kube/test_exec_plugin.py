"""Exec plugins that give other things than a token, that take long, and that tell secrets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.kube import exec_plugin
from shared.adapters.kube.exec_plugin import credential_of
from shared.adapters.kube.kubeconfig import Entry
from shared.errors import ConfigError

VERSION = "client.authentication.k8s.io/v1"


def user(tmp_path: Path, body: str, **fields: Any) -> Entry:
    script = tmp_path / "plugin.py"
    script.write_text(f"import json, os, sys\n{body}\n")
    command = {"apiVersion": VERSION, "command": sys.executable, "args": ["-I", str(script)], **fields}
    return Entry("config: users[u].user", {"exec": command}, tmp_path)


def prints(status: str, version: str = VERSION) -> str:
    return f"print(json.dumps({{'apiVersion': {version!r}, 'kind': 'ExecCredential', 'status': {status}}}))"


async def refused(entry: Entry) -> str:
    with pytest.raises(ConfigError, match=r"^config: users\[u\]\.user\.exec: ") as caught:
        await credential_of(entry)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_a_plugin_is_told_what_client_go_tells_it_and_what_the_kubeconfig_adds(tmp_path: Path):
    told = "{'token': os.environ['KUBERNETES_EXEC_INFO'] + os.environ['ADDED']}"
    entry = user(tmp_path, prints(told), env=[{"name": "ADDED", "value": "!"}])
    token = (await credential_of(entry)).token
    assert json.loads(token.removesuffix("!")) == {
        "apiVersion": VERSION, "kind": "ExecCredential", "spec": {"interactive": sys.stdin.isatty()}
    }  # fmt: skip


async def test_certificate_and_key_come_together_or_not_at_all(tmp_path: Path):
    both = await credential_of(user(tmp_path, prints("{'clientCertificateData': 'c', 'clientKeyData': 'k'}")))
    assert (both.client_certificate_data, both.client_key_data) == ("c", "k")
    assert "come together" in await refused(user(tmp_path, prints("{'clientCertificateData': 'c'}")))


async def test_a_time_without_a_zone_is_utc(tmp_path: Path):
    found = await credential_of(user(tmp_path, prints("{'token': 't', 'expirationTimestamp': '2030-01-01T00:00:00'}")))
    assert found.expiry is not None
    assert found.expiry.utcoffset() is not None


async def test_the_end_of_its_errors_is_told_and_its_output_never(tmp_path: Path):
    body = "print('SECRET'); sys.stderr.write('log in first\\n'); sys.exit(3)"
    message = await refused(user(tmp_path, body))
    assert "exit status 3: log in first" in message
    assert "SECRET" not in message
    assert "SECRET" not in await refused(user(tmp_path, "print('SECRET')"))


async def test_another_version_is_refused_by_name(tmp_path: Path):
    message = await refused(user(tmp_path, prints("{'token': 't'}", "client.authentication.k8s.io/v1alpha1")))
    assert "v1alpha1" in message


@pytest.mark.parametrize("asked", [None, {}, {"command": 7}, {"command": "/nonexistent/plugin"}])
async def test_a_plugin_that_cannot_be_run_is_named(tmp_path: Path, asked: Any):
    await refused(Entry("config: users[u].user", {"exec": asked}, tmp_path))


async def test_a_plugin_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exec_plugin, "TIMEOUT_S", 0.3)
    assert "TimeoutError" in await refused(user(tmp_path, "import time; time.sleep(600)"))


async def test_a_command_with_a_slash_begins_at_its_kubeconfig(tmp_path: Path):
    script = tmp_path / "bin" / "plugin"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable} -I\nimport json\n{prints(repr({'token': 'beside'}))}\n")
    script.chmod(0o700)
    entry = Entry("config: users[u].user", {"exec": {"apiVersion": VERSION, "command": "bin/plugin"}}, tmp_path)
    assert (await credential_of(entry)).token == "beside"
