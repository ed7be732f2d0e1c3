"""A mesh of real processes under mutual TLS: who may say what to whom, and a new CA under load without a lost pod.

The certificates name roles and no address, as in a cluster, where they are made before their pods.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace

from services.cli.__main__ import run
from services.cli.pki.certificates import wanted_of
from services.cli.pki.files import AuthorityFolder, HolderFolder
from shared.adapters.peers.certificates import issue, make_authority
from shared.adapters.peers.client import PeerClient
from shared.adapters.peers.credentials import client_tls
from shared.adapters.peers.identity import SERVICE_ROLES, identity_of
from shared.errors import PeerRejected
from shared.wire.codec import encode
from shared.wire.messages import VERSION, Offer, Plan
from tests.process.mesh import Mesh, bindings_per_uid

pytestmark = [pytest.mark.process, pytest.mark.etcd]

MANY = 40
"""So many pods are to come meanwhile at least."""
FOLLOW_S = 2.5
"""Files are looked at every second when a connection is made; this is what an operator is told to wait at least."""


class Certificates:
    """A CA in ``ca`` and a folder per holder, which ``conclave pki renew`` can renew."""

    def __init__(self, folder: Path) -> None:
        self.ca, self.folder = AuthorityFolder(folder / "ca"), folder
        self.now = dt.datetime.now(dt.UTC)
        self.ca.create(make_authority("mesh-ca", days=10, now=self.now))

    def make(self, kind: str, name: str) -> Path:
        out = self.folder / name
        wanted = wanted_of(kind, name, ())
        names = (identity_of(kind),) if kind in SERVICE_ROLES else ()
        wanted = replace(wanted, names=names)  # no loopback: the address must not matter
        HolderFolder(out).create(issue(self.ca.load(), wanted, days=5, now=self.now), self.ca.bundle())
        return out

    def context(self, kind: str, name: str) -> ssl.SSLContext:
        out = self.make(kind, name)
        return client_tls(ca_file=out / "ca.crt", cert_file=out / "tls.crt", key_file=out / "tls.key")

    @property
    def flags(self) -> list[str]:
        folder = f"{self.folder}/{{name}}"
        return ["--tls-ca", f"{folder}/ca.crt", "--tls-cert", f"{folder}/tls.crt", "--tls-key", f"{folder}/tls.key"]


def mesh_of(tmp_path: Path, certificates: Certificates) -> Mesh:
    for service in ("coordinator", "agent", "binder"):
        for number in range(2):
            certificates.make(service, f"{service}-{number}")
    reader = certificates.context("viewer", "test")
    reader.check_hostname = False
    flags = dict.fromkeys(("coordinator", "agent", "binder"), certificates.flags)
    return Mesh(tmp_path, flags=flags, tls=reader)


async def test_a_new_ca_and_new_certificates_under_load_lose_no_pod(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "pki")
    async with mesh_of(tmp_path, certificates) as mesh:
        await mesh.leader()
        await mesh.leader("binder")
        await mesh.add_nodes(4)
        names: set[str] = set()
        enough = asyncio.Event()

        async def load() -> None:
            while not enough.is_set():
                name = f"p-{len(names)}"
                await mesh.add_pod(name, cpu="10m", memory="1Mi")
                names.add(name)
                await asyncio.sleep(0.1)  # ten a second

        async def pki(*words: str) -> None:
            assert await asyncio.to_thread(run, ["pki", *words, "--ca", str(certificates.ca.path)]) == 0

        holders = [str(certificates.folder / name) for name in (*mesh.services, "test") if name != "twin"]
        loading = asyncio.create_task(load())
        await pki("rotate")
        await pki("renew", "--trust-only", *holders)
        await asyncio.sleep(FOLLOW_S)
        await pki("renew", "--all", *holders[::2])
        # half of them have new certificates; connections are made anew by those that are started again
        mesh.kill("agent-0")
        mesh.kill(await mesh.leader("binder"))
        await pki("renew", "--all", *holders[1::2])
        await asyncio.sleep(FOLLOW_S)
        await pki("rotate", "--finish")
        await pki("renew", "--trust-only", *holders)
        mesh.kill("agent-1")
        mesh.kill(await mesh.leader())
        await mesh.leader("binder")
        await mesh.leader()
        while len(names) <= MANY:  # noqa: ASYNC110  they come by the clock
            await asyncio.sleep(0.1)
        enough.set()
        await loading
        await mesh.wait_bound(names)
        given = bindings_per_uid(await mesh.audit_until_now())
        assert all(len(nodes) == 1 for nodes in given.values())
        for running in mesh.services.values():
            assert "peer_untrusted" not in running.log.read_text(), running.name


async def test_only_the_right_role_may_say_what_it_says(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "pki")
    async with mesh_of(tmp_path, certificates) as mesh:
        binder, agent = mesh.services[await mesh.leader("binder")].url, mesh.services["agent-0"].url
        clients = {
            role: PeerClient(tls=certificates.context(role, f"{role}-x"))
            for role in ("coordinator", "agent", "binder", "operator")
        }
        plan = encode(Plan(VERSION, 1, 0, 2**40, 1, []))
        offer = encode(Offer(VERSION, 1, 0, 2**40, 1, None, []))

        async def refusal(role: str, url: str, route: str, body: bytes, service: str) -> str:
            with pytest.raises(PeerRejected) as refused:
                await clients[role].call(url, route, body, timeout_s=10, service=service)
            return refused.value.code

        for role in ("agent", "binder", "operator"):
            assert await refusal(role, binder, "/v1/plans", plan, "binder") == "forbidden", role
            assert await refusal(role, agent, "/v1/offers", offer, "agent") == "forbidden", role
        # the role is right, but the term is nobody's
        assert await refusal("coordinator", agent, "/v1/offers", offer, "agent") == "stale_term"
        # whoever answers must be who was meant: an agent in the binder's place gets nothing
        assert await refusal("coordinator", agent, "/v1/plans", plan, "binder") == "peer_untrusted"
        # and never without TLS, whatever a registration says
        plain = agent.replace("https:", "http:")
        assert await refusal("coordinator", plain, "/v1/offers", offer, "agent") == "peer_untrusted"
        for client in clients.values():
            await client.close()
        await _without_a_certificate(certificates, agent)


async def _without_a_certificate(certificates: Certificates, url: str) -> None:
    """A kubelet's probe has none: health is all that it is told."""
    nobody = ssl.create_default_context(cafile=str(certificates.ca.path / "ca.crt"))
    nobody.check_hostname = False
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=nobody)) as session:
        for route, status in (("/healthz", 200), ("/readyz", 200), ("/metrics", 401), ("/v1/stats", 401)):
            async with session.get(url + route) as answer:
                assert answer.status == status, route
        async with session.post(url + "/v1/offers", data=b"") as answer:
            assert answer.status == 401
