"""The process that ``conclave train`` starts: its exit code is passed on, Ctrl-C ends it, nothing survives."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from lab.cli.train.command import EXIT_INTERRUPTED, run_child
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.process

PARENT = """
import sys
from lab.cli.train.command import run_child
sys.exit(run_child([sys.executable, "-c", sys.argv[1]], stop_s=float(sys.argv[2])))
"""
OBEDIENT = """
import signal, sys
try:
    print("started", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("checkpoint", flush=True)
    sys.exit(0)
"""
STUBBORN = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("started", flush=True)
signal.pause()
"""


def started(code: str, stop_s: float, *, interrupts: signal.Handlers = signal.SIG_DFL) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, code, str(stop_s)], stdout=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, interrupts),  # noqa: PLW1509  one system call
    )  # fmt: skip
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
    assert ready
    assert process.stdout.readline() == "started\n"
    return process


def test_the_trainers_exit_code_is_passed_on():
    assert run_child([sys.executable, "-c", "raise SystemExit(7)"]) == 7


def test_a_trainer_that_was_killed_is_no_success():
    assert run_child([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) == 137


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_lets_the_trainer_write_its_checkpoint(number):
    process = started(OBEDIENT, 60)
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert out == "checkpoint\n"
    assert process.returncode == EXIT_INTERRUPTED


def test_a_background_job_that_ignores_interrupts_still_ends_its_trainer_well():
    process = started(OBEDIENT, 60, interrupts=signal.SIG_IGN)
    os.kill(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert out == "checkpoint\n"
    assert process.returncode == EXIT_INTERRUPTED


def test_a_trainer_that_does_not_end_is_killed():
    process = started(STUBBORN, 0.1)
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE_S)  # the pipe closes only when the trainer is gone too
    assert out == ""
    assert process.returncode == EXIT_INTERRUPTED
