"""What nodes use by a Prometheus: one query per part; what fails or is no number leaves its part to others."""

from __future__ import annotations

import asyncio
import math

import pytest
from aiohttp import web

from services.coordinator.core.events import Event, NodesMeasured
from services.coordinator.settings import CoordinatorSettings
from services.coordinator.usage.prometheus import AMOUNT_AGE_S, QUERIES, RATE_AGE_S, UsageQueries, follow, samples_of
from shared.adapters.prometheus import PrometheusClient, Series
from shared.errors import ConfigError
from tests.fake_prometheus import FakePrometheus
from tests.patience import PATIENCE_S

ROWS = {
    "node_cpu_seconds_total": [({"node": "a"}, lambda _: 1.5), ({"node": "b:9100"}, lambda _: 0.25)],
    "node_memory": [({"node": "a"}, lambda _: 2.0**30), ({"node": "b:9100"}, lambda _: math.nan)],
    "node_disk": [({"node": "a"}, lambda _: 0.75), ({"other": "b"}, lambda _: 0.5)],
    "node_network": [({"node": "a"}, lambda _: -1.0)],
}


async def asked_once(served: FakePrometheus, asked: UsageQueries) -> tuple[Event, ...]:
    posted: list[Event] = []
    heard = asyncio.Event()

    def post(event: Event) -> None:
        posted.append(event)
        heard.set()

    async with served.serving(), PrometheusClient(served.url, token="secret") as client:
        task = asyncio.create_task(follow(client, asked, every_s=lambda: 3600.0, wanted=lambda: True, post=post))
        async with asyncio.timeout(PATIENCE_S):
            await heard.wait()
        task.cancel()
    return tuple(posted)


async def test_each_part_is_asked_by_its_query_and_told_with_its_age() -> None:
    served = FakePrometheus(ROWS)
    [event] = await asked_once(served, UsageQueries(QUERIES))
    assert isinstance(event, NodesMeasured)
    rates = {one.node: (one.cpu_millis, one.disk, one.network) for one in event.samples if one.age_s == RATE_AGE_S}
    amounts = {one.node: one.memory_bytes for one in event.samples if one.age_s == AMOUNT_AGE_S}
    assert rates == {"a": (1500, 0.75, None), "b": (250, None, None)}
    assert amounts == {"a": 2**30}
    assert set(served.asked) == set(QUERIES.values())
    assert set(served.tokens) == {"Bearer secret"}


async def test_a_part_with_an_empty_query_is_not_asked() -> None:
    served = FakePrometheus(ROWS)
    await asked_once(served, UsageQueries({"cpu": QUERIES["cpu"], "disk": ""}))
    assert served.asked == [QUERIES["cpu"]]


async def test_a_server_that_fails_is_one_line_and_costs_nothing_else() -> None:
    served = FakePrometheus({}, fail=web.Response(status=503, text="overloaded"))
    async with served.serving(), PrometheusClient(served.url) as client:
        with pytest.raises(ConfigError, match="HTTP 503"):
            await client.query("up")
    assert samples_of({}, "node") == ()


def test_values_that_are_no_amount_are_left_out() -> None:
    odd = [Series({"node": "n"}, ((0.0, value),)) for value in (math.nan, math.inf, -1.0, 1e306)]
    assert samples_of({"cpu": odd, "memory": odd, "disk": odd, "network": odd}, "node") == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prometheus": "prometheus:9090"}, "is no URL"),
        ({"prometheus_token_file": __file__}, "give its URL too"),
        ({"prometheus": "http://p:9090", "prometheus_token_file": "/nowhere"}, "is no file"),
    ],
)
def test_a_setting_that_cannot_be_is_named(given: dict[str, str], words: str) -> None:
    from pathlib import Path

    settings = {name: Path(value) if name.endswith("file") else value for name, value in given.items()}
    with pytest.raises(ValueError, match=words):
        CoordinatorSettings(**settings)  # type: ignore[arg-type]
