"""Publishes new weights: bytes under their digest, pointer, candidate and shadow in one change.

Replaces no candidate of somebody else, and none that has come as far as the canary (``policy/rollout.py``). Whose a
candidate is, the pointer tells (``proposed_by``): a learner that was started again knows its own.
"""

from __future__ import annotations

import msgspec

from shared.decide.stages import Stage
from shared.errors import ConclaveError, StoreUnknown
from shared.policy.numbering import numbered, refs_of
from shared.policy.registry import goal_of
from shared.policy.rollout.rollout import PointerChange, publish, to_stage
from shared.policy.weights import WeightsFile, decode, digest, encode
from shared.ports import Store
from shared.runtime.records.policies import read_history, read_pointer, write_change
from shared.wire.keys import Keys
from shared.wire.records import PolicyPointer, PolicyRef

BY = "learner"


def proposed(pointer: PolicyPointer, policy: str) -> PolicyRef | None:
    """The candidate, where a learner of this policy has proposed it."""
    ref = pointer.candidate
    return ref if ref is not None and (ref.name, pointer.proposed_by) == (policy, BY) else None


class Unpublished(ConclaveError):
    """Somebody else has changed the pointer: nothing was published."""

    code = "unpublished"


class PublishedUnknown(StoreUnknown):
    """No answer came to the writing of ``ref``: the pointer shows whether it was written."""

    def __init__(self, message: str, *, ref: PolicyRef) -> None:
        super().__init__(message)
        self.ref = ref


class Publisher:
    """Writes to one mesh's etcd."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def publish(
        self, file: WeightsFile, *, base: PolicyRef, gain: float, instead_of: PolicyRef | None = None
    ) -> PolicyRef:
        """The weights as a candidate in shadow, where ``base``, which they were compared with, still decides; in place
        of ``instead_of`` where that is the candidate, and of a learner: what an operator has said of that holds for
        these.

        ``Unpublished``: the pointer has changed, or there is another candidate. ``ConfigError``: a canary is on, the
        weights or the pointer cannot be used. Unknown: ``PublishedUnknown``; ``StoreUnknown`` before anything was
        written. A version that other weights had before is numbered on; a refusal leaves no
        weights behind.
        """
        stored = await read_pointer(self._store, self._keys)
        if stored.pointer is None:
            raise Unpublished("there is no policy pointer yet: no coordinator has led")
        if stored.pointer.active != base:
            raise Unpublished(f"it was compared with {base.title}, and {stored.pointer.active.title} decides by now")
        replaced = stored.pointer.candidate
        own = instead_of is not None and proposed(stored.pointer, file.card.policy) == instead_of
        if replaced is not None and not own and stored.pointer.stage != Stage.CANARY:
            raise Unpublished(f"{replaced.title} is a candidate already; it is tried first")
        history = await read_history(self._store, self._keys)
        known = refs_of([stored.pointer, *(record.pointer for record in history)])
        policy, data = file.card.policy, numbered(encode(file), file.card.policy, known)
        card = decode(data, policy=policy).card
        ref = PolicyRef(policy, card.version, digest(data))
        published = publish(stored.pointer, ref, by=BY, made_for=goal_of(policy, card))
        reason = f"{ref.title} passed the gate on the twin ({gain:+.1%})"
        shadow = to_stage(published.after, Stage.SHADOW, 0, reason=reason, by=BY).after
        said = {"promotion": stored.pointer.promotion, "goal": stored.pointer.goal} if replaced is not None else {}
        change = PointerChange(stored.pointer, msgspec.structs.replace(shadow, number=published.after.number, **said))
        try:
            written = await write_change(self._store, self._keys, change, stored.mod_revision, weights=data)
        except StoreUnknown as error:
            raise PublishedUnknown(str(error), ref=ref) from error
        if not written:
            raise Unpublished("the policy pointer has changed meanwhile")
        return ref
