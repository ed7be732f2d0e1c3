"""Services as processes of their own, without the second of work that importing one takes.

Importing is most of what a mesh of tests costs. So one process imports every service, and forks at each start: the
child has its own arguments, environment, output and end, and runs ``python -m MODULE`` from there on, as
multiprocessing's fork server does it. That a service starts from nothing is for tests that run its command themselves.

The server answers one thing: which process it has forked, and later how that ended. It has no loop and no thread, or
its children would begin with half of them.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import importlib
import itertools
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MODULES = tuple(
    f"services.{name}" for name in ("coordinator", "binder", "agent", "single", "twin", "autoscaler", "jobs")
)
MOST_BYTES = 1 << 18
"""Of a message, an environment in it."""


class Forked:
    """A process, as far as a mesh needs what ``asyncio.subprocess.Process`` has."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, ended: asyncio.Future[int]) -> None:
        self.pid = pid
        self.stdout = stdout
        self._ended = ended

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: signal.Signals) -> None:
        if self._ended.done():
            raise ProcessLookupError(self.pid)
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The one of this test process. Its answers are read by a thread, since tests have a loop each."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        self._numbers = itertools.count()
        self._awaited: dict[tuple[str, int], asyncio.Future[int]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="fork server", daemon=True).start()
        atexit.register(self.close)

    def close(self) -> None:
        """End it, and with it whatever it has forked."""
        self._control.shutdown(socket.SHUT_RDWR)
        self._process.wait()

    async def start(self, module: str, arguments: Sequence[str], *, stderr: int, environ: dict[str, str]) -> Forked:
        """``python -m module arguments``."""
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        started = self._await("started", number)
        ours, theirs = os.pipe()
        asked = {"number": number, "module": module, "arguments": list(arguments), "environ": environ}
        try:
            socket.send_fds(self._control, [json.dumps(asked).encode()], [theirs, stderr])
        finally:
            os.close(theirs)
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb"))
        pid = await started
        return Forked(pid, reader, self._await("ended", pid))

    def _await(self, what: str, number: int) -> asyncio.Future[int]:
        with self._lock:
            return self._awaited.setdefault((what, number), asyncio.get_running_loop().create_future())

    def _read(self) -> None:
        while said := self._control.recv(MOST_BYTES):
            what, number, value = json.loads(said)
            with self._lock:
                future = self._awaited.pop((what, number))
                if what == "started":  # its end may be the next message
                    self._awaited["ended", value] = future.get_loop().create_future()
            future.get_loop().call_soon_threadsafe(_settle, future, value)


def _settle(future: asyncio.Future[int], value: int) -> None:
    if not future.done():
        future.set_result(value)


@functools.cache
def fork_server() -> ForkServer:
    """Started when somebody first needs it."""
    return ForkServer()


# --- the server's side --------------------------------------------------------------------------------------------


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork as asked, until the other side is gone: None. In each child: what it is asked to run."""
    import shared.runtime.process.lean  # noqa: F401

    for module in MODULES:
        importlib.import_module(f"{module}.__main__")
        del sys.modules[f"{module}.__main__"]  # what is run begins it anew, as ``__main__``
    children: set[int] = set()

    def reap(*_: object) -> None:
        while children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            children.discard(pid)
            control.send(json.dumps(["ended", pid, os.waitstatus_to_exitcode(status)]).encode())

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, reap)
    while True:
        text, files, _, _ = socket.recv_fds(control, MOST_BYTES, 2)
        if not text:
            break
        asked: dict[str, Any] = json.loads(text)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # its end is told after its start
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            control.close()
            for file, number in zip(files, (1, 2), strict=True):
                os.dup2(file, number)
                os.close(file)
            return asked
        children.add(pid)
        for file in files:
            os.close(file)
        control.send(json.dumps(["started", asked["number"], pid]).encode())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    return None


def run(asked: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(asked["environ"])
    sys.argv = [asked["module"], *asked["arguments"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    to_run = serve(socket.socket(fileno=int(sys.argv[1])))
    if to_run is not None:
        run(to_run)
