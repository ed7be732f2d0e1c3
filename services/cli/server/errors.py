"""How an operator's command fails where it is not bad input. Cheap to import."""

from __future__ import annotations

from shared.errors import ConclaveError


class ServerFailed(ConclaveError):
    """Nobody answers, nobody leads, the server is too busy, or nobody knows whether it was done. Exit code 1.

    The message names the server, says whether something may have been changed, and what to do.
    """

    code = "server_failed"


class PodUnknown(ConclaveError):
    """There is no such pod. Exit code 1."""

    code = "pod_unknown"
