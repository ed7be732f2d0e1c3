"""A core that learns while another process leads: who gets it, and when nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shared.errors import ConfigError, StoreUnknown
from shared.runtime.kube import heir as heirs
from shared.runtime.kube.heir import Heir
from shared.scheduling.shards import Shards

DIVIDED = Shards(("0", "1"), 7)


Events = list[Any]


async def yes(_: Callable[[Events], None]) -> bool:
    return True


async def no(_: Callable[[Events], None]) -> bool:
    return False


def learn(core: list[Any], events: Events) -> None:
    if "poison" in events:
        raise RuntimeError("an event that no core can take")
    core.extend(events)


async def divided() -> Shards:
    return DIVIDED


def heir(attend: Callable[[Callable[[Events], None]], Awaitable[bool]] = yes) -> Heir[list[Any]]:
    return Heir(divided, lambda shards: [shards], learn, attend)


async def test_who_leads_gets_the_core_once_that_was_made_for_the_nodes_as_they_are_divided() -> None:
    learned = heir()
    await learned.stand_by()
    assert learned.take(DIVIDED) == [DIVIDED]
    assert learned.take(DIVIDED) is None


async def test_a_core_that_was_made_for_other_shards_is_nobodys() -> None:
    learned = heir()
    await learned.stand_by()
    assert learned.take(Shards(("0",), 8)) is None
    assert learned.take(DIVIDED) is None


async def test_who_never_stood_by_or_could_not_attend_begins_with_an_empty_core() -> None:
    assert heir().take(DIVIDED) is None
    late = heir(no)
    await late.stand_by()
    assert late.take(DIVIDED) is None


def without(read: Callable[[], Awaitable[Shards]]) -> Heir[list[Any]]:
    return Heir(read, lambda shards: [shards], learn, yes)


@pytest.mark.parametrize("error", [StoreUnknown("away"), ConfigError("etcd: names no shards")])
async def test_a_record_that_cannot_be_read_costs_the_core_and_not_the_mirror(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    async def away() -> Shards:
        raise error

    learned = without(away)
    await learned.stand_by()
    assert learned.take(Shards()) is None
    assert "heir_unmade" in capsys.readouterr().out


async def test_an_etcd_that_never_answers_does_not_hold_up_the_mirror(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def for_ever() -> Shards:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(heirs, "PATIENCE_S", 0.0)
    learned = without(for_ever)
    await learned.stand_by()
    assert learned.take(Shards()) is None
    assert "does not answer" in capsys.readouterr().out


class Mirror:
    """Tells whoever attends."""

    async def attend(self, hear: Callable[[Events], None]) -> bool:
        self.tell = hear
        return True


async def test_an_error_of_what_a_standby_learns_costs_the_core_and_not_the_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mirror = Mirror()
    learned = heir(mirror.attend)
    await learned.stand_by()
    mirror.tell(["poison"])
    mirror.tell(["more"])
    assert learned.take(DIVIDED) is None
    assert "heir_dropped" in capsys.readouterr().out


async def test_once_it_leads_it_hears_of_pods_until_it_follows_and_an_error_is_its_terms() -> None:
    mirror = Mirror()
    learned = heir(mirror.attend)
    await learned.stand_by()
    core = learned.take(DIVIDED)
    mirror.tell(["late"])
    assert core == [DIVIDED, "late"]
    with pytest.raises(RuntimeError):
        mirror.tell(["poison"])
