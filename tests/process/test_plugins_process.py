"""A mesh of real processes with the example package: its policy decides, an agent without its filter gets no nodes."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT, Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd]

PLUGINS = ["--plugins", "example-headroom,example-fullest"]


def installed(folder: Path) -> Path:
    """Where the package lies, built as pip does in the end."""
    source, target = folder / "source", folder / "site"
    shutil.copytree(ROOT / "docs" / "examples" / "plugin", source)
    build = "import setuptools; setuptools.setup()"
    command = ["build", "--build-lib", str(target), "egg_info", "--egg-base", str(target)]
    target.mkdir()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build, "-q", *command], check=True, cwd=source, timeout=PATIENCE_S
    )
    return target


class FromNothing(Mesh):
    """A process that was forked would not look for packages in a path of its own."""

    forks = False


async def test_a_mesh_places_by_a_users_policy_and_leaves_out_an_agent_without_his_filter(tmp_path: Path) -> None:
    flags = {
        "coordinator": [*PLUGINS, "--policy", "example-fullest"],
        "binder": PLUGINS,
        "agent": [*PLUGINS, "--policy", "example-fullest"],
    }
    environ = {"PYTHONPATH": f"{ROOT}:{installed(tmp_path)}"}
    async with FromNothing(tmp_path, coordinators=1, agents=1, binders=1, flags=flags, environ=environ) as mesh:
        await mesh.add_nodes(4)
        names = {f"p{number}" for number in range(6)}
        for name in names:
            await mesh.add_pod(name)
        await mesh.wait_bound(names)
        pods = [pod for pod in await mesh.pods() if pod["metadata"]["name"] in names]
        assert {pod["metadata"]["annotations"]["conclave.io/policy"] for pod in pods} == {"example-fullest@1"}
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 1

        await mesh.start("bare", "agent", ["--etcd", mesh.etcd.endpoint, "--id", "bare"])
        async with asyncio.timeout(PATIENCE_S):
            log = mesh.folder / "coordinator-0.log"
            while "agent_filters_differ" not in log.read_text():  # noqa: ASYNC110  the log of another process tells
                await asyncio.sleep(0.1)
        assert (await mesh.get("bare", "/v1/stats"))["agent"]["nodes"] == 0
