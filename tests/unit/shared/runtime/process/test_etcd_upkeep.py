"""Room in etcd: what is told, what rests, and what the mesh does about an etcd of its own."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.errors import StoreFull, StoreRejected
from shared.ports import Compare, DeleteKey, MemberState, Op, Put, StoreState, TxnResult
from shared.runtime.process.etcd_upkeep import DEFAULT_QUOTA, EtcdUpkeep, SparingStore, judge
from shared.wire.keys import Keys
from tests.memory_store import MemoryStore

QUOTA = 1 << 30
KEYS = Keys()


def of(size: int, *alarms: str, in_use: int = 1 << 20, quota: int = QUOTA, version: str = "3.6.8") -> StoreState:
    return StoreState((MemberState("http://etcd:2379", version, size, in_use, quota),), frozenset(alarms), 7)


class Etcd(MemoryStore):
    """One that fills: what its file holds shrinks when it is compacted, its file when it is defragmented."""

    def __init__(self, state: StoreState, *, alive: int = 1 << 20, refuses: str = "") -> None:
        super().__init__()
        self.now = state
        self.alive = alive
        self.refuses = refuses
        self.done: list[str] = []

    async def state(self, *, timeout_s: float = 2.0) -> StoreState:
        return self.now

    async def compact(self, revision: int, *, timeout_s: float = 2.0) -> None:
        self._do("compact")
        self.now = replace(self.now, members=(replace(self.now.members[0], in_use=self.alive),))

    async def defragment(self, endpoint: str, *, timeout_s: float = 60.0) -> None:
        self._do("defragment")
        self.now = replace(self.now, members=(replace(self.now.members[0], size=self.now.members[0].in_use),))

    async def disarm(self, alarm: str, *, timeout_s: float = 5.0) -> None:
        self._do(f"disarm {alarm}")
        self.now = replace(self.now, alarms=frozenset())

    def _do(self, what: str) -> None:
        if what == self.refuses:
            raise StoreRejected("etcd: permission denied")
        self.done.append(what)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (of(QUOTA, "NOSPACE"), "NOSPACE"),
        (of(1 << 20, "CORRUPT"), "CORRUPT"),
        (of(int(0.86 * QUOTA)), "85 % full"),
        (of(1 << 20, version="3.5.1"), "3.5.1 may corrupt"),
    ],
)
def test_what_is_wrong_is_told_in_words(state: StoreState, words: str) -> None:
    assert words in judge(state).text
    assert "\n" not in judge(state).text


def test_a_quota_that_was_switched_off_is_never_reached() -> None:
    verdict = judge(of(100 << 30, quota=-1))
    assert (verdict.fill, verdict.short) == (0.0, False)


def test_a_well_etcd_has_nothing_to_tell() -> None:
    assert judge(of(QUOTA // 2)).text == ""
    assert not judge(of(QUOTA // 2)).short
    assert judge(StoreState()).text == ""


@pytest.mark.parametrize(
    ("said", "told", "size", "short"),
    [
        (QUOTA, 0, int(0.79 * QUOTA), False),
        (QUOTA, 0, int(0.81 * QUOTA), True),
        (8 << 30, QUOTA, int(0.81 * QUOTA), False),  # what etcd itself says counts
        (0, QUOTA, int(0.81 * QUOTA), True),
        (0, 0, int(0.79 * DEFAULT_QUOTA), False),
        (0, 0, int(0.81 * DEFAULT_QUOTA), True),
        (0, 0, DEFAULT_QUOTA + 1, False),  # so its quota is another one
    ],
)
def test_what_can_wait_rests_before_the_quota_is_reached(said: int, told: int, size: int, short: bool) -> None:
    assert judge(of(size, quota=said), quota=told).short is short


@pytest.mark.parametrize(
    ("puts", "waits"),
    [
        ([KEYS.coordinator_totals], True),
        ([KEYS.queue_history], True),
        ([KEYS.policy_window(3), KEYS.policy_window(4)], True),
        ([KEYS.policies_active, KEYS.policy_history(1), KEYS.policy_weights("ab")], True),
        ([KEYS.policies_active, KEYS.policy_history(1)], False),
        ([KEYS.intent("u")], False),
        ([KEYS.coordinator_leader], False),
        ([KEYS.agent("a")], False),
        ([KEYS.control_paused, KEYS.audit(1)], False),
        ([KEYS.partitions_current], False),
        ([KEYS.autoscaler_last("o"), KEYS.autoscaler_decision("o", 1)], False),
        ([], False),
    ],
)
async def test_leases_and_intents_are_written_while_history_rests(puts: list[str], waits: bool) -> None:
    short = [True]
    store = SparingStore(MemoryStore(), can_wait=KEYS.can_wait, short=lambda: short[0])
    ops: list[Op] = [DeleteKey("/elsewhere"), *(Put(key, b"1") for key in puts)]
    compares: list[Compare] = []
    if waits:
        with pytest.raises(StoreFull, match="short of room"):
            await store.txn(compares, ops)
    else:
        assert (await store.txn(compares, ops)).succeeded
    short[0] = False
    assert isinstance(await store.txn(compares, ops), TxnResult)


async def test_an_own_etcd_that_is_full_is_given_room_and_goes_on() -> None:
    etcd = Etcd(of(QUOTA, "NOSPACE", in_use=QUOTA))
    upkeep = EtcdUpkeep(etcd, ours=True)
    await upkeep.look()
    assert etcd.done == ["compact", "defragment", "disarm NOSPACE"]
    assert not upkeep.verdict.full
    assert upkeep.text() == ""


async def test_a_full_etcd_is_made_small_also_where_nobody_knows_its_quota() -> None:
    """Before 3.6 it does not tell, and a file of 4 GB says that it is not the default."""
    etcd = Etcd(of(4 << 30, "NOSPACE", quota=0, version="3.5.26"))
    await EtcdUpkeep(etcd, ours=True).look()
    assert etcd.done == ["compact", "defragment", "disarm NOSPACE"]


async def test_an_own_etcd_that_is_short_of_room_is_compacted_before_it_is_full() -> None:
    etcd = Etcd(of(int(0.85 * QUOTA), in_use=int(0.85 * QUOTA)))
    await EtcdUpkeep(etcd, ours=True).look()
    assert etcd.done == ["compact", "defragment"]


@pytest.mark.parametrize("quota", [QUOTA, 0])
async def test_whatever_room_lets_the_alarm_be_disarmed_is_made(quota: int) -> None:
    """Most of what it holds is alive, and (0) it does not say its quota, which is above etcd's default."""
    size = quota or DEFAULT_QUOTA + (1 << 30)
    etcd = Etcd(of(size, "NOSPACE", in_use=size, quota=quota), alive=int(0.6 * size) if not quota else int(0.8 * size))
    upkeep = EtcdUpkeep(etcd, ours=True)
    await upkeep.look()
    assert etcd.done == ["compact", "defragment", "disarm NOSPACE"]
    assert not upkeep.verdict.refuses


async def test_an_alarm_without_a_known_quota_stays_while_nothing_is_freed() -> None:
    size = DEFAULT_QUOTA + (1 << 30)
    etcd = Etcd(of(size, "NOSPACE", in_use=size, quota=0), alive=size)
    upkeep = EtcdUpkeep(etcd, ours=True)
    await upkeep.look()
    assert etcd.done == ["compact"]
    assert "larger quota" in upkeep.text()


async def test_a_shared_etcd_is_left_to_its_operators() -> None:
    etcd = Etcd(of(QUOTA, "NOSPACE", in_use=QUOTA))
    upkeep = EtcdUpkeep(etcd, ours=False)
    await upkeep.look()
    assert etcd.done == []
    assert "etcdctl alarm disarm" in upkeep.text()


async def test_only_the_process_that_is_to_act_makes_room() -> None:
    etcd = Etcd(of(QUOTA, "NOSPACE", in_use=QUOTA))
    await EtcdUpkeep(etcd, ours=True, acts=lambda: False).look()
    assert etcd.done == []


async def test_what_is_alive_is_no_reason_to_disarm() -> None:
    """Disarmed, the next write would raise the alarm again; a defragmentation would free nothing."""
    etcd = Etcd(of(QUOTA, "NOSPACE", in_use=QUOTA), alive=int(0.95 * QUOTA))
    upkeep = EtcdUpkeep(etcd, ours=True)
    await upkeep.look()
    assert etcd.done == ["compact"]
    assert "larger quota" in upkeep.text()


async def test_a_corrupt_etcd_is_never_touched() -> None:
    etcd = Etcd(of(QUOTA, "NOSPACE", "CORRUPT", in_use=QUOTA))
    await EtcdUpkeep(etcd, ours=True).look()
    assert etcd.done == []


async def test_a_right_that_is_missing_is_told_beside_what_is_wrong() -> None:
    etcd = Etcd(of(QUOTA, "NOSPACE", in_use=QUOTA), refuses="defragment")
    upkeep = EtcdUpkeep(etcd, ours=True)
    await upkeep.look()
    assert "permission denied" in upkeep.text()
    assert "NOSPACE" in upkeep.text()


async def test_room_is_not_made_again_at_each_look() -> None:
    etcd = Etcd(of(QUOTA, "NOSPACE", in_use=QUOTA), alive=int(0.95 * QUOTA))
    upkeep = EtcdUpkeep(etcd, ours=True)
    await upkeep.look()
    await upkeep.look()
    assert etcd.done == ["compact"]
