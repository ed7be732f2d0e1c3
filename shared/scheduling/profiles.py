"""Which schedulerNames a mesh serves, and by what each one's pods are judged.

    settings --profiles_file--> Profiles --applied(pod)--> pod whose class names its profile --offer--> agents

A core applies it to each pod that it is shown; from then on the class says all: filters, scores, the binder's check and
agents read it there. Pods of a name that differs from the default in nothing are as if there were no profiles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from shared.model.constraints import PodClass
from shared.model.pod import Pod
from shared.model.scheduling_profile import SchedulingProfile
from shared.model.terms.relations import NO_RELATIONS


@dataclass(frozen=True)
class Profiles:
    """``names``: the schedulerNames beside the mesh's own; ``special``: by name, those that differ from the default."""

    names: frozenset[str] = frozenset()
    special: dict[str, SchedulingProfile] = field(default_factory=dict)
    _classes: dict[tuple[str, PodClass], PodClass] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, profiles: Iterable[SchedulingProfile]) -> Profiles:
        """Of profiles of different names."""
        all_of = list(profiles)
        return cls(frozenset(one.name for one in all_of), {one.name: one for one in all_of if not one.plain})

    def policies(self) -> list[str]:
        """The policies that profiles name, each once."""
        return sorted({one.policy for one in self.special.values() if one.policy})

    @property
    def weighs_required(self) -> bool:
        """Whether required affinity of pods that stand is worth something else than by default."""
        return any(one.hard_affinity != 1 for one in self.special.values())

    def applied(self, pod: Pod) -> Pod:
        """The pod, of the class that its profile makes of its own."""
        profile = self.special.get(pod.scheduler_name)
        if profile is None or pod.pod_class.profile is not None:
            return pod
        key = pod.scheduler_name, pod.pod_class
        found = self._classes.get(key)
        if found is None:
            if len(self._classes) >= MOST_CLASSES:
                del self._classes[next(iter(self._classes))]
            found = self._classes[key] = profiled(pod.pod_class, profile)
        return replace(pod, pod_class=found)


MOST_CLASSES = 4096
"""Classes that are remembered, so that copies of a pod share one whose hash is known."""


def profiled(pod_class: PodClass, profile: SchedulingProfile) -> PodClass:
    """The class of such a pod in this profile."""
    wishes = (*pod_class.preferred_terms, *profile.wishes)
    return replace(pod_class, preferred_terms=wishes, profile=profile)


def own_policy(pod_class: PodClass) -> str:
    """The policy that the class's profile names; "": the mesh's decides."""
    return "" if pod_class.profile is None else pod_class.profile.policy


def spreads_by_default(pod: Pod) -> bool:
    """Whether its profile gives the pod, which has no spread constraints of its own, some that keep it off nodes. Then
    its namespace, labels and owner decide about it, and pods that stand do."""
    profile = pod.pod_class.profile
    if profile is None or not profile.spread or (pod.relations or NO_RELATIONS).spread:
        return False
    return any(one.hard for one in profile.spread)


DEFAULT_ALONE = Profiles()
