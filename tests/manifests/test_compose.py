"""compose/: the files merge, both kinds of docker compose take them, and nothing in them has a default password."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.runtime.process.etcd_release import unsafe_text
from tests.manifests.rendering import ROOT

COMPOSE = ROOT / "compose"
MAIN = "docker-compose.yaml"
FILES: list[tuple[str, ...]] = [
    (MAIN,), (MAIN, "etcd-cluster.yaml"), (MAIN, "outside-cluster.yaml"), (MAIN, "etcd-safe.yaml"),
]  # fmt: skip
HARDENED_BY_HAND = {"secrets"}
OTHERS = {"prometheus", "grafana"}
"""Images that are not ours."""


def merged(files: tuple[str, ...]) -> dict[str, Any]:
    """The files as compose puts them together: mappings merge, a command is replaced, volumes are added."""
    result: dict[str, Any] = {"services": {}}
    for file in files:
        document = yaml.safe_load((COMPOSE / file).read_text())
        for name, service in document["services"].items():
            old = result["services"].get(name, {})
            new = {**old, **service}
            new["environment"] = {**old.get("environment", {}), **service.get("environment", {})}
            new["volumes"] = [*old.get("volumes", ()), *service.get("volumes", ())]
            result["services"][name] = new
    return result


def tool(*words: str) -> list[str] | None:
    """A docker compose that runs, or None."""
    if shutil.which(words[0]) is None:
        return None
    done = subprocess.run([*words, "version"], capture_output=True, check=False)
    return list(words) if done.returncode == 0 else None


def test_compose_runs_the_whole_mesh() -> None:
    services = merged(FILES[0])["services"]
    default = {name for name, service in services.items() if "profiles" not in service}
    counts = {kind: sum(name.startswith(f"{kind}-") for name in default) for kind in ("coordinator", "agent", "binder")}
    assert counts == {"coordinator": 2, "agent": 4, "binder": 2}
    assert {"etcd", "twin", "secrets"} <= default
    profiles = {name: service["profiles"] for name, service in services.items() if "profiles" in service}
    assert profiles == {
        "autoscaler": ["autoscale"], "jobs": ["jobs"], "rebalancer": ["rebalance"],
        "learner": ["learn"], "sensor": ["sense"], "cli": ["cli"],
        "prometheus": ["monitoring"], "grafana": ["monitoring"],
    }  # fmt: skip


def test_three_members_know_each_other_and_every_service_knows_them() -> None:
    services = merged(FILES[1])["services"]
    members = [name for name in services if name.startswith("etcd")]
    assert len(members) == 3
    for member in members:
        command = " ".join(services[member]["command"])
        assert f"--name={member} " in command
        assert all(f"{other}=http://{other}:2380" in command for other in members)
    for name, service in services.items():
        if "CONCLAVE_ETCD" in service["environment"]:
            assert service["environment"]["CONCLAVE_ETCD"] == ",".join(f"http://{m}:2379" for m in members), name


def test_an_outside_cluster_takes_the_twins_place() -> None:
    services = merged(FILES[2])["services"]
    assert "conclave" not in str(services["twin"]["command"])
    for name in ("coordinator-1", "coordinator-2", "binder-1", "binder-2"):
        assert "--kubeconfig /cluster/config" in services[name]["command"]


def test_etcds_own_image_runs_as_whoever_its_data_belong_to_and_on_the_same_flags() -> None:
    owner = runpy.run_path(str(COMPOSE / "make_secrets.py"), run_name="read")["SERVICE"]
    ours, safe = (merged(files)["services"]["etcd"] for files in (FILES[0], FILES[3]))
    assert safe["user"] == f"{owner}:{owner}"  # root without capabilities cannot write there
    assert safe["command"] == ours["command"]
    assert safe["healthcheck"]["test"][1] == "etcdctl"  # ours has no place in that image
    release = re.fullmatch(r"registry\.k8s\.io/etcd:(\d+\.\d+\.\d+)-\d+", safe["image"])
    assert release is not None
    assert not unsafe_text(release[1])


@pytest.mark.parametrize("files", FILES, ids="+".join)
def test_every_service_knows_that_etcd_is_the_meshs_own(files: tuple[str, ...]) -> None:
    told = {
        name: service["environment"].get("CONCLAVE_ETCD_UPKEEP")
        for name, service in merged(files)["services"].items()
        if "CONCLAVE_ETCD" in service["environment"]
    }
    assert set(told.values()) == {"own"}, told


@pytest.mark.parametrize("files", FILES, ids="+".join)
def test_containers_are_hardened_and_restarted(files: tuple[str, ...]) -> None:
    for name, service in merged(files)["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service
        if name in HARDENED_BY_HAND:
            continue
        assert service["restart"] == ("no" if name == "cli" else "unless-stopped"), name
        assert name == "cli" or service["healthcheck"]["test"], name
        ours = service["image"].startswith("conclave-") or name in OTHERS
        assert ("user" not in service) if ours else service["user"] not in ("0", "0:0", "root"), name


@pytest.mark.parametrize("files", FILES, ids="+".join)
def test_ports_are_open_to_this_machine_alone(files: tuple[str, ...]) -> None:
    for name, service in merged(files)["services"].items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), (name, port)


@pytest.mark.parametrize("files", FILES, ids="+".join)
def test_volumes_are_named_and_files_exist(files: tuple[str, ...]) -> None:
    named: set[str] = set()
    for file in files:
        named |= set(yaml.safe_load((COMPOSE / file).read_text()).get("volumes", {}))
    for service in merged(files)["services"].values():
        for volume in service["volumes"]:
            if volume.startswith("${KUBECONFIG_FILE"):
                continue
            source = volume.split(":")[0]
            assert (COMPOSE / source).exists() if source.startswith(".") else source in named, volume


def test_the_sample_is_for_us_and_for_nodes_that_the_twin_plays() -> None:
    items = yaml.safe_load((COMPOSE / "sample.yaml").read_text())["items"]
    assert {item["kind"] for item in items} == {"Node", "Pod"}
    for item in items:
        if item["kind"] == "Node":
            assert item["metadata"]["annotations"] == {"conclave.io/twin-node": "true"}
        else:
            assert item["spec"]["schedulerName"] == "conclave"


def test_images_are_targets_of_the_dockerfile() -> None:
    targets = set(re.findall(r"^FROM runtime AS (\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    for name, service in merged(FILES[1])["services"].items():
        if name in OTHERS:
            continue
        image = re.fullmatch(r"conclave-(\w+):\$\{CONCLAVE_TAG:-[\d.]+\}", service["image"])
        assert image is not None, name
        assert image[1] in targets


def literal_secrets(services: dict[str, Any]) -> list[str]:
    """Passwords and tokens that stand in a file instead of being read from one."""
    found = []
    for name, service in services.items():
        for key, value in (service.get("environment") or {}).items():
            if re.search("PASSWORD|TOKEN|SECRET", key) and not str(value).startswith("/secrets/"):
                found.append(f"{name}: {key}")
        words = service.get("command", [])
        words = words if isinstance(words, list) else shlex.split(words)
        found += [f"{name}: {word}" for word in words if re.match(r"--\w*(password|token|secret)(=|$)", word)]
    return found


@pytest.mark.parametrize("files", FILES, ids="+".join)
def test_compose_has_no_default_password(files: tuple[str, ...]) -> None:
    assert literal_secrets(merged(files)["services"]) == []


def test_a_default_password_is_found() -> None:
    bad = {"grafana": {"environment": {"GF_SECURITY_ADMIN_PASSWORD": "admin"}}, "twin": {"command": "serve --token x"}}
    assert len(literal_secrets(bad)) == 2


def run_make_secrets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("SECRETS_DIR", str(folder))
    owners: dict[str, int] = {}
    monkeypatch.setattr(os, "chown", lambda path, user, group: owners.update({Path(path).name: user}))
    runpy.run_path(str(COMPOSE / "make_secrets.py"), run_name="__main__")
    assert {owners["peer-token"], owners["metrics-token"], owners["grafana-password"]} == {65532, 65534, 472}
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o400, path
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_secrets_are_random_kept_and_each_for_one_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = run_make_secrets(tmp_path / "a", monkeypatch)
    assert first.keys() == {"peer-token", "metrics-token", "twin-token", "grafana-password", "admin-tokens"}
    assert run_make_secrets(tmp_path / "a", monkeypatch) == first
    other = run_make_secrets(tmp_path / "b", monkeypatch)
    assert all(first[name] != other[name] for name in first)


def test_a_new_metrics_token_is_told_to_the_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_make_secrets(tmp_path, monkeypatch)
    (tmp_path / "metrics-token").unlink()
    second = run_make_secrets(tmp_path, monkeypatch)
    assert second["peer-token"].splitlines()[0] == first["peer-token"].splitlines()[0]
    assert second["peer-token"].splitlines()[1:] == [f"{second['metrics-token']} metrics"]
    assert second["metrics-token"] != first["metrics-token"]


@pytest.mark.parametrize("words", [("docker-compose",), ("docker", "compose")], ids=["v1", "v2"])
@pytest.mark.parametrize("files", FILES, ids="+".join)
def test_compose_takes_the_files(words: tuple[str, ...], files: tuple[str, ...]) -> None:
    found = tool(*words)
    if found is None:
        pytest.skip(f"{' '.join(words)} is not here")
    arguments = [word for file in files for word in ("-f", str(COMPOSE / file))]
    subprocess.run(
        [*found, *arguments, "config", "--quiet"], check=True, env={**os.environ, "KUBECONFIG_FILE": "/tmp/kubeconfig"}
    )
