"""Which suites there are, and where each is found. They are imported when asked for: each brings its own experiment.

A suite is a function of seeds: the same seeds give the same figures. It reads nothing but what it is handed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, TypeVar

from lab.evaluation.results import Progress, SuiteResult
from shared.errors import ConfigError

if TYPE_CHECKING:
    from lab.environments.own_reward import OwnReward
    from lab.worlds.training.simulation import SimulationSettings
    from shared.policy.weights import WeightsFile


T = TypeVar("T")
U = TypeVar("U")


class Each(Protocol):
    """Maps a function of a module's top level over items, in their order; perhaps in several processes."""

    def __call__(self, function: Callable[[T], U], items: Iterable[T], /) -> Iterator[U]: ...


@dataclass(frozen=True)
class SuiteInput:
    """What a suite is handed. ``policies`` empty: all that it compares. ``files``: text of trace files by name.
    ``clock``: CPU seconds of the calling thread, for suites that time decisions; None: they do not. ``weights`` by
    policy: in place of those that are shipped. ``rehearse``: frag may leave a trace to FGD (``rehearsal.py``).
    ``each``: how many runs are played at a time. Of the jobs suite: ``loads`` and ``workloads``, empty for all, and
    how the cluster behaves, None for as it was published."""

    seeds: Sequence[int]
    command: str
    policies: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    clock: Callable[[], float] | None = None
    weights: Mapping[str, WeightsFile] = field(default_factory=dict)
    rehearse: bool = True
    each: Each = map
    loads: Sequence[str] = ()
    workloads: Sequence[int] = ()
    settings: SimulationSettings | None = None
    second_set: bool = False
    """Of the jobs suite: NCF replaced by CIFAR10, on a cluster of mixed GPUs."""
    learned_speeds: bool = False
    """Of the jobs suite: policies know no tables, only what jobs report."""
    own: OwnReward | None = None
    """A reward of the user's own, measured beside the shipped ones; of the deepsets suite."""
    bound: bool = False
    """Beside the figures, what no scheduler can exceed; of the openb suite."""

    def learned(self, policies: Sequence[str]) -> dict[str, WeightsFile]:
        """The weights of each of these policies: what was given, else what is shipped.

        Raises ``ConfigError`` for weights of another policy, which nobody would use, and where none are shipped.
        """
        check_used(self.weights, policies)
        from shared.policy.weights import shipped

        return {name: self.weights[name] if name in self.weights else shipped(name) for name in policies}


class Suite(Protocol):
    """Runs the experiment. Raises ``ConfigError`` naming a policy it does not compare or a file it misses."""

    def __call__(self, given: SuiteInput, progress: Progress) -> SuiteResult: ...


@dataclass(frozen=True)
class SuiteEntry:
    """A suite is ``run_suite`` in ``module``; ``data``: it is handed the CSV files of these folders of the traces."""

    module: str
    data: tuple[str, ...] = ()


SUITES: Mapping[str, SuiteEntry] = {
    "thesis": SuiteEntry("lab.suites.thesis"),
    "deepsets": SuiteEntry("lab.suites.deepsets"),
    "openb": SuiteEntry("lab.suites.openb", data=("openb",)),
    "jobs": SuiteEntry("lab.suites.jobs", data=("dljobs",)),
    "jobs-twin-a": SuiteEntry("lab.suites.jobs_twin_a"),
    "autoscaling": SuiteEntry("lab.autoscaling.suite"),
    "autoscaling-calibrated": SuiteEntry("lab.autoscaling.yardstick.suite"),
    "learned-twin": SuiteEntry("lab.autoscaling.learned_twin"),
    "tidal": SuiteEntry("lab.mesh.tidal.suite", data=("http", "util", "dljobs", "openb")),
}
"""By what targets they measure: T3 (marl-dqn on the thesis' pods), T2 (ee, lb and el), T1 (the openb GPU trace), T4
(elastic training jobs, on twin B and on twin A), T5 (replicas of service graphs; beside calibrated rules; how far a
twin learned of one is from it); ``tidal``: a day of online services and offline jobs in one pool."""


def check_used(weights: Mapping[str, WeightsFile], policies: Sequence[str]) -> None:
    """Raises ``ConfigError`` for weights of a policy that is not among those measured."""
    for name in weights:
        if name not in policies:
            raise ConfigError(
                f"--weights: of {name!r}, which is not measured here ({', '.join(policies) or 'nothing learned'} is);"
                " leave them out"
            )


def find_suite(name: str) -> Suite:
    """The suite called ``name``. Raises ``ConfigError`` naming those there are."""
    if name not in SUITES:
        raise ConfigError(f"--suite: {name!r} is not known; choose one of {', '.join(sorted(SUITES))}")
    suite: Suite = import_module(SUITES[name].module).run_suite
    return suite
