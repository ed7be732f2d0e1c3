"""The Docker engine of this machine: whether there is one, its command line, and our images on it.

It refuses to start an engine (``run.sh`` does that), to pull anything, and to touch what it did not name itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
IMAGES = (
    "agent",
    "coordinator",
    "binder",
    "sensor",
    "autoscaler",
    "jobs",
    "rebalancer",
    "twin",
    "cli",
    "etcd",
    "learner",
)
BASE = os.environ.get("BASE", "conclave-base:bookworm")
TAG = os.environ.get("E2E_TAG", "e2e")
"""With E2E_TAG: that of images which are there, and none are built."""
BUILD_S = 1800.0
_built: set[str] = set()
"""By this process: once is enough, each build sends its whole context to the engine."""


@cache
def missing() -> str:
    """Why no engine can be asked, in one line; "" when one answers."""
    if shutil.which("docker") is None:
        return "no Docker engine: docker is not installed (make test-e2e installs it)"
    done = subprocess.run(
        ["docker", "info", "--format", "{{.ServerVersion}}"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        return f"no Docker engine: {said[-1] if said else 'docker info fails'} (make test-e2e starts one)"
    return ""


@cache
def composes() -> list[tuple[str, ...]]:
    """The docker composes that run here: 1.29 as ``docker-compose``, 2 as ``docker compose``."""
    found = []
    for words in (("docker-compose",), ("docker", "compose")):
        if shutil.which(words[0]) is None:
            continue
        if subprocess.run([*words, "version"], capture_output=True, check=False).returncode == 0:
            found.append(words)
    return found


async def call(*words: str, timeout_s: float = 120.0, environ: dict[str, str] | None = None) -> str:
    """Standard output of a command. ``AssertionError``: it failed; with the end of what it said."""
    process = await asyncio.create_subprocess_exec(
        *words, cwd=ROOT, env={**os.environ, **(environ or {})}, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, f"{' '.join(words)}: exit code {process.returncode}\n{(out + err).decode()[-3000:]}"
    return out.decode()


async def inspect(kind: str, name: str) -> dict[str, Any]:
    """What the engine knows of a container, image, network or volume."""
    answer: list[dict[str, Any]] = json.loads(await call("docker", kind, "inspect", name))
    return answer[0]


async def build_images() -> None:
    """Every image of the Dockerfile, from the wheels of ``make wheels``; the base is made when it is not there."""
    if "E2E_TAG" in os.environ or _built == set(IMAGES):
        return
    for folder in ("dist/wheels", "dist/conclave", "dist/torch"):
        assert list((ROOT / folder).glob("*.whl")), f"{folder} is empty: make wheels"
    if "BASE" not in os.environ:
        await call("images/make-base.sh", BASE, timeout_s=BUILD_S)
    for image in IMAGES:
        named = ("--target", image, "--build-arg", f"BASE={BASE}", "--tag", f"conclave-{image}:{TAG}")
        await call("docker", "build", "--quiet", *named, ".", timeout_s=BUILD_S)
        _built.add(image)
