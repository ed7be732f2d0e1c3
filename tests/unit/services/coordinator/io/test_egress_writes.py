"""The NetworkPolicy of sensors follows targets: written when it changes, tried rarely where it may not be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

import pytest

from services.coordinator.io.egress_writes import AGAIN_S, AT_ONCE, KEPT_S, REFUSED_S, RESOLVE_S, Addresses, keep
from shared.errors import KubeRejected, KubeUnknown
from shared.kube.latency_targets import LatencyTarget
from tests.patience import PATIENCE_S
from tests.unit.services.coordinator.io.test_target_writes import Api

SHOP = LatencyTarget("shop", "shop.example", 443)


async def kept(api: Api, *, until_s: float, targets: dict[float, list[LatencyTarget]], step_s: float = 10.0) -> None:
    """Play so many seconds; ``targets``: all there are from then on."""
    now, enough = [0.0], asyncio.Event()

    def named() -> list[LatencyTarget]:
        now[0] += step_s
        if now[0] >= until_s:
            enough.set()
        return next(found for at, found in sorted(targets.items(), reverse=True) if now[0] >= at)

    async def resolve(host: str) -> Collection[str]:
        return {"192.0.2.1"}

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


async def test_it_is_written_again_after_a_while_since_somebody_may_have_put_it_back() -> None:
    api = Api()
    await kept(api, until_s=2 * AGAIN_S + 50, targets={0.0: [SHOP]})
    assert egress(api) == [1, 1, 1]


@pytest.mark.parametrize("status", [403, 404])
async def test_where_there_is_none_or_no_right_it_is_tried_rarely(status: int) -> None:
    api = Api(*[KubeRejected("no", status=status)] * 9)
    await kept(api, until_s=2 * REFUSED_S + 50, targets={0.0: [SHOP]})
    assert len(api.patches) == 3


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


async def test_names_that_nobody_answers_for_hold_two_threads_and_keep_nobody_else_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.coordinator.io.egress_writes.PROMPT_S", 0.05)
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
