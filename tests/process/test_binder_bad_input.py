"""What an operator may get wrong when starting a binder: one clear line, exit code 2, nothing left behind."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.etcd]

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EmbeddedEtcd]:
    async with EmbeddedEtcd(EmbeddedEtcdSettings(data_dir=tmp_path / "etcd", fsync=False)) as running:
        yield running


def kubeconfig(folder: Path, server: str) -> Path:
    """One that parses."""
    path = folder / "kubeconfig"
    entry: dict[str, Any] = {"name": "c", "cluster": {"server": server}, "user": {"token": "t"}}
    entry["context"] = {"cluster": "c", "user": "c"}
    lists = {kind: [entry] for kind in ("clusters", "users", "contexts")}
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", **lists}))
    return path


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def told(*flags: str) -> str:
    """The one line of a binder that ends with code 2."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.binder", *flags,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, error = await process.communicate()
    lines = [line for line in error.decode().splitlines() if not line.startswith("{")]
    assert (process.returncode, out, len(lines)) == (2, b"", 1), error.decode()
    return lines[0]


async def test_a_kubeconfig_that_is_not_there_is_named(etcd: EmbeddedEtcd, tmp_path: Path) -> None:
    assert "/nowhere/kubeconfig" in await told("--etcd", etcd.endpoint, "--kubeconfig", "/nowhere/kubeconfig")


async def test_a_kubeconfig_that_does_not_parse_is_named(etcd: EmbeddedEtcd, tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_text("clusters: [")
    assert str(path) in await told("--etcd", etcd.endpoint, "--kubeconfig", str(path))


async def test_an_api_server_that_does_not_answer_is_named(etcd: EmbeddedEtcd, tmp_path: Path) -> None:
    server = f"http://127.0.0.1:{closed_port()}"
    path = kubeconfig(tmp_path, server)
    assert server in await told("--etcd", etcd.endpoint, "--kubeconfig", str(path))


async def test_an_etcd_that_does_not_answer_is_named(tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{closed_port()}"
    path = kubeconfig(tmp_path, "http://127.0.0.1:1")
    line = await told("--etcd", endpoint, "--kubeconfig", str(path))
    assert endpoint in line
    assert "correct --etcd" in line


async def test_a_port_that_is_taken_is_named(etcd: EmbeddedEtcd, tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        path = kubeconfig(tmp_path, "http://127.0.0.1:1")
        line = await told("--etcd", etcd.endpoint, "--kubeconfig", str(path), "--listen", address)
    assert address in line
    assert "taken" in line


async def test_an_unknown_flag_is_named_with_the_nearest(etcd: EmbeddedEtcd) -> None:
    assert "did you mean --kubeconfig?" in await told("--kubeconfg", "x")
