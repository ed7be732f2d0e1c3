"""Where a TrainingJob can be, and where it can go next. The phase follows from what was decided and what is seen::

    Pending --target--> Starting --minimum runs--> Reshaping <--> Running --all exit 0--> Succeeded
       ^                   |                           \\           /
       |                   v                            v         v
    Stopping <----- (target 0: paused, or a policy) ---- Restarting --too many failures--> Failed
       |
       v
    Paused

J1 a target that is decided is 0 or from the minimum to the maximum · J2 a write has one object, and an object one write
at a time · J3 a worker that runs is taken away only where at least the minimum still runs · J4 a job that has something
to do has a write out, or a time at which it is looked at again · J5 what ended stays ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.errors import InvalidTransition
from shared.model.controllers.training_job import JobPhase

_P = JobPhase
_ENDS = {_P.SUCCEEDED, _P.FAILED}
_ACTIVE = {_P.STARTING, _P.RUNNING, _P.RESHAPING, _P.RESTARTING}

TRANSITIONS: Mapping[JobPhase, frozenset[JobPhase]] = {
    _P.PENDING: frozenset({_P.STARTING, _P.RESTARTING, _P.RUNNING, _P.RESHAPING, _P.STOPPING, _P.PAUSED, *_ENDS}),
    _P.STARTING: frozenset({*_ACTIVE, _P.STOPPING, _P.PENDING, _P.PAUSED, *_ENDS} - {_P.STARTING}),
    _P.RUNNING: frozenset({_P.RESHAPING, _P.RESTARTING, _P.STOPPING, _P.PENDING, _P.PAUSED, *_ENDS}),
    _P.RESHAPING: frozenset({_P.RUNNING, _P.RESTARTING, _P.STOPPING, _P.PENDING, _P.PAUSED, *_ENDS}),
    _P.RESTARTING: frozenset({_P.RUNNING, _P.RESHAPING, _P.STOPPING, _P.PENDING, _P.PAUSED, *_ENDS}),
    _P.STOPPING: frozenset({_P.PENDING, _P.PAUSED, *_ACTIVE, *_ENDS}),
    _P.PAUSED: frozenset({_P.PENDING, _P.STOPPING, *_ACTIVE, *_ENDS}),
    _P.SUCCEEDED: frozenset(),
    _P.FAILED: frozenset(),
}
"""A job that has run once never starts anew: it restarts. One that ended goes nowhere."""


def check_move(uid: str, start: JobPhase, finish: JobPhase, cause: str, story: Sequence[str]) -> None:
    """Raises ``InvalidTransition`` for a move that the table does not have."""
    if start is not finish and finish not in TRANSITIONS[start]:
        raise InvalidTransition(uid, start.value, finish.value, cause, story)
