"""Users and roles in a real etcd: each service may write its own prefix and no other, and a mesh works under them."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.cli.__main__ import run
from services.cli.pki.certificates import wanted_of
from services.cli.pki.files import AuthorityFolder, HolderFolder
from shared.adapters.etcd.auth import EtcdAuth
from shared.adapters.etcd.channel import EtcdSettings, EtcdTls
from shared.adapters.etcd.store import EtcdStore
from shared.adapters.peers.certificates import issue, make_authority
from shared.errors import ConfigError, StoreRejected
from shared.ports import Put
from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings
from shared.wire.etcd_roles import WRITES, EtcdUser, Grant, users_of
from shared.wire.keys import Keys
from tests.process.mesh import Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd]

KEYS = Keys()
AREAS = sorted({prefix for prefixes in WRITES.values() for prefix in prefixes} | {"elsewhere/"})


class Pki:
    """A CA and a folder per holder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = dt.datetime.now(dt.UTC)
        AuthorityFolder(folder).create(make_authority("test-ca", days=10, now=self.now))
        self.make("etcd-server", "")

    def make(self, kind: str, name: str) -> Path:
        authority = AuthorityFolder(self.folder)
        out = self.folder / f"{kind}-{name}".replace(":", "-")
        if not out.exists():
            pair = issue(authority.load(), wanted_of(kind, name, ()), days=5, now=self.now)
            HolderFolder(out).create(pair, authority.bundle())
        return out

    @property
    def etcd_flags(self) -> tuple[str, ...]:
        server = self.folder / "etcd-server-"
        return (
            f"--cert-file={server / 'tls.crt'}", f"--key-file={server / 'tls.key'}",
            f"--trusted-ca-file={server / 'ca.crt'}", "--client-cert-auth",
        )  # fmt: skip

    def settings(self, endpoint: str, user: str) -> EtcdSettings:
        files = self.make("etcd-client", user)
        tls = EtcdTls(ca_file=files / "ca.crt", cert_file=files / "tls.crt", key_file=files / "tls.key")
        return EtcdSettings(endpoints=(endpoint,), tls=tls)

    def flags(self, user: str) -> list[str]:
        files = self.make("etcd-client", user)
        return [
            "--etcd-ca", str(files / "ca.crt"), "--etcd-cert", str(files / "tls.crt"),
            "--etcd-key", str(files / "tls.key"),
        ]  # fmt: skip


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "pki")


@pytest.fixture
async def etcd(tmp_path: Path, pki: Pki) -> AsyncIterator[EmbeddedEtcd]:
    settings = EmbeddedEtcdSettings(
        data_dir=tmp_path / "etcd", fsync=False, client_scheme="https", extra_flags=pki.etcd_flags
    )
    async with EmbeddedEtcd(settings) as running:
        yield running


async def apply(pki: Pki, etcd: EmbeddedEtcd, users: tuple[EtcdUser, ...], as_user: str = "root") -> list[str]:
    auth = EtcdAuth(pki.settings(etcd.endpoint, as_user))
    try:
        return await auth.apply(users)
    finally:
        await auth.close()


async def writable(pki: Pki, etcd: EmbeddedEtcd, user: str, keys: list[str]) -> set[str]:
    """Which of the keys the user may write; it must be able to read all of them."""
    store = EtcdStore(pki.settings(etcd.endpoint, user))
    found = set()
    try:
        await store.list_prefix(KEYS.prefix)
        for key in keys:
            try:
                await store.txn([], [Put(key, b"x")])
                found.add(key)
            except StoreRejected as error:
                assert "permission denied" in str(error)  # noqa: PT017
    finally:
        await store.close()
    return found


async def test_each_service_writes_its_prefixes_and_nothing_else(pki: Pki, etcd: EmbeddedEtcd) -> None:
    users = users_of(KEYS, ("node-1",))
    assert await apply(pki, etcd, users)
    areas = [f"{KEYS.prefix}{area}k" for area in AREAS]
    for service, prefixes in WRITES.items():
        assert await writable(pki, etcd, service, areas) == {f"{KEYS.prefix}{prefix}k" for prefix in prefixes}, service
    own = [KEYS.agent("node-1"), KEYS.agent("node-10"), KEYS.agent("node-2"), *areas]
    assert await writable(pki, etcd, "agent:node-1", own) == {KEYS.agent("node-1")}
    with pytest.raises(StoreRejected):
        await writable(pki, etcd, "stranger", areas)


async def test_before_authentication_is_on_an_agent_may_write_partitions(pki: Pki, etcd: EmbeddedEtcd) -> None:
    """What the rule is for: certificates alone let everybody write everything."""
    key = KEYS.partitions_current
    assert await writable(pki, etcd, "agent", [key]) == {key}
    await apply(pki, etcd, users_of(KEYS))
    assert await writable(pki, etcd, "agent", [key]) == set()


async def test_running_it_again_changes_nothing_and_mends_what_was_changed(pki: Pki, etcd: EmbeddedEtcd) -> None:
    users = users_of(KEYS)
    await apply(pki, etcd, users)
    assert await apply(pki, etcd, users) == []
    # an agent that was given too much, and a coordinator that lost something
    tampered = tuple(
        EtcdUser(user.name, (*user.grants, Grant(f"{KEYS.prefix}policies/", write=True)))
        if user.name == "agent"
        else EtcdUser(user.name, user.grants[:-1])
        for user in users
    )
    await apply(pki, etcd, tampered)
    assert await writable(pki, etcd, "agent", [KEYS.policies_active]) == {KEYS.policies_active}
    changes = await apply(pki, etcd, users)
    assert f"role agent loses {KEYS.prefix}policies/" in changes
    assert await writable(pki, etcd, "agent", [KEYS.policies_active]) == set()
    with pytest.raises(StoreRejected):
        await apply(pki, etcd, users, as_user="coordinator")


async def test_a_mesh_with_a_user_per_service_binds_pods(tmp_path: Path, pki: Pki) -> None:
    flags = {service: pki.flags(service) for service in ("coordinator", "binder", "agent")}
    async with Mesh(tmp_path, agents=2, flags=flags, etcd_flags=pki.etcd_flags) as mesh:
        await apply(pki, mesh.etcd, users_of(KEYS))
        # what was connected before goes on; what starts anew is held to its role from its first request
        for name in ("agent-0", await mesh.leader(), await mesh.leader("binder")):
            mesh.kill(name)
        await mesh.leader()
        await mesh.leader("binder")
        await mesh.add_nodes(3)
        names = {f"p-{number}" for number in range(20)}
        for name in sorted(names):
            await mesh.add_pod(name)
        await mesh.wait_bound(names)
        for running in mesh.services.values():
            assert "permission denied" not in running.log.read_text(), running.name


async def test_the_command_says_what_it_did_and_refuses_another_user(
    pki: Pki, etcd: EmbeddedEtcd, capsys: pytest.CaptureFixture[str]
) -> None:
    import asyncio

    command, users = ["pki", "etcd-roles", "--etcd", etcd.endpoint], len(users_of(KEYS))
    assert await asyncio.to_thread(run, [*command, *pki.flags("root")]) == 0
    assert f"authentication is on; {users} users" in capsys.readouterr().out
    assert await asyncio.to_thread(run, [*command, *pki.flags("root")]) == 0
    assert capsys.readouterr().out == f"nothing to change; {users} users\n"
    assert await asyncio.to_thread(run, [*command, *pki.flags("coordinator")]) == 2
    assert "only root may do this" in capsys.readouterr().err
    assert await asyncio.to_thread(run, command) == 2
    assert "give all three" in capsys.readouterr().err


async def test_a_client_follows_its_renewed_certificate_when_it_connects_anew(pki: Pki, etcd: EmbeddedEtcd) -> None:
    """Certificates are short-lived, processes are not: a connection made after a renewal must show the new one."""
    settings = pki.settings(etcd.endpoint, "agent")
    await apply(pki, etcd, users_of(KEYS))
    store = EtcdStore(settings)
    try:
        with pytest.raises(StoreRejected):
            await store.txn([], [Put(KEYS.partitions_current, b"")])
        assert settings.tls is not None
        folder = settings.tls.ca_file.parent
        for file in pki.make("etcd-client", "coordinator").iterdir():
            shutil.copy(file, folder / file.name)
        await etcd.kill()
        await etcd.start()
        await store.get(KEYS.partitions_current, timeout_s=10)
        assert (await store.txn([], [Put(KEYS.partitions_current, b"")])).succeeded
    finally:
        await store.close()


def test_a_bad_prefix_or_agent_is_one_line() -> None:
    with pytest.raises(ConfigError):
        Keys.under("relative")
    with pytest.raises(ValueError, match="key part"):
        users_of(KEYS, ("",))
