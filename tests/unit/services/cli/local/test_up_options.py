"""Which cluster ``conclave up`` means: that of the flag, else kubectl's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.cli.__main__ import run
from services.cli.local import up_run
from services.cli.local.mesh import MeshSettings


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[MeshSettings]:
    found: list[MeshSettings] = []

    async def serve(settings: MeshSettings) -> None:
        found.append(settings)

    monkeypatch.setattr(up_run, "serve", serve)
    monkeypatch.setenv("CONCLAVE_CONTEXTS", str(tmp_path / "contexts.toml"))
    return found


def told(asked: list[MeshSettings], *arguments: Any) -> MeshSettings:
    assert run(["up", *map(str, arguments)]) == 0
    return asked[-1]


def test_without_a_kubeconfig_the_cluster_is_kubectls(asked: list[MeshSettings], tmp_path: Path) -> None:
    settings = told(asked)
    assert (settings.kubeconfig, settings.context) == (None, None)
    assert told(asked, "--kubeconfig", tmp_path / "k").kubeconfig == tmp_path / "k"


def test_a_context_means_the_same_as_in_every_command(asked: list[MeshSettings], tmp_path: Path) -> None:
    (tmp_path / "contexts.toml").write_text("")
    assert run(["context", "add", "prod", "--kube-context", "prod-eu"]) == 0
    assert told(asked, "--context", "prod").context == "prod-eu"
    assert told(asked, "--context", "minikube").context == "minikube"
