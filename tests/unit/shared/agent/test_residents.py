"""What an agent takes over of who stands on its nodes: lessons go where they belong, or nowhere."""

from __future__ import annotations

from shared.agent.replica import Replica
from shared.agent.residents import ResidentsFeed
from shared.policy.usage.class_usage import LIMIT, OTHER, PARTS
from shared.policy.usage.utilisation import UtilisationStore
from shared.wire.residents import Residents as Told
from shared.wire.residents import WorkloadName, WorkloadUse


def test_a_lesson_beyond_all_columns_is_not_that_of_all_the_others() -> None:
    """Columns outlive the term in which they were given, so a new leader may teach of more workloads than fit."""
    store = UtilisationStore()
    residents, others = ResidentsFeed(store), 0.01
    names = [WorkloadName(number, number.to_bytes(8, "big"), 100) for number in range(OTHER + 1, OTHER + LIMIT + 9)]
    uses = [WorkloadUse(OTHER, [others] * PARTS, 0.5), *(WorkloadUse(name.id, [0.5] * PARTS, 0.9) for name in names)]
    residents.take(Told(names, anew=True, uses=uses), Replica(), 0.0)
    assert store.usage.use[OTHER, 0] == others
    assert store.usage.use[OTHER + LIMIT, 0] == 0.5
