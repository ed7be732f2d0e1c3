"""Signals come from a Prometheus over a real socket; what is missing later leaves the last good value."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from lab.rewards.polling import SignalPoller, signals_of
from shared.errors import ConfigError
from shared.policy.rewards.signals import RewardSignal

PRICE = RewardSignal("price", "avg(price)")


async def served(answers: list[object], read) -> None:
    """``answers``: values of the one series, one per query; a number of series as an int in a tuple."""

    async def answer(request: web.Request) -> web.Response:
        found = answers.pop(0)
        series = found if isinstance(found, tuple) else (found,)
        if found == "scalar":
            return web.json_response({"status": "success", "data": {"resultType": "scalar", "result": [1.0, "7"]}})
        result = [{"metric": {}, "value": [1.0, str(value)]} for value in series]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        await read(f"http://{host}:{port}")
    finally:
        await runner.cleanup()


def test_the_last_good_reading_stands_while_it_is_young() -> None:
    now = [0.0]

    async def read(url: str) -> None:
        poller = SignalPoller(url, [PRICE], clock=lambda: now[0])
        assert await poller.read() == []
        assert poller.values() == {"price": 31.5}
        assert "is nan; correct the query" in (await poller.read())[0]
        assert "2 series, one is wanted" in (await poller.read())[0]
        assert poller.values() == {"price": 31.5}
        now[0] = 3_601.0
        assert poller.values() == {}
        assert await poller.read() == []
        assert poller.values() == {"price": 7.0}

    asyncio.run(served([31.5, "NaN", (1, 2), "scalar"], read))


def test_a_signal_that_cannot_be_read_at_first_is_an_error_of_the_command() -> None:
    with pytest.raises(ConfigError, match=r"signal price: --prometheus: http://127\.0\.0\.1:9"):
        SignalPoller("http://127.0.0.1:9", [PRICE]).__enter__()


@pytest.mark.parametrize(
    ("given", "url", "words"),
    [
        (["price=x"], "", "--signal: nobody can be asked; give --prometheus URL"),
        ([], "http://127.0.0.1:9", "--prometheus: is asked for signals alone"),
        (["price=x"], "ftp://x", "is no URL"),
    ],
)
def test_flags_that_do_not_fit_are_refused(given, url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words), signals_of(given, url, None, taken=()):
        pass
