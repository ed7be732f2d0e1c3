"""A real kube-scheduler asks a policy of ours by the configuration of docs/extender.md, and places by it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from bench.extender import started
from tests.patience import PATIENCE_S
from tests.real.plane import Plane, PlaneSettings, missing

PAGE = Path(__file__).parents[2] / "docs" / "extender.md"
PODS = "/api/v1/namespaces/default/pods"


def documented(url: str) -> dict[str, Any]:
    """The page's entry of ``extenders``, for this address."""
    block = next(text for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "kind: Kube" in text)
    (entry,) = yaml.safe_load(block)["extenders"]
    return {**entry, "urlPrefix": url, "weight": 10, "httpTimeout": "30s"}  # the machine may be loaded


async def test_kube_scheduler_places_by_our_policy_and_goes_on_without_us(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    async with Plane(PlaneSettings(tmp_path, nodes=4, cpu="8", zones=0)) as plane:
        extender, url = await started(plane.kubeconfig, tmp_path, "most-allocated")
        config = tmp_path / "scheduler.yaml"
        config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "extenders": [documented(url)]}))
        await plane.start("kube-scheduler")
        found = [await _placed(plane, f"packed-{number}") for number in range(4)]
        assert len(set(found)) == 1, found  # kube-scheduler alone spreads them
        async with aiohttp.ClientSession() as session, session.get(f"{url}/status") as answer:
            status = await answer.json()
        assert (status["asked"], status["fell"], status["unknown_nodes"]) == (4, 0, 0)
        extender.kill()
        await extender.wait()
        assert await _placed(plane, "alone")


async def _placed(plane: Plane, name: str) -> str:
    """The node of a new pod, once our watch of pods may know of it."""
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
    }
    async with asyncio.timeout(PATIENCE_S):
        while True:
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            async with plane.session.post(PODS, json=body) as answer:
                if answer.status == 201:
                    break
                await asyncio.sleep(0.1)  # nobody has made the ServiceAccount yet
        while True:
            async with plane.session.get(f"{PODS}/{name}") as answer:
                if node := (await answer.json())["spec"].get("nodeName"):
                    return str(node)
            await asyncio.sleep(0.1)
