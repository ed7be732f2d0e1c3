"""Bad input that shows only in a running mesh, as `conclave status` tells it: expired certificates, foreign ids."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from pathlib import Path

import pytest

from services.cli.pki.certificates import wanted_of
from services.cli.pki.files import AuthorityFolder, HolderFolder
from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.adapters.peers.certificates import issue, make_authority
from shared.ports import Put
from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings
from shared.wire.keys import Keys
from shared.wire.records import AgentRecord, encode_record
from tests.patience import PATIENCE_S
from tests.process.mesh import ROOT

pytestmark = [pytest.mark.process, pytest.mark.etcd]


async def status(etcd: EmbeddedEtcd) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "status", "--etcd", etcd.endpoint,
        stdout=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_an_expired_certificate_is_one_line_in_the_log_and_in_status(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    ca, files = AuthorityFolder(tmp_path / "ca"), tmp_path / "agent"
    ca.create(make_authority("ca", days=3650, now=now - dt.timedelta(days=100)))
    old = issue(ca.load(), wanted_of("agent", "a-0", ()), days=90, now=now - dt.timedelta(days=100))
    HolderFolder(files).create(old, ca.bundle())
    settings = EmbeddedEtcdSettings(data_dir=tmp_path / "etcd", fsync=False)
    async with EmbeddedEtcd(settings) as etcd:
        store = EtcdStore(EtcdSettings(endpoints=(etcd.endpoint,)))
        record = AgentRecord(id="a-0", url="http://10.0.0.9:1", incarnation="x", version="7.0.0")
        await store.txn([], [Put(Keys().agent("thief"), encode_record(record))])
        await store.close()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.agent", "--etcd", etcd.endpoint, "--id", "a-0",
            "--tls-ca", str(files / "ca.crt"), "--tls-cert", str(files / "tls.crt"),
            "--tls-key", str(files / "tls.key"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            async with asyncio.timeout(PATIENCE_S):
                assert (await process.stdout.readline()).startswith(b"ready agent")
                # the warning is written into the registration right after it
                while "warning: agent a-0" not in (told := await status(etcd)):
                    pass
        finally:
            process.terminate()
            _, log = await process.communicate()
    (line,) = [line for line in told.splitlines() if line.startswith("warning: agent a-0")]
    assert "tls.crt: expired on" in line
    assert "conclave pki renew" in line
    assert "warning: agent thief: registers as 'a-0', which is another's id" in told
    lines = [line for line in log.decode().splitlines() if '"process_warned"' in line]
    assert len(lines) == 1
    assert "expired on" in lines[0]
