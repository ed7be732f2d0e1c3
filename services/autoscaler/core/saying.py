"""Keeps the status that an object is to have; what it says is ``telling``'s. Pure."""

from __future__ import annotations

from services.autoscaler.core import announcing, gates, telling
from services.autoscaler.core.deciding import ScalerDecision
from services.autoscaler.core.gates import Gate
from services.autoscaler.core.instructions import TellStatus
from services.autoscaler.core.state import ScalerState
from services.autoscaler.core.watched import WatchedScaler


def say(
    state: ScalerState,
    watched: WatchedScaler,
    decided: ScalerDecision | None,
    gate: Gate,
    by_service: dict[str, Gate],
    acted: frozenset[str],
    *,
    wall_s: float = 0.0,
) -> None:
    """Prepare the status and what is to be announced. Without a decision the rows of the last one stay. ``wall_s``:
    seconds since 1970, of a decision."""
    scaler = watched.scaler
    problem = Gate() if decided is not None else gate
    own = gates.of_object(watched) if decided is None else gate
    others = {
        target.name: gates.foreign_text(scaler, target, watched.foreign[target.name], wall_s)
        for target in scaler.targets
        if target.name in watched.foreign and decided is not None and not own.reason
    }
    found = telling.conditions(
        scaler, gate=own, gates=by_service, problem=problem, decided=decided, due=watched.design_due,
        foreign=others, unwritten=watched.unwritten,
    )  # fmt: skip
    trouble = problem if problem.reason else own
    watched.troubles = announcing.troubles_of(watched, decided, trouble, by_service, others)
    services = telling.rows(decided, acted) if decided is not None else watched.status.get("services", [])
    watched.status = telling.status(
        scaler, found, digest=gates.digest(watched), services=services,  # type: ignore[arg-type]
        decisions=watched.history, decided_by=decided.by if decided is not None else "",
    )  # fmt: skip
    state.to_tell[scaler.key] = None


def tellings(state: ScalerState, now: float) -> list[TellStatus]:
    """The statuses that are due to be written."""
    out: list[TellStatus] = []
    for key in list(state.to_tell):
        watched = state.objects.get(key)
        if watched is None or telling.same(watched.status, watched.scaler.written):
            del state.to_tell[key]
        elif not watched.telling and now - watched.told_at >= state.settings.tell_every_s:
            del state.to_tell[key]
            watched.telling, watched.told_at = True, now
            out.append(TellStatus(watched.scaler, watched.status))
    return out
