"""Which suites there are, and where each is found. They are imported when asked for: each brings its own experiment.

A suite is a function of seeds: the same seeds give the same figures. It reads nothing but what it is handed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from shared.errors import ConfigError
from shared.experiments.evaluation.results import Progress, SuiteResult

if TYPE_CHECKING:
    from shared.policy.weights import WeightsFile


@dataclass(frozen=True)
class SuiteInput:
    """What a suite is handed. ``policies`` empty: all that it compares. ``files``: text of trace files by name.
    ``clock``: CPU seconds of the calling thread, for suites that time decisions; None: they do not. ``weights`` by
    policy: in place of those that are shipped. ``rehearse``: frag may leave a trace to FGD (``rehearsal.py``)."""

    seeds: Sequence[int]
    command: str
    policies: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    clock: Callable[[], float] | None = None
    weights: Mapping[str, WeightsFile] = field(default_factory=dict)
    rehearse: bool = True

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
    """``function`` in ``module``; ``needs_trace``: it is handed the CSV files of the trace folder."""

    module: str
    about: str
    needs_trace: bool = False
    function: str = "run_suite"


SUITES: Mapping[str, SuiteEntry] = {
    "thesis": SuiteEntry(
        "shared.experiments.evaluation.suites.thesis", "marl-dqn on the 105 pods of the thesis (targets T3)"
    ),
    "deepsets": SuiteEntry(
        "shared.experiments.evaluation.suites.deepsets", "ee, lb and el on the experiments of targets T2"
    ),
    "openb": SuiteEntry(
        "shared.experiments.evaluation.suites.openb", "placement on the openb GPU trace (targets T1)", needs_trace=True
    ),
}


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
    entry = SUITES.get(name)
    if entry is None:
        raise ConfigError(f"--suite: {name!r} is not known; choose one of {', '.join(sorted(SUITES))}")
    try:
        module = import_module(entry.module)
    except ModuleNotFoundError as error:
        if error.name != entry.module:
            raise
        raise ConfigError(f"--suite: {name} is not part of this build ({entry.module} is missing)") from None
    suite: Suite = getattr(module, entry.function)
    return suite
