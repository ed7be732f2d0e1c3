"""Every refusal of a listener, in one table: stable code, status, what it means and what to do about it.

    raise Refused(message, code=...)  -->  the table's status, {code, message}, Retry-After where waiting helps

Codes never change once they are released; messages may. docs/reference/refusals.md is made from the table. Errors that
are not in it are answered with 500 and without their text, which may hold anything: it is in our log only.
"""

from __future__ import annotations

import msgspec
from aiohttp import web
from msgspec import Struct

from shared.adapters.peers.client import MEDIA_TYPE
from shared.errors import ConclaveError, ConfigError, InvalidValue, StoreFenced

MESSAGE_CHARS = 512


class RefusalCode(Struct, frozen=True):
    """One row. ``retry_s``: what Retry-After says unless the refusal knows better; None: waiting does not help."""

    code: str
    status: int
    meaning: str
    remedy: str
    retry_s: float | None = None


LOOK = "the outcome is unknown: look before you repeat a change"

CODES: dict[str, RefusalCode] = {
    row.code: row
    for row in (
        RefusalCode(
            "invalid_request", 400, "a parameter or the body does not fit its schema", "the message names the field"
        ),
        RefusalCode(
            "wire_malformed", 400, "the body is no message between services", "run one version of every service"
        ),
        RefusalCode("wire_invalid", 400, "a field of the message cannot be", "run one version of every service"),
        RefusalCode("wire_unknown_kind", 400, "no message of this kind is known", "run one version of every service"),
        RefusalCode(
            "wire_unknown_version", 400, "this version of messages is not spoken", "run one version of every service"
        ),
        RefusalCode(
            "wire_unexpected_kind", 400, "a message of another kind is wanted here", "run one version of every service"
        ),
        RefusalCode(
            "unauthenticated", 401, "no accepted token or certificate", "send a token of the file, or a certificate"
        ),
        RefusalCode("forbidden", 403, "the role may not do this", "ask with the role that the message names"),
        RefusalCode(
            "foreign_agent", 403, "the certificate is another agent's", "give each agent a certificate of its own"
        ),
        RefusalCode("route_unknown", 404, "there is no such route", "see the list of routes"),
        RefusalCode("node_unknown", 404, "there is no node of this name", "list the nodes"),
        RefusalCode("pod_unknown", 404, "there is no pod of this name, or it is gone", "look for it with kubectl"),
        RefusalCode("unit_unknown", 404, "there is no pod group of this name", "list the units; explain a lone pod"),
        RefusalCode("queue_unknown", 404, "there is no Queue of this name", "list the queues"),
        RefusalCode(
            "autoscaler_unknown",
            404,
            "no decision about such a ResilientAutoscaler is recorded",
            "list the autoscalers",
        ),
        RefusalCode("policy_unknown", 404, "there is no policy of this name", "list the policies"),
        RefusalCode("method_not_allowed", 405, "the route takes another method", "the header Allow names it"),
        RefusalCode("body_timeout", 408, "the body came too slowly", "look at the network; had no effect"),
        RefusalCode(
            "conflict", 409, "something else is the case than the caller thought", "read again, then decide again"
        ),
        RefusalCode(
            "too_few_windows", 409, "too few windows speak for the candidate's next step", "wait for them, or force it"
        ),
        RefusalCode("stale_term", 409, "the sender leads no more, or never did", "look in etcd who leads"),
        RefusalCode("superseded", 409, "somebody else tells of that node", "one sensor or agent a node is enough"),
        RefusalCode("past_boot", 409, "another boot or machine has spoken for the node since", "end one of the two"),
        RefusalCode("other_policy", 409, "the learner trains another policy", "follow the policy pointer"),
        RefusalCode("kube_rejected", 409, "the API server refused: had no effect", "the message has its reason"),
        RefusalCode("store_rejected", 409, "etcd refused: had no effect", "read again, then decide again"),
        RefusalCode(
            "too_large", 413, "the body is over its limit: 64 KiB, of weights 1,500,000 bytes", "send less at once"
        ),
        RefusalCode("wire_too_large", 413, "the message is over its limit", "report it: no service sends so much"),
        RefusalCode("media_type_unsupported", 415, "send application/json", "set Content-Type; services speak msgpack"),
        RefusalCode("not_leader", 421, "another process leads", "look in etcd who leads"),
        RefusalCode(
            "wrong_shard",
            421,
            "a node of the plan is of another binder's shard",
            "had no effect; one of the two has old news",
        ),
        RefusalCode(
            "mixture_invalid", 422, "a mixture of policies that cannot decide", "correct the field that is named"
        ),
        RefusalCode(
            "weights_invalid", 422, "weights that their policy refuses", "the message says what is wrong and the remedy"
        ),
        RefusalCode("digest_differs", 422, "the weights have another sha256 than was said", "send the file again"),
        RefusalCode(
            "invalid_value", 422, "it fits the schema, and a value in it cannot be", "the message says what is allowed"
        ),
        RefusalCode("overloaded", 429, "too many requests; see Retry-After", "ask less often, or later", 1),
        RefusalCode("internal", 500, "a fault of ours", "report it with the log of the process"),
        RefusalCode("no_leader", 503, "nobody leads, or it has just changed: had no effect", "ask again", 1),
        RefusalCode("not_ready", 503, "the leader is still listing: had no effect", "ask again", 1),
        RefusalCode("leader_silent", 503, "the leader gave no answer", LOOK, 1),
        RefusalCode("leadership_lost", 503, "the process leads no more", LOOK, 1),
        RefusalCode("timeout", 503, "no answer in time", LOOK, 1),
        RefusalCode("store_full", 503, "etcd has no room for it: had no effect", "make room; see the runbooks", 10),
        RefusalCode("store_unknown", 503, "etcd gave no answer", LOOK, 1),
        RefusalCode(
            "store_rolled_back", 503, "etcd is older than what was seen of it", "repair etcd; see the runbooks", 1
        ),
        RefusalCode("store_compacted", 503, "etcd has forgotten what was asked for", "ask again", 1),
        RefusalCode("store_error", 503, "etcd failed", LOOK, 1),
        RefusalCode("kube_unknown", 503, "the API server gave no answer", LOOK, 1),
        RefusalCode("kube_expired", 503, "the API server has forgotten what was asked for", "ask again", 1),
        RefusalCode("kube_error", 503, "the API server failed", LOOK, 1),
        RefusalCode("peer_rejected", 409, "another service refused: had no effect", "see its log"),
        RefusalCode("peer_unknown", 503, "another service gave no answer", LOOK, 1),
        RefusalCode("peer_error", 503, "a call to another service failed", LOOK, 1),
        RefusalCode("object_invalid", 503, "an object in the cluster cannot be read", "the message names the field", 1),
    )
}


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every 4xx and 5xx. ``code`` is stable, ``message`` is for people."""

    code: str
    message: str


class RequestRefused(ConclaveError):
    """Ends a request with a row of the table. ``retry_after_s``: in place of the row's."""

    def __init__(self, message: str, *, code: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        row = CODES[code]
        self.code = code
        self.status = row.status
        self.retry_after_s = retry_after_s if retry_after_s is not None else row.retry_s


def refusal_of(error: Exception) -> RequestRefused:
    """What a failure is answered with."""
    match error:
        case RequestRefused():
            return error
        case StoreFenced():
            return RequestRefused("this process does not lead any more", code="no_leader")
        case ConfigError() if not isinstance(error, InvalidValue):
            return RequestRefused(str(error), code="conflict")
        case TimeoutError():
            return RequestRefused("no answer in time; look before trying again", code="timeout")
        case ConclaveError() if error.code in CODES:
            return RequestRefused(str(error), code=error.code)
        case _:
            return RequestRefused("internal error", code="internal")


def told(refused: RequestRefused) -> tuple[ErrorAnswer, dict[str, str]]:
    """What a refusal is answered with: the body, and headers of its own."""
    # may quote what the caller sent: half a surrogate pair would stop the encoder, a line break splits the line
    shown = "".join(char if char.isprintable() else "?" for char in str(refused)[:MESSAGE_CHARS])
    headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
    if refused.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(refused.retry_after_s)))
    return ErrorAnswer(code=refused.code, message=shown), headers


def answer_of(request: web.BaseRequest, refused: RequestRefused) -> web.Response:
    """The response, in msgpack where the caller speaks it."""
    body, headers = told(refused)
    if request.content_type == MEDIA_TYPE:
        headers["Content-Type"] = MEDIA_TYPE
        return web.Response(status=refused.status, body=msgspec.msgpack.encode(body), headers=headers)
    return as_json(body, status=refused.status, headers=headers)


def as_json(answer: object, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A response in JSON."""
    return web.Response(status=status, body=encoded(answer), content_type="application/json", headers=headers)


def encoded(answer: object) -> bytes:
    """The body of an answer."""
    return _encoder.encode(answer) + b"\n"


_encoder = msgspec.json.Encoder()
