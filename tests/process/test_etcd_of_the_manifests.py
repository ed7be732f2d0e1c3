"""The etcd that k8s/ and compose/ start: its flags exist; certificates of make-certs.sh open it, nothing else does."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import subprocess
from pathlib import Path

import aiohttp
import pytest

from shared.adapters.etcd.channel import EtcdSettings, EtcdTls
from shared.adapters.etcd.store import EtcdStore
from shared.adapters.http.sockets import bound_socket
from shared.errors import StoreError
from shared.hostport import url_of
from shared.ports import Put
from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings, find_etcd
from tests.manifests.rendering import needs_kubectl, of_kind, tree
from tests.manifests.test_compose import FILES, merged

pytestmark = [pytest.mark.process, pytest.mark.etcd]

MEMBERS = [f"conclave-etcd-{n}.conclave-etcd.conclave-system.svc" for n in range(3)]


def known_flags() -> set[str]:
    done = subprocess.run([str(find_etcd().path), "--help"], capture_output=True, text=True, check=False)
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


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this kernel has no IPv6")
async def test_an_etcd_on_0_0_0_0_is_reached_by_both_families(tmp_path: Path) -> None:
    """Go takes 0.0.0.0 for every address, of IPv6 too, and of IPv4 alone where the kernel has nothing else; ``[::]``
    would fail there. So the manifests' etcd needs no other flags in a cluster of IPv6."""
    with bound_socket("", 0) as probe:
        port = probe.getsockname()[1]
    every = f"--listen-client-urls=http://0.0.0.0:{port}"
    settings = EmbeddedEtcdSettings(data_dir=tmp_path, client_port=port, fsync=False, extra_flags=(every,))
    async with EmbeddedEtcd(settings):
        for host in ("127.0.0.1", "::1"):
            store = EtcdStore(EtcdSettings(endpoints=(url_of("http", host, port),)))
            try:
                assert (await store.txn([], [Put("/k", b"")], timeout_s=5)).succeeded
            finally:
                await store.close()


async def test_certificates_from_the_script_open_etcd_by_every_members_name(tmp_path: Path) -> None:
    certs = tree() / "components/certs-plain-secret/certs"
    flags = (
        f"--cert-file={certs}/etcd-server/tls.crt", f"--key-file={certs}/etcd-server/tls.key",
        f"--trusted-ca-file={certs}/etcd-server/ca.crt",
        "--client-cert-auth",
    )  # fmt: skip
    settings = EmbeddedEtcdSettings(data_dir=tmp_path / "etcd", fsync=False, client_scheme="https", extra_flags=flags)
    files = {"ca_file": "ca.crt", "cert_file": "tls.crt", "key_file": "tls.key"}
    ours = {part: certs / "etcd-binder" / name for part, name in files.items()}
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


@needs_kubectl
@pytest.mark.parametrize("checked", [True, False])
async def test_no_client_speaks_to_a_member_as_a_member(tmp_path: Path, *, checked: bool) -> None:
    """The ablation: without the common name's check, an agent's certificate of etcd is served on the members' port."""
    certs, arguments = tree() / "components/certs-plain-secret/certs", of_kind("prod", "StatefulSet")[0]
    ours = [a for a in arguments["spec"]["template"]["spec"]["containers"][0]["args"] if a.startswith("--peer-c")]
    (check,) = (a for a in ours if a.startswith("--peer-cert-allowed"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{probe.getsockname()[1]}"
    flags = (
        f"--listen-peer-urls={url}", f"--initial-advertise-peer-urls={url}", f"--initial-cluster=conclave={url}",
        f"--peer-cert-file={certs}/etcd-peer/tls.crt", f"--peer-key-file={certs}/etcd-peer/tls.key",
        f"--peer-trusted-ca-file={certs}/etcd-peer/ca.crt", "--peer-client-cert-auth", *([check] if checked else []),
    )  # fmt: skip
    tls = ssl.create_default_context(cafile=str(certs / "etcd-agent/ca.crt"))
    tls.check_hostname = False
    tls.load_cert_chain(certs / "etcd-agent/tls.crt", certs / "etcd-agent/tls.key")
    settings = EmbeddedEtcdSettings(data_dir=tmp_path / "etcd", fsync=False, extra_flags=flags)
    async with EmbeddedEtcd(settings), aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError) if checked else contextlib.nullcontext():
            async with session.get(f"{url}/members", ssl=tls) as answer:
                assert answer.status == 200
