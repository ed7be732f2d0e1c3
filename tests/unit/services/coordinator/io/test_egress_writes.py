"""The NetworkPolicy of sensors follows targets: written when it changes, tried rarely where it may not be."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Collection

import pytest
from structlog.testing import CapturingLogger

from services.coordinator.io import egress_writes
from services.coordinator.io.egress_writes import (
    AGAIN_S,
    AT_ONCE,
    FIRST_S,
    KEPT_S,
    REFUSED_S,
    RESOLVE_S,
    Addresses,
    Resolve,
    keep,
    resolved,
)
from shared.errors import KubeRejected, KubeUnknown
from shared.kube.nodes.latency_targets import LatencyTarget
from tests.patience import PATIENCE_S
from tests.unit.services.coordinator.io.test_target_writes import Api

SHOP = LatencyTarget("shop", "shop.example", 443)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    """What is logged."""
    logger = CapturingLogger()
    monkeypatch.setattr(egress_writes, "log", logger)
    return logger


def events(logger: CapturingLogger) -> list[str]:
    return [call.args[0] for call in logger.calls]


async def at_once(host: str) -> Collection[str]:
    return {"192.0.2.1"}


async def kept(
    api: Api,
    *,
    until_s: float,
    targets: dict[float, list[LatencyTarget] | None],
    step_s: float = 10.0,
    resolve: Resolve = at_once,
    now: list[float] | None = None,
) -> None:
    """Play so many seconds; ``targets``: all there are from then on; ``now``: shows the time that is played."""
    now, enough = now if now is not None else [0.0], asyncio.Event()

    def named() -> list[LatencyTarget] | None:
        now[0] += step_s
        if now[0] >= until_s:
            enough.set()
        return next(found for at, found in sorted(targets.items(), reverse=True) if now[0] >= at)

    task = asyncio.create_task(
        keep(
            api, ("conclave-system", "sensor-targets"), named, lambda *_: None, clock=lambda: now[0], resolve=resolve,
            every_s=0.0,
        )  # type: ignore[arg-type]
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        await enough.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def egress(api: Api) -> list[int]:
    """How many rules each write had."""
    return [len(call["patch"]["spec"]["egress"]) for call in api.patches]


async def test_it_is_written_when_targets_come_and_go_and_says_nothing_but_the_ways_out() -> None:
    api = Api()
    await kept(api, until_s=200, targets={0.0: [], 50.0: [SHOP], 100.0: []})
    assert egress(api) == [0, 1, 0]
    call = api.patches[1]
    assert (call["namespace"], call["name"], call["strategy"]) == ("conclave-system", "sensor-targets", "merge")
    assert call["patch"].keys() == {"spec"}
    assert call["patch"]["spec"].keys() == {"egress"}


async def test_a_new_leader_closes_no_way_before_it_knows_all_targets() -> None:
    api = Api()
    await kept(api, until_s=400, targets={0.0: None, 300.0: [SHOP]})
    assert egress(api) == [1]


async def test_a_new_leader_waits_for_names_that_nobody_has_answered_for() -> None:
    api, now = Api(), [0.0]

    async def resolve(host: str) -> Collection[str] | None:
        return {"192.0.2.1"} if host == "there.example" or now[0] >= FIRST_S / 2 else None

    both = [SHOP, LatencyTarget("there", "there.example", 443)]
    await kept(api, until_s=2 * FIRST_S, targets={0.0: both}, resolve=resolve, now=now)
    assert egress(api) == [2], "not one of them first, which would close the other"


async def test_it_waits_no_longer_than_a_bound_and_says_nothing_false_of_the_name(told: CapturingLogger) -> None:
    api = Api()

    async def resolve(host: str) -> Collection[str] | None:
        return {"192.0.2.1"} if host == "there.example" else None

    both = [SHOP, LatencyTarget("there", "there.example", 443)]
    await kept(api, until_s=2 * FIRST_S, targets={0.0: both}, resolve=resolve)
    assert egress(api) == [1]
    assert events(told) == ["target_egress_written"]


async def test_without_the_wait_a_takeover_would_close_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The safeguard switched off."""
    monkeypatch.setattr(egress_writes, "FIRST_S", 0.0)
    api, now = Api(), [0.0]

    async def resolve(host: str) -> Collection[str] | None:
        return {"192.0.2.1"} if now[0] >= FIRST_S / 2 else None

    await kept(api, until_s=2 * FIRST_S, targets={0.0: [SHOP]}, resolve=resolve, now=now)
    assert egress(api) == [0, 1]


async def test_it_is_written_again_after_a_while_since_somebody_may_have_put_it_back() -> None:
    api = Api()
    await kept(api, until_s=2 * AGAIN_S + 50, targets={0.0: [SHOP]})
    assert egress(api) == [1, 1, 1]


@pytest.mark.parametrize("status", [403, 404])
async def test_where_there_is_none_or_no_right_it_is_tried_rarely(status: int) -> None:
    api = Api(*[KubeRejected("no", status=status)] * 9)
    await kept(api, until_s=2 * REFUSED_S + 50, targets={0.0: [SHOP]})
    assert len(api.patches) == 3


@pytest.mark.parametrize("status", [400, 422])
async def test_any_other_refusal_is_told_once_too(status: int, told: CapturingLogger) -> None:
    """An admission webhook's, say: no way is opened for anybody meanwhile."""
    api = Api(*[KubeRejected("spec.egress[0]: no", status=status)] * 3, None)
    await kept(api, until_s=100, targets={0.0: [SHOP]})
    assert events(told) == ["target_egress_refused", "target_egress_written"]
    assert egress(api) == [1, 1, 1, 1]


async def test_what_failed_is_written_at_the_next_look() -> None:
    api = Api(KubeUnknown("silent"), None)
    await kept(api, until_s=100, targets={0.0: [SHOP]})
    assert egress(api) == [1, 1]


async def test_an_address_stays_open_for_a_while_after_its_name_has_left_it() -> None:
    now, answers = [0.0], [{"192.0.2.1"}, {"192.0.2.2"}]
    asked: list[float] = []

    async def resolve(host: str) -> Collection[str]:
        asked.append(now[0])
        return answers[min(len(asked), len(answers)) - 1]

    one = Addresses(resolve, lambda: now[0])
    found: dict[float, set[str]] = {}
    while now[0] <= KEPT_S + 2 * RESOLVE_S:
        found[now[0]] = set((await one.follow({"shop"}))["shop"])
        now[0] += 10.0
    assert found[0.0] == {"192.0.2.1"}
    assert found[RESOLVE_S] == {"192.0.2.1", "192.0.2.2"}
    assert found[KEPT_S + RESOLVE_S] == {"192.0.2.2"}
    assert asked[:3] == [0.0, RESOLVE_S, 2 * RESOLVE_S]
    await one.follow(set())
    assert await one.follow(set()) == {}


async def test_while_nobody_answers_a_name_leads_where_it_led() -> None:
    now = [0.0]

    async def resolve(host: str) -> Collection[str] | None:
        return {"192.0.2.1"} if now[0] == 0.0 else None

    one = Addresses(resolve, lambda: now[0])
    await one.follow({"shop"})
    now[0] = 10 * KEPT_S
    assert (await one.follow({"shop"}))["shop"].keys() == {"192.0.2.1"}


async def test_names_that_nobody_answers_for_hold_two_threads_and_keep_nobody_else_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(egress_writes, "PROMPT_S", 0.05)
    asked, answer = list[str](), asyncio.Event()

    async def resolve(host: str) -> Collection[str]:
        asked.append(host)
        if host.startswith("silent"):
            await answer.wait()
        return {"192.0.2.1"}

    names = {*(f"silent-{number}" for number in range(9)), "a-shop"}
    one = Addresses(resolve, lambda: 0.0)
    assert (await one.follow(names)).keys() == {"a-shop"}
    assert len(asked) == 1 + AT_ONCE
    await one.follow(names)
    assert len(asked) == 1 + AT_ONCE, "no more of them"
    answer.set()
    while len((await one.follow(names)).keys()) < len(names):
        pass
    assert sorted(asked) == sorted(names), "each once"
    one.stop()


async def test_names_that_hang_each_time_do_not_starve_those_behind_them_in_the_alphabet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They end after a while and are due again at once; the name behind them is asked for in between all the same."""
    now, asked, hanging = [0.0], list[str](), dict[str, asyncio.Event]()

    async def resolve(host: str) -> Collection[str] | None:
        asked.append(host)
        if not host.startswith("silent"):
            return {"192.0.2.1"}
        hanging[host] = asyncio.Event()
        await hanging[host].wait()
        return None

    names = {"silent-1", "silent-2", "silent-3", "z-shop"}
    one = Addresses(resolve, lambda: now[0])
    monkeypatch.setattr(egress_writes, "PROMPT_S", 0.01)
    for _ in range(20):
        await one.follow(names)
        now[0] += RESOLVE_S
        for event in hanging.values():
            event.set()
        await asyncio.sleep(0)
    assert asked.count("z-shop") >= 5
    one.stop()


@pytest.mark.parametrize(
    ("code", "found"), [(socket.EAI_NONAME, ()), (socket.EAI_NODATA, ()), (socket.EAI_AGAIN, None)]
)
async def test_no_answer_is_another_thing_than_an_answer_of_nothing(
    monkeypatch: pytest.MonkeyPatch, code: int, found: Collection[str] | None
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror(code, "no")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", refuse)
    assert await resolved("shop.example") == found
