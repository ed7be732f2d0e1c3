"""The etcd that k8s/ and compose/ start: its flags exist; certificates of make-certs.sh open it, nothing else does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from shared.adapters.etcd_channel import EtcdSettings, EtcdTls
from shared.adapters.etcd_store import EtcdStore
from shared.errors import StoreError
from shared.ports import Put
from shared.runtime.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings, find_etcd
from tests.manifests.rendering import OPENSSL, needs_kubectl, of_kind, tree
from tests.manifests.test_compose import FILES, merged

pytestmark = [pytest.mark.process, pytest.mark.etcd]

MEMBERS = [f"conclave-etcd-{n}.conclave-etcd.conclave-system.svc" for n in range(3)]


def known_flags() -> set[str]:
    done = subprocess.run([str(find_etcd()), "--help"], capture_output=True, text=True, check=False)
    return set(re.findall(r"--[a-z][a-z0-9-]+", done.stdout + done.stderr))


@needs_kubectl
@pytest.mark.parametrize("build", ["dev", "prod"])
def test_pods_start_etcd_with_flags_that_exist(build: str) -> None:
    arguments = of_kind(build, "StatefulSet")[0]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert {argument.split("=")[0] for argument in arguments} <= known_flags()


def test_containers_start_etcd_with_flags_that_exist() -> None:
    for files in FILES:
        for service in merged(files)["services"].values():
            if service.get("command", [""])[0] == "etcd":
                assert {word.split("=")[0] for word in service["command"][1:]} <= known_flags()


@pytest.mark.skipif(OPENSSL is None, reason="openssl is not on PATH")
async def test_certificates_from_the_script_open_etcd_by_every_members_name(tmp_path: Path) -> None:
    certs = tree() / "components/certs-plain-secret/certs"
    flags = (
        f"--cert-file={certs}/server.crt", f"--key-file={certs}/server.key", f"--trusted-ca-file={certs}/ca.crt",
        "--client-cert-auth",
    )  # fmt: skip
    settings = EmbeddedEtcdSettings(data_dir=tmp_path / "etcd", fsync=False, client_scheme="https", extra_flags=flags)
    ours = {"ca_file": certs / "ca.crt", "cert_file": certs / "client.crt", "key_file": certs / "client.key"}
    async with EmbeddedEtcd(settings) as etcd:

        async def write(tls: EtcdTls) -> bool:
            store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,), tls=tls))
            try:
                return (await store.txn([], [Put("/k", b"")], timeout_s=2)).succeeded
            finally:
                await store.close()

        for name in ("", *MEMBERS):
            assert await write(EtcdTls(**ours, server_name=name)), name
        for bad in (EtcdTls(ca_file=ours["ca_file"]), EtcdTls(**ours, server_name="etcd.example.com")):
            with pytest.raises(StoreError):
                await write(bad)
