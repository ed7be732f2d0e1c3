"""etcd over mutual TLS: who is answered, and a file that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.adapters.etcd.channel import EtcdSettings, EtcdTls
from shared.adapters.etcd.store import EtcdStore
from shared.errors import ConfigError, StoreUnknown
from shared.ports import Put
from tests.certificates import TestCa
from tests.faults.etcd_process import EtcdProcess

pytestmark = [pytest.mark.etcd, pytest.mark.process]


class Tls:
    """A CA, etcd's server certificate for ``etcd.test`` and one client certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        ca = TestCa()
        self.ca_file = ca.write(folder / "ca.pem")
        server_cert, server_key = ca.issue(folder, "server", "etcd.test")
        self.cert_file, self.key_file = ca.issue(folder, "conclave-binder")
        self.etcd_flags = (
            f"--cert-file={server_cert}",
            f"--key-file={server_key}",
            f"--trusted-ca-file={self.ca_file}",
            "--client-cert-auth",
        )


async def test_mutual_tls(tmp_path):
    tls = Tls(tmp_path / "tls")
    etcd = EtcdProcess(tmp_path / "etcd", client_scheme="https", extra_flags=tls.etcd_flags)
    etcd.start()
    try:
        known = EtcdTls(ca_file=tls.ca_file, cert_file=tls.cert_file, key_file=tls.key_file, server_name="etcd.test")
        store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,), tls=known))
        assert (await store.txn([], [Put("/k", b"")], timeout_s=5)).succeeded
        await store.close()
        without_certificate = EtcdTls(ca_file=tls.ca_file, server_name="etcd.test")
        wrong_name = EtcdTls(
            ca_file=tls.ca_file, cert_file=tls.cert_file, key_file=tls.key_file, server_name="other.test"
        )
        for bad in (without_certificate, wrong_name):
            store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,), tls=bad))
            with pytest.raises(StoreUnknown):
                await store.get("/k", timeout_s=0.7)
            await store.close()
    finally:
        etcd.close()


async def test_a_missing_ca_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.pem"):
        EtcdStore(EtcdSettings(endpoints=("https://localhost:1",), tls=EtcdTls(ca_file=tmp_path / "nowhere.pem")))
