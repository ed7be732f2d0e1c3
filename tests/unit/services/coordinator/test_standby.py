"""What a standby learns, where the rights to read Jobs change before it leads."""

from __future__ import annotations

from typing import Any

import pytest

from services.coordinator.app import FOLLOWED
from services.coordinator.settings import CoordinatorSettings
from services.coordinator.standby import StandbyCore
from shared.kube.resources import Resource
from shared.runtime.kube.watches import Watches
from shared.scheduling.shards import Shards
from shared.wire.keys import Keys
from tests.fake_kube import AsyncKube, FakeKube
from tests.memory_store import MemoryStore


class Rights(AsyncKube):
    """An API server that lets us list Jobs, or does not."""

    may = False

    async def may_list(self, resource: Resource[Any], *, timeout_s: float = 5.0) -> bool:
        return self.may


async def standby(api: Rights) -> StandbyCore:
    settings, watches = CoordinatorSettings(), Watches(api, FOLLOWED, images=True)
    learned = StandbyCore(api, watches, settings, MemoryStore(), Keys.under("/conclave/v1/"))  # type: ignore[arg-type]
    await learned.stand_by()
    return learned


@pytest.mark.parametrize("could", [False, True])
@pytest.mark.parametrize("can", [False, True])
async def test_who_may_read_jobs_now_and_could_not_then_or_the_other_way_round_begins_with_an_empty_core(
    could: bool, can: bool
) -> None:
    api = Rights(FakeKube())
    api.may = could
    learned = await standby(api)
    assert (learned.inherited(Shards(), reads_jobs=can) is not None) == (could == can)
    assert learned.inherited(Shards(), reads_jobs=could) is None, "given once"
