"""Transactions that come often go past grpc, to a real etcd: the same answers, the same errors, and a way back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from shared.adapters.etcd import direct
from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.direct import DirectCalls
from shared.adapters.etcd.store import EtcdStore
from shared.adapters.etcd.tls import EtcdTls
from shared.errors import StoreRejected, StoreUnknown
from shared.ports import CreateRevisionIs, Delete, Put
from tests.certificates import TestCa
from tests.faults.etcd_process import EtcdProcess

pytestmark = pytest.mark.etcd


def way(store: EtcdStore) -> DirectCalls:
    return store._connection.current.direct


async def warmed(store: EtcdStore, key: str) -> None:
    """Two transactions in a row: a connection is dialed."""
    for _ in range(2):
        assert (await store.txn([], [Put(key, b"warm")], timeout_s=10)).succeeded
    await way(store).dialed()
    assert way(store).taken == 0


@pytest.fixture
async def store(etcd_process: EtcdProcess, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EtcdStore]:
    monkeypatch.setattr(direct, "OFTEN_S", 60.0)
    found = EtcdStore(EtcdSettings(endpoints=(etcd_process.endpoint,)))
    await warmed(found, "/direct/warm")
    yield found
    await found.close()


async def test_a_transaction_is_applied_once_and_tells_its_revision(store: EtcdStore) -> None:
    result = await store.txn([CreateRevisionIs("/direct/a", 0)], [Put("/direct/a", b"1"), Delete("/direct/b")])
    refused = await store.txn([CreateRevisionIs("/direct/a", 0)], [Put("/direct/a", b"2")])
    found = await store.get("/direct/a")
    assert way(store).taken == 2
    assert (result.succeeded, refused.succeeded) == (True, False)
    assert found is not None
    assert (found.value, found.create_revision) == (b"1", result.revision)


@pytest.mark.parametrize("size", [20_000, 100_000])
async def test_a_message_larger_than_the_window_goes_by_grpc(store: EtcdStore, size: int) -> None:
    assert (await store.txn([], [Put("/direct/large", bytes(size))], timeout_s=10)).succeeded
    found = await store.get("/direct/large")
    assert found is not None
    assert len(found.value) == size
    assert way(store).taken == (1 if size < 65_535 else 0)


async def test_what_etcd_refuses_is_rejected_with_its_words(store: EtcdStore) -> None:
    with pytest.raises(StoreRejected, match="duplicate key"):
        await store.txn([], [Put("/direct/a", b"1"), Put("/direct/a", b"2")])
    assert way(store).taken == 1
    assert (await store.txn([], [Put("/direct/a", b"3")])).succeeded


async def test_transactions_that_come_seldom_stay_with_grpc(
    etcd_process: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "OFTEN_S", 0.0)
    store = EtcdStore(EtcdSettings(endpoints=(etcd_process.endpoint,)))
    for _ in range(4):
        assert (await store.txn([], [Put("/direct/a", b"1")])).succeeded
    await way(store).dialed()
    assert way(store).taken == 0
    await store.close()


Fault = Callable[[EtcdProcess], None]


@pytest.mark.parametrize("fault", [EtcdProcess.kill, EtcdProcess.pause], ids=["killed", "paused"])
async def test_no_answer_is_unknown_and_grpc_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(direct, "OFTEN_S", 60.0)
    etcd = EtcdProcess(tmp_path / "etcd")
    etcd.start()
    try:
        store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,)))
        await warmed(store, "/direct/warm")
        fault(etcd)
        with pytest.raises(StoreUnknown):
            await store.txn([], [Put("/direct/a", b"1")], timeout_s=0.3)
        if fault is EtcdProcess.pause:
            etcd.resume()
        else:
            etcd.start()
        taken = way(store).taken
        assert (await store.txn([], [Put("/direct/a", b"2")], timeout_s=20)).succeeded
        assert way(store).taken == taken, "it is not dialed again at once"
        await store.close()
    finally:
        etcd.close()


async def test_over_mutual_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "OFTEN_S", 60.0)
    ca = TestCa()
    ca_file = ca.write(tmp_path / "ca.pem")
    server, key = ca.issue(tmp_path, "server", "etcd.test")
    cert_file, key_file = ca.issue(tmp_path, "conclave-binder")
    flags = (f"--cert-file={server}", f"--key-file={key}", f"--trusted-ca-file={ca_file}", "--client-cert-auth")
    etcd = EtcdProcess(tmp_path / "etcd", client_scheme="https", extra_flags=flags)
    etcd.start()
    try:
        tls = EtcdTls(ca_file=ca_file, cert_file=cert_file, key_file=key_file, server_name="etcd.test")
        store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,), tls=tls))
        await warmed(store, "/k")
        assert (await store.txn([], [Put("/k", b"1")], timeout_s=10)).succeeded
        assert way(store).taken == 1
        await store.close()
    finally:
        etcd.close()
