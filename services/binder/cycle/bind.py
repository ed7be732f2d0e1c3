"""What the end of a Binding means, and what to do next. Pure functions; ``core.py`` carries them out.

The API server's answer is the only truth about a pod: a 409 or a lost answer is settled by reading the pod, never by
guessing. Read: on our node, it is bound, by whomever; elsewhere, the account moves there; gone or recreated, nothing is
held; still unbound, the Binding is sent again, after a newer resourceVersion has been written to the intent in a fenced
transaction (a deposed leader must not be able to refresh its own token).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from services.binder.core.state import Transit
from shared.model.pod import Pod
from shared.scheduling.gates import unsupported_text


class Next(Enum):
    """What follows for a unit."""

    BOUND = "bound"
    ELSEWHERE = "elsewhere"
    GONE = "gone"
    READ = "read"
    """Read the pod."""
    LATER = "later"
    """The API server asked to come again; nothing happened."""
    AGAIN = "again"
    """Send the same Binding again."""
    RENEW = "renew"
    """Write the pod's resourceVersion to the intent, then send the Binding again."""
    RECHECK = "recheck"
    """The pod asks for something else than what was checked: check the node again, then renew."""
    WITHDRAW = "withdraw"
    """Give the unit up, with outcome CONFLICT."""
    REFUSE = "refuse"
    """Give the unit up, with outcome REFUSED."""


@dataclass(frozen=True, slots=True)
class Step:
    """What follows, and why."""

    next: Next
    reason: str = ""


def after_refusal(status: int, message: str) -> Step:
    """The API server refused a Binding with HTTP ``status``."""
    reason = f"{status}: {message}"[:512]
    match status:
        case 409:
            return Step(Next.READ, reason)
        case 404:
            # The pod, or its namespace; read to be sure that it was not only this Binding's uid.
            return Step(Next.READ, reason)
        case 429 | 503:
            return Step(Next.LATER, reason)
        case _:
            return Step(Next.REFUSE, reason)


def after_read(transit: Transit, pod: Pod | None, *, max_attempts: int) -> Step:
    """The pod was read after a Binding whose end was not clear, or after it was marked."""
    if pod is None or pod.uid != transit.uid:
        return Step(Next.GONE, "the pod is gone")
    if pod.node_name:
        # Also when it is terminating or finished meanwhile: it was bound, and that is the answer.
        return Step(Next.BOUND if pod.node_name == transit.node else Next.ELSEWHERE)
    if pod.terminating or pod.finished:
        return Step(Next.GONE, "the pod is terminating or finished")
    if transit.withdrawing is not None:
        return Step(Next.WITHDRAW, transit.reason)
    if transit.attempts >= max_attempts:
        return Step(Next.WITHDRAW, f"not bound after {transit.attempts} Bindings: {transit.reason}"[:512])
    if pod.invalid or pod.gates:
        return Step(Next.REFUSE, pod.invalid or "the pod has scheduling gates")
    if pod.unsupported:
        return Step(Next.REFUSE, unsupported_text(pod)[:512])
    if pod.pod_class != transit.pod_class:
        return Step(Next.RECHECK)
    return Step(Next.AGAIN if pod.resource_version == transit.rv else Next.RENEW)
