"""Who is asking, and what anonymous callers may see. Pure.

The twin has one administrator token, and tokens that were given out for service accounts. Whoever has none is
``system:anonymous``, who sees health and version only, as a real server's default bindings allow.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.twin.api.paths import ResourcePath
from services.twin.registry.status import ApiError, Json, forbidden, qualified, status, unauthorized

ADMIN = "system:admin"
ANONYMOUS = "system:anonymous"

_OPEN_PREFIXES = ("/healthz", "/livez", "/readyz", "/version")
_READS = {"GET": "get", "HEAD": "get"}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", **_READS}


@dataclass(frozen=True, slots=True)
class Caller:
    """A user as authentication sees it. ``admin`` may do everything."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    admin: bool = False


_ADMIN_CALLER = Caller(ADMIN, ("system:masters", "system:authenticated"), admin=True)
_ANONYMOUS_CALLER = Caller(ANONYMOUS, ("system:unauthenticated",))


class Access:
    """Authentication by bearer token, and the one authorization rule."""

    def __init__(self, token: str) -> None:
        """``token`` empty: everybody is the administrator (a private test server)."""
        self._header = f"Bearer {token}"
        self._open = not token
        self._issued: dict[str, Caller] = {}

    def issue(self, token: str, caller: Caller) -> None:
        """Know ``token`` as ``caller`` from now on (a TokenRequest)."""
        self._issued[f"Bearer {token}"] = caller

    def caller(self, header: str) -> Caller:
        """The user behind an Authorization header. Refused: 401 for an unknown token."""
        if header == self._header or self._open:
            return _ADMIN_CALLER
        if not header:
            return _ANONYMOUS_CALLER
        known = self._issued.get(header)
        if known is None:
            raise unauthorized()
        return known

    def check(self, caller: Caller, method: str, path: str, target: ResourcePath | None, *, watch: bool) -> None:
        """Refused: 403, worded as RBAC words it."""
        if caller.admin or (method in _READS and path.startswith(_OPEN_PREFIXES)):
            return
        if target is None or not target.plural:
            verb = method.lower()
            text = f'forbidden: User "{caller.name}" cannot {verb} path "{path}"'
            body = status(403, "Forbidden", text)
            del body["code"]
            raise ApiError({**body, "details": {}, "code": 403})
        if target.group in ("authentication.k8s.io", "authorization.k8s.io") and target.plural.startswith(
            "selfsubject"
        ):
            return
        raise self._denied(caller, method, target, watch=watch)

    @staticmethod
    def _denied(caller: Caller, method: str, target: ResourcePath, *, watch: bool) -> ApiError:
        verb = _VERBS.get(method, method.lower())
        if not target.name:
            verb = {"get": "watch" if watch or target.watch else "list", "delete": "deletecollection"}.get(verb, verb)
        resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
        where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        text = f'User "{caller.name}" cannot {verb} resource "{resource}" in API group "{target.group}" {where}'
        if target.name:
            return forbidden(target.plural, target.group, target.name, text)
        error = forbidden(target.plural, target.group, "", text)
        error.body["message"] = f"{qualified(target.plural, target.group)} is forbidden: {text}"
        return error


def review_status(caller: Caller) -> Json:
    """``status`` of a SelfSubjectReview."""
    info: Json = {"username": caller.name}
    if caller.uid:
        info["uid"] = caller.uid
    info["groups"] = list(caller.groups)
    return {"userInfo": info}
