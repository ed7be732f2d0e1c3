"""Kubeconfigs as people and clouds write them, in every way of being wrong; in-cluster; exec plugins; rotation."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.adapters.kube import config as kube_config
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.errors import ConfigError
from tests.certificates import TestCa
from tests.faults.scripted_api import ScriptedApi, answer, failure
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[5]


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def config(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "secret-token"}}],
    } | changes


def written(tmp_path: Path, content: dict[str, Any] | str) -> Path:
    file = tmp_path / "kubeconfig"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


async def refused(tmp_path: Path, content: dict[str, Any] | str, context: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        await KubeConfig.load(written(tmp_path, content), context=context)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "kubeconfig"))
    assert "\n" not in message
    assert "secret-token" not in message
    return message


async def test_a_token_becomes_the_header(tmp_path: Path):
    access = await KubeConfig.load(written(tmp_path, config()))
    assert access.base_url == "http://127.0.0.1:1"
    assert await access.headers() == {"Authorization": "Bearer secret-token"}
    assert access.tls() is None


async def test_a_server_with_a_path_keeps_it(tmp_path: Path):
    clusters = [{"name": "c", "cluster": {"server": "http://h:1/k8s/clusters/c-1/", "proxy-url": "http://p:3128"}}]
    access = await KubeConfig.load(written(tmp_path, config(clusters=clusters)))
    assert (access.base_url, access.proxy) == ("http://h:1/k8s/clusters/c-1", "http://p:3128")


@pytest.mark.parametrize("server", ["", "127.0.0.1:6443", "ftp://h", "http://[::1", "https://", "http://h:x"])
async def test_a_server_that_is_no_url_is_named_with_its_field(tmp_path: Path, server: str):
    message = await refused(tmp_path, config(clusters=[{"name": "c", "cluster": {"server": server}}]))
    assert "clusters[].cluster.server" in message
    assert "https://" in message


async def test_a_token_file_that_is_missing_is_named(tmp_path: Path):
    message = await refused(tmp_path, config(users=[{"name": "u", "user": {"tokenFile": "/nonexistent/token"}}]))
    assert "/nonexistent/token" in message


async def test_a_file_that_does_not_exist_is_named_with_the_remedy(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"none: kubeconfig does not exist; .* --kubeconfig"):
        await KubeConfig.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("a: [1\nb: 2", "not valid YAML at line 2, column 2", id="yaml"),
        pytest.param("just text", "not a kubeconfig", id="no-mapping"),
        pytest.param(b"\xff\xfe".decode("latin-1"), "kubeconfig", id="binary"),
        pytest.param(config(clusters=7), "clusters is not a list", id="clusters-no-list"),
        pytest.param(config(users=[{"user": {}}]), "users[0] has no name", id="user-without-name"),
        pytest.param(config(**{"current-context": ""}), "current-context is not set", id="no-current-context"),
        pytest.param(config(clusters=[]), "Expected object with name c", id="cluster-missing"),
        pytest.param(config(contexts=[{"name": "main"}]), "Expected key context", id="context-empty"),
        pytest.param(
            config(
                clusters=[
                    {"name": "c", "cluster": {"server": "https://h", "certificate-authority-data": "bm90IHBlbQ=="}}
                ]
            ),
            "CA, client certificate or key cannot be used",
            id="ca-no-pem",
        ),
        pytest.param(
            config(clusters=[{"name": "c", "cluster": {"server": "https://h", "certificate-authority": "/no/ca.pem"}}]),
            "/no/ca.pem",
            id="ca-file-missing",
        ),
        pytest.param(
            config(clusters=[{"name": "c", "cluster": {"server": "https://h", "certificate-authority-data": "A"}}]),
            "fix this field",
            id="ca-no-base64",
        ),
    ],
)
async def test_what_is_wrong_is_said_in_one_line_with_the_file(tmp_path: Path, content: Any, expected: str):
    assert expected in await refused(tmp_path, content)


async def test_an_unknown_context_lists_the_known_ones(tmp_path: Path):
    assert "'prod' is not in contexts (known: main)" in await refused(tmp_path, config(), context="prod")


async def test_a_context_without_a_user_is_anonymous_not_a_crash(tmp_path: Path):
    contexts = [{"name": "main", "context": {"cluster": "c"}}]
    access = await KubeConfig.load(written(tmp_path, config(contexts=contexts, users=None)))
    assert await access.headers() == {}


def plugin(tmp_path: Path, body: str) -> dict[str, Any]:
    """A user with an exec plugin that runs ``body`` as Python and counts its runs."""
    script = tmp_path / "plugin.py"
    script.write_text(f"import json\nopen({str(tmp_path / 'runs')!r}, 'a').write('.')\n{body}\n")
    command = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-I", str(script)],
    }
    return config(users=[{"name": "u", "user": {"exec": command}}])


def credential(status: dict[str, str]) -> str:
    body = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(body)!r})"


async def test_an_exec_plugin_gives_the_token(tmp_path: Path):
    access = await KubeConfig.load(written(tmp_path, plugin(tmp_path, credential({"token": "from-plugin"}))))
    assert await access.headers() == {"Authorization": "Bearer from-plugin"}


@pytest.mark.parametrize(
    "body", ["raise SystemExit('no login')", "print('no json')", credential({})], ids=["fails", "no-json", "empty"]
)
async def test_an_exec_plugin_without_credentials_is_a_config_error(tmp_path: Path, body: str):
    assert "gave no credentials" in await refused(tmp_path, plugin(tmp_path, body))


async def test_renewal_runs_the_plugin_again_and_keeps_the_old_when_it_fails(tmp_path: Path):
    file = written(tmp_path, plugin(tmp_path, credential({"token": "first"})))
    access = await KubeConfig.load(file)
    plugin(tmp_path, credential({"token": "second"}))
    assert await access.renew()
    assert await access.headers() == {"Authorization": "Bearer second"}
    plugin(tmp_path, "raise SystemExit(1)")
    access._renewed_at = float("-inf")
    assert not await access.renew()
    assert await access.headers() == {"Authorization": "Bearer second"}


async def test_renewals_in_a_storm_run_the_plugin_once(tmp_path: Path):
    access = await KubeConfig.load(written(tmp_path, plugin(tmp_path, credential({"token": "t"}))))
    await asyncio.gather(*(access.renew() for _ in range(50)))
    assert not await access.renew()
    assert len((tmp_path / "runs").read_text()) == 2


@pytest.mark.parametrize(("expiry", "soon"), [("2020-01-01T00:00:00Z", True), ("2999-01-01T00:00:00Z", False)])
async def test_a_plugins_credentials_are_renewed_before_they_expire(tmp_path: Path, expiry: str, soon: bool):
    body = credential({"token": "t", "expirationTimestamp": expiry})
    access = await KubeConfig.load(written(tmp_path, plugin(tmp_path, body)))
    assert access._expires_soon() is soon


async def test_in_cluster_follows_the_token_file_and_drops_its_newline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("projected\n")
    TestCa().write(ca)
    monkeypatch.setattr(kube_config, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(kube_config, "CHECK_S", 0.0)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    access = await KubeConfig.load()
    assert access.base_url == "https://10.0.0.1:443"
    assert await access.headers() == {"Authorization": "Bearer projected"}
    token.write_text("rotated\n")
    assert await access.headers() == {"Authorization": "Bearer rotated"}
    token.unlink()
    assert await access.headers() == {"Authorization": "Bearer rotated"}
    context = access.tls()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED


async def test_in_cluster_without_a_token_says_what_to_mount(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigError, match=r"in-cluster configuration: .*mount the service account token"):
        await KubeConfig.load()


async def test_a_token_file_is_read_again_and_kept_when_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    token = tmp_path / "token"
    token.write_text("first\n")
    access = await KubeConfig.load(written(tmp_path, config(users=[{"name": "u", "user": {"tokenFile": "token"}}])))
    assert await access.headers() is await access.headers()
    token.write_text("second\n")
    assert await access.headers() == {"Authorization": "Bearer first"}
    monkeypatch.setattr(kube_config, "CHECK_S", 0.0)
    assert await access.headers() == {"Authorization": "Bearer second"}
    token.unlink()
    assert await access.headers() == {"Authorization": "Bearer second"}


async def test_name_and_password_are_basic_authentication(tmp_path: Path):
    users = [{"name": "u", "user": {"username": "me", "password": "word"}}]
    access = await KubeConfig.load(written(tmp_path, config(users=users)))
    assert await access.headers() == {"Authorization": "Basic bWU6d29yZA=="}


async def test_a_proxy_that_is_no_url_is_named_with_its_field(tmp_path: Path):
    clusters = [{"name": "c", "cluster": {"server": "http://h", "proxy-url": "socks5://p"}}]
    message = await refused(tmp_path, config(clusters=clusters))
    assert "clusters[].cluster.proxy-url: 'socks5://p' is no URL of a proxy (SOCKS is not spoken)" in message
    assert "http://proxy:3128" in message


PROXIED = {"HTTPS_PROXY": "http://proxy.corp:3128", "NO_PROXY": "10.0.0.0/8,.svc"}


@pytest.mark.parametrize(
    ("cluster", "proxy"),
    [
        ({"server": "https://api.example.com:6443"}, "http://proxy.corp:3128"),
        ({"server": "https://10.0.0.1:6443"}, None),
        ({"server": "https://127.0.0.1:6443"}, None),
        ({"server": "http://api.example.com:8080"}, None),
        # what the kubeconfig names is asked for all of it
        ({"server": "https://10.0.0.1:6443", "proxy-url": "http://other:1"}, "http://other:1"),
    ],
)
async def test_the_proxy_of_the_environment_is_asked_as_kubectl_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: dict[str, str], proxy: str | None
):
    for name, value in PROXIED.items():
        monkeypatch.setenv(name, value)
    access = await KubeConfig.load(written(tmp_path, config(clusters=[{"name": "c", "cluster": cluster}])))
    assert access.proxy == proxy


async def test_a_proxy_of_the_environment_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("https_proxy", "socks5://p:1080")
    clusters = [{"name": "c", "cluster": {"server": "https://api.example.com"}}]
    with pytest.raises(ConfigError, match=r"^https_proxy: .*SOCKS is not spoken.*http://proxy:3128$"):
        await KubeConfig.load(written(tmp_path, config(clusters=clusters)))


@pytest.mark.parametrize(("host", "url"), [("fd00::1", "https://[fd00::1]:443"), ("kube.svc", "https://kube.svc:443")])
async def test_in_cluster_the_kubelets_bare_address_is_put_in_brackets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str
):
    (tmp_path / "token").write_text("projected\n")
    TestCa().write(tmp_path / "ca.crt")
    monkeypatch.setattr(kube_config, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    access = await KubeConfig.load()
    assert (access.base_url, access.proxy) == (url, "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "fd00::/8,.svc")
    assert await access.renew()
    assert access.proxy is None


async def test_a_token_file_comes_before_a_token_which_stands_in_for_it(tmp_path: Path):
    (tmp_path / "token").write_text("of-the-file\n")
    users = [{"name": "u", "user": {"token": "stated", "tokenFile": "token"}}]
    access = await KubeConfig.load(written(tmp_path, config(users=users)))
    assert await access.headers() == {"Authorization": "Bearer of-the-file"}
    (tmp_path / "token").unlink()
    access = await KubeConfig.load(written(tmp_path, config(users=users)))
    assert await access.headers() == {"Authorization": "Bearer stated"}


@pytest.mark.parametrize("field", ["as", "as-uid", "as-groups", "as-user-extra"])
async def test_an_impersonation_is_refused_and_never_left_out_in_silence(tmp_path: Path, field: str):
    users = [{"name": "u", "user": {"token": "t", field: "somebody"}}]
    assert f"users[u].user.{field}: nobody is impersonated here" in await refused(tmp_path, config(users=users))


async def test_an_empty_ca_file_does_not_mean_to_trust_everybody(tmp_path: Path):
    (tmp_path / "ca.pem").touch()
    cluster = {"server": "https://h", "certificate-authority": "ca.pem"}
    message = await refused(tmp_path, config(clusters=[{"name": "c", "cluster": cluster}]))
    assert "certificate-authority holds no certificate" in message


async def test_a_plugins_certificate_proves_who_we_are_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ca = TestCa()
    ca_file = ca.write(tmp_path / "ca.pem")
    serving, _ = ca.contexts(tmp_path, "localhost")
    serving.verify_mode = ssl.CERT_REQUIRED
    serving.load_verify_locations(str(ca_file))
    cert, key = ca.issue(tmp_path, "conclave")
    status = {"clientCertificateData": cert.read_text(), "clientKeyData": key.read_text()}
    (tmp_path / "made").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "made"))
    async with ScriptedApi(tls=serving).on("GET", "/version", answer(200, {"gitVersion": "v1.36.0"})) as api:
        cluster = {"server": api.url, "certificate-authority": "ca.pem"}
        content = plugin(tmp_path, credential(status)) | {"clusters": [{"name": "c", "cluster": cluster}]}
        client = KubeClient(await KubeConfig.load(written(tmp_path, content)))
        assert await client.check() == "v1.36.0"
        await client.close()
    assert list((tmp_path / "made").iterdir()) == []


async def test_only_an_auth_provider_brings_the_official_client(tmp_path: Path):
    """It costs half a second and 30 MB in each process that imports it."""
    file = written(tmp_path, config())
    code = (
        "import asyncio, sys; from pathlib import Path; from shared.adapters.kube.config import KubeConfig;"
        f"asyncio.run(KubeConfig.load(Path({str(file)!r}))); assert 'kubernetes' not in sys.modules"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT)
    assert await process.wait() == 0
    provider = {"name": "oidc", "config": {"id-token": "a.e30.c"}}
    access = await KubeConfig.load(
        written(tmp_path, config(users=[{"name": "u", "user": {"auth-provider": provider}}]))
    )
    assert await access.headers() == {"Authorization": "Bearer a.e30.c"}
    assert access._expires_soon()


async def test_an_auth_provider_that_gives_nothing_is_named(tmp_path: Path):
    message = await refused(tmp_path, config(users=[{"name": "u", "user": {"auth-provider": {"name": "oidc"}}}]))
    assert "users[u].user.auth-provider" in message


async def test_client_certificates_of_a_kubeconfig_prove_who_we_are(tmp_path: Path):
    ca = TestCa()
    ca_file = ca.write(tmp_path / "ca.pem")
    serving, _ = ca.contexts(tmp_path, "localhost")
    serving.verify_mode = ssl.CERT_REQUIRED
    serving.load_verify_locations(str(ca_file))
    cert, key = ca.issue(tmp_path, "conclave")
    async with ScriptedApi(tls=serving).on("GET", "/version", answer(200, {"gitVersion": "v1.36.0"})) as api:
        cluster = {"server": api.url, "certificate-authority": "ca.pem"}
        user = {"client-certificate": cert.name, "client-key": key.name}
        file = written(
            tmp_path, config(clusters=[{"name": "c", "cluster": cluster}], users=[{"name": "u", "user": user}])
        )
        client = KubeClient(await KubeConfig.load(file))
        assert await client.check() == "v1.36.0"
        await client.close()


async def test_a_token_that_was_revoked_is_replaced_from_the_file(tmp_path: Path):
    script = (answer(401, failure(401, "Unauthorized")), answer(200, {"gitVersion": "v1.36.0"}))
    async with ScriptedApi().on("GET", "/version", *script) as api:
        clusters = [{"name": "c", "cluster": {"server": api.url}}]
        file = written(tmp_path, config(clusters=clusters))
        client = KubeClient(await KubeConfig.load(file))
        written(tmp_path, config(clusters=clusters, users=[{"name": "u", "user": {"token": "new"}}]))
        await client.check()
        await client.close()
    assert [seen.headers["Authorization"] for seen in api.seen] == ["Bearer secret-token", "Bearer new"]


async def test_keep_fresh_renews_what_expires_and_outlives_a_failing_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    body = credential({"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"})
    access = await KubeConfig.load(written(tmp_path, plugin(tmp_path, body)))
    monkeypatch.setattr(kube_config, "CHECK_S", 0.01)
    monkeypatch.setattr(kube_config, "MIN_RENEW_GAP_S", 0.0)
    plugin(tmp_path, "raise SystemExit(1)")
    keeping = asyncio.create_task(access.keep_fresh())
    async with asyncio.timeout(PATIENCE_S):
        while len((tmp_path / "runs").read_text()) < 3:  # noqa: ASYNC110  the plugin is a process: its file is the event
            await asyncio.sleep(0.02)
    assert not keeping.done()
    async with access._lock:  # between two renewals: no plugin runs that would be left behind
        keeping.cancel()
