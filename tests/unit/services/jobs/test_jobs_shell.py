"""What answers of the API server mean to the core, and which settings cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from services.jobs.core import events as ev
from services.jobs.core.instructions import CreateObject, DeleteObject, PatchMinimum, WriteRollout, WriteStatus
from services.jobs.io.rollouts import Rollouts
from services.jobs.io.watches import group_version
from services.jobs.io.writes import ObjectWrites
from services.jobs.policies import policy_named
from services.jobs.settings import JobsSettings
from shared.decide.rollout import Rollout
from shared.errors import ConfigError, KubeError, KubeRejected, KubeUnknown, StoreUnknown
from shared.jobs.domain import JOBS
from shared.kube.pod_groups import PLUGINS_PODGROUPS, PODGROUPS_V1ALPHA2
from shared.kube.training.worker_pods import JOB_PODS
from shared.model.controllers.training_job import JobStatus
from shared.ports import Put
from shared.runtime.records.rollouts import read_rollout
from shared.wire.keys import Keys
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore
from tests.unit.services.jobs.jobs_world import a_job

KEYS = Keys()
CREATE = CreateObject(1, JOB_PODS, "default", "p", {})
DELETE = DeleteObject(1, JOB_PODS, "default", "p", "uid")
MINIMUM = PatchMinimum(1, PODGROUPS_V1ALPHA2, "default", "a", "uid", 2)
STATUS = WriteStatus(1, a_job(), JobStatus())


class Api:
    """An API server that answers one thing."""

    def __init__(self, error: KubeError | None) -> None:
        self.error = error
        self.calls: list[dict[str, Any]] = []

    async def _answer(self, *_: Any, **call: Any) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    create = delete = patch = _answer


class Leads:
    def __init__(self, leads: bool = True) -> None:
        self.leads = leads

    def is_valid(self, now: float | None = None) -> bool:
        return self.leads


async def answered(write: Any, error: KubeError | None, *, leads: bool = True) -> tuple[list[Any], Api]:
    api, posted, work = Api(error), [], []
    writes = ObjectWrites(api, posted.append, work.append, leadership=Leads(leads), instance="i")  # type: ignore[arg-type]
    writes.submit(write)
    for one in work:
        await one
    return posted, api


def refused(status: int, reason: str = "") -> KubeRejected:
    return KubeRejected("because", status=status, reason=reason)


@pytest.mark.parametrize(
    ("write", "error", "outcome"),
    [
        (CREATE, None, ev.WriteOutcome.DONE),
        (CREATE, refused(409, "AlreadyExists"), ev.WriteOutcome.EXISTS),
        (CREATE, refused(409, "Conflict"), ev.WriteOutcome.UNKNOWN),
        (CREATE, refused(422, "Invalid"), ev.WriteOutcome.REFUSED),
        (CREATE, refused(404), ev.WriteOutcome.REFUSED),
        (DELETE, refused(404), ev.WriteOutcome.STALE),
        (DELETE, refused(409, "Conflict"), ev.WriteOutcome.STALE),
        (STATUS, refused(409, "Conflict"), ev.WriteOutcome.STALE),
        (STATUS, refused(429), ev.WriteOutcome.UNKNOWN),
        (STATUS, KubeUnknown("no answer"), ev.WriteOutcome.UNKNOWN),
    ],
)
async def test_an_answer_says_whether_it_happened(write: Any, error: KubeError | None, outcome: ev.WriteOutcome):
    posted, _ = await answered(write, error)
    assert [(one.write, one.outcome) for one in posted] == [(1, outcome)]


async def test_nothing_is_written_by_who_may_lead_no_more():
    posted, api = await answered(DELETE, None, leads=False)
    assert (posted, api.calls) == ([], [])


@pytest.mark.parametrize("write", [CREATE, MINIMUM, STATUS])
async def test_no_call_waits_for_a_busy_server_beyond_the_look_at_who_leads(write: Any):
    _, api = await answered(write, refused(429))
    assert [call["wait_when_busy"] for call in api.calls] == [False]


async def test_a_deletion_names_the_pod_it_means():
    _, api = await answered(DELETE, None)
    assert api.calls[0]["uid"] == "uid"


async def test_the_newest_group_that_is_served_is_taken():
    async def only(version: Any) -> bool:
        return version in (PODGROUPS_V1ALPHA2, PLUGINS_PODGROUPS)

    async def none(version: Any) -> bool:
        return False

    assert await group_version(only) is PODGROUPS_V1ALPHA2
    with pytest.raises(ConfigError, match="plugins-pod-groups"):
        await group_version(none)


async def test_what_became_of_a_candidate_is_written_once_etcd_answers():
    etcd = MemoryEtcd()
    term = etcd.txn([], [Put(KEYS.leader("jobs"), b"{}")]).revision
    store, failures = MemoryStore(etcd), 2
    txn = store.txn

    async def unsure(*asked: Any, **more: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreUnknown("no answer")
        return await txn(*asked, **more)

    store.txn = unsure  # type: ignore[method-assign]
    await Rollouts(store, KEYS, term).write(WriteRollout(Rollout(candidate="drf", reason="worse"), 0))
    assert (await read_rollout(store, KEYS, JOBS)).reason == "worse"
    await Rollouts(store, KEYS, term).write(WriteRollout(Rollout(candidate="fifo"), 0))
    assert (await read_rollout(store, KEYS, JOBS)).candidate == "drf", "somebody changed it meanwhile: theirs counts"


def test_a_policy_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"'best' is not known.*elastic"):
        policy_named("best", 0)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"report_url": "http://x:1"}, "report_url: is given without report_listen"),
        ({"report_listen": "nowhere"}, "report_listen"),
        ({"report_listen": "127.0.0.1:1", "report_url": "x:1"}, "does not begin with http"),
        ({"retry_first_s": 20.0, "retry_most_s": 10.0}, "retry_most_s"),
        ({"decide_every_s": 1.0}, "decide_every_s"),
    ],
)
def test_settings_that_cannot_be_are_refused(flags: dict[str, Any], told: str):
    with pytest.raises(ValueError, match=told):
        JobsSettings(**flags)
