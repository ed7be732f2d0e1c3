"""What a decision costs where many jobs wait for what their queue lent."""

from __future__ import annotations

from shared.jobs.bounds import Allowed
from shared.jobs.observation import JobObservation, JobsObservation, NodeObservation
from shared.jobs.quotas import QuotaClaim, Quotas, dealt
from shared.model.units.queue import Queue

GPU = "nvidia.com/gpu"
COUNT = 50


class Counting(Quotas):
    """Counts how often a lender is looked at."""

    looks = 0

    def borrows(self, job: str, owner: str) -> bool:
        self.looks += 1
        return super().borrows(job, owner)


def test_many_that_wait_in_vain_cost_what_one_does() -> None:
    runs = [
        JobObservation(
            name=f"lent/{number}", submitted=number, minimum=2, maximum=4, requested=4, batch=8, workers=2,
            since_change_s=1000.0,
        )
        for number in range(COUNT)
    ]  # fmt: skip
    waits = [
        JobObservation(name=f"own/{number}", submitted=1000 + number, minimum=2, maximum=4, requested=4, batch=8)
        for number in range(COUNT)
    ]
    claims = {job.name: QuotaClaim("lent", "lent", ((GPU, 1),), gpu=GPU) for job in runs}
    claims |= {job.name: QuotaClaim("own", "own", ((GPU, 1),), gpu=GPU) for job in waits}
    queues = [Queue("own", guaranteed={GPU: COUNT}, reclaim=True), Queue("lent")]
    quotas = Counting(queues, {GPU: 2 * COUNT}, [], claims)
    seen = JobsObservation(now=1e6, jobs=(*runs, *waits), nodes=(NodeObservation(name="n", gpus=2 * COUNT),))
    # all have their minimum, and none may be stopped
    found = dealt(seen, Allowed({}, {}), quotas, ours=frozenset(claims), may_stop=frozenset(), held={})
    assert found.allowed.changes == {}
    assert quotas.looks == COUNT
