"""Exec plugins that give other things than a token, that take long, and that tell secrets."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.adapters.kube import exec_plugin
from shared.adapters.kube.exec_plugin import Credential, credential_of
from shared.adapters.kube.kubeconfig import KubeconfigEntry
from shared.errors import ConfigError

VERSION = "client.authentication.k8s.io/v1"


def user(tmp_path: Path, body: str, **fields: Any) -> KubeconfigEntry:
    script = tmp_path / "plugin.py"
    script.write_text(f"import json, os, sys\n{body}\n")
    command = {"apiVersion": VERSION, "command": sys.executable, "args": ["-I", str(script)], **fields}
    return KubeconfigEntry("config: users[u].user", {"exec": command}, tmp_path)


def prints(status: str, version: str = VERSION) -> str:
    return f"print(json.dumps({{'apiVersion': {version!r}, 'kind': 'ExecCredential', 'status': {status}}}))"


CLUSTER = KubeconfigEntry("config: clusters[c].cluster", {"server": "https://h"}, Path())


async def given(entry: KubeconfigEntry, cluster: KubeconfigEntry = CLUSTER) -> Credential:
    return await credential_of(entry, cluster)


async def refused(entry: KubeconfigEntry) -> str:
    with pytest.raises(ConfigError, match=r"^config: users\[u\]\.user\.exec: ") as caught:
        await given(entry)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_a_plugin_is_told_what_client_go_tells_it_and_what_the_kubeconfig_adds(tmp_path: Path):
    status = "{'token': os.environ['KUBERNETES_EXEC_INFO'] + os.environ['ADDED']}"
    entry = user(tmp_path, prints(status), env=[{"name": "ADDED", "value": "!"}])
    token = (await given(entry)).token
    assert json.loads(token.removesuffix("!")) == {
        "apiVersion": VERSION, "kind": "ExecCredential", "spec": {"interactive": sys.stdin.isatty()}
    }  # fmt: skip


async def told(tmp_path: Path, cluster: dict[str, Any], **fields: Any) -> Any:
    """``KUBERNETES_EXEC_INFO`` as the plugin sees it."""
    (tmp_path / "ca.pem").write_bytes(b"-----BEGIN of a CA")
    entry = KubeconfigEntry("config: clusters[c].cluster", cluster, tmp_path)
    plugin = user(tmp_path, prints("{'token': os.environ['KUBERNETES_EXEC_INFO']}"), **fields)
    return json.loads((await given(plugin, entry)).token)["spec"]


async def test_a_plugin_that_asks_for_the_cluster_is_told_it_with_its_config(tmp_path: Path):
    """aws, azure and OIDC plugins choose by it whom to ask; ``certificate-authority-data`` is the file's content."""
    cluster = {
        "server": "https://[fd00::1]:6443",
        "tls-server-name": "api",
        "proxy-url": "http://proxy:3128",
        "insecure-skip-tls-verify": False,
        "certificate-authority": "ca.pem",
        "extensions": [
            {"name": "minikube", "extension": {"other": 1}},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a", "nested": [1]}},
        ],
    }
    assert (await told(tmp_path, cluster, provideClusterInfo=True))["cluster"] == {
        "server": "https://[fd00::1]:6443",
        "tls-server-name": "api",
        "proxy-url": "http://proxy:3128",
        "certificate-authority-data": base64.b64encode(b"-----BEGIN of a CA").decode(),
        "config": {"audience": "a", "nested": [1]},
    }
    assert "cluster" not in await told(tmp_path, cluster)
    assert "cluster" not in await told(tmp_path, cluster, provideClusterInfo=False)


@pytest.mark.parametrize("odd", [5, "abc", {"name": "client.authentication.k8s.io/exec"}, [5, None], None])
async def test_extensions_that_are_no_list_of_extensions_hold_nothing_for_plugins(tmp_path: Path, odd: object):
    found = await told(tmp_path, {"server": "https://h", "extensions": odd}, provideClusterInfo=True)
    assert found["cluster"] == {"server": "https://h"}


@pytest.mark.parametrize("odd", ["get-token", 5, {"get": "token"}])
async def test_arguments_that_are_no_list_are_refused_by_name(tmp_path: Path, odd: object):
    with pytest.raises(ConfigError, match=r"exec\.args"):
        await told(tmp_path, {"server": "https://h"}, args=odd)


async def test_the_least_cluster_is_its_server(tmp_path: Path):
    found = await told(tmp_path, {"server": "https://h", "insecure-skip-tls-verify": True}, provideClusterInfo=True)
    assert found["cluster"] == {"server": "https://h", "insecure-skip-tls-verify": True}


@pytest.mark.parametrize(
    ("mode", "terminal", "interactive"),
    [("Never", True, False), ("IfAvailable", True, True), ("IfAvailable", False, False), (None, True, True),
     ("Always", True, True)],
)  # fmt: skip
async def test_a_plugin_may_ask_a_person_where_its_mode_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str | None, terminal: bool, interactive: bool
):
    standard = io.StringIO()
    monkeypatch.setattr(standard, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdin", standard)
    fields = {} if mode is None else {"interactiveMode": mode}
    assert (await told(tmp_path, {"server": "https://h"}, **fields))["interactive"] is interactive


async def test_a_plugin_that_needs_a_person_is_not_run_where_there_is_none(tmp_path: Path):
    message = await named(user(tmp_path, "open('ran', 'w')", interactiveMode="Always"), r"exec\.interactiveMode: ")
    assert "no terminal" in message
    message = await named(user(tmp_path, prints("{'token': 't'}"), interactiveMode="Sometimes"), "interactiveMode")
    assert "'Sometimes' is not Never, IfAvailable or Always" in message


async def test_a_plugin_that_nobody_may_talk_to_reads_nothing(tmp_path: Path):
    plugin = user(tmp_path, prints("{'token': repr(sys.stdin.read())}"), interactiveMode="Never")
    assert (await given(plugin)).token == "''"


async def test_a_plugin_that_is_not_installed_is_told_with_its_hint(tmp_path: Path):
    asked = {"apiVersion": VERSION, "command": "no-such-plugin", "installHint": "see https://example.com\nand brew it"}
    message = await refused(KubeconfigEntry("config: users[u].user", {"exec": asked}, tmp_path))
    assert "'no-such-plugin' is not installed here: see https://example.com and brew it" in message
    assert "is not installed here;" in await refused(
        KubeconfigEntry("config: users[u].user", {"exec": {**asked, "installHint": None}}, tmp_path)
    )


async def named(entry: KubeconfigEntry, pattern: str) -> str:
    with pytest.raises(ConfigError, match=pattern) as caught:
        await given(entry)
    return str(caught.value)


async def test_certificate_and_key_come_together_or_not_at_all(tmp_path: Path):
    both = await given(user(tmp_path, prints("{'clientCertificateData': 'c', 'clientKeyData': 'k'}")))
    assert (both.client_certificate_data, both.client_key_data) == ("c", "k")
    assert "come together" in await refused(user(tmp_path, prints("{'clientCertificateData': 'c'}")))


async def test_a_time_without_a_zone_is_utc(tmp_path: Path):
    found = await given(user(tmp_path, prints("{'token': 't', 'expirationTimestamp': '2030-01-01T00:00:00'}")))
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
    await refused(KubeconfigEntry("config: users[u].user", {"exec": asked}, tmp_path))


async def test_a_plugin_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exec_plugin, "TIMEOUT_S", 0.3)
    assert "TimeoutError" in await refused(user(tmp_path, "import time; time.sleep(600)"))


async def test_a_command_with_a_slash_begins_at_its_kubeconfig(tmp_path: Path):
    script = tmp_path / "bin" / "plugin"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable} -I\nimport json\n{prints(repr({'token': 'beside'}))}\n")
    script.chmod(0o700)
    entry = KubeconfigEntry(
        "config: users[u].user", {"exec": {"apiVersion": VERSION, "command": "bin/plugin"}}, tmp_path
    )
    assert (await given(entry)).token == "beside"
