"""The record of a policy for training jobs that is rolled out: by which steps it changes, and that nobody undoes
another's."""

from __future__ import annotations

import datetime as dt

import pytest
from msgspec.structs import replace

from shared.autoscaling.domain import AUTOSCALING
from shared.decide.rollout import Rollout, begin, promoted, taken_back
from shared.decide.stages import Stage
from shared.errors import Conflict, InvalidValue, TooFewWindows
from shared.jobs.domain import JOBS
from shared.jobs.registry import POLICIES
from shared.ports import Put
from shared.runtime.records.rollouts import change_rollout, follow_rollout, read_rollout, rollout_in, write_rollout
from shared.wire.keys import Keys
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore

KEYS = Keys()
NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
SHADOW = Rollout(stage=Stage.SHADOW, candidate="drf", since="1")


def store_of() -> tuple[MemoryStore, int, int]:
    """(a store, the coordinator's term, the jobs service's)."""
    etcd = MemoryEtcd()
    terms = [etcd.txn([], [Put(key, b"{}")]).revision for key in (KEYS.coordinator_leader, KEYS.leader("jobs"))]
    return MemoryStore(etcd), terms[0], terms[1]


def promote(held: Rollout, **more: object) -> Rollout:
    values: dict[str, object] = {"percent": 10, "force": False, "now": "2", "by": "anna", "reason": ""}
    return promoted(held, domain=JOBS, **{**values, **more})  # type: ignore[arg-type]


def test_one_begins_in_shadow_and_goes_on_after_a_good_window_stage_by_stage():
    held = begin(Rollout(), "drf", policies=POLICIES, now="1", by="anna", reason="")
    assert held.stage is Stage.SHADOW
    held = promote(replace(held, good=1), percent=25)
    assert (held.stage, held.percent, held.good, held.since) == (Stage.CANARY, 25, 0, "2")
    assert promote(replace(held, good=2), percent=None).stage is Stage.ACTIVE
    assert taken_back(held, now="3", by="anna", reason="enough").stage is Stage.NONE


@pytest.mark.parametrize(
    ("held", "more", "told"),
    [
        (SHADOW, {}, "drf has 0 of 1 good windows in a row at this step"),
        (Rollout(), {}, "no policy is rolled out"),
        (replace(SHADOW, stage=Stage.ACTIVE), {}, "drf is active already"),
        (SHADOW, {"force": True, "percent": 100}, "percent: 100 is not from 1 to 99"),
    ],
)
def test_a_step_that_cannot_be_is_refused(held: Rollout, more: dict[str, object], told: str):
    with pytest.raises((Conflict, InvalidValue), match=told):
        promote(held, **more)


@pytest.mark.parametrize("percent", [1, 49, 50])
@pytest.mark.parametrize("force", [False, True])
def test_a_share_that_is_no_larger_is_refused_and_hands_nothing_over(percent: int, force: bool):
    held = replace(SHADOW, stage=Stage.CANARY, percent=50, good=3)
    with pytest.raises(Conflict, match="in the canary at 50 % already"):
        promote(held, percent=percent, force=force)
    assert promote(held, percent=51).percent == 51
    assert promote(held, percent=None).stage is Stage.ACTIVE


def test_the_next_share_is_the_domains_where_none_is_named():
    held = replace(SHADOW, stage=Stage.CANARY, percent=5, good=1)
    assert (promote(held, percent=None).stage, promote(held, percent=None).percent) == (Stage.CANARY, 10)
    assert promote(replace(SHADOW, good=1), percent=None).percent == 10


def test_another_candidate_than_the_one_that_is_named_is_not_promoted():
    with pytest.raises(Conflict, match="fifo is not the candidate for jobs; drf is"):
        promote(SHADOW, name="fifo", force=True)
    assert promote(SHADOW, name="drf", force=True).stage is Stage.CANARY


def test_a_domains_keys_are_those_of_its_service():
    assert KEYS.leader(AUTOSCALING.name) == KEYS.autoscaler_leader
    assert [KEYS.leader(JOBS.name), KEYS.rollout(JOBS.name)] == [
        f"{KEYS.prefix}jobs/{key}" for key in ("leader", "rollout")
    ]


def test_it_may_be_forced_and_that_is_recorded():
    with pytest.raises(TooFewWindows):
        promote(SHADOW)
    forced = promote(SHADOW, force=True)
    assert (forced.stage, forced.forced) == (Stage.CANARY, True)
    assert promote(replace(forced, good=1), percent=None, force=True).forced is False
    assert taken_back(forced, now="3", by="anna", reason="enough").forced is False


def test_only_a_known_policy_is_set_and_one_at_a_time():
    for held, name, error in ((Rollout(), "best", InvalidValue), (SHADOW, "fifo", Conflict)):
        with pytest.raises(error):
            begin(held, name, policies=POLICIES, now="1", by="", reason="")
    assert begin(SHADOW, "drf", policies=POLICIES, now="9", by="", reason="") is SHADOW, (
        "to say it again changes nothing"
    )


async def test_a_change_is_one_put_of_the_coordinator_that_leads():
    store, term, _ = store_of()
    held = await change_rollout(store, KEYS, JOBS, lambda *_: SHADOW, term=term, now=NOW)
    assert held == await read_rollout(store, KEYS, JOBS) == SHADOW
    with pytest.raises(Conflict):
        await change_rollout(
            store, KEYS, JOBS, lambda held, _: taken_back(held, now="", by="", reason=""), term=9, now=NOW
        )


async def test_the_jobs_service_writes_only_over_what_it_has_read_and_only_while_it_leads():
    store, term, jobs = store_of()
    await change_rollout(store, KEYS, JOBS, lambda *_: SHADOW, term=term, now=NOW)
    kv = await store.get(KEYS.rollout("jobs"))
    assert kv is not None
    gone = replace(SHADOW, stage=Stage.NONE)
    assert not await write_rollout(store, KEYS, JOBS, gone, revision=kv.mod_revision - 1, term=jobs)
    assert not await write_rollout(store, KEYS, JOBS, gone, revision=kv.mod_revision, term=jobs + 99)
    assert (await read_rollout(store, KEYS, JOBS)).on
    assert await write_rollout(store, KEYS, JOBS, gone, revision=kv.mod_revision, term=jobs)
    assert not (await read_rollout(store, KEYS, JOBS)).on
    assert not await write_rollout(store, KEYS, JOBS, SHADOW, revision=kv.mod_revision, term=jobs), "nothing is undone"


async def test_it_is_followed_with_its_revision():
    store, term, _ = store_of()
    views = follow_rollout(store, KEYS, JOBS)
    assert await anext(views) == (Rollout(), 0)
    await change_rollout(store, KEYS, JOBS, lambda *_: SHADOW, term=term, now=NOW)
    held, revision = await anext(views)
    assert held == SHADOW
    assert revision > 0
    await views.aclose()


async def test_what_cannot_be_read_counts_as_none():
    store, _, _ = store_of()
    await store.txn([], [Put(KEYS.rollout("jobs"), b"[7]")])
    assert rollout_in(await store.get(KEYS.rollout("jobs"))) == Rollout()


async def test_two_promotions_at_once_go_one_stage():
    """The second is not made again over what the first one made of it; figures that came between do not matter."""
    store, term, jobs = store_of()
    await change_rollout(store, KEYS, JOBS, lambda *_: SHADOW, term=term, now=NOW)
    came: list[Rollout] = [replace(SHADOW, good=1), promote(SHADOW, force=True)]

    def force(held: Rollout, now: str) -> Rollout:
        return promote(held, percent=None, force=True, now=now)

    get = store.get

    async def overtaken(key: str) -> object:
        kv = await get(key)
        if came and kv is not None:
            await write_rollout(store, KEYS, JOBS, came.pop(0), revision=kv.mod_revision, term=jobs)
        return kv

    store.get = overtaken  # type: ignore[method-assign,assignment]
    with pytest.raises(Conflict, match="look again"):
        await change_rollout(store, KEYS, JOBS, force, term=term, now=NOW)
    assert (await read_rollout(store, KEYS, JOBS)).stage is Stage.CANARY
    came.append(replace(await read_rollout(store, KEYS, JOBS), good=1))
    assert (await change_rollout(store, KEYS, JOBS, force, term=term, now=NOW)).stage is Stage.ACTIVE
