"""``conclave up`` while another mesh schedules, and beside a cluster without the definition of TrainingJobs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from services.cli.local import mesh as local_mesh
from services.cli.local import up_run
from services.cli.local.mesh import LocalMesh, MeshSettings, write_tokens
from services.cli.local.supervisor import Supervisor
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.errors import ConfigError
from tests.patience import PATIENCE_S

OTHER = "another mesh (m1) schedules for conclave in this cluster: this one is a standby"


def settings_in(folder: Path) -> MeshSettings:
    return MeshSettings(etcd="http://127.0.0.1:1", kubeconfig=folder / "kubeconfig", state_dir=folder, agents=0)


class Scripted(LocalMesh):
    """A mesh whose coordinator says what the test wants."""

    says: dict[str, Any]

    async def _leading(self) -> Any:
        child = object() if self.says.get("leading") else None
        return child, self.says


@pytest.fixture
async def mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr(local_mesh, "READY_TIMEOUT_S", 0.3)
    monkeypatch.setattr(local_mesh, "POLL_S", 0.01)
    settings = settings_in(tmp_path)
    write_tokens(settings)
    return Scripted(settings, Supervisor(tmp_path / "logs", measured=False))


async def test_a_mesh_that_stands_by_waits_for_as_long_as_the_other_one_is_there(mesh: Scripted) -> None:
    mesh.says = {"leading": True, "stands_by": OTHER, "warnings": [OTHER]}
    told: list[str] = []
    waiting = asyncio.create_task(mesh.wait_scheduling(on_wait=told.append))
    await asyncio.sleep(3 * 0.3)  # three times as long as a mesh may take
    assert not waiting.done()
    assert OTHER in told[-1]
    mesh.says = {"leading": True, "synced": True, "binders": {"0": {"url": "http://127.0.0.1:2"}}}
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_a_mesh_that_does_not_come_about_gives_up_and_says_what_is_wrong(mesh: Scripted) -> None:
    mesh.says = {"leading": False, "warnings": ["etcd is full (NOSPACE)"]}
    with pytest.raises(ConfigError, match="no coordinator leads: etcd is full"):
        await mesh.wait_scheduling()


async def test_a_definition_that_is_missing_is_told_once_and_so_is_its_coming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [None, False, False, None, True]  # None: the server does not say

    class Access:
        base_url, proxy, server_hostname = "http://127.0.0.1:1", None, None

    async def load(*_: Any, **__: Any) -> Access:
        return Access()

    async def lists(*_: Any, **__: Any) -> bool | None:
        return answers.pop(0)

    monkeypatch.setattr(KubeConfig, "load", load)
    monkeypatch.setattr(KubeClient, "lists", lists)
    monkeypatch.setattr(up_run, "UNSERVED_LOOK_S", 0.01)
    await asyncio.wait_for(up_run.tell_unserved(settings_in(tmp_path)), PATIENCE_S)
    assert not answers
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "kubectl apply -f k8s/components/jobs/training-jobs-crd.yaml" in lines[0]
    assert "served now" in lines[1]
