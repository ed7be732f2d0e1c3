"""Who may write what in etcd: one user and role per service, by the prefixes of ``keys.py``. Pure.

Every service reads everything under the prefix, since facts are there to be read; what it writes is what it is the
authority for, so that a stolen agent certificate cannot deal partitions and a binder's cannot choose policies. A user's
name is the common name of its client certificate. One agent may have a user of its own, for its one key.

Not its job: talking to etcd (``shared.adapters.etcd.auth``).
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.wire.keys import Keys

ROOT = "root"
"""etcd's own administrator; authentication cannot be switched on without it."""


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """Permission on every key that begins with ``prefix``, or on the one key where ``exact``."""

    prefix: str
    write: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class EtcdUser:
    """A user, who has the one role of the same name."""

    name: str
    grants: tuple[Grant, ...]


WRITES: dict[str, tuple[str, ...]] = {
    "coordinator": (
        "coordinator/",
        "partitions/",
        "policies/",
        "control/",
        "settings/",
        "audit/",
        "members/coordinator/",
    ),
    "binder": ("binders/", "intents/", "members/binder/"),
    "agent": ("agents/",),
    "autoscaler": ("autoscaler/", "members/autoscaler/"),
    "learner": ("policies/", "members/learner/"),
    "jobs": ("jobs/", "members/jobs/"),
    "rebalancer": ("rebalance/", "members/rebalancer/"),
    "cli-admin": ("policies/", "control/", "settings/", "audit/"),
}
"""What each writes, under the mesh's prefix. ``cli-admin``: ``conclave policy`` and whatever else people change."""


KEYS: dict[str, tuple[str, ...]] = {"coordinator": ("binders/shards", "jobs/rollout", "rebalance/rollout")}
"""Single keys that each writes beside its prefixes."""


def users_of(keys: Keys, agents: tuple[str, ...] = ()) -> tuple[EtcdUser, ...]:
    """The users of a mesh. ``agents``: ids of agents with a user ``agent:ID`` each, who write their own key alone."""
    everything = Grant(keys.prefix)
    users = [
        EtcdUser(
            name,
            (
                everything,
                *(Grant(f"{keys.prefix}{prefix}", write=True) for prefix in prefixes),
                *(Grant(f"{keys.prefix}{key}", write=True, exact=True) for key in KEYS.get(name, ())),
            ),
        )
        for name, prefixes in WRITES.items()
    ]
    own = [
        EtcdUser(f"agent:{agent}", (everything, Grant(keys.agent(agent), write=True, exact=True))) for agent in agents
    ]
    return (*users, *own)
