"""Reaches a mesh inside a cluster through ``kubectl``: a port-forward for as long as one command runs, and the token.

kubectl does what it is good at (kubeconfigs, login plugins, the connection); this file starts it, reads one line, and
ends it. The token comes from a Secret that the mesh's installer made, and stays in memory. No forward is left
open when the command is over.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from services.cli.server.errors import ServerFailed
from services.cli.server.target import ThroughKubectl
from shared.errors import ConfigError
from shared.runtime.process.linux import die_with_parent

SERVICE, PORT = "conclave-admin", 8701
FORWARDED = f"http://127.0.0.1:{PORT}"
"""The dashboard behind a port-forward of one's own, as the alerts name it too."""
TOKEN_SECRET = "conclave-admin-token"  # noqa: S105  the name of a Secret
KEYS = ("admin", "operator", "viewer", "tokens")
"""Keys of the Secret, the mightiest first: whoever may read the Secret at all may read all of it."""
START_S = 15.0
STOP_S = 2.0
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d{1,5}) ")
TOLD_CHARS = 300


def kubectl_argv(target: ThroughKubectl, *arguments: str) -> list[str]:
    """The command line of kubectl for ``target``. ``ConfigError``: there is no kubectl."""
    binary = shutil.which("kubectl")
    if binary is None:
        raise ConfigError(f"{target.source}: needs kubectl, which is not on the PATH; install it, or use --server")
    context = ["--context", target.context] if target.context else []
    return [binary, *context, "-n", target.namespace, *arguments]


@asynccontextmanager
async def forwarded(target: ThroughKubectl, *, start_s: float = START_S) -> AsyncIterator[int]:
    """The local port that leads to the mesh while the block runs.

    ``ConfigError``: kubectl refuses. ``ServerFailed``: it says nothing within ``start_s`` seconds.
    """
    argv = kubectl_argv(target, "port-forward", "--address", "127.0.0.1", f"service/{SERVICE}", f":{PORT}")
    process = await _start(argv)
    assert process.stdout is not None
    try:
        port = 0
        try:
            async with asyncio.timeout(start_s):
                async for line in process.stdout:
                    found = _FORWARDING.match(line.decode(errors="replace"))
                    if found:
                        port = int(found[1])
                        break
        except TimeoutError:
            raise ServerFailed(
                f"{target.source}: kubectl port-forward has not begun after {start_s:g} s; is the cluster there?"
            ) from None
        if not port:
            told = await _told(process)
            # it ends by itself: signalled now, it would be reaped behind asyncio's back, which warns about that
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            raise ConfigError(_refusal(target, "port-forward", told))
        # kubectl prints a line for each connection and an error for each that breaks: nobody would read a full pipe
        drains = [asyncio.create_task(_drain(pipe)) for pipe in (process.stdout, process.stderr)]
        try:
            yield port
        finally:
            for drain in drains:
                drain.cancel()
            await asyncio.gather(*drains, return_exceptions=True)
    finally:
        await _end(process)


async def read_token(target: ThroughKubectl, *, timeout_s: float = START_S) -> str:
    """The token in the mesh's Secret. ``ConfigError``: we may not read it, or it is not there."""
    fields = "{'\\n'}".join(f"{{.data.{key}}}" for key in KEYS)
    argv = kubectl_argv(target, "get", "secret", TOKEN_SECRET, "-o", f"jsonpath={fields}")
    process = await _start(argv)
    try:
        async with asyncio.timeout(timeout_s):
            out, error = await process.communicate()
    except TimeoutError:
        raise ServerFailed(f"{target.source}: kubectl get secret does not end after {timeout_s:g} s") from None
    finally:
        await _end(process)
    if process.returncode != 0:
        raise ConfigError(_refusal(target, f"get secret {TOKEN_SECRET}", error.decode(errors="replace")))
    return token_of(out.decode(errors="replace"), target)


def token_of(answer: str, target: ThroughKubectl) -> str:
    """The first token in kubectl's answer, one base64 text per line. ``ConfigError``: there is none."""
    for line in answer.splitlines():
        with contextlib.suppress(binascii.Error, UnicodeDecodeError):
            token = base64.b64decode(line.strip(), validate=True).decode("ascii").strip()
            if token:
                return token.split()[0]
    raise ConfigError(
        f"{target.source}: the Secret {target.namespace}/{TOKEN_SECRET} holds no token; give one with --token-file"
    )


async def _start(argv: Sequence[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ,
        # Ctrl-C ends the command, and that ends kubectl: with it in our group it would complain first.
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


async def _told(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    return (await process.stderr.read(65536)).decode(errors="replace")


async def _drain(pipe: asyncio.StreamReader | None) -> None:
    while pipe is not None and await pipe.read(65536):
        pass


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _refusal(target: ThroughKubectl, what: str, told: str) -> str:
    """kubectl's own words in one line, with what to do."""
    said = " ".join(told.split())[:TOLD_CHARS] or "it says nothing"
    remedy = "see 'kubectl config get-contexts'"
    if "context" in said and "does not exist" in said:
        remedy = "choose one of 'kubectl config get-contexts'"
    elif "not found" in said or "NotFound" in said:
        remedy = (
            f"Conclave is not installed in namespace {target.namespace} of this cluster: name another with "
            "--mesh-namespace, install it (docs/operations/kubernetes.md), or reach a mesh that runs elsewhere, as "
            "that of 'conclave up', with --server URL"
        )
    elif "forbidden" in said.lower():
        remedy = "ask for the right, or give --server and --token-file"
    elif "refused" in said or "no such host" in said or "timeout" in said.lower():
        remedy = "is the cluster there?"
    return f"{target.source}: kubectl {what} fails: {said}; {remedy}"
