"""The supervisor with real processes: readiness, restarts, kills, configuration errors, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from services.cli.local.supervisor import ChildSpec, Supervisor
from shared.errors import ConfigError
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.process

WAIT_READY = "import signal, sys; print('ready', flush=True); signal.pause()"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\n"
    "while True: time.sleep(1)"
)


def spec(code: str, name: str = "child", **more) -> ChildSpec:
    return ChildSpec(name, "service", (sys.executable, "-c", textwrap.dedent(code)), **more)


class Recorder:
    """Counts events and lets a test await the n-th of a kind."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.news = asyncio.Event()

    def __call__(self, event, child) -> None:
        self.seen.append(event)
        self.news.set()

    async def until(self, event: str, count: int = 1) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.seen.count(event) < count:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def supervised(tmp_path):
    recorder = Recorder()
    supervisor = Supervisor(tmp_path, on_event=recorder)
    yield supervisor, recorder
    await supervisor.close()


async def test_a_child_is_ready_when_it_says_so_and_its_output_is_kept(supervised):
    supervisor, _ = supervised
    child = supervisor.start(spec(WAIT_READY))
    await supervisor.ready(child, timeout_s=PATIENCE_S)
    assert child.ready_line == "ready"
    assert child.log_file.read_text() == "ready\n"
    assert child.usage().peak_rss_bytes > 1_000_000


async def test_a_killed_child_is_started_again_and_its_cost_is_kept(supervised):
    supervisor, recorder = supervised
    child = supervisor.start(spec("sum(range(3_000_000))\n" + WAIT_READY))
    await supervisor.ready(child, timeout_s=PATIENCE_S)
    first = child.pid
    assert supervisor.kill("child")
    await recorder.until("ready", 2)
    assert (child.restarts, child.incarnation) == (1, 2)
    assert child.pid != first
    assert child.costs.spent.cpu_s > 0
    assert child.costs.spent.peak_rss_bytes > 1_000_000


async def test_a_child_that_keeps_ending_is_started_with_growing_pauses(supervised):
    supervisor, recorder = supervised
    started = asyncio.get_running_loop().time()
    supervisor.start(spec("print('ready')"))
    await recorder.until("restart", 3)
    assert asyncio.get_running_loop().time() - started >= 0.1 + 0.2 + 0.4


async def test_a_configuration_error_is_raised_with_the_child_s_own_words(supervised):
    supervisor, recorder = supervised
    child = supervisor.start(spec("import sys; sys.stderr.write('--port: 1 is taken; give another\\n'); sys.exit(2)"))
    with pytest.raises(ConfigError, match="child: --port: 1 is taken; give another"):
        await supervisor.ready(child, timeout_s=PATIENCE_S)
    assert "restart" not in recorder.seen


async def test_a_child_that_must_not_be_restarted_ends_the_command(supervised):
    supervisor, _ = supervised
    child = supervisor.start(spec(WAIT_READY, restart=False))
    await supervisor.ready(child, timeout_s=PATIENCE_S)
    supervisor.kill("child")
    with pytest.raises(ConfigError, match="ended with -9"):
        await asyncio.wait_for(asyncio.shield(supervisor.failure), PATIENCE_S)


async def test_a_child_that_is_never_ready_is_named(supervised):
    supervisor, _ = supervised
    child = supervisor.start(spec("import signal; signal.pause()"))
    with pytest.raises(ConfigError, match=r"child: not ready after 0\.3 s"):
        await supervisor.ready(child, timeout_s=0.3)


async def test_stopped_children_stay_stopped(supervised):
    supervisor, recorder = supervised
    child = supervisor.start(spec(WAIT_READY))
    await supervisor.ready(child, timeout_s=PATIENCE_S)
    await supervisor.stop("child")
    assert child.exit_code == -signal.SIGTERM
    assert child.pid == 0
    assert "restart" not in recorder.seen
    assert not supervisor.kill("child")


async def test_a_child_that_ignores_sigterm_is_killed(supervised, monkeypatch):
    monkeypatch.setattr("services.cli.local.supervisor.STOP_S", 0.2)
    supervisor, _ = supervised
    child = supervisor.start(spec(STUBBORN))
    await supervisor.ready(child, timeout_s=PATIENCE_S)
    await supervisor.stop("child")
    assert child.exit_code == -signal.SIGKILL


PARENT = """
import asyncio, sys
from pathlib import Path
from services.cli.local.supervisor import ChildSpec, Supervisor
async def main():
    supervisor = Supervisor(Path(sys.argv[1]))
    child = supervisor.start(ChildSpec("child", "s", (sys.executable, "-c", sys.argv[2])))
    await supervisor.ready(child, timeout_s=600)
    print(child.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def test_children_die_with_a_parent_that_is_killed(tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), WAIT_READY], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        child = os.pidfd_open(pid)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    import select

    ready, _, _ = select.select([child], [], [], PATIENCE_S)
    os.close(child)
    assert ready, "the child outlived its parent"
