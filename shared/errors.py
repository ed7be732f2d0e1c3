"""The exception tree of every Conclave process.

One bit matters most to a caller: did the thing certainly not happen (*refused*), or may it have happened (*unknown*)?
Jepsen's etcd tests call this ``definite?``; Patroni answers it with False against an exception. The class carries it:

- ``...Rejected``: it did not happen; safe to retry after reading again.
- ``...Unknown``: it may have happened, at any time up to now; find out before retrying.
- ``StoreFenced``: somebody else leads; stop leading at once.
"""

from __future__ import annotations

from collections.abc import Sequence


class ConclaveError(Exception):
    """Base of every error Conclave raises on purpose. ``code`` is stable: logs, metrics and 4xx bodies use it."""

    code = "internal"


class ConfigError(ConclaveError):
    """A flag, setting, file or trace that cannot be used. The message names the field and the remedy."""

    code = "config_invalid"


class OtherRelease(ConfigError):
    """A policy's weights are in order, but made for the inputs that another release gives."""


class InvalidValue(ConfigError):
    """A value out of its range or of the wrong type, given to a running process. The message names field and range."""

    code = "invalid_value"


class Conflict(ConclaveError):
    """Somebody else changed the same thing first: nothing was written. Read again, then decide anew."""

    code = "conflict"


class TooFewWindows(Conflict):
    """A candidate was to go further than what was seen of it speaks for: nothing was written. Wait, or force it."""

    code = "too_few_windows"


class StoreError(ConclaveError):
    """Base of errors of the coordination store (etcd or memory)."""

    code = "store_error"


class StoreRejected(StoreError):
    """The store refused the request: it had no effect."""

    code = "store_rejected"


class StoreFull(StoreRejected):
    """The store takes no writes that need room, of anybody, until somebody makes room: try the same again later."""

    code = "store_full"


class StoreUnknown(StoreError):
    """No answer came in time or the connection broke: the request may have taken effect."""

    code = "store_unknown"


class StoreRolledBack(StoreUnknown):
    """An answer of another cluster, or older than one already seen: a stale member, or a store restored from a backup.

    Nothing read or written there may be relied upon. A process that meets it again must start from scratch.
    """

    code = "store_rolled_back"


class StoreFenced(StoreError):
    """A transaction compared our term and failed: another leader has been elected. Stop leading."""

    code = "store_fenced"


class StoreCompacted(StoreError):
    """The asked revision has been compacted: list again, diff, then watch from the new revision."""

    code = "store_compacted"

    def __init__(self, message: str, *, compact_revision: int) -> None:
        super().__init__(message)
        self.compact_revision = compact_revision


class KubeError(ConclaveError):
    """Base of errors of the Kubernetes API."""

    code = "kube_error"

    @property
    def nobody_listens(self) -> bool:
        """Whether the connection was refused: a server that is being started again; to try soon costs it nothing."""
        return isinstance(self.__cause__, ConnectionRefusedError)


NAMESPACE_ENDS = "because it is being terminated"
"""In the API server's words (403) where something is made in a namespace that is being deleted: what is in it goes
next, and nobody is to look."""


class KubeRejected(KubeError):
    """The API server answered with a Status failure: the request had no effect.

    ``status`` is the HTTP code, ``reason`` the Status reason (``Conflict``, ``NotFound`` ...),
    ``retry_after_s`` what a 429 asked for.
    """

    code = "kube_rejected"

    def __init__(self, message: str, *, status: int, reason: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s


class KubeUnknown(KubeError):
    """No answer, a broken connection or a 5xx after the request was sent: it may have taken effect.

    ``retry_after_s``: what a 503 asked for.
    """

    code = "kube_unknown"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class KubeExpired(KubeError):
    """410 Gone: the resourceVersion is too old; list again."""

    code = "kube_expired"


class PeerError(ConclaveError):
    """Base of errors of a call to another Conclave service."""

    code = "peer_error"


class PeerRejected(PeerError):
    """The peer refused (4xx), or could not be reached at all: the request had no effect.

    ``code`` is the peer's stable code (``peer_unreachable`` when no connection came about), ``status`` the HTTP code
    (0 when there was none), ``retry_after_s`` what a 429 asked for.
    """

    code = "peer_rejected"

    def __init__(
        self, message: str, *, code: str = "peer_rejected", status: int = 0, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s


class PeerUnknown(PeerError):
    """Sent, but no answer in time, a broken connection or a 5xx: the request may have taken effect."""

    code = "peer_unknown"


class LeadershipLost(ConclaveError):
    """Our lease ended, or may have ended before we can know, or our term is over: another leads, or we must begin anew.
    Stop leading, end the process with exit code 3."""

    code = "leadership_lost"


class WireError(ConclaveError):
    """A message between services that cannot be accepted. ``code`` says why and is part of the protocol."""

    code = "wire_malformed"

    def __init__(self, message: str, *, code: str = "wire_malformed") -> None:
        super().__init__(message)
        self.code = code


class ObjectError(ConclaveError):
    """A Kubernetes object whose ``field`` cannot be used (an unparsable quantity, say). The others go on."""

    code = "object_invalid"

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class InvalidTransition(ConclaveError):
    """A unit was to go from ``start`` to ``finish`` on ``cause``, and its transition table does not lead there.

    What the core remembers cannot be trusted any more, and placements are made from it: the error ends the term, the
    process exits, and a leader that begins anew reads the truth from the API server and etcd. No pod is lost by that;
    going on with the move refused could leave one where nobody looks for it. ``story``: the unit's lines so far.
    """

    code = "invalid_transition"

    def __init__(self, uid: str, start: str, finish: str, cause: str, story: Sequence[str] = ()) -> None:
        told = "".join(f"\n  {line}" for line in story)
        super().__init__(
            f"{uid} cannot go from {start} to {finish} on {cause}; what happened to it:{told or ' nothing'}"
        )
        self.uid = uid
        self.start = start
        self.finish = finish
        self.cause = cause


class InvalidState(ConclaveError):
    """A core's invariants do not hold between two turns. One line each, the invariant's name first, then the stories of
    the pods that they name."""

    code = "invalid_state"

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n  ".join(lines))
