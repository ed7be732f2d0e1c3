"""Candidates as processes on a real etcd: killed, paused, terminated, and a whole etcd that restarts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.faults.etcd_process import EtcdProcess
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.etcd, pytest.mark.process]

KEY = "/conclave/v1/coordinator/leader"
FOR_EVER = ("--ttl", "600")
"""A lease that no test outlives: who waited for its end would wait in vain."""
TURNS = 6
"""Of a candidate's loop, some 0.05 s each."""


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    process = EtcdProcess(tmp_path / "etcd")
    process.start()
    yield process
    process.resume()
    process.close()


class Candidate:
    """One running candidate and the lines it printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[tuple[str, int]] = []
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if not line.endswith(b"\n"):
                # Killed while it wrote.
                return
            word, term, *_ = line.decode().split()
            self.lines.append((word, int(term)))
            self._changed.set()

    async def wait(self, word: str, *, above: int = 0, after: int = 0, times: int = 1) -> int:
        """The term of the first such line (or of the last of so many) at or after index ``after`` with a term greater
        than ``above``."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = [term for seen, term in self.lines[after:] if seen == word and term > above]
                if len(found) >= times:
                    return found[times - 1]
                self._changed.clear()
                await self._changed.wait()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reading


class Candidates:
    def __init__(self, etcd: EtcdProcess) -> None:
        self._etcd = etcd
        self.all: list[Candidate] = []

    async def start(self, identity: str, *flags: str) -> Candidate:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.faults.candidate", self._etcd.endpoint, KEY, identity, *flags,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        self.all.append(Candidate(process))
        return self.all[-1]


@pytest.fixture
async def candidates(etcd: EtcdProcess) -> AsyncIterator[Candidates]:
    made = Candidates(etcd)
    yield made
    for candidate in made.all:
        await candidate.end()


async def test_after_kill_9_a_successor_writes_under_a_higher_term(candidates):
    leader = await candidates.start("a")
    term = await leader.wait("wrote")
    standby = await candidates.start("b")
    assert await standby.wait("sees") == term
    leader.send(signal.SIGKILL)
    assert await standby.wait("wrote") > term


async def test_after_sigterm_a_successor_writes_without_waiting_for_the_lease_to_end(candidates):
    leader = await candidates.start("a", *FOR_EVER)
    term = await leader.wait("wrote")
    standby = await candidates.start("b", *FOR_EVER)
    assert await standby.wait("sees") == term
    leader.send(signal.SIGTERM)
    assert await standby.wait("wrote") > term
    assert await asyncio.wait_for(leader.process.wait(), PATIENCE_S) == 0


async def test_a_killed_leader_that_restarts_in_its_place_leads_without_waiting(candidates):
    leader = await candidates.start("a", *FOR_EVER)
    term = await leader.wait("wrote")
    await leader.end()
    again = await candidates.start("a", *FOR_EVER)
    assert await again.wait("wrote") > term


@pytest.mark.parametrize("reckless", [False, True], ids=["by-the-clock", "by-the-term-alone"])
async def test_a_leader_paused_beyond_its_ttl_writes_nothing_under_its_old_term(candidates, reckless):
    leader = await candidates.start("a", *(["--reckless"] if reckless else []))
    term = await leader.wait("wrote")
    standby = await candidates.start("b")
    assert await standby.wait("sees") == term
    leader.send(signal.SIGSTOP)
    successor_term = await standby.wait("wrote")
    assert successor_term > term
    seen = len(leader.lines)
    leader.send(signal.SIGCONT)
    assert await leader.wait("lost", after=0) == term
    # Turns that come after it heard: each one is a chance to do wrong.
    await leader.wait("fenced" if reckless else "idle", after=seen, times=TURNS)
    # What was in flight when it was stopped had been answered before the successor was elected; it is told only now.
    assert leader.lines[seen:].count(("wrote", term)) <= 1
    assert ("lost", successor_term) not in standby.lines


async def test_leadership_returns_after_etcd_restarts(candidates, etcd):
    leader = await candidates.start("a")
    term = await leader.wait("wrote")
    await asyncio.to_thread(etcd.kill)
    assert await leader.wait("lost") == term
    await asyncio.to_thread(etcd.start)
    assert await leader.wait("wrote", above=term) > term


async def test_a_short_restart_of_etcd_costs_no_leadership_or_a_new_term_but_never_silence(candidates, etcd):
    leader = await candidates.start("a")
    await leader.wait("wrote")
    seen = len(leader.lines)
    await asyncio.to_thread(etcd.kill)
    await asyncio.to_thread(etcd.start)
    await leader.wait("wrote", after=seen + 1)
