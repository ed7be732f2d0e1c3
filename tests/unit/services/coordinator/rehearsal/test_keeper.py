"""The leader rehearses where it can help, keeps the verdict in the pointer, and goes on without one where it fails."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY

import pytest
import structlog

from services.coordinator.core.events import PointerSeen
from services.coordinator.core.state import CoreSettings
from services.coordinator.rehearsal import keeper
from services.coordinator.rehearsal.child import MOST_MIB
from services.coordinator.rehearsal.keeper import PAUSE, RETRY_S, Rehearser, in_a_process
from shared.model.constraints import PodClass
from shared.model.gpu_shares import GpuShares, parse_gpu_shares
from shared.model.scheduling_profile import SchedulingProfile
from shared.policy.registry import bytes_of, ref_of, reference
from shared.policy.rehearsal.mesh_rehearsal import verdict_on
from shared.policy.rehearsal.situation import GpuAsk, RehearsalOrder, RehearsalVerdict, asked_of, situation_of
from shared.policy.rollout.rollout import PointerChange, first_pointer, publish, rehearse, rehearsed_of, to_stage
from shared.policy.weights import shipped
from shared.ports import Put
from shared.runtime.records.policies import read_history, read_pointer, write_change
from shared.scheduling.cycle.profile import DEFAULT
from shared.scheduling.profiles import Profiles
from shared.scheduling.state.node_table import NodeTable
from shared.wire.keys import Keys
from shared.wire.records import PolicyPointer, Rehearsed
from tests.builders import make_node, make_pod
from tests.gpu_demand import bulk_pod, machine
from tests.memory_store import MemoryStore
from tests.patience import PATIENCE_S
from tests.unit.services.coordinator.scene import Scene

KEYS = Keys()
FRAG = ref_of("frag")
FGD_WINS = RehearsalVerdict("fgd", "frag: FGD places, since it does")
FRAG_WINS = RehearsalVerdict("frag", "frag: the learned value places, since it does")


class Leader:
    """A leading coordinator's core with a demand, its store, and rehearsals whose verdict the test gives."""

    def __init__(
        self, *verdicts: RehearsalVerdict, policy: str = "frag", pods: int = 100, took_s: float = 1.0,
        settings: CoreSettings | None = None,
    ) -> None:  # fmt: skip
        self.now = 1000.0
        self.took_s = took_s
        self.orders: list[RehearsalOrder] = []
        self.verdicts = list(verdicts)
        self.store = MemoryStore()
        self.scene = Scene(agents=1, settings=settings)
        for number in range(8):
            self.scene.add_node(machine(number).node())
        for number in range(pods):
            self.scene.add_pod(bulk_pod(number).pod())
        self.scene.begin()
        self.scene.run()
        self.rehearser = Rehearser(self.scene.core, self.store, KEYS, clock=lambda: self.now, play=self.play)
        self.first = first_pointer(ref_of(policy), number=1)

    async def play(self, order: RehearsalOrder) -> RehearsalVerdict:
        self.orders.append(order)
        self.now += self.took_s
        return self.verdicts.pop(0)

    async def begin(self) -> None:
        """It leads by our term, and the pointer is there."""
        revision = 0
        while revision < self.scene.core.state.term - 1:
            revision = (await self.store.txn([], [Put("/before", b"")])).revision
        await self.store.txn([], [Put(KEYS.coordinator_leader, b"")])
        weights = bytes_of(self.first.active.name)
        await write_change(self.store, KEYS, PointerChange(self.first, self.first), 0, weights=weights)
        await self.watch()

    async def watch(self) -> PolicyPointer:
        """The core sees the pointer as it is."""
        stored = await read_pointer(self.store, KEYS)
        assert stored.pointer is not None
        self.scene.inbox.append(PointerSeen(stored.pointer))
        self.scene.run()
        return stored.pointer

    async def look(self, *, after_s: float = 0.0) -> PolicyPointer:
        """One look, and what the pointer says then."""
        self.now += after_s
        await self.rehearser.look()
        return await self.watch()


async def test_the_verdict_is_kept_in_the_pointer_with_its_reason_and_in_the_history():
    leader = Leader(FGD_WINS)
    await leader.begin()
    pointer = await leader.look()
    said = rehearsed_of(pointer, FRAG)
    assert said == Rehearsed(policy="frag@2", sha256=FRAG.sha256, places="fgd", told=FGD_WINS.told)
    assert (pointer.active, pointer.by, pointer.reason) == (FRAG, "rehearsal", FGD_WINS.told)
    assert (await read_history(leader.store, KEYS))[-1].pointer == pointer
    assert leader.orders[0].situation.gpu_pods == 80


async def test_the_same_demand_is_not_rehearsed_again_and_another_one_is():
    leader = Leader(FGD_WINS, FRAG_WINS)
    await leader.begin()
    await leader.look()
    await leader.look(after_s=3600)
    assert len(leader.orders) == 1
    for number in range(0, 100, 5):  # one of the five kinds goes
        leader.scene.delete_pod(f"uid-p{number}")
    leader.scene.run()
    pointer = await leader.look(after_s=3600)
    assert len(leader.orders) == 2
    assert rehearsed_of(pointer, FRAG).places == "frag"


async def test_what_a_rehearsal_took_is_followed_by_a_pause_of_many_times_as_long():
    leader = Leader(FGD_WINS, FRAG_WINS, took_s=10.0)
    await leader.begin()
    await leader.look()
    for number in range(0, 100, 5):
        leader.scene.delete_pod(f"uid-p{number}")
    leader.scene.run()
    await leader.look(after_s=10.0 * PAUSE - 1)
    assert len(leader.orders) == 1
    await leader.look(after_s=1)
    assert len(leader.orders) == 2


async def test_where_a_rehearsal_of_another_demand_fails_the_policy_places_by_itself_again():
    leader = Leader(FGD_WINS, RehearsalVerdict(problem="no room"), FRAG_WINS)
    await leader.begin()
    assert (await leader.look()).rehearsed
    for number in range(0, 100, 5):
        leader.scene.delete_pod(f"uid-p{number}")
    leader.scene.run()
    with structlog.testing.capture_logs() as lines:
        pointer = await leader.look(after_s=3600)
    assert pointer.rehearsed == ()
    assert pointer.reason == "frag@2: no rehearsal: no room"
    assert [(line["problem"], line["policy"]) for line in lines if line["event"] == "rehearsal_failed"] == [
        ("no room", "frag@2")
    ]
    await leader.look(after_s=RETRY_S - 1)
    assert len(leader.orders) == 2
    assert (await leader.look(after_s=1)).rehearsed[0].places == "frag"


async def test_a_verdict_that_names_somebody_else_is_a_problem_and_is_never_written():
    leader = Leader(RehearsalVerdict("kube-default", "it wins"))
    await leader.begin()
    with structlog.testing.capture_logs() as lines:
        assert (await leader.look()).rehearsed == ()
    assert "'kube-default' is to place" in next(
        line["problem"] for line in lines if line["event"] == "rehearsal_failed"
    )


@pytest.mark.parametrize(("milli", "gpus", "each"), [(250, 2, 250), (1000, 8, 1000), (0, 0, 0), (2000, 16, 1000)])
async def test_what_the_settings_count_as_gpus_is_rehearsed_as_gpus(milli, gpus, each):
    shares = parse_gpu_shares(f"example.com/part={milli}")
    leader = Leader(FGD_WINS, settings=CoreSettings(validate=True, profile=replace(DEFAULT, gpu_shares=shares)))
    node = make_node("parts").allocatable(**{"cpu": "64", "memory": "64Gi", "pods": "110", "example.com/part": "8"})
    leader.scene.add_node(node.node())
    leader.scene.add_pod(make_pod("one").cpu("3").request(**{"example.com/part": "1"}).pod())
    leader.scene.run()
    await leader.begin()
    await leader.look()
    situation = leader.orders[0].situation
    (kind,) = [kind for kind, _ in situation.nodes if kind.cpu == 64_000]
    (ask,) = [ask for ask, _ in situation.pods if ask.cpu == 3_000]
    assert (kind.devices, ask.devices, ask.milli) == (gpus, -(-milli // 1000), each)


async def test_pods_whose_profile_names_a_policy_are_not_rehearsed():
    profiles = Profiles.of([SchedulingProfile("packed", policy="kube-default")])
    leader = Leader(FGD_WINS, settings=CoreSettings(validate=True, profiles=profiles))
    await leader.begin()
    before = await leader.rehearser._asked()
    for cpu in ("1", "100000"):  # one that stands, and one that waits
        pod = make_pod(f"packed-{cpu}").cpu(cpu)
        pod.json["spec"]["schedulerName"] = "packed"
        leader.scene.add_pod(pod.pod())
    leader.scene.run()
    assert await leader.rehearser._asked() == before


async def test_classes_are_counted_in_parts_between_which_the_loop_is_others(monkeypatch):
    leader = Leader(FGD_WINS)
    await leader.begin()
    whole = situation_of(leader.scene.core.state.cache.table, await leader.rehearser._asked())
    parts = []

    def counted(table: NodeTable, pods: list[tuple[PodClass, int]], shares: GpuShares) -> Counter[GpuAsk]:
        parts.append(len(pods))
        return asked_of(table, pods, shares)

    monkeypatch.setattr(keeper, "CLASSES_AT_ONCE", 2)
    monkeypatch.setattr(keeper, "asked_of", counted)
    await leader.look()
    assert parts == [2, 2, 1]
    assert leader.orders[0].situation == whole


async def test_without_the_withdrawal_a_verdict_on_another_demand_would_stand(monkeypatch):
    leader = Leader(FGD_WINS, RehearsalVerdict(problem="no room"))
    await leader.begin()
    await leader.look()
    for number in range(0, 100, 5):
        leader.scene.delete_pod(f"uid-p{number}")
    leader.scene.run()
    monkeypatch.setattr(keeper, "_placing", lambda said: "as it was")
    assert rehearsed_of(await leader.look(after_s=3600), FRAG).told == FGD_WINS.told


@pytest.mark.parametrize(("policy", "pods"), [("kube-default", 100), ("fgd", 100), ("frag", 40)])
async def test_policies_with_nobody_beside_them_and_small_demands_are_not_rehearsed(policy, pods):
    leader = Leader(policy=policy, pods=pods)
    await leader.begin()
    pointer = await leader.look()
    assert (leader.orders, pointer.rehearsed, pointer.number) == ([], (), 1)


async def test_a_verdict_that_was_not_written_is_written_at_the_next_look_without_another_rehearsal():
    leader = Leader(FGD_WINS)
    await leader.begin()
    before = leader.scene.core.variants.pointer
    change = rehearse(before, [], reason="somebody else was faster", by="test")
    stored = await read_pointer(leader.store, KEYS)
    assert await write_change(leader.store, KEYS, change, stored.mod_revision)
    assert (await leader.look()).rehearsed == ()  # it went by the pointer before
    assert (await leader.look()).rehearsed[0].places == "fgd"
    assert len(leader.orders) == 1


async def test_a_deposed_leader_writes_no_verdict():
    leader = Leader(FGD_WINS)
    await leader.begin()
    leader.scene.core.state.term -= 1
    assert (await leader.look()).rehearsed == ()


async def test_a_candidate_is_rehearsed_too_and_a_verdict_goes_with_the_policy_that_it_was_about():
    leader = Leader(FGD_WINS, policy="kube-default")
    await leader.begin()
    change = publish(leader.first, FRAG, by="test")
    shadow = to_stage(change.after, "shadow", 0, reason="", by="test").after
    stored = await read_pointer(leader.store, KEYS)
    await write_change(
        leader.store, KEYS, PointerChange(leader.first, shadow), stored.mod_revision, weights=bytes_of("frag")
    )
    await leader.watch()
    pointer = await leader.look()
    assert rehearsed_of(pointer, FRAG).places == "fgd"
    assert to_stage(pointer, "active", 0, reason="", by="test").after.rehearsed == pointer.rehearsed
    gone = to_stage(pointer, "active", 0, reason="", by="test").after
    other = publish(gone, reference(shipped("lb")), by="test").after
    assert to_stage(other, "active", 0, reason="", by="test").after.rehearsed == ()


async def test_with_rehearsals_off_what_they_said_is_withdrawn():
    leader = Leader(FGD_WINS)
    await leader.begin()
    await leader.look()
    await leader.rehearser.withdraw()
    pointer = await leader.watch()
    assert pointer.rehearsed == ()
    assert "rehearsals are off" in pointer.reason


async def test_a_fault_in_looking_is_logged_and_does_not_end_the_term(monkeypatch):
    leader = Leader()
    await leader.begin()
    looked, waits = asyncio.Event(), [0.001]

    def broken(*_: object) -> None:
        looked.set()
        raise ZeroDivisionError

    def every_s() -> float:
        return waits.pop() if waits and not looked.is_set() else 3600.0

    monkeypatch.setattr(keeper, "nodes_of", broken)
    with structlog.testing.capture_logs() as lines:
        task = asyncio.create_task(leader.rehearser.run(every_s))
        await asyncio.wait([task, asyncio.create_task(looked.wait())], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
    assert "rehearsal_broken" in [line["event"] for line in lines]


async def test_the_process_that_rehearses_says_what_its_function_says():
    leader = Leader(FGD_WINS)
    await leader.begin()
    await leader.look()
    (order,) = leader.orders
    there, here = await in_a_process(order), verdict_on(order)
    assert (there.places, there.told, there.problem) == (here.places, here.told, "")
    assert there.cpu_s > 0


async def order_of(leader: Leader) -> RehearsalOrder:
    await leader.begin()
    await leader.look()
    (order,) = leader.orders
    return order


async def test_it_runs_our_own_code_wherever_we_stand(tmp_path, monkeypatch):
    other = tmp_path / "services" / "coordinator" / "rehearsal"
    other.mkdir(parents=True)
    for folder in (other, other.parent, other.parent.parent):
        (folder / "__init__.py").touch()
    (other / "child.py").write_text("raise SystemExit(7)\n")
    order = await order_of(Leader(FGD_WINS))
    monkeypatch.chdir(tmp_path)
    assert (await in_a_process(order)).problem == ""
    monkeypatch.setattr(keeper, "OURS", tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    assert "ended with 7" in (await in_a_process(order)).problem


BOUNDED = """
import sys
from services.coordinator.rehearsal import child
from shared.policy.rehearsal.situation import RehearsalVerdict
def greedy(order):
    bytearray(400 << 20)
    return RehearsalVerdict("fgd", open("/proc/self/oom_score_adj").read().strip())
child.verdict_on = greedy
child.MOST_MIB = {mib}
child.main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux bounds what a process takes of its own")
async def test_one_that_takes_too_much_memory_ends_before_it_takes_the_leaders(monkeypatch):
    order = await order_of(Leader(FGD_WINS))
    monkeypatch.setattr(keeper, "CHILD", ("-c", BOUNDED.format(mib=MOST_MIB)))
    assert "takes more than 192 MiB" in (await in_a_process(order)).problem
    monkeypatch.setattr(keeper, "CHILD", ("-c", BOUNDED.format(mib=1024)))
    assert await in_a_process(order) == RehearsalVerdict("fgd", "1000", cpu_s=ANY)


HANGS = """
import os, signal, sys
from services.coordinator.rehearsal import child
def hang(order):
    print(os.getpid(), file=sys.stderr, flush=True)
    signal.pause()
child.verdict_on = hang
{untie}
child.main()
"""
LEADER = """
import asyncio, sys, uvloop
from services.coordinator.rehearsal import keeper
from shared.policy.rehearsal.situation import RehearsalOrder, Situation
keeper.CHILD = ("-c", sys.argv[1])
uvloop.run(keeper.in_a_process(RehearsalOrder("frag", b"", Situation((), ()))))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends a process with its parent")
@pytest.mark.parametrize("tied", [True, False])
def test_it_ends_with_a_leader_that_is_killed_and_would_not_if_it_were_not_tied_to_it(tied):
    script = HANGS.format(untie="" if tied else "child.die_with_parent = lambda: None")
    command = [sys.executable, "-c", LEADER, script]
    with subprocess.Popen(command, cwd=keeper.OURS, stderr=subprocess.PIPE, text=True) as leader:
        assert leader.stderr is not None
        player = int(leader.stderr.readline())
        leader.kill()
        leader.wait(60)
        if not tied:
            assert "(zombie)" not in Path(f"/proc/{player}/status").read_text()  # it is still there
            os.kill(player, signal.SIGKILL)
        assert leader.stderr.read() == ""  # both hold the error output, so its end is the end of both


async def test_one_whose_leader_is_gone_before_it_could_tie_itself_to_it_ends_at_once():
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *keeper.CHILD,
        "1",
        cwd=keeper.OURS,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        assert await child.stdout.read() == b""  # though nothing came on its input, which is open
        assert await child.wait() == 0


async def test_a_process_that_dies_and_one_that_takes_too_long_are_problems_and_nothing_is_left(monkeypatch):
    leader = Leader(FGD_WINS)
    await leader.begin()
    await leader.look()
    (order,) = leader.orders
    monkeypatch.setattr(keeper, "CHILD", ("-c", "raise SystemExit(9)"))
    assert "ended with 9" in (await in_a_process(order)).problem
    monkeypatch.setattr(keeper, "CHILD", ("-c", "import signal; signal.pause()"))
    monkeypatch.setattr(keeper, "MOST_S", 0.2)
    assert "took more than" in (await in_a_process(order)).problem
    monkeypatch.setattr(keeper.sys, "executable", "/nowhere/python")
    assert "no process can be started" in (await in_a_process(order)).problem
