"""What nodes lend, written on the twin's API server: the scenes that hold on a real one too (``tests/real``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import aiohttp
import pytest

from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from tests.node_loans import SCENES, Lender
from tests.process.twin_process import RunningTwin, running_twin
from tests.real.hollow import hollow_node

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    with running_twin(tmp_path_factory.mktemp("twin")) as found:
        yield found


@pytest.fixture
async def lender(twin: RunningTwin, request: pytest.FixtureRequest) -> AsyncIterator[Lender]:
    access = await KubeConfig.load(twin.kubeconfig)
    client, name = KubeClient(access), request.node.callspec.id.replace("_", "-")
    async with aiohttp.ClientSession(twin.url, headers=await access.headers()) as session:
        async with session.post("/api/v1/nodes", json=hollow_node(name), params={"fieldManager": "kubelet"}) as made:
            assert made.status == 201, await made.text()
        yield Lender(client, session, name)
    await client.close()


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_a_loan_is(scene: Callable[[Lender], Awaitable[None]], lender: Lender) -> None:
    await scene(lender)
