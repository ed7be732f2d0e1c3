"""Named places where a test can kill or pause this very process: the gaps between two effects.

``CONCLAVE_FAILPOINT="after_commit=kill"`` or ``"before_bind=pause:5"``, several separated by commas; ``name@3=kill``
acts at the third time. Each acts once. A pause blocks the whole event loop, as a stopped machine or a long garbage
collection would. The names in use: ``before_commit``, ``after_commit``, ``before_bind``, ``after_bind``,
``before_evict`` (binder) and ``before_publish``, ``before_nominate``, and before and after ``plan``, ``gang_plan``,
``victims_plan``, ``claim_free`` and ``claim_delete`` (coordinator). In the binder, around steps of a gang:
``gang_link`` and ``gang_head`` (values of its intent are written), ``gang_rewrite``, ``gang_clear``,
``gang_first_bind`` (nobody is bound yet) and ``gang_next_bind``, each with ``before_`` and ``after_``; around writes
of claims for devices ``claim_mark``, ``claim_status`` and ``claim_free``, of those that it makes itself
``claim_create``, ``claim_delete`` and ``pod_status``; and around the transaction after which a binder tells what it
lends: ``lend``. In whoever moves pods: ``before_move_batch``, ``after_move_reserve``, ``before_move_evict`` (the move
is written down), ``after_move_evict`` and ``after_move_taken`` (the replacement is bound, and not Ready yet).

Does nothing without the variable, which no deployment sets; then ``reach`` is one attribute read.
``before_nominate`` and ``after_nominate`` lie around the transaction that keeps where pods are to go.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping

from shared.errors import ConfigError

VARIABLE = "CONCLAVE_FAILPOINT"


class Failpoints:
    """The failpoints of one process."""

    def __init__(self, text: str = "") -> None:
        self._armed: dict[str, tuple[int, float | None]] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            place, _, action = part.partition("=")
            name, _, times = place.partition("@")
            verb, _, seconds = action.partition(":")
            try:
                pause_s = float(seconds) if verb == "pause" else None
                count = int(times or 1)
            except ValueError:
                verb = ""
            if not name or verb not in {"kill", "pause"}:
                raise ConfigError(f"{VARIABLE}: {part!r} is not NAME[@TIME]=kill or NAME[@TIME]=pause:SECONDS")
            self._armed[name] = (count, pause_s)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Failpoints:
        """Those the environment names. ``ConfigError`` for a malformed value."""
        return cls((os.environ if environ is None else environ).get(VARIABLE, ""))

    def reach(self, name: str) -> None:
        """The process is at the place ``name``: die or stand still if a test wants it."""
        if not self._armed or name not in self._armed:
            return
        count, pause_s = self._armed[name]
        if count > 1:
            self._armed[name] = (count - 1, pause_s)
            return
        del self._armed[name]
        if pause_s is None:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            time.sleep(pause_s)
