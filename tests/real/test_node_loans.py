"""What nodes lend, written on a real API server beside other managers: server-side apply's own rules decide."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from tests.node_loans import SCENES, Lender
from tests.real.conftest import RunningPlane
from tests.real.hollow import IGNORE, hollow_node


@pytest.fixture
async def lender(plane: RunningPlane, request: pytest.FixtureRequest) -> AsyncIterator[Lender]:
    """On a node that no hollow kubelet writes."""
    client, name = KubeClient(await KubeConfig.load(plane.kubeconfig)), request.node.callspec.id.replace("_", "-")
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=plane.ca))
    headers = {"Authorization": f"Bearer {plane.token}"}
    async with aiohttp.ClientSession(plane.url, headers=headers, connector=connector) as session:
        node = hollow_node(name)
        node["metadata"]["annotations"] = {IGNORE: "true"}
        async with session.post("/api/v1/nodes", json=node, params={"fieldManager": "kubelet"}) as made:
            assert made.status == 201, await made.text()
        yield Lender(client, session, name)
        await session.delete(f"/api/v1/nodes/{name}")
    await client.close()


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_a_loan_is(scene: Callable[[Lender], Awaitable[None]], lender: Lender) -> None:
    await scene(lender)
