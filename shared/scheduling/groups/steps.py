"""In which steps units leave for a group, each with those before it, and who of them stays after all."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass

from msgspec import Struct, field

from shared.model.pod import Pod
from shared.scheduling.groups.trial import Standing, Trial
from shared.scheduling.preemption.budgets import by_budget
from shared.scheduling.preemption.units import NOT_STARTED, VictimUnit, importance
from shared.scheduling.state.cluster_state import ClusterState

ABOVE_ALL = 2**31
"""Above every priority."""

LOOKED_UP = 20
"""Work of one pod that is looked at."""

PART = 5_000
"""Work after which a search lets others go on."""


class GroupPreemption(Struct, frozen=True):
    """``nodes``: by uid where members are to go, as many as make the minimum; ``victims``: who has to leave before, the
    most important first; ``violating``: uids of those whose budget that breaks; ``broken``: keys of gangs that fall
    below their minimum. ``reason``: why preemption does not help, in kube-scheduler's words; then all else is empty."""

    nodes: dict[str, str] = field(default_factory=dict)
    victims: tuple[Pod, ...] = ()
    violating: frozenset[str] = frozenset()
    broken: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class LeavingStep:
    """Units that leave together. ``rank``: in which order steps are taken; ``breaks``: the gang that is broken."""

    rank: tuple[bool, int, bool, int]
    units: list[VictimUnit]
    breaks: str = ""


class LeavingSteps:
    """``leaving``: who leaves for somebody already; ``ran``: how many members of a group count that have ended;
    ``strict``: no budget may be broken."""

    def __init__(
        self, cluster: ClusterState, leaving: Callable[[Pod], bool], ran: Callable[[str], int], *, strict: bool
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._leaving = leaving
        self._ran = ran
        self._strict = strict

    def of(self, units: list[VictimUnit]) -> tuple[list[LeavingStep], set[str]]:
        """The units in the order in which they leave, and the uids of pods whose budget that breaks."""
        going = [unit for unit in units if self._goes(unit)]
        if going:
            known = set(going)
            units = [unit for unit in units if unit not in known]
        violating = set[str]()
        if self._cluster.budgets:
            ordered = sorted(units, key=lambda unit: unit.importance)
            violating = {pod.uid for pod in by_budget((p for u in ordered for p in u.pods), self._cluster)[0]}
        if self._strict:
            units = [unit for unit in units if not any(pod.uid in violating for pod in unit.pods)]
        spare: dict[str, int] = {}
        for unit in going:
            if key := unit.pods[0].group:
                spare[key] = spare.get(key, self._spare(key)) - _running(unit.pods)
        age: dict[str, str] = {}
        steps: dict[tuple[bool, int, bool, str], list[VictimUnit]] = {}
        for unit in units:
            key = unit.pods[0].group
            if key and key not in spare:
                spare[key] = self._spare(key)
            breaks = unit.whole or (bool(key) and spare[key] <= 0)
            if key:
                spare[key] -= _running(unit.pods)
                age[key] = min(age.get(key, NOT_STARTED), unit.started)
            forced = bool(violating) and any(pod.uid in violating for pod in unit.pods)
            steps.setdefault((forced, unit.priority, breaks, key if breaks else ""), []).append(unit)
        youngest = {key: at for at, key in enumerate(sorted(age, key=lambda one: (age[one], one), reverse=True))}
        found = [
            LeavingStep((forced, priority, breaks, youngest.get(key, 0)), there, key)
            for (forced, priority, breaks, key), there in steps.items()
        ]
        first = [LeavingStep((False, -ABOVE_ALL, False, 0), going)] if going else []
        return first + sorted(found, key=lambda step: step.rank), violating

    def _goes(self, unit: VictimUnit) -> bool:
        pods = unit.pods
        return self._leaving(pods[0]) and (len(pods) == 1 or all(self._leaving(pod) for pod in pods))

    def _spare(self, key: str) -> int:
        """How many members of a group may leave before it is broken: all of one that is no gang, or broken already."""
        group, standing = self._cluster.pod_groups.get(key), self._cluster.members.get(key, ())
        pods = [self._cluster.index.get(uid) for uid in standing]
        running = _running(pod for pod in pods if pod is not None)
        needed = max(0, group.min_count - self._ran(key)) if group is not None and group.gang else 0
        return running - needed if running >= needed else len(pods)

    def spared(
        self, trial: Trial, steps: Sequence[LeavingStep], violating: set[str]
    ) -> Generator[int, None, GroupPreemption]:
        """Everybody who is not in the way stays: who breaks a budget first, then by importance, gangs before pods."""
        accounts, ruled = self._cluster.cache.accounts, trial.tried.ruled
        leaving = [
            (step, unit)
            for step in steps
            for unit in step.units
            if ruled or any(accounts[pod.uid].node_name in trial.taken for pod in unit.pods if pod.uid in accounts)
        ]  # fmt: skip  who is not where members are stays in any case
        leaving.sort(
            key=lambda one: (
                self._goes(one[1]),
                all(pod.uid not in violating for pod in one[1].pods),
                -one[1].priority,
                not one[0].breaks,
                -one[0].rank[3],
                one[1].importance,
                one[1].pods[0].uid,
            )
        )
        victims: list[Pod] = []
        before = trial.work - LOOKED_UP * len(leaving)
        for _, unit in leaving:
            if not trial.put_back(standing(self._cluster, unit.pods)):
                victims += unit.pods
            if trial.work > before + PART:
                yield trial.work - before
                before = trial.work
        yield trial.work - before
        lost: dict[str, int] = {}
        for pod in victims:
            if pod.group and not pod.terminating:
                lost[pod.group] = lost.get(pod.group, 0) + 1
        broken = sorted(key for key, count in lost.items() if count > self._spare(key))
        return GroupPreemption(
            dict(trial.nodes),
            tuple(sorted(victims, key=importance)),
            frozenset(pod.uid for pod in victims if pod.uid in violating),
            tuple(broken),
        )


def _running(pods: Iterable[Pod]) -> int:
    """How many of them count for their group: those that are not on their way out."""
    return sum(not pod.terminating for pod in pods)


def standing(cluster: ClusterState, pods: Iterable[Pod]) -> list[Standing]:
    """Each pod with its row and devices; those on nodes that are gone are left out."""
    found: list[Standing] = []
    for pod in pods:
        account = cluster.cache.accounts.get(pod.uid)
        row = cluster.table.row_of.get(account.node_name) if account is not None else None
        if account is not None and row is not None:
            found.append((pod, row, account.devices))
    return found
