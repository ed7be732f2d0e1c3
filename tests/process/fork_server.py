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
import gc
import importlib
import itertools
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

SERVICES = (
    *(
        f"services.{name}"
        for name in ("coordinator", "binder", "agent", "single", "autoscaler", "jobs", "rebalancer", "controllers")
    ),
    "twin",
)
CLI = "services.cli"
ROOT = Path(__file__).parents[2]
MOST_BYTES = 1 << 18
"""Of a message, an environment in it."""


class Forked:
    """A process, as far as a mesh needs what ``asyncio.subprocess.Process`` has."""

    def __init__(
        self, pid: int, stdout: asyncio.StreamReader, ended: Future[int], transport: asyncio.BaseTransport
    ) -> None:
        self.pid = pid
        self.stdout = stdout
        self._ended = ended
        self._transport = transport

    def close(self) -> None:
        """Read what it says no more; without it a loop may end with the pipe open."""
        self._transport.close()

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(asyncio.wrap_future(self._ended))

    def send_signal(self, number: signal.Signals) -> None:
        if self._ended.done():
            raise ProcessLookupError(self.pid)
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The one of this test process. Its answers are read by a thread: tests have a loop each, or none."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            environ = {**os.environ, "PYTHONPATH": str(ROOT)}
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        self._numbers = itertools.count()
        self._started: dict[int, Future[tuple[int, Future[int]]]] = {}
        self._ended: dict[int, Future[int]] = {}
        threading.Thread(target=self._read, name="fork server", daemon=True).start()
        atexit.register(self.close)

    def close(self) -> None:
        """End it, and with it whatever it has forked."""
        self._control.shutdown(socket.SHUT_RDWR)
        self._process.wait()

    async def start(self, module: str, arguments: Sequence[str], *, stderr: int, environ: dict[str, str]) -> Forked:
        """``python -m module arguments``, a service."""
        ours, theirs = os.pipe()
        try:
            started = self._ask(module, arguments, (theirs, stderr), environ)
        finally:
            os.close(theirs)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb")
        )
        try:
            pid, ended = await asyncio.shield(asyncio.wrap_future(started))
        except BaseException:
            transport.close()
            raise
        return Forked(pid, reader, ended, transport)

    def run(
        self, module: str, arguments: Sequence[str], *, environ: dict[str, str], cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """``python -m module arguments``, to its end."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            _, ended = self._ask(module, arguments, (out.fileno(), err.fileno()), environ, cwd).result(PATIENCE_S)
            code = ended.result(PATIENCE_S)
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess([module, *arguments], code, out.read().decode(), err.read().decode())

    def _ask(
        self, module: str, arguments: Sequence[str], files: tuple[int, int], environ: dict[str, str],
        cwd: Path | None = None,
    ) -> Future[tuple[int, Future[int]]]:  # fmt: skip
        """(process id, its end). ``files``: what it says, and what it complains of."""
        number = next(self._numbers)
        asked = {
            "number": number, "module": module, "arguments": list(arguments), "environ": environ,
            "cwd": str(cwd or ROOT),
        }  # fmt: skip
        started: Future[tuple[int, Future[int]]] = Future()
        self._started[number] = started
        socket.send_fds(self._control, [json.dumps(asked).encode()], files)
        return started

    def _read(self) -> None:
        while said := self._received():
            what, number, value = json.loads(said)
            if what == "started":
                self._ended[value] = Future()
                self._started.pop(number).set_result((value, self._ended[value]))
            else:
                self._ended.pop(number).set_result(value)
        pending: tuple[Future[Any], ...] = (*self._started.values(), *self._ended.values())
        for future in pending:
            future.set_exception(RuntimeError("the fork server has ended; its error output says why"))

    def _received(self) -> bytes:
        try:
            return self._control.recv(MOST_BYTES)
        except ConnectionResetError:  # it ended with something unread
            return b""


@functools.cache
def fork_server() -> ForkServer:
    """Started when somebody first needs it."""
    return ForkServer()


# --- the server's side --------------------------------------------------------------------------------------------


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork as asked, until the other side is gone: None. In each child: what it is asked to run."""
    import shared.runtime.process.lean  # noqa: F401

    for module in SERVICES:
        importlib.import_module(f"{module}.__main__")
        del sys.modules[f"{module}.__main__"]  # what is run begins it anew, as ``__main__``
    for command in pkgutil.walk_packages(importlib.import_module(CLI).__path__, f"{CLI}."):
        importlib.import_module(command.name)  # the command line itself imports only what it is asked for
    sys.modules.pop(f"{CLI}.__main__")
    gc.collect()
    gc.freeze()  # else each child walks, and so copies, all of it when it ends
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
    os.chdir(asked["cwd"])
    sys.argv = [asked["module"], *asked["arguments"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    to_run = serve(socket.socket(fileno=int(sys.argv[1])))
    if to_run is not None:
        run(to_run)
