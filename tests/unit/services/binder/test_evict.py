"""Evicting a victim: the API's eviction first, deletion only when forced, and never a pod of another uid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from services.binder.core.core import BinderCore
from services.binder.core.events import Evicted, IntentsListed, PlanReceived
from services.binder.core.instructions import Evict, PlanAnswer
from services.binder.core.state import BinderCoreSettings
from services.binder.io.evict import evict
from shared.errors import KubeRejected, KubeUnknown
from shared.kube.objects import KubePod
from shared.model.cluster_events import Listed
from shared.wire.keys import Keys
from shared.wire.messages import VERSION, Eviction, EvictionOutcome, EvictionReason, EvictionResult, Plan
from tests.builders import PodBuilder, make_pod


class Api:
    """Answers each verb by what it is told to raise."""

    def __init__(self, found: KubePod | None = None, **errors: Exception) -> None:
        self.errors = errors
        self.found = found
        self.calls: list[tuple[str, str]] = []

    async def get(self, *_: Any, **__: Any) -> KubePod | None:
        if "get" in self.errors:
            raise self.errors["get"]
        return self.found

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        async def call(*_: Any, **given: Any) -> None:
            uid = given.get("uid") or given["patch"]["metadata"]["uid"]
            self.calls.append((verb, uid))
            if verb in self.errors:
                raise self.errors[verb]

        return call


def rejected(status: int) -> KubeRejected:
    return KubeRejected("no", status=status, reason="Test")


def victim(*, force: bool = False, unprotected: bool = False) -> Eviction:
    return Eviction("uid-v", "default", "v", "uid-p", "n0", force, unprotected=unprotected)


async def run(api: Api, *, force: bool = False, leads: bool = True, unprotected: bool = False) -> EvictionOutcome:
    async def may_act() -> bool:
        return leads

    result = await evict(
        api, victim(force=force, unprotected=unprotected), scheduler_name="conclave", may_act=may_act  # type: ignore[arg-type]
    )  # fmt: skip
    return EvictionOutcome(result.outcome)


async def test_a_victim_of_a_budget_is_marked_evicted_and_marked_again_by_its_uid() -> None:
    """The API server's eviction puts its own reason in the place of ours."""
    api = Api()
    assert await run(api) is EvictionOutcome.EVICTED
    assert api.calls == [("patch", "uid-v"), ("evict", "uid-v"), ("patch", "uid-v")]


async def test_a_victim_that_no_budget_covers_is_marked_and_deleted_as_kube_scheduler_does() -> None:
    api = Api()
    assert await run(api, unprotected=True) is EvictionOutcome.EVICTED
    assert api.calls == [("patch", "uid-v"), ("delete", "uid-v")]


class Patches(Api):
    """What was patched, and whether the API server has put its own condition in its place since."""

    def __init__(self, **errors: Exception) -> None:
        super().__init__(**errors)
        self.told: list[dict[str, str]] = []

    async def patch(self, *_: Any, patch: Any, **__: Any) -> None:
        self.told += patch["status"]["conditions"]

    async def evict(self, **_: Any) -> None:
        if "evict" in self.errors:
            raise self.errors["evict"]
        self.told.append({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"})


@pytest.mark.parametrize("unprotected", [False, True])
async def test_a_victim_ends_with_the_reason_that_people_and_jobs_look_for(unprotected: bool) -> None:
    api = Patches()
    assert await run(api, unprotected=unprotected) is EvictionOutcome.EVICTED
    assert (api.told[0]["reason"], api.told[-1]["reason"]) == ("PreemptionByScheduler", "PreemptionByScheduler")
    assert api.told[-1]["lastTransitionTime"]


async def test_a_victim_that_its_budget_lets_stay_is_no_disruption_target() -> None:
    api = Patches(evict=rejected(429))
    assert await run(api) is EvictionOutcome.REFUSED
    assert [(one["type"], one["status"]) for one in api.told] == [
        ("DisruptionTarget", "True"), ("DisruptionTarget", "False"),
    ]  # fmt: skip


class Standing(Patches):
    """The victim can be read, and changes once it is asked to leave, ``late``, right after it was read."""

    def __init__(self, *, late: bool = False, **errors: Exception) -> None:
        super().__init__(**errors)
        self.late = late
        self.version = 1

    async def get(self, *_: Any, **__: Any) -> KubePod | None:
        found = make_pod("v").set(uid="uid-v", resourceVersion=str(self.version)).api()
        self.version += self.late
        return found

    async def patch(self, *_: Any, patch: Any, **__: Any) -> None:
        if patch["metadata"].get("resourceVersion", str(self.version)) != str(self.version):
            raise rejected(409)
        self.version += 1
        await super().patch(patch=patch)
        if "patch" in self.errors:
            raise self.errors["patch"]


@pytest.mark.parametrize("verb", ["delete", "patch"])
async def test_a_victim_that_stays_after_an_unanswered_write_is_no_disruption_target(verb: str) -> None:
    api = Standing(**{verb: KubeUnknown("cut")})
    assert await run(api, unprotected=True) is EvictionOutcome.UNKNOWN
    assert api.told[-1]["status"] == "False"


async def test_a_victim_that_others_were_writing_is_not_taken_to_be_gone() -> None:
    assert await run(Standing(delete=rejected(409)), unprotected=True) is EvictionOutcome.UNKNOWN


async def test_a_victim_that_begins_to_leave_after_it_was_read_keeps_its_reason() -> None:
    api = Standing(late=True, delete=KubeUnknown("cut"))
    assert await run(api, unprotected=True) is EvictionOutcome.UNKNOWN
    assert api.told[-1]["reason"] == "PreemptionByScheduler"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (EvictionReason.PREEMPTION, "conclave: preempting to accommodate a higher priority pod (uid-p)"),
        (EvictionReason.RECLAIM, "conclave: taking back what its queue has borrowed"),
        (EvictionReason.BROKEN_GANG, "conclave: its pod group runs fewer members than its minCount"),
        (15, "conclave: preempting to accommodate a higher priority pod (uid-p)"),
    ],
)
async def test_a_victims_condition_says_why_it_leaves(reason: int, said: str) -> None:
    told: list[str] = []

    class Noting(Api):
        async def patch(self, *_: Any, patch: Any, **__: Any) -> None:
            told.extend(condition["message"] for condition in patch["status"]["conditions"])

    async def may_act() -> bool:
        return True

    await evict(
        Noting(), replace(victim(), reason=reason), scheduler_name="conclave", may_act=may_act  # type: ignore[arg-type]
    )  # fmt: skip
    assert set(told) == {said}


async def test_a_budget_is_overridden_only_when_that_was_decided() -> None:
    kept = Api(evict=rejected(429))
    assert await run(kept) is EvictionOutcome.REFUSED
    assert [verb for verb, _ in kept.calls] == ["patch", "evict", "patch"]
    forced = Api(evict=rejected(429))
    assert await run(forced, force=True) is EvictionOutcome.EVICTED
    assert forced.calls[-1] == ("delete", "uid-v")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (rejected(404), EvictionOutcome.GONE),
        (rejected(409), EvictionOutcome.GONE),
        (rejected(403), EvictionOutcome.REFUSED),
    ],
    ids=["gone", "recreated", "forbidden"],
)
async def test_every_answer_has_its_meaning(error: Exception, outcome: EvictionOutcome) -> None:
    assert await run(Api(evict=error)) is outcome


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (make_pod("v").set(uid="uid-v"), EvictionOutcome.UNKNOWN),
        (make_pod("v").set(uid="uid-v", deletionTimestamp="2026-11-20T00:00:00Z"), EvictionOutcome.EVICTED),
        (make_pod("v").set(uid="uid-another"), EvictionOutcome.GONE),
        (None, EvictionOutcome.GONE),
    ],
    ids=["stays", "leaves", "recreated", "gone"],
)
async def test_an_eviction_that_is_not_answered_is_settled_by_reading_the_victim(
    found: PodBuilder | None, outcome: EvictionOutcome
) -> None:
    assert await run(Api(found.api() if found else None, evict=KubeUnknown("cut"))) is outcome


async def test_a_victim_that_cannot_be_read_either_is_unknown() -> None:
    assert await run(Api(evict=KubeUnknown("cut"), get=KubeUnknown("cut"))) is EvictionOutcome.UNKNOWN


async def test_a_process_that_may_not_lead_any_more_evicts_nobody() -> None:
    api = Api()
    assert await run(api, leads=False) is EvictionOutcome.UNKNOWN
    assert not api.calls


def test_a_plan_of_evictions_is_answered_when_every_victim_has_its_end() -> None:
    core = BinderCore(5, BinderCoreSettings(), Keys("/c"))
    core.handle_all([Listed("pods"), Listed("nodes"), IntentsListed({})], 0.0)
    plan = Plan(VERSION, 1, 0, 3, 1, [], [victim()])
    (asked,) = [i for i in core.handle(PlanReceived(1, plan), 0.1) if isinstance(i, Evict)]
    done = EvictionResult("uid-v", EvictionOutcome.EVICTED)
    (answer,) = core.handle(Evicted(asked.plan, done), 0.2)
    assert isinstance(answer, PlanAnswer)
    assert answer.result.evictions == [done]
    again = core.handle(PlanReceived(2, plan), 0.3)
    assert [i.result.evictions for i in again if isinstance(i, PlanAnswer)] == [[done]], "told again, not done again"
    assert not [i for i in again if isinstance(i, Evict)]


def test_a_plan_without_an_end_is_answered_in_time() -> None:
    core = BinderCore(5, BinderCoreSettings(answer_after_s=2.0), Keys("/c"))
    core.handle_all([Listed("pods"), Listed("nodes"), IntentsListed({})], 0.0)
    core.handle(PlanReceived(1, Plan(VERSION, 1, 0, 3, 1, [], [victim()])), 0.1)
    (answer,) = core.handle_all((), 2.2)
    assert isinstance(answer, PlanAnswer)
    assert answer.result.evictions[0].outcome == EvictionOutcome.UNKNOWN
    assert answer.result.evictions[0].waits, "its end can still be heard of"


def test_a_plan_that_asks_for_a_victim_that_left_between_two_plans_hears_of_its_end() -> None:
    core = BinderCore(5, BinderCoreSettings(answer_after_s=2.0), Keys("/c"))
    core.handle_all([Listed("pods"), Listed("nodes"), IntentsListed({})], 0.0)
    [asked] = [
        i for i in core.handle(PlanReceived(1, Plan(VERSION, 1, 0, 3, 1, [], [victim()])), 0.1) if isinstance(i, Evict)
    ]
    assert [i for i in core.handle_all((), 2.2) if isinstance(i, PlanAnswer)]
    done = EvictionResult("uid-v", EvictionOutcome.EVICTED)
    assert not core.handle(Evicted(asked.plan, done), 2.3)
    (answer,) = core.handle(PlanReceived(2, Plan(VERSION, 2, 0, 3, 2, [], [victim()])), 2.4)
    assert isinstance(answer, PlanAnswer)
    assert answer.result.evictions == [done]
    later = core.handle(PlanReceived(3, Plan(VERSION, 3, 0, 3, 3, [], [victim()])), 2.5)
    assert [type(i) for i in later] == [Evict], "told once; what came of it since nobody knows"


def test_a_thousand_victims_are_asked_to_leave_some_at_a_time_and_each_plans_in_turn() -> None:
    core = BinderCore(5, BinderCoreSettings(max_evictions=8, answer_after_s=2.0), Keys("/c"))
    core.handle_all([Listed("pods"), Listed("nodes"), IntentsListed({})], 0.0)
    many = [replace(victim(), uid=f"uid-{number}") for number in range(1000)]
    asked = [i for i in core.handle(PlanReceived(1, Plan(VERSION, 1, 0, 3, 1, [], many)), 0.1) if isinstance(i, Evict)]
    assert len(asked) == 8
    core.handle(PlanReceived(2, Plan(VERSION, 2, 0, 3, 2, [], [victim()])), 0.2)
    seen = list(asked)
    while asked:
        done = asked.pop(0)
        result = EvictionResult(done.eviction.uid, EvictionOutcome.EVICTED)
        asked += (more := [i for i in core.handle(Evicted(done.plan, result), 3.0) if isinstance(i, Evict)])
        seen += more
        assert len(asked) <= 8
    assert len({evict.eviction.uid for evict in seen}) == len(seen) == 1001
    assert victim().uid in [evict.eviction.uid for evict in seen[:11]], "the second plan did not wait for the first"


def test_victims_of_a_coordinator_that_leads_no_more_are_not_asked_any_more() -> None:
    core = BinderCore(5, BinderCoreSettings(max_evictions=1), Keys("/c"))
    core.handle_all([Listed("pods"), Listed("nodes"), IntentsListed({})], 0.0)
    two = [replace(victim(), uid=f"uid-{number}") for number in range(2)]
    [first] = [i for i in core.handle(PlanReceived(1, Plan(VERSION, 1, 0, 3, 1, [], two)), 0.1) if isinstance(i, Evict)]
    core.handle(PlanReceived(2, Plan(VERSION, 2, 0, 4, 1, [])), 0.2)
    result = EvictionResult(first.eviction.uid, EvictionOutcome.EVICTED)
    assert not [i for i in core.handle(Evicted(first.plan, result), 0.3) if isinstance(i, Evict)]


def test_a_victim_that_two_plans_name_is_asked_once_and_both_hear_its_end() -> None:
    core = BinderCore(5, BinderCoreSettings(), Keys("/c"))
    core.handle_all([Listed("pods"), Listed("nodes"), IntentsListed({})], 0.0)
    [asked] = [
        i for i in core.handle(PlanReceived(1, Plan(VERSION, 1, 0, 3, 1, [], [victim()])), 0.1) if isinstance(i, Evict)
    ]
    assert not core.handle(PlanReceived(2, Plan(VERSION, 2, 0, 3, 2, [], [victim()])), 0.2)
    done = EvictionResult("uid-v", EvictionOutcome.EVICTED)
    answers = [i for i in core.handle(Evicted(asked.plan, done), 0.3) if isinstance(i, PlanAnswer)]
    assert [(answer.request, answer.result.evictions) for answer in answers] == [(1, [done]), (2, [done])]
