"""Who is asking, and whether they may.

The administrator has the one token that is given on the command line. Tokens that were issued for service accounts are
known by heart until they expire; what they say is not believed. Whoever has none is ``system:anonymous``, who sees
health and version only, as a real server's default bindings allow. Everybody but the administrator needs RBAC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from services.twin.api.paths import ResourcePath
from services.twin.registry.rbac import Attributes, allowed_by
from services.twin.registry.status import ApiError, Json, forbidden, status, unauthorized
from services.twin.registry.strategy import Reader

ADMIN = "system:admin"
ANONYMOUS = "system:anonymous"

_OPEN_PREFIXES = ("/healthz", "/livez", "/readyz", "/version")
_READS = {"GET": "get", "HEAD": "get"}
_REVIEWS = ("authentication.k8s.io", "authorization.k8s.io")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", **_READS}


@dataclass(frozen=True, slots=True)
class Caller:
    """A user as authentication sees it. ``admin`` may do everything."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    admin: bool = False


class Witness(Protocol):
    """Told of every request that was authenticated (``RequestLog``)."""

    def __call__(self, user: str, asked: Attributes, *, allowed: bool) -> None:
        """``asked`` is as an authorizer sees the request."""
        ...


_ADMIN_CALLER = Caller(ADMIN, ("system:masters", "system:authenticated"), admin=True)
_ANONYMOUS_CALLER = Caller(ANONYMOUS, ("system:unauthenticated",))


class Access:
    """Authentication by bearer token, authorization by RBAC."""

    def __init__(
        self, token: str, reader: Reader, clock: Callable[[], float], *, witness: Witness | None = None
    ) -> None:
        """``token`` empty: everybody is the administrator (a private test server)."""
        self._witness = witness
        self._header = f"Bearer {token}"
        self._open = not token
        self._reader = reader
        self._clock = clock
        self._issued: dict[str, tuple[Caller, float]] = {}

    def issue(self, namespace: str, request: Json) -> None:
        """Know the token of an answered TokenRequest until it expires."""
        name, meta = request["metadata"]["name"], request["metadata"]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        caller = Caller(f"system:serviceaccount:{namespace}:{name}", groups, uid=meta["uid"])
        now_s = self._clock()
        self._issued = {header: known for header, known in self._issued.items() if known[1] > now_s}
        expires_s = now_s + request["spec"]["expirationSeconds"]
        self._issued[f"Bearer {request['status']['token']}"] = (caller, expires_s)

    def caller(self, header: str) -> Caller:
        """The user behind an Authorization header. Refused: 401 for an unknown or expired token."""
        if header == self._header or self._open:
            return _ADMIN_CALLER
        if not header:
            return _ANONYMOUS_CALLER
        caller, expires_s = self._issued.get(header, (None, 0.0))
        if caller is None or self._clock() >= expires_s:
            raise unauthorized()
        return caller

    def check(self, caller: Caller, method: str, path: str, target: ResourcePath | None, *, watch: bool) -> None:
        """Refused: 403, worded as RBAC words it."""
        if self._witness is None and self._is_open(caller, method, path):
            return
        asked = _asked(method, path, target, watch=watch)
        refusal = None if self._is_open(caller, method, path) else self._refusal(caller, asked, target)
        if self._witness is not None:
            self._witness(caller.name, asked, allowed=refusal is None)
        if refusal is not None:
            raise refusal

    @staticmethod
    def _is_open(caller: Caller, method: str, path: str) -> bool:
        return caller.admin or (method in _READS and path.startswith(_OPEN_PREFIXES))

    def _refusal(self, caller: Caller, asked: Attributes, target: ResourcePath | None) -> ApiError | None:
        """None where it is allowed."""
        known = caller is not _ANONYMOUS_CALLER
        if known and asked.group in _REVIEWS and asked.resource.startswith("selfsubject"):
            return None
        if allowed_by(self._reader, caller.name, caller.groups, asked):
            return None
        if target is None or not target.plural:
            text = f'forbidden: User "{caller.name}" cannot {asked.verb} path "{asked.path}"'
            body = status(403, "Forbidden", text)
            del body["code"]
            return ApiError({**body, "details": {}, "code": 403})
        return self._denied(caller, asked.verb, asked.resource, target)

    @staticmethod
    def _denied(caller: Caller, verb: str, resource: str, target: ResourcePath) -> ApiError:
        where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        text = f'User "{caller.name}" cannot {verb} resource "{resource}" in API group "{target.group}" {where}'
        return forbidden(target.plural, target.group, target.name, text)


def _asked(method: str, path: str, target: ResourcePath | None, *, watch: bool) -> Attributes:
    """A request as an authorizer sees it."""
    if target is None or not target.plural:
        return Attributes(method.lower(), path=path)
    verb = _VERBS.get(method, method.lower())
    if not target.name:
        verb = {"get": "watch" if watch or target.watch else "list", "delete": "deletecollection"}.get(verb, verb)
    resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    return Attributes(verb, target.group, resource, target.namespace, target.name)
