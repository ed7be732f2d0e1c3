"""Who is asking, and whether they may.

The administrator has the one token that is given on the command line. Tokens that were issued for service accounts are
known by heart until they expire; what they say is not believed. Whoever brings no bearer token, whatever else there is
in the header, is ``system:anonymous``, who sees health and version only; whoever is known sees discovery too, as a real
server's default bindings allow. Everybody but the administrator needs RBAC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from twin.api.requests.paths import ResourcePath
from twin.registry.access.rbac import Attributes, allowed_by
from twin.registry.status import ApiError, Json, forbidden, status, unauthorized
from twin.registry.strategy import StoreReader

ADMIN = "system:admin"
ANONYMOUS = "system:anonymous"

_PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")
"""``system:public-info-viewer``: for everybody, with the verb get."""
_DISCOVERY = ("/api", "/apis", "/openapi")
"""``system:discovery``: these and what is below them, for everybody who is known."""
_EXTRA_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"
_READS = {"GET": "get", "HEAD": "get"}
_REVIEWS = ("authentication.k8s.io", "authorization.k8s.io")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", **_READS}


@dataclass(frozen=True, slots=True)
class ApiUser:
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


_ADMIN_CALLER = ApiUser(ADMIN, ("system:masters", "system:authenticated"), admin=True)
_ANONYMOUS_CALLER = ApiUser(ANONYMOUS, ("system:unauthenticated",))


class Access:
    """Authentication by bearer token, authorization by RBAC."""

    def __init__(
        self, token: str, reader: StoreReader, clock: Callable[[], float], *, witness: Witness | None = None
    ) -> None:
        """``token`` empty: everybody is the administrator (a private test server)."""
        self._witness = witness
        self._token = token
        self._open = not token
        self._reader = reader
        self._clock = clock
        self._issued: dict[str, tuple[ApiUser, float]] = {}

    def issue(self, namespace: str, request: Json) -> None:
        """Know the token of an answered TokenRequest until it expires."""
        name, meta = request["metadata"]["name"], request["metadata"]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        caller = ApiUser(f"system:serviceaccount:{namespace}:{name}", groups, uid=meta["uid"])
        now_s = self._clock()
        self._issued = {token: known for token, known in self._issued.items() if known[1] > now_s}
        expires_s = now_s + request["spec"]["expirationSeconds"]
        self._issued[request["status"]["token"]] = (caller, expires_s)

    def caller(self, header: str) -> ApiUser:
        """The user behind an Authorization header. Refused: 401 for an unknown or expired token."""
        if self._open:
            return _ADMIN_CALLER
        token = bearer_token(header)
        if not token:
            return _ANONYMOUS_CALLER
        if token == self._token:
            return _ADMIN_CALLER
        caller, expires_s = self._issued.get(token, (None, 0.0))
        if caller is None or self._clock() >= expires_s:
            raise unauthorized()
        return caller

    def check(self, caller: ApiUser, method: str, path: str, target: ResourcePath | None, *, watch: bool) -> None:
        """Refused: 403, worded as RBAC words it."""
        is_open = self._is_open(caller, method, path, target)
        if self._witness is None and is_open:
            return
        asked = _asked(method, path, target, watch=watch)
        refusal = None if is_open else self._refusal(caller, asked, target)
        if self._witness is not None:
            self._witness(caller.name, asked, allowed=refusal is None)
        if refusal is not None:
            raise refusal

    @staticmethod
    def _is_open(caller: ApiUser, method: str, path: str, target: ResourcePath | None) -> bool:
        if caller.admin or method != "GET":
            return caller.admin
        if path in _PUBLIC:
            return True
        names_resource = target is not None and bool(target.plural)
        return caller is not _ANONYMOUS_CALLER and not names_resource and _is_discovery(path)

    def _refusal(self, caller: ApiUser, asked: Attributes, target: ResourcePath | None) -> ApiError | None:
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
    def _denied(caller: ApiUser, verb: str, resource: str, target: ResourcePath) -> ApiError:
        where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        text = f'User "{caller.name}" cannot {verb} resource "{resource}" in API group "{target.group}" {where}'
        return forbidden(target.plural, target.group, target.name, text)


def token_warning(header: str) -> str:
    """What is said of a header whose token stands behind two spaces, and so is none; else empty."""
    scheme, _, rest = header.strip().partition(" ")
    return _EXTRA_SPACE if scheme.lower() == "bearer" and rest.startswith(" ") else ""


def bearer_token(header: str) -> str:
    """The token of an Authorization header, empty where it has none. Source: apiserver ``request/bearertoken``."""
    scheme, _, rest = header.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


def _is_discovery(path: str) -> bool:
    """Whether a path that names no resource is one of ``system:discovery``'s."""
    return path in _DISCOVERY or path.startswith(tuple(f"{one}/" for one in _DISCOVERY))


def _asked(method: str, path: str, target: ResourcePath | None, *, watch: bool) -> Attributes:
    """A request as an authorizer sees it."""
    if target is None or not target.plural:
        return Attributes(method.lower(), path=path)
    verb = _VERBS.get(method, "")
    if not target.name:
        verb = {"get": "watch" if watch or target.watch else "list", "delete": "deletecollection"}.get(verb, verb)
    resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    return Attributes(verb, target.group, resource, target.namespace, target.name)
