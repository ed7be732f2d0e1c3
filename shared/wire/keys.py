"""Names of everything Conclave keeps in etcd, in one place, so that a role per prefix can be granted and audited.

Pure: it builds and reads names, and knows nothing of a store. It refuses names that could reach outside their own
place: every variable part is escaped, so no unit key, agent id or shard can hold a ``/`` of its own.

Layout under the prefix (``CONCLAVE_ETCD_PREFIX``, default ``/conclave/v1/``)::

    coordinator/leader            the coordinator's record; its create_revision is the coordinator's term
    coordinator/mesh_id           the mesh's own id, made once: the holder of the Lease in the cluster
    coordinator/terms/<term>      who led that term, and since when
    coordinator/totals            what was counted over all terms
    coordinator/nominations/<pod uid>  where a pod that waits is to go, before its status says so or it is bound
    coordinator/nominations_fence  written after a nomination that got no answer, so that it cannot come later
    binders/shards                which shards nodes are divided into; without it there is the one shard 0
    binders/<shard>/leader        the binder's record of one shard; its create_revision is that shard's term
    binders/<shard>/fence         written after a transaction that got no answer, so that it cannot come later, and to
                                  take back room that was lent to another shard
    agents/<agent_id>             one agent, under its lease
    members/<service>/<id>        every other process, under its lease
    partitions/current            which agent decides for which nodes
    intents/<unit key>            committed plans that are not yet confirmed bound
    policies/active               which policy decides, and which candidate is being rolled out
    policies/weights/<sha256>     a weights file, under its digest
    policies/history/<number>     what became of policies: one record per change of the pointer
    policies/windows/<slot>       what policies' choices were worth: a ring of the last windows
    control/paused                there while scheduling is paused: by whom, why, since when
    control/drained/<node>        there while a node gets no new pods from us
    settings/current              settings that were changed while running
    settings/history/<number>     the changes of settings
    queues/history                past use of the queues that count it
    autoscaler/leader             the autoscaler's record; its create_revision is its term
    autoscaler/last/<object>      what was last decided for a ResilientAutoscaler; compared before each write
    autoscaler/history/<object>/<slot>  decisions with their inputs: a ring
    jobs/leader                   the jobs service's record; its create_revision is that service's term
    jobs/report_key               what the tokens of training jobs are made by, made once
    jobs/rollout                  which policy for training jobs is rolled out beside the settings', and how it does
    rebalance/leader              the rebalancer's record; its create_revision is that service's term
    rebalance/rollout             for which goal pods are moved by themselves, of how many namespaces, and how it does
    rebalance/board               the present plan of the rebalancer, and what its last rounds won
    audit/last                    number of the newest audit record
    audit/<number>                what people changed through the admin API
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from shared.errors import ConfigError

DEFAULT_PREFIX = "/conclave/v1/"
MAX_PART_BYTES = 512
"""Longest escaped variable part. etcd has no limit of its own; ours keeps a key far below its request limit."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def escape(part: str) -> str:
    """One path segment out of any text, reversible by ``unescape``. Refused: empty or too long (``ValueError``)."""
    if _PLAIN.fullmatch(part) and len(part) <= MAX_PART_BYTES:
        return part  # as every uid is
    escaped = quote(part, safe=":@+=,~")
    if not part or len(escaped) > MAX_PART_BYTES:
        raise ValueError(f"a key part must have 1 to {MAX_PART_BYTES} bytes: {part[:64]!r}")
    # "." and ".." are no special names to etcd, but they are to people's tools.
    return escaped.replace(".", "%2E") if part in {".", ".."} else escaped


def unescape(segment: str) -> str:
    """The text that ``escape`` was given."""
    return unquote(segment)


@dataclass(frozen=True, slots=True)
class Keys:
    """All key names under one prefix. Build it with ``Keys.under`` where the prefix comes from a person."""

    prefix: str = DEFAULT_PREFIX

    @classmethod
    def under(cls, prefix: str) -> Keys:
        """Keys under a prefix from a setting. ``ConfigError`` for one that is relative, bare or badly formed."""
        cleaned = prefix.strip()
        if not cleaned.endswith("/"):
            cleaned += "/"
        parts = cleaned.split("/")[1:-1]
        if not cleaned.startswith("/") or not parts or not all(parts) or not cleaned.isprintable():
            raise ConfigError(
                f"CONCLAVE_ETCD_PREFIX: {prefix!r} must be an absolute path such as {DEFAULT_PREFIX} "
                "without empty parts or control characters"
            )
        return cls(cleaned)

    def can_wait(self, puts: Sequence[str]) -> bool:
        """Whether a transaction that puts these keys can wait while etcd is short of room: one that only tells what
        was, and weights, which are large."""
        told = (
            self.coordinator_totals, self.coordinator_terms_prefix, self.policy_windows_prefix, self.queue_history,
        )  # fmt: skip
        return (bool(puts) and all(key.startswith(told) for key in puts)) or any(
            key.startswith(self.policy_weights_prefix) for key in puts
        )

    @property
    def coordinator_leader(self) -> str:
        return f"{self.prefix}coordinator/leader"

    @property
    def mesh_id(self) -> str:
        return f"{self.prefix}coordinator/mesh_id"

    def binder_leader(self, shard: str) -> str:
        return f"{self.binders_prefix}{escape(shard)}/leader"

    def binder_fence(self, shard: str) -> str:
        return f"{self.binders_prefix}{escape(shard)}/fence"

    @property
    def binder_shards(self) -> str:
        return f"{self.binders_prefix}shards"

    @property
    def binders_prefix(self) -> str:
        return f"{self.prefix}binders/"

    def agent(self, agent_id: str) -> str:
        return f"{self.agents_prefix}{escape(agent_id)}"

    @property
    def agents_prefix(self) -> str:
        return f"{self.prefix}agents/"

    def member(self, service: str, member_id: str) -> str:
        return f"{self.members_prefix(service)}{escape(member_id)}"

    def members_prefix(self, service: str) -> str:
        return f"{self.every_members_prefix}{escape(service)}/"

    @property
    def every_members_prefix(self) -> str:
        return f"{self.prefix}members/"

    @property
    def partitions_current(self) -> str:
        return f"{self.prefix}partitions/current"

    def intent(self, unit_key: str) -> str:
        return f"{self.intents_prefix}{escape(unit_key)}"

    @property
    def intents_prefix(self) -> str:
        return f"{self.prefix}intents/"

    @property
    def policies_active(self) -> str:
        return f"{self.prefix}policies/active"

    def policy_weights(self, sha256: str) -> str:
        return f"{self.policy_weights_prefix}{escape(sha256)}"

    @property
    def policy_weights_prefix(self) -> str:
        return f"{self.prefix}policies/weights/"

    def policy_history(self, number: int) -> str:
        """Zero-padded, so that a listing is in order."""
        return f"{self.policy_history_prefix}{number:010d}"

    @property
    def policy_history_prefix(self) -> str:
        return f"{self.prefix}policies/history/"

    def policy_window(self, slot: int) -> str:
        """Of a ring: slots are used again."""
        return f"{self.policy_windows_prefix}{slot:04d}"

    @property
    def policy_windows_prefix(self) -> str:
        return f"{self.prefix}policies/windows/"

    def coordinator_term(self, term: int) -> str:
        """Zero-padded, so that a listing is in order."""
        return f"{self.coordinator_terms_prefix}{term:020d}"

    @property
    def coordinator_totals(self) -> str:
        return f"{self.prefix}coordinator/totals"

    @property
    def coordinator_terms_prefix(self) -> str:
        return f"{self.prefix}coordinator/terms/"

    def nomination(self, uid: str) -> str:
        return f"{self.nominations_prefix}{escape(uid)}"

    @property
    def nominations_prefix(self) -> str:
        return f"{self.prefix}coordinator/nominations/"

    @property
    def nominations_fence(self) -> str:
        return f"{self.prefix}coordinator/nominations_fence"

    @property
    def control_prefix(self) -> str:
        return f"{self.prefix}control/"

    @property
    def control_paused(self) -> str:
        return f"{self.control_prefix}paused"

    def control_drained(self, node: str) -> str:
        return f"{self.control_drained_prefix}{escape(node)}"

    @property
    def control_drained_prefix(self) -> str:
        return f"{self.control_prefix}drained/"

    @property
    def settings_current(self) -> str:
        return f"{self.prefix}settings/current"

    def settings_history(self, number: int) -> str:
        """Zero-padded, so that a listing is in order."""
        return f"{self.settings_history_prefix}{number:010d}"

    @property
    def settings_history_prefix(self) -> str:
        return f"{self.prefix}settings/history/"

    @property
    def queue_history(self) -> str:
        return f"{self.prefix}queues/history"

    @property
    def autoscaler_leader(self) -> str:
        return f"{self.prefix}autoscaler/leader"

    def autoscaler_last(self, scaled: str) -> str:
        """``scaled``: ``namespace/name`` of the object."""
        return f"{self.prefix}autoscaler/last/{escape(scaled)}"

    @property
    def autoscaler_lasts_prefix(self) -> str:
        return f"{self.prefix}autoscaler/last/"

    def autoscaler_object_of(self, key: str) -> str:
        """The object whose ``autoscaler_last`` this key is."""
        return unescape(key.removeprefix(self.autoscaler_lasts_prefix))

    def autoscaler_decision(self, scaled: str, slot: int) -> str:
        """Of a ring: slots are used again."""
        return f"{self.autoscaler_history_prefix(scaled)}{slot:04d}"

    def autoscaler_history_prefix(self, scaled: str) -> str:
        return f"{self.prefix}autoscaler/history/{escape(scaled)}/"

    @property
    def jobs_report_key(self) -> str:
        return f"{self.prefix}jobs/report_key"

    @property
    def rebalance_board(self) -> str:
        return f"{self.prefix}rebalance/board"

    def leader(self, domain: str) -> str:
        """Of the service that decides about a domain (``shared/decide``)."""
        return f"{self.prefix}{domain}/leader"

    def rollout(self, domain: str) -> str:
        """The candidate that is tried in a domain."""
        return f"{self.prefix}{domain}/rollout"

    @property
    def audit_last(self) -> str:
        return f"{self.audit_prefix}last"

    def audit(self, number: int) -> str:
        """Zero-padded, so that a listing is in order."""
        return f"{self.audit_prefix}{number:010d}"

    @property
    def audit_prefix(self) -> str:
        return f"{self.prefix}audit/"

    def last_part(self, key: str) -> str:
        """The unescaped last segment of a key: the agent id, member id, unit key or node it was built from."""
        return unescape(key.rpartition("/")[2])
