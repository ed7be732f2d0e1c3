"""``conclave policy`` against a real etcd while nobody leads: what it changes, what it refuses; and the records."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.policy.rollout.rollout import first_pointer, publish, roll_back
from shared.policy.weights import digest, encode
from shared.ports import Put
from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings
from shared.runtime.records.policies import (
    KEPT_WEIGHTS,
    follow_pointer,
    get_weights,
    read_history,
    read_pointer,
    write_change,
)
from shared.wire.keys import Keys
from shared.wire.records import PolicyRef
from tests.marl_weights import weights
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.etcd]

ROOT = Path(__file__).parents[2]
KEYS = Keys()


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[str]:
    async with EmbeddedEtcd(EmbeddedEtcdSettings(data_dir=tmp_path / "etcd", fsync=False)) as running:
        yield running.endpoint


@pytest.fixture
async def store(etcd: str) -> AsyncIterator[EtcdStore]:
    opened = EtcdStore(EtcdSettings(endpoints=(etcd,)))
    yield opened
    await opened.close()


@pytest.fixture
async def known(store: EtcdStore) -> None:
    """A coordinator led here once."""
    await store.txn([], [Put(KEYS.coordinator_term(1), b"{}")])


async def conclave(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, error = await process.communicate()
    return process.returncode or 0, out.decode(), error.decode()


@pytest.mark.usefixtures("known")
async def test_while_nobody_leads_a_policy_is_activated_and_rolled_back(etcd: str, store: EtcdStore) -> None:
    activate = ["policy", "activate", "least-allocated", "--etcd", etcd]
    code, out, error = await conclave(*activate)
    assert (code, out) == (1, "")
    assert "the leader has not written yet which policy is the mesh's own; repeat in a moment" in error
    code, out, _ = await conclave(*activate, "--new-mesh", "-o", "json")
    pointer = json.loads(out)["pointer"]
    assert code == 0
    assert (pointer["active"]["name"], pointer["candidate"]["name"]) == ("kube-default", "least-allocated")
    assert (pointer["stage"], pointer["percent"], pointer["number"]) == ("canary", 100, 1)

    code, out, _ = await conclave("policy", "rollback", "--etcd", etcd, "--reason", "slow at noon")
    assert code == 0
    assert out.splitlines()[0] == "active     kube-default@1"
    assert "slow at noon" in out

    history = await read_history(store, KEYS)
    assert [record.pointer.active.title for record in history] == ["kube-default@1"] * 2
    assert all(record.at.endswith("Z") for record in history)

    code, out, _ = await conclave("policy", "activate", "random", "--stage", "active", "--etcd", etcd)
    assert (code, out.splitlines()[0]) == (0, "active     random@1")


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["activate", "best"], "choose one of", id="unknown policy"),
        pytest.param(["activate", "random@7"], "random@1 is", id="unknown version"),
        pytest.param(
            ["activate", "random", "--stage", "shadow", "--percent", "5"], "--percent", id="percent in shadow"
        ),
        pytest.param(["activate", "random", "--weights", "/nowhere"], "/nowhere: No such file", id="no file"),
        pytest.param(["activate", "random", "--stage", "active", "--auto"], "--auto", id="auto of active"),
        pytest.param(["activate", "random", "--stage", "active", "--goal", "room"], "--goal", id="goal of active"),
        pytest.param(["rollback"], "nothing to roll back", id="nothing to roll back"),
        pytest.param(["rollback", "--reason", " "], "--reason: is empty", id="no reason"),
    ],
)
async def test_bad_input_is_one_clear_line_and_nothing_is_written(etcd, store, arguments, told) -> None:
    code, _, error = await conclave("policy", *arguments, "--etcd", etcd)
    lines = [line for line in error.splitlines() if not line.startswith("{")]
    assert code == 2
    assert len(lines) == 1
    assert told in lines[0]
    assert (await read_pointer(store, KEYS)).pointer is None


async def test_a_policy_is_not_activated_where_no_mesh_has_ever_been_unless_one_is_prepared(etcd, store) -> None:
    activate = ("policy", "activate", "random", "--etcd", etcd, "--etcd-prefix", "/wrong/")
    code, out, error = await conclave(*activate)
    assert (code, out) == (2, "")
    (line,) = [line for line in error.splitlines() if not line.startswith("{")]
    for words in ("--etcd-prefix: no mesh has ever been under /wrong/", "correct --etcd-prefix", "--new-mesh"):
        assert words in line
    assert (await store.list_prefix("/wrong/")).items == ()

    code, out, _ = await conclave(*activate, "--new-mesh")
    assert (code, out.splitlines()[0]) == (0, "active     kube-default@1")
    code, _, error = await conclave("policy", "activate", "random", "--etcd", etcd, "--etcd-prefix", "/wrong/")
    assert code == 0, error


async def test_weights_that_are_damaged_are_refused_before_anything_is_written(etcd, store, tmp_path) -> None:
    (tmp_path / "w.npz").write_bytes(b"PK\x03\x04 cut")
    code, _, error = await conclave(
        "policy", "activate", "marl-dqn", "--weights", str(tmp_path / "w.npz"), "--etcd", etcd
    )
    assert code == 2
    assert "not a readable .npz" in error
    assert (await store.list_prefix(KEYS.policy_weights_prefix)).items == ()


async def test_a_pointer_that_is_none_is_named_and_left_alone(etcd, store) -> None:
    await store.txn([], [Put(KEYS.policies_active, b"{}")])
    code, _, error = await conclave("policy", "rollback", "--etcd", etcd)
    assert code == 2
    assert "holds no policy pointer" in error
    assert (await store.get(KEYS.policies_active)).value == b"{}"


async def test_of_two_changes_of_the_same_pointer_one_is_refused(store) -> None:
    old = PolicyRef("kube-default", 1)
    first = publish(first_pointer(old), PolicyRef("marl-dqn", 1, "a" * 64), by="x")
    assert await write_change(store, KEYS, first, 0)
    stored = await read_pointer(store, KEYS)
    assert stored.pointer == first.after
    back = roll_back(first.after, reason="no", by="y")
    assert await write_change(store, KEYS, back, stored.mod_revision)
    assert not await write_change(store, KEYS, back, stored.mod_revision)
    assert [record.pointer.number for record in await read_history(store, KEYS)] == [1, 2]


async def test_who_follows_the_pointer_sees_each_change(store) -> None:
    pointers = follow_pointer(store, KEYS)
    seen = [await anext(pointers)]
    change = publish(first_pointer(PolicyRef("kube-default", 1)), PolicyRef("frag", 1, "b" * 64), by="x")
    await write_change(store, KEYS, change, 0)
    seen.append(await anext(pointers))
    await pointers.aclose()
    assert seen[0] is not None
    assert seen[1] is not None
    assert (seen[0].pointer, seen[1].pointer) == (None, change.after)


async def test_old_weights_go_and_those_in_use_stay(store) -> None:
    pointer = first_pointer(PolicyRef("kube-default", 1))
    shas = []
    for number in range(KEPT_WEIGHTS + 4):
        data = b"weights %d" % number
        shas.append(digest(data))
        stored = await read_pointer(store, KEYS)
        change = publish(stored.pointer or pointer, PolicyRef("frag", number + 1, shas[-1]), by="x")
        assert await write_change(store, KEYS, change, stored.mod_revision, weights=data)
    kept = [sha for sha in shas if await get_weights(store, KEYS, sha) is not None]
    assert kept == shas[-KEPT_WEIGHTS:]


class Overtaken:
    """A store in which somebody else makes ``change`` right after the history was read."""

    def __init__(self, store, change) -> None:
        self._store, self._change = store, change

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    async def list_prefix(self, prefix: str):
        listing = await self._store.list_prefix(prefix)
        await self._change()
        return listing


async def test_weights_that_somebody_names_again_meanwhile_stay(store) -> None:
    datas = [b"weights %d" % number for number in range(KEPT_WEIGHTS + 1)]
    refs = [PolicyRef("frag", number + 1, digest(data)) for number, data in enumerate(datas)]

    async def name(ref: PolicyRef, using, weights: bytes | None = None) -> None:
        stored = await read_pointer(store, KEYS)
        change = publish(stored.pointer or first_pointer(PolicyRef("kube-default", 1)), ref, by="x")
        assert await write_change(using, KEYS, change, stored.mod_revision, weights=weights)

    for ref, data in zip(refs[:-1], datas[:-1], strict=True):
        await name(ref, store, data)
    await name(refs[-1], Overtaken(store, lambda: name(refs[0], store)), datas[-1])
    pointer = (await read_pointer(store, KEYS)).pointer
    assert pointer is not None
    assert pointer.candidate == refs[0]
    assert await get_weights(store, KEYS, refs[0].sha256) == datas[0]


async def test_weights_of_a_refused_change_are_not_kept(store) -> None:
    change = publish(first_pointer(PolicyRef("kube-default", 1)), PolicyRef("frag", 1, digest(b"w")), by="x")
    assert await write_change(store, KEYS, change, 0)
    assert not await write_change(store, KEYS, change, 0, weights=b"w")
    assert (await store.list_prefix(KEYS.policy_weights_prefix)).items == ()


@pytest.mark.usefixtures("known")
async def test_other_weights_under_a_title_that_is_taken_are_numbered_on(etcd, store, tmp_path) -> None:
    for name, kind in (("good", "good"), ("other", "terrible")):
        (tmp_path / f"{name}.npz").write_bytes(encode(weights(kind)))
    activate = ["policy", "activate", "marl-dqn", "--new-mesh", "--stage", "active", "--etcd", etcd, "--weights"]
    titles = []
    for name in ("good", "other", "good"):
        code, _, error = await conclave(*activate, str(tmp_path / f"{name}.npz"))
        assert code == 0, error
        assert "marl-dqn@1 names other weights already" in error
        pointer = (await read_pointer(store, KEYS)).pointer
        assert pointer is not None
        titles.append(pointer.active.title)
    assert titles == ["marl-dqn@2", "marl-dqn@3", "marl-dqn@2"]  # marl-dqn@1 are those of the package
    activate[2] = "marl-dqn@1"
    code, _, error = await conclave(*activate, str(tmp_path / "other.npz"))
    assert code == 2
    assert "marl-dqn@1 names other weights already" in error
