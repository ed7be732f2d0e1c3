"""The life of a real process: signals, drains, exit codes, one line of error, limits, memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from shared.runtime.process.service import EXIT_CONFIG, EXIT_FAILED, EXIT_LEADERSHIP, EXIT_OK
from tests.patience import PATIENCE_S
from tests.ports import free_port

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]

PROLOGUE = """
import asyncio, os, signal, sys, time
from shared.errors import ConfigError, LeadershipLost, StoreFenced
from shared.runtime.observe import logging
from shared.runtime.process.service import Service, run_service
logging.configure("test", json=True)
def say(word): print(word, flush=True)
"""


def start(code: str, **run: object) -> subprocess.Popen[str]:
    """A process that runs ``main`` of ``code`` as a service."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in run.items())
    call = f"\nraise SystemExit(run_service(main, name='test', {arguments}))\n"
    return subprocess.Popen(
        [sys.executable, "-c", PROLOGUE + textwrap.dedent(code) + call],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, list[dict[str, object]]]:
    """Exit code, stdout, log lines."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, [msgspec.json.decode(line) for line in err.splitlines()]


def await_line(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == word


SERVING = """
async def main(service):
    async def eternal():
        await service.stopping.wait()
        say("eternal drained")
    service.spawn("eternal", eternal())
    service.mark_ready()
    say("ready")
    await service.stopping.wait()
    say("drained")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_exits_0(number: signal.Signals):
    process = start(SERVING)
    await_line(process, "ready")
    process.send_signal(number)
    code, out, log = finish(process)
    assert (code, sorted(out.split("\n"))) == (EXIT_OK, ["", "drained", "eternal drained"])
    assert [line["event"] for line in log] == ["service_ready", "service_stopping"]


def test_a_drain_that_takes_too_long_is_cut_short():
    process = start("async def main(service):\n    say('ready')\n    await asyncio.Event().wait()", drain_s=0.2)
    await_line(process, "ready")
    process.send_signal(signal.SIGTERM)
    code, _, log = finish(process)
    assert (code, log[-1]["event"]) == (EXIT_OK, "drain_cut_short")


def test_a_second_signal_ends_the_drain_at_once():
    code = """
    async def main(service):
        say("ready")
        await service.stopping.wait()
        say("draining")
        await asyncio.Event().wait()
    """
    process = start(code, drain_s=60)
    await_line(process, "ready")
    process.send_signal(signal.SIGTERM)
    await_line(process, "draining")
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == EXIT_OK


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("LeadershipLost('lease ended')", EXIT_LEADERSHIP),
        ("StoreFenced('term 5 leads')", EXIT_LEADERSHIP),
        ("RuntimeError('boom')", EXIT_FAILED),
    ],
)
def test_an_error_of_a_task_ends_the_service_with_its_code_and_one_line(error: str, expected: int):
    code = f"""
    async def main(service):
        async def failing():
            raise {error}
        service.spawn("failing", failing())
        await asyncio.Event().wait()
    """
    returned, _, log = finish(start(code))
    assert returned == expected
    assert [line["level"] for line in log] == ["critical"]


def test_a_config_error_is_one_plain_line_and_exit_2():
    process = start("async def main(service):\n    raise ConfigError('kubeconfig: no such file')")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (EXIT_CONFIG, "conclave: kubeconfig: no such file\n")


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("async def main(service):\n    pass", id="main"),
        pytest.param(
            "async def main(service):\n    service.spawn('watch', asyncio.sleep(0))\n    await asyncio.Event().wait()",
            id="eternal-task",
        ),
    ],
)
def test_ending_silently_is_an_error(code: str):
    returned, _, log = finish(start(code))
    assert (returned, log[-1]["event"]) == (EXIT_FAILED, "service_failed")
    assert "ended by itself" in str(log[-1]["error"])


def test_without_the_guard_a_watch_that_ended_leaves_a_service_that_looks_healthy():
    """Ablation of the test above: ``start`` does not guard."""
    code = """
    async def main(service):
        await service.start("watch", asyncio.sleep(0))
        say("still here")
        await service.stopping.wait()
    """
    process = start(code)
    await_line(process, "still here")
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == EXIT_OK


def test_a_hung_loop_is_seen_from_another_thread():
    code = """
    async def main(service):
        import threading
        seen = []
        thread = threading.Thread(target=lambda: (time.sleep(0.8), seen.append(service.heartbeat.age_s())))
        thread.start()
        thread.join()  # blocks the loop
        say(seen[0] > 0.7)
        while service.heartbeat.age_s() > 0.5:
            await asyncio.sleep(0.05)
        say(service.heartbeat.worst_lag_s > 0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        await service.stopping.wait()
    """
    _, out, log = finish(start(code))
    assert out.split() == ["True", "True"]
    assert "loop_blocked" in [line["event"] for line in log]


def test_a_service_follows_its_parent_into_the_grave():
    child = PROLOGUE + textwrap.dedent(SERVING) + "\nrun_service(main, name='test', follow_parent=True)\n"
    code = f"""
import subprocess, sys
process = subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE, text=True)
process.stdout.readline()
print(process.pid, flush=True)
"""
    parent = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    pid = int(parent.stdout)
    descriptor = os.pidfd_open(pid)
    try:
        import select

        assert select.select([descriptor], [], [], PATIENCE_S)[0], f"process {pid} outlived its parent"
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(descriptor)


def test_a_bare_service_stays_within_50_mb_and_idles():
    code = """
    import shared.adapters.peers.client, shared.runtime.http.peers, shared.runtime.process.settings
    from shared.adapters.peers.client import PeerClient
    import psutil
    from shared.runtime.http.listener import listen
    from shared.runtime.http.peers import build_app
    from shared.runtime.observe.metrics import Metrics

    async def main(service):
        listener = await listen(build_app(Metrics("test")))
        client = PeerClient()
        service.mark_ready()
        before = time.process_time()
        await asyncio.sleep(2)  # what it costs to do nothing shows over time only
        say(psutil.Process().memory_info().rss)
        say(time.process_time() - before)
        say(sorted({"grpc", "numpy", "kubernetes", "yaml", "torch"} & set(sys.modules)))
        os.kill(os.getpid(), signal.SIGTERM)
        await service.stopping.wait()
        await client.close()
        await listener.close()
    """
    rss, cpu_s, heavy = finish(start(code))[1].splitlines()
    assert int(rss) <= 50_000_000
    assert float(cpu_s) <= 0.4, "a busy loop"  # one has more on any machine, and idling a tenth
    assert heavy == "[]"


def test_a_service_says_that_it_lives_while_its_loop_is_busy():
    port = free_port()
    code = """
    async def main(service):
        import threading, urllib.request
        seen = []
        def ask():
            with urllib.request.urlopen("http://127.0.0.1:PORT/livez", timeout=60) as answer:
                seen.append(answer.status)
        while service.heartbeat.worst_lag_s == 0.0:
            await asyncio.sleep(0.05)
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()  # the loop stands still meanwhile: it cannot be what answers
        say(seen)
        os.kill(os.getpid(), signal.SIGTERM)
        await service.stopping.wait()
    """
    process = start(code.replace("PORT", str(port)), live_listen=f"127.0.0.1:{port}")
    code, out, _ = finish(process)
    assert (code, out.strip()) == (EXIT_OK, "[200]")
