"""Rollouts and learning in a real mesh: bad policies go by themselves, a dead learner is nobody's problem."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.decide.stages import Stage
from shared.model.pod import POLICY_ANNOTATION
from shared.policy.rollout.rollout import BUILT_IN, PointerChange, first_pointer, publish, to_stage
from shared.policy.weights import digest, encode
from shared.runtime.records.policies import follow_pointer, read_history, read_pointer, read_windows, write_change
from shared.runtime.records.policy_changes import promote
from shared.runtime.records.prefix_watch import follow_prefix
from shared.wire.keys import Keys
from shared.wire.records import PolicyPointer, PolicyRef, PolicyWindow
from tests.marl_weights import weights
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh, bindings_per_uid

pytestmark = [pytest.mark.process, pytest.mark.etcd]

KEYS = Keys()
QUICK = ["--rollout-window-s", "0.5", "--rollout-min-samples", "6", "--rollout-good-windows", "2"]
AUTO = ["--rollout-promotion", "auto"]
ROOT = Path(__file__).parents[2]


class Rollouts:
    """A mesh with four nodes and agents, its policy pointer, and pods that keep coming."""

    def __init__(self, mesh: Mesh, store: EtcdStore) -> None:
        self.mesh = mesh
        self.store = store
        self.names: set[str] = set()
        self.grown = asyncio.Condition()

    async def activate(
        self, kind: str, version: int, *, stage: Stage, percent: int = 0, promotion: str = ""
    ) -> PolicyRef:
        """As ``conclave policy activate`` does it."""
        data = encode(weights(kind, version=version))
        ref = PolicyRef("marl-dqn", version, digest(data))
        stored = await read_pointer(self.store, KEYS)
        before = stored.pointer or first_pointer(BUILT_IN)
        after = to_stage(publish(before, ref, by="test").after, stage, percent, reason="test", by="test").after
        after = msgspec.structs.replace(after, promotion=promotion)
        assert await write_change(self.store, KEYS, PointerChange(before, after), stored.mod_revision, weights=data)
        return ref

    async def until(self, holds: Callable[[PolicyPointer], bool]) -> PolicyPointer:
        """The first pointer from now on for which it holds."""
        async with asyncio.timeout(PATIENCE_S), aclosing(follow_pointer(self.store, KEYS)) as pointers:
            async for stored in pointers:
                if stored is not None and stored.pointer is not None and holds(stored.pointer):
                    return stored.pointer
        raise AssertionError("unreachable")

    async def compared(self, candidate: PolicyRef, *, windows: int) -> list[PolicyWindow]:
        """The kept windows, once there are so many with the candidate."""
        async with (
            asyncio.timeout(PATIENCE_S),
            aclosing(follow_prefix(self.store, KEYS.policy_windows_prefix)) as views,
        ):
            async for _ in views:
                found = [one for one in await read_windows(self.store, KEYS) if one.candidate == candidate.title]
                if len(found) >= windows:
                    return found
        raise AssertionError("unreachable")

    async def pods_come(self) -> None:
        """Ten a second, until cancelled."""
        while True:
            name = f"p{len(self.names)}"
            await self.mesh.add_pod(name, cpu="200m", memory="128Mi")
            self.names.add(name)
            async with self.grown:
                self.grown.notify_all()
            await asyncio.sleep(0.1)

    async def more_pods(self, count: int) -> None:
        """Return when so many more have been created."""
        wanted = len(self.names) + count
        async with asyncio.timeout(PATIENCE_S), self.grown:
            await self.grown.wait_for(lambda: len(self.names) >= wanted)

    @asynccontextmanager
    async def traffic(self) -> AsyncIterator[None]:
        coming = asyncio.create_task(self.pods_come())
        try:
            yield
        finally:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await coming

    async def placed_by(self) -> dict[str, str]:
        """Pod name to the policy in its annotation."""
        return {
            pod["metadata"]["name"]: pod["metadata"].get("annotations", {}).get(POLICY_ANNOTATION, "")
            for pod in await self.mesh.pods()
            if pod["spec"].get("nodeName")
        }

    async def all_bound_once(self) -> None:
        await self.mesh.wait_bound(self.names)
        nodes = bindings_per_uid(await self.mesh.audit_until_now())
        assert all(len(given) == 1 for given in nodes.values())


@asynccontextmanager
async def rollouts(
    folder: Path, agent_flags: tuple[str, ...] = (), *, coordinators: int = 1, settings: Sequence[str] = AUTO
) -> AsyncIterator[Rollouts]:
    flags = {"coordinator": [*QUICK, *settings], "agent": list(agent_flags)}
    async with Mesh(folder, coordinators=coordinators, agents=4, binders=1, flags=flags) as mesh:
        await mesh.add_nodes(4, cpu="64", memory="64Gi", pods="500")
        await mesh.leader()
        store = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,)))
        try:
            yield Rollouts(mesh, store)
        finally:
            await store.close()


async def test_bad_policies_are_rolled_back_by_themselves_and_every_pod_is_bound(tmp_path: Path) -> None:
    async with rollouts(tmp_path) as mesh:
        seeded = await mesh.until(lambda pointer: True)
        assert seeded.active == BUILT_IN
        good = await mesh.activate("good", 1, stage=Stage.ACTIVE)
        async with mesh.traffic():
            await mesh.activate("broken", 2, stage=Stage.CANARY, percent=50)
            back = await mesh.until(lambda pointer: pointer.candidate is None)
            assert (back.active, back.reason) == (good, "marl-dqn@2 failed: nan")

            await mesh.activate("terrible", 3, stage=Stage.CANARY, percent=50)
            back = await mesh.until(lambda pointer: pointer.candidate is None)
            assert back.active == good
            assert "worse in 3 windows in a row: value" in back.reason

            again = await mesh.activate("good", 4, stage=Stage.SHADOW)
            promoted = await mesh.until(lambda pointer: pointer.active == again)
            assert promoted.previous == good

            await mesh.activate("broken", 5, stage=Stage.ACTIVE)
            back = await mesh.until(lambda pointer: pointer.active == again)
            assert back.reason == "marl-dqn@5 failed: nan"
        await mesh.all_bound_once()
        placed = await mesh.placed_by()
        assert set(placed.values()) <= {"kube-default@1", "marl-dqn@1", "marl-dqn@3", "marl-dqn@4"}
        assert {"marl-dqn@1", "marl-dqn@4"} <= set(placed.values())
        numbers = [record.pointer.number for record in await read_history(mesh.store, KEYS)]
        assert numbers == sorted(set(numbers))


async def test_a_candidate_stays_at_its_step_through_a_failover_until_it_is_promoted(tmp_path: Path) -> None:
    async with rollouts(tmp_path, coordinators=2, settings=()) as mesh:
        await mesh.until(lambda pointer: True)
        good = await mesh.activate("good", 1, stage=Stage.ACTIVE)
        again = await mesh.activate("good", 2, stage=Stage.SHADOW)
        async with mesh.traffic():
            seen = await mesh.compared(again, windows=4)
            mesh.mesh.kill(await mesh.mesh.leader())
            later = await mesh.compared(again, windows=len(seen) + 4)
            assert [one.number for one in later[: len(seen)]] == [one.number for one in seen]
            stored = await read_pointer(mesh.store, KEYS)
            assert stored.pointer is not None
            assert (stored.pointer.candidate, stored.pointer.reason) == (again, "test")
            assert (stored.pointer.stage, stored.pointer.active) == ("shadow", good)
            pointer = await promote(mesh.store, KEYS, "marl-dqn", to=None, percent=None, by="olga")
            assert (pointer.stage, pointer.percent, pointer.by) == ("canary", 1, "olga")
            pointer = await promote(mesh.store, KEYS, "marl-dqn@2", to=Stage.ACTIVE, percent=None, by="olga")
            assert (pointer.active, pointer.previous) == (again, good)
        await mesh.all_bound_once()


async def test_weights_with_another_digest_are_refused_and_the_active_policy_stays(tmp_path: Path) -> None:
    async with rollouts(tmp_path) as mesh:
        stored = await read_pointer(mesh.store, KEYS)
        while stored.pointer is None:
            await mesh.until(lambda pointer: True)
            stored = await read_pointer(mesh.store, KEYS)
        missing = PolicyRef("marl-dqn", 9, "0" * 64)
        shadow = to_stage(
            publish(stored.pointer, missing, by="test").after, Stage.CANARY, 100, reason="test", by="test"
        )
        async with mesh.traffic():
            assert await write_change(
                mesh.store, KEYS, PointerChange(stored.pointer, shadow.after), stored.mod_revision
            )
            back = await mesh.until(lambda pointer: pointer.candidate is None and pointer.number > 0)
        assert (back.active, back.reason) == (BUILT_IN, "marl-dqn@9 failed: digest")
        await mesh.all_bound_once()
        assert set((await mesh.placed_by()).values()) == {"kube-default@1"}


async def test_the_mesh_learns_while_running_and_does_not_miss_a_dead_learner(tmp_path: Path) -> None:
    async with rollouts(tmp_path, ("--reward-delay-s", "1")) as mesh:
        await mesh.until(lambda pointer: True)
        good = await mesh.activate("good", 1, stage=Stage.ACTIVE)
        learner = [
            "--etcd", mesh.mesh.etcd.endpoint, "--id", "learner-0", "--min-transitions", "40", "--updates", "20",
            "--gate-seeds", "500", "--learning-rate", "0.00001",
        ]  # fmt: skip
        await mesh.mesh.start("learner", "learner", learner)
        async with mesh.traffic():
            published = await mesh.until(lambda pointer: pointer.candidate is not None)
            assert published.candidate is not None
            assert (published.candidate.name, published.candidate.version, published.by) == ("marl-dqn", 2, "learner")
            assert published.stage == Stage.SHADOW
            assert "passed the gate on the twin" in published.reason
            learned = await mesh.until(lambda pointer: pointer.active.version >= 2)
            assert (learned.active.name, learned.previous) == ("marl-dqn", good)

            running = mesh.mesh.services["learner"]
            running.wanted = False
            mesh.mesh.kill("learner", signal.SIGKILL)
            async with asyncio.timeout(PATIENCE_S):
                await running.ended.wait()
            await mesh.more_pods(30)
        await mesh.all_bound_once()
        active = (await mesh.until(lambda pointer: True)).active
        assert active.name == "marl-dqn"
        assert active.version >= 2


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        pytest.param(["--policy", "kube-default"], "'kube-default' is not learned", id="a heuristic"),
        pytest.param(["--gate-seeds", "x"], "x", id="seeds"),
        pytest.param(["--discount", "2"], "--discount", id="out of range"),
    ],
)
async def test_a_learner_with_bad_settings_says_so_in_one_line(flags: list[str], told: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "run", "learner", *flags,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        _, error = await process.communicate()
    lines = [line for line in error.decode().splitlines() if not line.startswith("{")]
    assert process.returncode == 2
    assert len(lines) == 1
    assert told in lines[0]
