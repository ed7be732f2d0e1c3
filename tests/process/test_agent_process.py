"""An agent as a real process on a real etcd: registration, mutual TLS, memory, bad input."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.adapters.peers.client import PeerClient
from shared.adapters.peers.credentials import client_tls
from shared.errors import PeerError, PeerRejected
from shared.ports import Put
from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings
from shared.wire.codec import decode, encode
from shared.wire.keys import Keys
from shared.wire.messages import VERSION, Decisions, Offer
from shared.wire.records import AgentRecord, decode_record
from tests.certificates import TestCa
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.etcd]

ROOT = Path(__file__).parents[2]


def offer(term: int) -> bytes:
    return encode(Offer(VERSION, 1, 0, term, 1, None, []))


async def lead(etcd: EmbeddedEtcd) -> int:
    """Somebody leads as coordinator: the term, which an agent believes etcd alone."""
    store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,)))
    try:
        return (await store.txn([], [Put(Keys().coordinator_leader, b"{}")])).revision
    finally:
        await store.close()


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EmbeddedEtcd]:
    async with EmbeddedEtcd(EmbeddedEtcdSettings(data_dir=tmp_path / "etcd", fsync=False)) as running:
        yield running


@asynccontextmanager
async def agent(etcd: EmbeddedEtcd, *flags: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process and its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.agent", "--etcd", etcd.endpoint, "--id", "a1", *flags,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = (await process.stdout.readline()).decode().split()
        assert line[:3] == ["ready", "agent", "a1"]
        yield process, line[3]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def record(etcd: EmbeddedEtcd) -> AgentRecord | None:
    store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,)))
    try:
        kv = await store.get(Keys().agent("a1"))
        return decode_record(kv.value, AgentRecord) if kv is not None else None
    finally:
        await store.close()


async def test_an_agent_registers_answers_and_leaves_at_once_when_told(etcd: EmbeddedEtcd) -> None:
    client = PeerClient()
    async with agent(etcd, "--node", "n1") as (process, url):
        found = await record(etcd)
        assert found is not None
        assert (found.id, found.url, found.node, found.protocol) == ("a1", url, "n1", VERSION)
        term = await lead(etcd)
        with pytest.raises(PeerRejected) as forged:
            await client.call(url, "/v1/offers", offer(term + 1), timeout_s=PATIENCE_S)
        assert forged.value.code == "stale_term"
        answer = decode(await client.call(url, "/v1/offers", offer(term), timeout_s=PATIENCE_S), Decisions)
        assert (answer.term, answer.revision) == (term, 0)
        rss_kb = int((Path("/proc") / str(process.pid) / "statm").read_text().split()[1]) * 4
        assert rss_kb < 80_000_000 / 1024, "an agent is to stay within 80 MB"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert await record(etcd) is None
    await client.close()


async def test_a_second_agent_of_the_same_id_replaces_the_first_which_ends(etcd: EmbeddedEtcd) -> None:
    async with agent(etcd) as (first, _), agent(etcd) as (_, second_url):
        async with asyncio.timeout(PATIENCE_S):
            _, error = await first.communicate()
        assert first.returncode == 2
        assert b"give each agent its own --id" in error
        found = await record(etcd)
        assert found is not None
        assert found.url == second_url


async def test_with_mutual_tls_only_a_coordinators_certificate_may_offer(etcd: EmbeddedEtcd, tmp_path: Path) -> None:
    authority = TestCa()
    authority.write(tmp_path / "ca.pem")

    def context(name: str) -> ssl.SSLContext:
        cert, key = authority.issue(tmp_path, name, "127.0.0.1")
        return client_tls(ca_file=tmp_path / "ca.pem", cert_file=cert, key_file=key)

    cert, key = authority.issue(tmp_path, "agent", "127.0.0.1")
    flags = ["--tls-ca", str(tmp_path / "ca.pem"), "--tls-cert", str(cert), "--tls-key", str(key)]
    async with agent(etcd, *flags) as (_, url):
        assert url.startswith("https://")
        allowed, forbidden, nobody = (
            PeerClient(tls=context("coordinator:1")),
            PeerClient(tls=context("agent:2")),
            PeerClient(),
        )
        term = await lead(etcd)
        answer = decode(await allowed.call(url, "/v1/offers", offer(term), timeout_s=PATIENCE_S), Decisions)
        assert answer.term == term
        with pytest.raises(PeerRejected) as refused:
            await forbidden.call(url, "/v1/offers", offer(term), timeout_s=PATIENCE_S)
        assert refused.value.code == "forbidden"
        with pytest.raises(PeerError):
            await nobody.call(url, "/v1/offers", offer(term), timeout_s=PATIENCE_S)
        for client in (allowed, forbidden, nobody):
            await client.close()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        pytest.param(["--polcy", "x"], "did you mean --policy?", id="unknown flag"),
        pytest.param(["--policy", "best"], "choose one of", id="unknown policy"),
        pytest.param(["--seed", "-1"], "--seed", id="out of range"),
        pytest.param(["--token-file", "/nowhere"], "/nowhere: token file cannot be read", id="no token file"),
        pytest.param(["--listen", "0.0.0.0:0"], "will not listen beyond loopback", id="open to the world"),
    ],
)
async def test_bad_input_is_one_clear_line_and_exit_code_2(etcd: EmbeddedEtcd, flags: list[str], told: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.agent", "--etcd", etcd.endpoint, *flags,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        _, error = await process.communicate()
    lines = [line for line in error.decode().splitlines() if not line.startswith("{")]
    assert process.returncode == 2
    assert len(lines) == 1
    assert told in lines[0]
