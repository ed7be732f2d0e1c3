"""What is forked is a process like one that was started: its own arguments, environment, output and end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.process.fork_server import Forked, ForkServer, fork_server

pytestmark = pytest.mark.process

TWIN = ["--token", "a-token-for-this-test"]


async def started(server: ForkServer, stderr: Path, module: str, *arguments: str, **environ: str) -> Forked:
    with stderr.open("wb") as told:
        return await server.start(module, arguments, stderr=told.fileno(), environ={**os.environ, **environ})


async def serving(process: Forked) -> None:
    async with asyncio.timeout(PATIENCE_S):
        assert (await process.stdout.readline()).startswith(b"serving http://127.0.0.1:")


async def test_wrong_arguments_and_a_wrong_environment_end_it_with_code_2_and_one_line(tmp_path: Path) -> None:
    for arguments, environ, expected in (
        (["--polcy", "x"], {}, "did you mean --policy"),
        ([], {"KUBECONFIG": "/no/such"}, "/no/such: kubeconfig does not exist"),
    ):
        process = await started(fork_server(), tmp_path / "told", "services.coordinator", *arguments, **environ)
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == process.returncode == 2
        (line,) = (tmp_path / "told").read_text().splitlines()
        assert expected in line
        assert await process.stdout.read() == b""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
async def test_it_ends_as_it_was_told_and_is_then_nobody(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = await started(fork_server(), tmp_path / "told", "twin", *TWIN)
    await serving(process)
    assert process.returncode is None
    process.send_signal(number)
    async with asyncio.timeout(PATIENCE_S):
        assert await process.wait() == code
    assert await process.stdout.read() == b""
    with pytest.raises(ProcessLookupError):
        process.kill()


async def test_all_of_them_go_with_their_server(tmp_path: Path) -> None:
    server = ForkServer()
    processes = [await started(server, tmp_path / "told", "twin", *TWIN) for _ in range(2)]
    for process in processes:
        await serving(process)
    await asyncio.to_thread(server.close)
    for process in processes:
        async with asyncio.timeout(PATIENCE_S):
            assert await process.stdout.read() == b"", "its output ends with it"
