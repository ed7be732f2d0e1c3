"""Profile `monitoring` with a Prometheus that runs: it scrapes every service, every query has an answer, alerts fire.

The official images cannot always be pulled: Debian's Prometheus in our base stands in for the official one, with its
user, paths and health check. Grafana is not started; its files are checked in ``tests/manifests/test_monitoring.py``.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from tests.e2e.engine import BASE, ROOT, TAG, build_images, call, composes, missing
from tests.e2e.stack import Stack

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMETHEUS = shutil.which("prometheus")
IMAGE = f"conclave-e2e-prometheus:{TAG}"
DOCKERFILE = f"""
FROM {BASE}
COPY prometheus /bin/prometheus
COPY wget /bin/wget
RUN mkdir /prometheus && chown 65534:65534 /prometheus
USER 65534:65534
ENTRYPOINT ["/bin/prometheus"]
"""
WGET = """#!/usr/bin/python3
import sys, urllib.request
urllib.request.urlopen(sys.argv[-1], timeout=2).read()
"""
OURS = ("etcd", "twin", "coordinator-1", "coordinator-2", "binder-1", "binder-2", *(f"agent-{n}" for n in range(1, 5)))
DASHBOARDS = sorted((ROOT / "k8s/components/monitoring/dashboards").glob("*.json"))
ALERTS = yaml.safe_load((ROOT / "compose/monitoring/alerts.yaml").read_text())["groups"]
SCRAPED_S = 90.0
"""Until a few scrapes of 5 s have been made and rates have two points: a bound for a loaded machine."""


async def build_prometheus(folder: Path) -> None:
    """The stand-in for the official image."""
    assert PROMETHEUS is not None
    await asyncio.to_thread(shutil.copyfile, PROMETHEUS, folder / "prometheus")
    for name, text, mode in (("wget", WGET, 0o755), ("Dockerfile", DOCKERFILE, 0o644)):
        (folder / name).write_text(text)
        (folder / name).chmod(mode)
    (folder / "prometheus").chmod(0o755)
    await call("docker", "build", "--quiet", "--tag", IMAGE, str(folder), timeout_s=600)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    if missing():
        pytest.skip(missing())
    if PROMETHEUS is None:
        pytest.skip("prometheus is not on PATH (make test-e2e installs it)")
    await build_images()
    await build_prometheus(tmp_path_factory.mktemp("prometheus"))
    start, environ = (*OURS, "prometheus"), {"PROMETHEUS_IMAGE": IMAGE}
    async with Stack(composes()[0], profiles=("monitoring",), start=start, environ=environ) as stack:
        await stack.healthy(*start)
        yield stack


async def ask(stack: Stack, route: str, **query: str) -> Any:
    """An answer of Prometheus. ``AssertionError``: it refused."""
    url = f"http://127.0.0.1:{stack.port('PROMETHEUS_PORT')}/api/v1/{route}"
    async with aiohttp.ClientSession() as session, session.get(url, params=query) as response:
        answer = await response.json()
        assert answer["status"] == "success", (query, answer)
        return answer["data"]


async def until(asked: Callable[[], Any], *, what: str, within_s: float = SCRAPED_S) -> None:
    """Until an answer is true: Prometheus tells nobody when it has scraped, so it is asked again."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                if await asked():
                    return
                await asyncio.sleep(1)
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {what}") from None


async def unhealthy(stack: Stack) -> list[str]:
    """Targets that Prometheus has not scraped, and why."""
    targets = (await ask(stack, "targets"))["activeTargets"]
    found = [f"{one['scrapeUrl']}: {one['lastError']}" for one in targets if one["health"] != "up"]
    return found if targets else ["no target"]


async def alert_states(stack: Stack) -> dict[str, str]:
    """Alert to its state: inactive, pending or firing."""
    groups = (await ask(stack, "rules"))["groups"]
    return {rule["name"]: rule["state"] for group in groups for rule in group["rules"]}


async def test_every_service_is_scraped_with_the_token_made_for_it(stack: Stack) -> None:
    async def all_up() -> bool:
        return await unhealthy(stack) == []

    await until(all_up, what=f"every target is up, but {await unhealthy(stack)}")
    jobs = {one["labels"]["job"] for one in (await ask(stack, "targets"))["activeTargets"]}
    assert jobs == {"conclave-coordinator", "conclave-binder", "conclave-agent", "conclave-etcd"}


async def test_every_query_of_the_dashboards_has_an_answer(stack: Stack) -> None:
    async with stack.joined() as cluster:
        await cluster.add_node("n0")
        pods = await cluster.add_pods(f"p{number}" for number in range(20))
        await cluster.until(lambda c: c.bound(*pods), within_s=60, what="pods are bound")
        await cluster.add_pod("too-big", cpu="1000")  # some figures are of pods that find no node
    panels = [panel for path in DASHBOARDS for panel in json.loads(path.read_text())["panels"]]
    queries = {target["expr"]: panel["title"] for panel in panels for target in panel["targets"]}
    empty = dict(queries)

    async def all_answered() -> bool:
        for query in list(empty):
            if (await ask(stack, "query", query=query.replace("$__rate_interval", "1m")))["result"]:
                del empty[query]
        return not empty

    try:
        await until(all_answered, what="every query has data")
    except AssertionError as error:
        raise AssertionError(f"{error}; none for {empty}") from None
    async with stack.joined() as cluster:
        await cluster.delete_pod("too-big")
    assert (await ask(stack, "query", query="conclave_nothing_shows_this"))["result"] == []


async def test_prometheus_takes_every_alert_and_none_is_raised_by_a_mesh_that_is_well(stack: Stack) -> None:
    async def evaluated() -> bool:
        groups = (await ask(stack, "rules"))["groups"]
        return all(rule["health"] == "ok" for group in groups for rule in group["rules"])

    await until(evaluated, what="every rule was evaluated without an error")
    states = await alert_states(stack)
    assert states.keys() == {rule["alert"] for group in ALERTS for rule in group["rules"]}
    assert {name for name, state in states.items() if state == "firing"} == set()


async def test_the_alert_of_a_mesh_without_leader_fires(stack: Stack) -> None:
    for name in ("coordinator-1", "coordinator-2"):
        await call("docker", "kill", stack.containers[name].id)

    async def fires() -> bool:
        return (await alert_states(stack))["ConclaveNoLeader"] == "firing"

    await until(fires, what="ConclaveNoLeader fires", within_s=SCRAPED_S + 60)
