"""Whose number is taken: the policy's, HPA's rule's, or the larger of the two. Pure.

``fallback``: a policy that failed, was late, answered with what is no number of replicas, or lacks a signal that it
needs is not obeyed: what runs, or HPA's rule where that is more. ``drift``: what is unlike its training is decided by
HPA's rule alone.
"""

from __future__ import annotations

from shared.autoscaling.safety.scene import Draft, SafetyScene, ServiceCase

MAX_ANSWER = 1_000_000
"""More replicas than any bounds allow: an answer above is no number of replicas but a mistake."""


def usable(answer: object) -> bool:
    """Whether an answer is a number of replicas."""
    return isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer <= MAX_ANSWER


def first(scene: SafetyScene) -> Draft:
    """The policy's answers; what it did not name, or named badly, keeps what it has."""
    return Draft(
        {
            name: case.wanted if isinstance(case.wanted, int) and usable(case.wanted) else case.seen.replicas
            for name, case in scene.services.items()
        }
    )


def fallback(scene: SafetyScene, draft: Draft) -> None:
    """At least what runs and HPA's rule, where the policy gave no usable answer, or decided blindly."""
    for name, case in scene.services.items():
        why = scene.policy_failed or case.lacking
        if not why and case.wanted is not None and not usable(case.wanted):
            why = f"the policy's answer {repr(case.wanted)[:32]} is no number of replicas"
        if why:
            draft.at_least(name, larger(case), "fallback", why)


def drift(scene: SafetyScene, draft: Draft) -> None:
    """HPA's rule, where what is seen is unlike what the policy was trained on."""
    if scene.drifting:
        for name, case in scene.services.items():
            draft.set(name, case.seen.replicas if case.rule is None else case.rule, "drift", scene.drifting)


def larger(case: ServiceCase) -> int:
    """What runs, or HPA's rule where that is more."""
    return max(case.seen.replicas, case.rule or 0)


def unfinished(scene: SafetyScene, draft: Draft) -> None:
    """A rise that was decided is finished: who decided it died before it was written."""
    for name, case in scene.services.items():
        if case.floor is not None:
            draft.at_least(name, case.floor, "unfinished", f"an earlier decision ordered {case.floor}")
