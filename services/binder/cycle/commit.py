"""Intents in transactions: what goes into the next one, and what a failed one means.

Group commit: while one transaction is in flight the next gathers, so batches grow with load and a lone unit waits for
nobody. Compares: our own term, the coordinator's term of the plans, and every key that is touched: absent for a new
intent (I1), still the same creation for one that is renewed or deleted. The key's value holds the plan_id, so after an
unknown outcome a read tells whether it was ours. Intents of settled units are deleted in the same transactions.

The *fence* (``fence.py``) keeps transactions in the order they were made in: between two of them memory knows what
etcd holds. A gang rests on that: no transaction could compare the absence of the keys of all its pods. No other shard
commits them (ADR 0044), nothing else writes them here, the takeover has listed them, and the committer itself puts an
intent only when no other that names the pod is left or waits to be deleted or rewritten (``_free``). Each transaction
compares the record of the shards too: under another, our nodes may be another binder's.

An intent may rest on *loans* of other shards (``lenders.py``). The other way round, what is lent here is told once the
fence has passed everything that was given up before, and to take a loan back is to move the fence.

A gang's intent is one value, or several: links first, each as an intent of its own, the head last (``gangs.py``). One
transaction takes ``size`` pods and claims at most, so that it stays below etcd's 1.5 MiB.

Not its job: talk to etcd, decide what becomes of a unit (``core.py``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from services.binder.core.events import LookedUp
from services.binder.core.instructions import Commit
from services.binder.cycle.batch import NO_LENDERS, Batch, BatchDiagnosis, Lenders, same, steps_of
from services.binder.cycle.fence import Fence
from services.binder.cycle.lenders import IntentLenders, recalled
from shared.ports import Compare, CreateRevisionIs, DeleteKey, ModRevisionIs, Op, Put
from shared.wire.keys import Keys
from shared.wire.records import Intent, encode_record, gang_part

MAX_OPS = 120
"""Below etcd's limit of 128 operations, with room for the compares of the terms."""

MAX_GHOSTS = 40
"""Keys that one transaction compares to be absent beside those it writes; etcd's limit holds for compares too."""

MAX_LENDER_COMPARES = 32
"""Compares that are left for lenders where an intent rests on loans: two for each of 16 shards."""

MAX_SENDS = 5
"""Transactions one unit's intent may be part of before it is given back."""


class Committer:
    """What waits for etcd in one term of one shard. ``shards``: the revision of their record."""

    def __init__(self, keys: Keys, *, shard: str, term: int, linger_s: float, size: int = 512, shards: int = 0) -> None:
        self.sent: Batch | None = None
        self.size = size
        self._keys = keys
        self._leader_key = keys.binder_leader(shard)
        self._coordinator_key = keys.coordinator_leader
        self._shards_key = keys.binder_shards
        self._shards = shards
        self.fence = Fence(keys.binder_fence(shard))
        self._lenders = IntentLenders(keys)
        self.term = term
        self._linger_s = linger_s
        self._puts: OrderedDict[str, Intent] = OrderedDict()
        self._renewals: OrderedDict[str, Intent] = OrderedDict()
        self._clears: OrderedDict[str, int] = OrderedDict()
        self._clear_since = 0.0
        self._created: dict[str, int] = {}
        self._unwanted: set[str] = set()
        self._ghosts: dict[str, None] = {}
        self._sends: dict[str, int] = {}
        self._numbers = 0

    def put(self, key: str, intent: Intent, lenders: Lenders = NO_LENDERS) -> None:
        """Commit a unit's intent with the next batch that has room; ``lenders``: who keeps room for it."""
        self._puts[key] = intent
        if lenders:
            self._lenders.of[key] = lenders

    def renew(self, key: str, intent: Intent) -> None:
        """Replace a committed intent (a newer resourceVersion)."""
        self._renewals[key] = intent

    def adopt(self, key: str, created: int) -> None:
        """An intent found in etcd is ours to renew or delete."""
        self._created[key] = created

    def clear(self, key: str, now: float, *, first: bool = False) -> None:
        """The unit is settled: delete its intent, or do not put it any more. ``first``: before others."""
        self._renewals.pop(key, None)
        if self.fence.passing or self._lenders.of:
            self.fence.passing.pop(key, None)
            self._lenders.of.pop(key, None)
        # A transaction with it had no answer and may come yet: from now on its absence is compared, else it
        # would name a pod that has another intent by then (I1).
        if self._puts.pop(key, None) is not None and key in self._sends:
            self._ghosts[key] = None
        self._sends.pop(key, None)
        created = self._created.pop(key, None)
        if created is not None:
            if not self._clears:
                self._clear_since = now
            self._clears[key] = created
            if first:
                self._clears.move_to_end(key, last=False)
        # In flight: whether there is something to delete is known with the answer.
        elif self.sent is not None and key in self.sent.puts:
            self._unwanted.add(key)
        elif self.sent is not None and key in self.sent.passes:  # whoever comes under this key waits for another
            self.sent = replace(self.sent, passes=tuple(one for one in self.sent.passes if one != key))

    def tried(self, key: str) -> bool:
        """Whether a transaction with this new intent was sent: it may be in etcd."""
        return key in self._sends

    def waits(self, key: str) -> bool:
        """Whether the key is in, or waits for, a transaction."""
        batch = self.sent
        if batch is not None and (key in batch.puts or key in batch.renewals or key in batch.clears):
            return True
        if key in self.fence.passing or (batch is not None and key in batch.passes):
            return True
        return key in self._puts or key in self._renewals or key in self._clears

    def holds(self, key: str) -> bool:
        """Whether the key's intent is in etcd, as far as is known."""
        return key in self._created

    def validate(self, units: Collection[str]) -> Iterator[str]:
        """Intents in etcd that are of no unit on its way (``units``), and wait for no deletion either."""
        for key in self._created.keys() - set(units):
            yield f"intent-owned: the intent of {key} is kept for nobody"
        for key in self._created.keys() & self._clears.keys():
            yield f"intent-owned: the intent of {key} is kept and waits to be deleted"

    def drop_stale(self, coordinator_term: int) -> list[str]:
        """Forget units that wait under an older coordinator's term and were never sent; their keys."""
        stale = [
            key
            for key, intent in self._puts.items()
            # What was sent may be in etcd; there the compare of the coordinator's term decides, not we.
            if intent.coordinator_term < coordinator_term and key not in self._sends
        ]
        for key in stale:
            del self._puts[key]
            self._lenders.of.pop(key, None)
        return stale

    @property
    def backlog(self) -> int:
        """Keys that wait for a transaction."""
        return len(self._puts) + len(self._renewals) + len(self._clears)

    def wake_at(self) -> float | None:
        """When clears that wait for company go alone."""
        return self._clear_since + self._linger_s if self._clears and self.sent is None else None

    def next_commit(self, now: float) -> Commit | None:
        """The next transaction, if there is something to do and none is in flight."""
        # One at a time: of two, nobody would know in which order they were applied, nor what etcd holds between.
        if self.sent is not None or not (self._puts or self._renewals or self._clears or self.fence.at_once):
            return None
        if not (self._puts or self._renewals or self.fence.at_once) and now < self._clear_since + self._linger_s:
            return None
        ghosts = frozenset(islice(self._ghosts, MAX_GHOSTS))
        ops = MAX_OPS - len(ghosts) - (MAX_LENDER_COMPARES if self._lenders.of else 0)
        # who is to pass waits for deletes alone: under load they would be ever behind what is new
        most = ops if self.fence.passing else max(ops // 2, ops - len(self._puts) - len(self._renewals))
        # Deletes, then renewals, then what is new: a gang's old intent names its pods until it is gone (`_free`).
        clears = dict(list(self._clears.items())[:most])
        room = ops - len(clears)
        renewals: dict[str, Intent] = {}
        pods = 0
        for key, intent in self._renewals.items():
            if len(renewals) >= room or (pods and pods + intent.named > self.size):
                break
            renewals[key] = intent
            pods += intent.named
        # Of one coordinator alone: its term is compared, and a stale one would refuse the other's units as well.
        coordinator_term = next((intent.coordinator_term for intent in self._puts.values()), 0)
        puts: dict[str, Intent] = {}
        rests_on = NO_LENDERS
        for key, intent in self._puts.items() if self._free(len(clears), len(renewals), len(ghosts)) else ():
            if len(puts) + len(renewals) >= room or (pods and pods + intent.named > self.size):
                break
            lenders = self._lenders.of.get(key, NO_LENDERS) if self._lenders.of else NO_LENDERS
            if lenders and puts:
                continue  # when it is first: who took a loan back must not hold up the others
            # etcd refuses one key twice in a transaction: a key that is being deleted is put with the next
            if intent.coordinator_term != coordinator_term or key in self._clears:
                continue
            # A lone intent of a member must be gone with this transaction at the latest: one live intent a pod (I1).
            if intent.group and any(pod.uid in self._clears and pod.uid not in clears for pod in intent.pods):
                continue
            puts[key] = intent
            pods += intent.named
            if lenders:
                rests_on = lenders
                break
        if not (puts or renewals or clears or ghosts or self.fence.at_once):
            return None
        passes = self.fence.take(given_up=len(clears) < len(self._clears) or len(ghosts) < len(self._ghosts))
        for key in clears:
            del self._clears[key]
        for key in renewals:
            del self._renewals[key]
        for key in puts:
            del self._puts[key]
            self._sends[key] = self._sends.get(key, 0) + 1
        self._clear_since = now
        self._numbers += 1
        self.sent = Batch(
            self._numbers, coordinator_term, puts, renewals, clears, self.fence.moves, ghosts, rests_on, passes
        )
        return self._transaction(self.sent)

    def _free(self, clears: int, renewals: int, ghosts: int) -> bool:
        """Whether new intents may go with so many of the others: none of a gang is left that may name their pods."""
        if renewals < len(self._renewals) or ghosts < len(self._ghosts):
            return False
        left = next(islice(self._clears, clears, None), "")  # those of gangs are first
        return gang_part(left) is None

    def succeeded(self, batch: int, revision: int, now: float) -> Mapping[str, Intent | None]:
        """The batch was applied: what is committed or renewed, and what has passed by (None); told twice, nothing."""
        done = self.sent
        if done is None or done.number != batch:
            return {}
        self.sent = None
        # Before units are told: what is lent by this transaction names the fence as it is now.
        if done.fences:
            self.fence.moved(revision)
        for key in done.ghosts:
            self._ghosts.pop(key, None)
        for key in done.puts:
            self._written(key, revision, now)
        return {**done.puts, **done.renewals, **dict.fromkeys(done.passes)}

    def failed(self, seen: LookedUp, now: float) -> BatchDiagnosis | None:
        """The batch was refused or got no answer, and ``seen`` is what etcd holds. Requeues what goes again."""
        batch = self.sent
        if batch is None or batch.number != seen.batch:
            return None
        diagnosis = BatchDiagnosis(fenced=seen.own_term != self.term, moved=seen.shards != self._shards)
        if diagnosis.fenced or diagnosis.moved:
            return diagnosis
        self.sent = None
        self.fence.looked_up(seen.fence, batch.passes)
        stale = seen.coordinator_term != batch.coordinator_term
        taken_back = recalled(batch.lenders, seen.lenders)
        # Backwards, each to the front: they go again in the order in which they came.
        for key, intent in reversed(tuple(batch.puts.items())):
            found = seen.intents.get(key)
            # What etcd holds comes first: it was applied, though its coordinator's term may be over by now.
            if found is not None and found.intent is not None and same(found.intent, intent):
                self._written(key, found.created, now)
                diagnosis.committed[key] = intent
            elif key in self._unwanted:
                self._unwanted.discard(key)
                self._sends.pop(key, None)
                self._ghosts[key] = None
            elif found is not None:
                diagnosis.foreign[key] = found
            # No ghost here, nor of what is taken back: a term or a fence that is over never comes again, so neither
            # can the transaction (leaders and fences are read before the intents, `StoreCalls.look_up`).
            elif stale:
                diagnosis.stale.append(key)
            elif taken_back:
                diagnosis.recalled.append(key)
            elif self._sends.get(key, 0) >= MAX_SENDS:
                diagnosis.exhausted.append(key)
                self._ghosts[key] = None
                self._sends.pop(key, None)
            else:
                self._puts[key] = intent
                self._puts.move_to_end(key, last=False)
        for key, intent in batch.renewals.items():
            found = seen.intents.get(key)
            if found is not None and found.intent == intent:
                diagnosis.committed[key] = intent
            elif key in self._created:
                # setdefault: a newer resourceVersion that has gathered meanwhile must not be put back to this one.
                self._renewals.setdefault(key, intent)
        if batch.clears and not self._clears:
            self._clear_since = now
        for key in batch.ghosts & seen.intents.keys():
            self._ghosts.pop(key, None)
            self._created[key] = seen.intents[key].created
            self.clear(key, now, first=gang_part(key) is not None)
        for key, created in reversed(tuple(batch.clears.items())):
            found = seen.intents.get(key)
            # Another creation under the same key is somebody's new intent: it is not ours to delete.
            if found is not None and found.created == created:
                self._clears[key] = created
                if gang_part(key) is not None:
                    self._clears.move_to_end(key, last=False)
        return diagnosis

    def _written(self, key: str, created: int, now: float) -> None:
        """A new intent is in etcd; if its unit has been settled meanwhile, it is deleted next."""
        self._sends.pop(key, None)
        self._created[key] = created
        if key in self._unwanted:
            self._unwanted.discard(key)
            self.clear(key, now)

    def _transaction(self, batch: Batch) -> Commit:
        names = {key: self._keys.intent(key) for key in batch.keys}
        compares = self._terms_and_absence(batch, names) + self.fence.compares() + self._layout()
        if batch.lenders:
            compares += self._lenders.compares(batch.lenders)
        compares += self._creations(batch, names)
        ops: list[Op] = [
            Put(names[key], encode_record(intent))
            for intents in (batch.puts, batch.renewals)
            for key, intent in intents.items()
        ]
        ops += [DeleteKey(names[key]) for key in batch.clears]
        if batch.fences:
            ops.append(Put(self.fence.key, b"%d" % self.term))
        units = tuple(
            (intent.coordinator_term, pod.unit or intent.unit) for intent in batch.puts.values() for pod in intent.pods
        )
        return Commit(batch.number, tuple(compares), tuple(ops), units, steps_of(batch, names))

    def _terms_and_absence(self, batch: Batch, names: Mapping[str, str]) -> list[Compare]:
        """That we lead, that the plans' coordinator does, and that no new intent has a predecessor."""
        compares: list[Compare] = [CreateRevisionIs(self._leader_key, self.term)]
        if batch.puts:
            compares.append(CreateRevisionIs(self._coordinator_key, batch.coordinator_term))
        absent = dict.fromkeys((*batch.puts, *sorted(batch.ghosts)))
        return compares + [CreateRevisionIs(names[key], 0) for key in absent]

    def _layout(self) -> list[Compare]:
        """That the nodes are divided as they were when this leader won."""
        return [ModRevisionIs(self._shards_key, self._shards)]

    def _creations(self, batch: Batch, names: Mapping[str, str]) -> list[Compare]:
        """That what is renewed or deleted is still the same intent."""
        compares: list[Compare] = [CreateRevisionIs(names[key], self._created[key]) for key in batch.renewals]
        return compares + [CreateRevisionIs(names[key], created) for key, created in batch.clears.items()]
