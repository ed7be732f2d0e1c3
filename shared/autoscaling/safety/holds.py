"""When a service may not be made smaller: something else is going on with it. Pure.

``held``: a rollout, a drain, a fail-over, a failing probe (they come with the observation). ``nobody_ready``: no pod
that serves is no sign of no load. ``foreign``: what somebody else set is no ceiling, and a floor until a go.
``budget``: no more serving pods go at once than its disruption budget allows; pods that are not ready do not count as
serving.
"""

from __future__ import annotations

from shared.autoscaling.safety.scene import Draft, SafetyScene


def held(scene: SafetyScene, draft: Draft) -> None:
    """Not below what there is, while something holds it."""
    for name, case in scene.services.items():
        if case.seen.held:
            draft.at_least(name, case.seen.replicas, "held", case.seen.held[0])


def foreign(scene: SafetyScene, draft: Draft) -> None:
    """Not below what somebody else wrote."""
    for name, case in scene.services.items():
        if case.foreign is not None:
            floor = min(case.foreign, case.seen.replicas)
            draft.at_least(
                name, floor, "foreign", f"somebody else set {case.foreign}, which stands until it is approved"
            )


def nobody_ready(scene: SafetyScene, draft: Draft) -> None:
    """Not below what there is, while nobody serves."""
    for name, case in scene.services.items():
        if case.seen.replicas > 0 and case.seen.ready == 0:
            draft.at_least(name, case.seen.replicas, "nobody-ready", "no pod is ready; that is not no load")


def budget(scene: SafetyScene, draft: Draft) -> None:
    """At most so many serving pods fewer as its disruption budget lets go."""
    for name, case in scene.services.items():
        if case.disruptions is not None:
            serving = case.seen.ready - max(case.disruptions, 0)
            why = f"{case.seen.ready} pods serve and its disruption budget lets {case.disruptions} go"
            draft.at_least(name, min(serving, case.seen.replicas), "budget", why)
