"""A leader that waits for the last lists sleeps until it waits no longer."""

from random import Random

from services.coordinator.core.core import Core
from services.coordinator.core.events import AgentsChanged, ControlSeen, IntentsListed
from services.coordinator.core.instructions import SetTimer
from services.coordinator.core.state import CoreSettings
from shared.model.cluster_events import Listed


def test_a_leader_that_waits_for_a_late_list_sets_its_timer_ahead() -> None:
    settings = CoreSettings(validate=True)
    core = Core(
        term=7, scheduler_name="conclave", policy="kube-default", rng=Random(0), settings=settings,
        kinds=("persistentvolumes",),
    )  # fmt: skip
    lists = [AgentsChanged(()), ControlSeen(), IntentsListed(()), Listed("nodes"), Listed("pods")]
    out = core.handle(lists, 1000.0)
    assert not core.state.started
    assert [one.at for one in out if isinstance(one, SetTimer)] == [1000.0 + settings.objects_grace_s]
