"""etcd's users and roles brought to what they should be, over its Auth API; then authentication is switched on.

Why: with client certificates alone everybody whom the CA knows may write everything. With authentication on, etcd takes
the common name of the certificate for its user and holds every request against that user's role. Users get no password:
nobody can log in as one without its certificate.

What is right already is left alone (a change of roles makes etcd refuse requests under way once): it may run again at
every deployment. Who may write what is decided in ``shared.wire.etcd_roles``. It never switches authentication off or
deletes users that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.adapters.etcd.channel import EtcdConnection, EtcdSettings
from shared.adapters.etcd.protocol import method
from shared.adapters.etcd.watch import range_end
from shared.wire.etcd_roles import ROOT, EtcdUser, Grant

TIMEOUT_S = 5.0
READ, WRITE = 0, 1
"""``authpb.Permission.Type``."""

_NO_PASSWORD = b"\x1a\x02\x08\x01"
"""``AuthUserAddRequest.options.no_password`` (field 3, etcd 3.4 and newer), which etcd3's definitions do not have yet:
protobuf sends fields along that it does not know."""

Permission = tuple[int, bytes, bytes]


class EtcdAuth:
    """Users and roles of one cluster. Close it with ``close``."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._connection = EtcdConnection(settings)

    async def apply(self, users: Sequence[EtcdUser]) -> list[str]:
        """Make users, roles and permissions what they should be, and authentication on; a line per change.

        Refused: ``StoreRejected`` (another user than root asks). Unknown: ``StoreUnknown``; run it again.
        """
        changes: list[str] = []
        known_users = set((await self._call("UserList")).users)
        known_roles = set((await self._call("RoleList")).roles)
        for user in (EtcdUser(ROOT, ()), *users):
            if user.name not in known_roles:
                await self._call("RoleAdd", name=user.name)
                changes.append(f"role {user.name} added")
            if user.name != ROOT:
                changes += await self._permissions(user)
            if user.name not in known_users:
                await self._add_user(user.name)
                changes.append(f"user {user.name} added")
            changes += await self._roles(user.name)
        await self._call("AuthEnable")
        return changes

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def _permissions(self, user: EtcdUser) -> list[str]:
        """Bring the permissions of the user's role to its grants: first what is missing, then what is too much."""
        answer = await self._call("RoleGet", role=user.name)
        now = {(perm.permType, perm.key, perm.range_end) for perm in answer.perm}
        wanted = {_permission(grant): grant for grant in user.grants}
        changes = []
        for permission in sorted(wanted.keys() - now):
            kind, key, end = permission
            request = method("Auth", "RoleGrantPermission").request(name=user.name)
            request.perm.permType, request.perm.key, request.perm.range_end = kind, key, end
            await self._send("RoleGrantPermission", request)
            changes.append(f"role {user.name} may {'write' if kind else 'read'} {wanted[permission].prefix}")
        granted = {(key, end) for _, key, end in wanted}
        for _, key, end in sorted(now - wanted.keys()):
            if (key, end) not in granted:  # a grant of another kind on the same range has replaced it
                await self._call("RoleRevokePermission", role=user.name, key=key, range_end=end)
                changes.append(f"role {user.name} loses {key.decode(errors='replace')}")
        return changes

    async def _roles(self, name: str) -> list[str]:
        """The user has the role of its name and no other."""
        roles = set((await self._call("UserGet", name=name)).roles)
        changes = []
        if name not in roles:
            await self._call("UserGrantRole", user=name, role=name)
            changes.append(f"user {name} has role {name}")
        for other in sorted(roles - {name}):
            await self._call("UserRevokeRole", name=name, role=other)
            changes.append(f"user {name} loses role {other}")
        return changes

    async def _add_user(self, name: str) -> None:
        kind = method("Auth", "UserAdd").request
        await self._send("UserAdd", kind.FromString(kind(name=name).SerializeToString() + _NO_PASSWORD))

    async def _call(self, rpc: str, /, **fields: Any) -> Any:
        return await self._send(rpc, method("Auth", rpc).request(**fields))

    async def _send(self, name: str, request: Any) -> Any:
        return await self._connection.unary(
            method("Auth", name),
            request,
            f"auth {name}",
            timeout_s=TIMEOUT_S,
            repeatable=name.endswith(("List", "Get")),
        )


def _permission(grant: Grant) -> Permission:
    end = b"" if grant.exact else range_end(grant.prefix)
    return (WRITE if grant.write else READ, grant.prefix.encode(), end)
