"""Fixtures of the contracts that hold on memory and on a real etcd alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.ports import Store
from tests.contract.store_world import World
from tests.faults.etcd_process import EtcdProcess
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore

_numbers = itertools.count()


@pytest.fixture(scope="module")
def etcd_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    process = EtcdProcess(tmp_path_factory.mktemp("etcd"))
    process.start()
    yield process
    process.close()


@pytest.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.etcd)])
async def world(request: pytest.FixtureRequest):
    prefix = f"/contract/{next(_numbers)}/"
    if request.param == "memory":
        server = MemoryEtcd()
        found = World(lambda: MemoryStore(server, progress_every_s=0.2), prefix)
    else:
        endpoint = request.getfixturevalue("etcd_process").endpoint
        # A small page, so that listings of a few keys are paged too.
        found = World(lambda: EtcdStore(EtcdSettings(endpoints=(endpoint,), page_size=7)), prefix)
    yield found
    for store in found.stores:
        await store.close()


@pytest.fixture
def store(world: World) -> Store:
    return world.open()
