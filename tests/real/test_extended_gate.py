"""On a real control plane without the gate DRAExtendedResource: no pod is bound without its devices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.real.conftest import RunningPlane, mesh_of, plane_of
from tests.real.plane import missing
from tests.real.scene import PATIENCE_S, Scene
from tests.real.test_claims import API, claims
from tests.real.test_extended import devices, requesting


@pytest.fixture(scope="module")
def gateless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    """A plane without the gate, and a mesh on it."""
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    folder = tmp_path_factory.mktemp("gateless")
    with (
        plane_of(folder, "--feature-gates", "DRAExtendedResource=false") as plane,
        mesh_of(plane, tmp_path_factory.mktemp("mesh")),
    ):
        yield plane


async def test_a_pod_waits_and_is_told_of_the_gate_and_its_claim_goes(gateless: RunningPlane) -> None:
    async with Scene(gateless, "gateless") as scene:
        await devices(scene)
        await requesting(scene, "p", "conclave", resource=f"deviceclass.resource.kubernetes.io/{scene.name}")
        await scene.until(lambda: "DRAExtendedResource=true" in str(scene.condition("p", "PodScheduled")))
        assert not scene.node_of("p")
        async with asyncio.timeout(PATIENCE_S):  # it is tried again meanwhile, and makes one for that
            async for _ in scene.objects(f"{API}/namespaces/{scene.name}/resourceclaims"):
                if not await claims(scene):
                    break
        assert not scene.node_of("p")
