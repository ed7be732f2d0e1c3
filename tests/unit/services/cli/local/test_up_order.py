"""In which order ``conclave up`` starts what it needs, and what it does where etcd comes to listen on another port."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.cli.local import up_run
from services.cli.local.mesh import LocalMesh, MeshSettings
from services.cli.local.supervisor import Child, ChildSpec, Supervisor
from shared.adapters.kube.config import KubeConfig
from shared.errors import ConfigError
from shared.runtime.process.embedded_etcd import EtcdBinary

FIRST, SECOND = "http://127.0.0.1:1", "http://127.0.0.1:2"
END = "so far the test goes"


class Etcd:
    """A private etcd."""

    binary, quota_mb = EtcdBinary(Path("etcd"), "3.6.8", "named"), 1

    def __init__(self, *_: Any, **__: Any) -> None:
        self.endpoint = FIRST

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ``up`` did, in its order; it ends when it would wait for the mesh."""
    found: list[str] = []

    async def load(*_: Any, **__: Any) -> str:
        found.append("access")
        return "access"

    async def check(access: str) -> None:
        found.append(f"check by {access}")

    async def check_etcd(settings: MeshSettings) -> None:
        found.append(f"check {settings.etcd}")

    def start(self: Supervisor, spec: ChildSpec) -> Child:
        found.append(f"{spec.name} at {spec.argv[spec.argv.index('--etcd') + 1]}")
        return Child(spec, self.log_dir)

    close = Supervisor.close

    async def closed(self: Supervisor) -> None:
        found.append("services end")
        await close(self)

    async def wait(self: LocalMesh, **_: Any) -> None:
        found.append(f"wait for those at {self.settings.etcd}")
        raise ConfigError(END)

    monkeypatch.setattr(up_run, "EtcdKeeper", Etcd)
    monkeypatch.setattr(up_run, "check_cluster", check)
    monkeypatch.setattr(up_run, "check_etcd", check_etcd)
    monkeypatch.setattr(KubeConfig, "load", load)
    monkeypatch.setattr(Supervisor, "start", start)
    monkeypatch.setattr(Supervisor, "close", closed)
    monkeypatch.setattr(LocalMesh, "wait_scheduling", wait)
    return found


async def up(settings: MeshSettings) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(ConfigError, match=END):
            await up_run._run(settings, stack)


@pytest.fixture
def settings(tmp_path: Path) -> MeshSettings:
    return MeshSettings(etcd="", kubeconfig=None, state_dir=tmp_path, agents=0, coordinators=1, single=True)


async def test_services_start_once_there_are_credentials_and_while_the_cluster_is_checked(
    done: list[str], settings: MeshSettings
) -> None:
    await up(settings)
    assert done == ["access", f"single-0 at {FIRST}", "check by access", f"wait for those at {FIRST}", "services end"]


@pytest.mark.parametrize("named", [False, True])
async def test_with_shards_or_an_etcd_that_is_named_services_start_after_both_are_checked(
    done: list[str], settings: MeshSettings, named: bool
) -> None:
    await up(replace(settings, etcd=FIRST) if named else replace(settings, shards=2))
    assert done[:4] == ["access", "check by access", f"check {FIRST}", f"single-0 at {FIRST}"]


async def test_services_that_were_told_a_port_which_etcd_did_not_get_are_started_anew(
    done: list[str], settings: MeshSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(self: Etcd) -> None:
        self.endpoint = SECOND

    monkeypatch.setattr(Etcd, "start", start)
    await up(settings)
    assert done[1:6] == [
        f"single-0 at {FIRST}", "check by access", "services end", f"check {SECOND}", f"single-0 at {SECOND}",
    ]  # fmt: skip
    assert done[6:] == [f"wait for those at {SECOND}", "services end", "services end"]
