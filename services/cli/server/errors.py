"""How an operator's command fails where it is not bad input, and what an error answer of the admin API means.

Each answer becomes one line with the remedy, and the exit code of its exception. Pure, and cheap to import.
"""

from __future__ import annotations

from shared.errors import ConclaveError, ConfigError

TEXT_CHARS = 300
RETRY_STATUS = frozenset({429, 502, 503, 504})
"""Refused for now: asking again may help."""

REMEDIES = {
    "unauthenticated": "give a token with --token-file, or a certificate with --cert and --key",
    "forbidden": "use a token or certificate of a higher role",
    "no_leader": "a standby takes over within seconds: ask again, or look with 'conclave status --etcd ENDPOINTS'",
    "not_ready": "ask again in a moment",
    "overloaded": "ask again in a moment",
    "conflict": "somebody else was quicker: look again, then repeat it",
    "route_unknown": "is this a coordinator's admin address, and of this version?",
    "node_unknown": "see 'conclave nodes'",
    "pod_unknown": "it is gone, or was never created",
    "unit_unknown": "see 'conclave units'; of a lone pod ask 'conclave explain'",
    "queue_unknown": "see 'conclave queue'",
    "autoscaler_unknown": "see 'conclave autoscale list'",
    "policy_unknown": "see 'conclave policy list'",
    "setting_unknown": "see 'conclave settings'",
}


class ServerFailed(ConclaveError):
    """Nobody answers, nobody leads, the server is too busy, or nobody knows whether it was done. Exit code 1.

    The message names the server, says whether something may have been changed, and what to do.
    """

    code = "server_failed"


class PodUnknown(ConclaveError):
    """There is no such pod. Exit code 1."""

    code = "pod_unknown"


def refusal(url: str, status: int, code: str, message: str) -> ConclaveError:
    """The error to raise for an error answer."""
    remedy = REMEDIES.get(code, "")
    told = clean(message) or f"{status} {code}"
    knows_better = code == "conflict" and ";" in told  # as "nothing to roll back to; activate another policy instead"
    line = told if not remedy or remedy in told or knows_better else f"{told}; {remedy}"
    if code == "pod_unknown":
        return PodUnknown(told)
    if status in RETRY_STATUS:
        return ServerFailed(f"{url}: {line}")
    if status >= 500:
        return ServerFailed(f"{url}: {status} {line}; see the coordinator's log")
    return ConfigError(f"{url}: {line}")


def text_of(error: BaseException) -> str:
    """An error's own words, short and in one line."""
    return clean(str(error) or type(error).__name__)


def clean(text: str) -> str:
    """Text from elsewhere, fit for a terminal: one line, no control characters, bounded."""
    return "".join(char if char.isprintable() else " " for char in text)[:TEXT_CHARS].strip()
