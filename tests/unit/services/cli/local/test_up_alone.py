"""``conclave up`` does not start a second mesh under a prefix where one lives."""

from __future__ import annotations

import pytest

from services.cli.local.up_run import await_alone, check_scheduler_name
from shared.election.record import LeaderRecord
from shared.errors import ConfigError
from shared.ports import Put
from shared.wire.keys import Keys
from shared.wire.records import AgentRecord, encode_record
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore

KEYS = Keys()
LEADER = LeaderRecord(identity="coordinator-0", incarnation="i1", url="http://127.0.0.1:1").encode()
AGENT = encode_record(AgentRecord(id="agent-0", url="http://127.0.0.1:2", incarnation="i3"))


@pytest.mark.parametrize(
    ("key", "value", "word"), [(KEYS.coordinator_leader, LEADER, "coordinator-0"), (KEYS.agent("a"), AGENT, "agent-0")]
)
async def test_a_prefix_in_use_is_refused_and_whoever_is_there_named(key: str, value: bytes, word: str):
    etcd = MemoryEtcd()
    etcd.txn([], [Put(key, value)])
    with pytest.raises(ConfigError, match=word) as caught:
        await await_alone(MemoryStore(etcd), KEYS, timeout_s=0.05, poll_s=0.01)
    assert KEYS.prefix in str(caught.value)


async def test_the_leases_of_a_mesh_that_was_killed_are_waited_for():
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.5
        return now

    etcd = MemoryEtcd(clock=clock)
    lease = etcd.grant_lease(3)
    etcd.txn([], [Put(KEYS.coordinator_leader, LEADER, lease.lease_id)])
    await await_alone(MemoryStore(etcd), KEYS, timeout_s=5.0, poll_s=0.01)


async def test_intents_of_a_mesh_that_ended_do_not_keep_another_from_starting():
    etcd = MemoryEtcd()
    etcd.txn([], [Put(KEYS.intent("uid"), b"{}")])
    await await_alone(MemoryStore(etcd), KEYS, timeout_s=0.05, poll_s=0.01)


@pytest.mark.parametrize("name", ["", "Bad Name!", "-a", "a" * 254])
def test_a_scheduler_name_that_no_pod_can_have_is_refused(name):
    with pytest.raises(ConfigError, match="--scheduler-name"):
        check_scheduler_name(name)
    check_scheduler_name("conclave-2.gpu")
