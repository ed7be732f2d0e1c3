"""A core that learns while another process leads: who gets it, and when nobody does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shared.errors import StoreUnknown
from shared.runtime.kube.heir import Heir
from shared.scheduling.shards import Shards

DIVIDED = Shards(("0", "1"), 7)


async def yes(core: list[Shards]) -> bool:
    return isinstance(core, list)


async def no(core: list[Shards]) -> bool:
    return not isinstance(core, list)


async def divided() -> Shards:
    return DIVIDED


def heir(attend: Callable[..., object] = yes) -> Heir[list[Shards]]:
    return Heir(divided, lambda shards: [shards], attend)  # type: ignore[arg-type]


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


async def test_an_etcd_that_does_not_answer_costs_the_core_and_not_the_mirror(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def away() -> Shards:
        raise StoreUnknown("away")

    learned: Heir[list[Shards]] = Heir(away, lambda shards: [shards], yes)
    await learned.stand_by()
    assert learned.take(Shards()) is None
    assert "heir_unmade" in capsys.readouterr().out
