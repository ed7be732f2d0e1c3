"""ServiceAccounts and their TokenRequest subresource.

Source: ``pkg/registry/core/serviceaccount``. The tokens have the shape of a JWT but no signature: the twin
may know them by heart, it never believes what they say.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from typing import Any

from twin.kinds.rules.printing import printed
from twin.kinds.rules.typed import TypedStrategy, decode_body, expect_kind
from twin.registry.status import bad_request, invalid, not_found, unprocessable
from twin.registry.strategy import HandlerResult, KindInfo, ObjectRegistry, RequestContext, Subresource

Json = dict[str, Any]

_REQUEST = (("authentication.k8s.io/v1", "TokenRequest"),)
_AUDIENCES = ["https://kubernetes.default.svc"]
_DEFAULT_S, _SHORTEST_S, _LONGEST_S = 3600, 600, 2**32


def request_token(ctx: RequestContext, registry: ObjectRegistry, name: str, body: Json) -> HandlerResult:
    """POST serviceaccounts/NAME/token."""
    account = registry.get("serviceaccounts", ctx.namespace, name)
    if account is None:
        raise not_found("serviceaccounts", "", name)
    expect_kind(body, _REQUEST, "TokenRequest", "authentication.TokenRequest")
    body = decode_body("authentication/v1.TokenRequest", "TokenRequest", "v1", body, ctx)
    given = body["metadata"].get("name")
    if given and given != name:
        raise bad_request(f"name in request ({given}) does not match name in URL ({name})")
    spec = body["spec"]
    seconds = spec.get("expirationSeconds") or _DEFAULT_S
    if seconds < _SHORTEST_S:
        error = invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        raise unprocessable("TokenRequest", "authentication.k8s.io", "", [error])
    if seconds > _LONGEST_S:
        error = invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
        raise unprocessable("TokenRequest", "authentication.k8s.io", "", [error])
    meta = account["metadata"]
    audiences = spec.get("audiences") or _AUDIENCES
    claims = {
        "aud": audiences,
        "exp": int(ctx.now_s) + seconds,
        "iat": int(ctx.now_s),
        "sub": f"system:serviceaccount:{ctx.namespace}:{name}",
        "uid": meta["uid"],
    }
    expires = datetime.fromtimestamp(int(ctx.now_s) + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": ctx.namespace, "uid": meta["uid"], "creationTimestamp": ctx.now},
        "spec": {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": spec.get("boundObjectRef"),
        },
        "status": {"token": _token(claims), "expirationTimestamp": expires},
    }
    return HandlerResult(201, answer)


def _token(claims: Json) -> str:
    parts = ({"alg": "none"}, claims)
    encoded = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "twin"])


class ServiceAccountStrategy(TypedStrategy):
    """Core v1 ServiceAccount."""

    info = KindInfo("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", True, short_names=("sa",))
    go_type = "core/v1.ServiceAccount"
    has_generation = False
    resets_status = False
    returns_deleted = True
    table = printed("Name", ("Secrets", lambda obj: len(obj.get("secrets") or ())), "Age")
    subresources = (
        Subresource(
            "token", ("create",), kind="TokenRequest", group="authentication.k8s.io", version="v1", create=request_token
        ),
    )
