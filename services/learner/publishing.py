"""Publishes new weights: the bytes under their digest first, then the pointer, candidate and shadow in one change.

Refuses to replace a candidate of somebody else that has come as far as the canary (``policy/rollout.py``).
"""

from __future__ import annotations

import msgspec

from shared.errors import ConclaveError
from shared.policy.rollout import Change, Stage, publish, to_stage
from shared.policy.weights import WeightsFile, digest, encode
from shared.ports import Store
from shared.runtime.policy_store import put_weights, read_pointer, write_change
from shared.wire.keys import Keys
from shared.wire.records import PolicyRef

BY = "learner"


class Unpublished(ConclaveError):
    """Somebody else has changed the pointer: nothing was published."""

    code = "unpublished"


class Publisher:
    """Writes to one mesh's etcd."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def publish(self, file: WeightsFile, *, base: PolicyRef, gain: float) -> PolicyRef:
        """The weights as a candidate in shadow, where ``base``, which they were compared with, still decides.

        ``Unpublished``: the pointer has changed. ``ConfigError``: a canary is on, the weights or the pointer cannot be
        used. Unknown: ``StoreUnknown``. Weights are written last but for the pointer, so a refusal leaves none behind.
        """
        stored = await read_pointer(self._store, self._keys)
        if stored.pointer is None:
            raise Unpublished("there is no policy pointer yet: no coordinator has led")
        if stored.pointer.active != base:
            raise Unpublished(f"it was compared with {base.title}, and {stored.pointer.active.title} decides by now")
        data = encode(file)
        ref = PolicyRef(file.card.policy, file.card.version, digest(data))
        published = publish(stored.pointer, ref, by=BY)
        reason = f"{ref.title} passed the gate on the twin ({gain:+.1%})"
        shadow = to_stage(published.after, Stage.SHADOW, 0, reason=reason, by=BY).after
        change = Change(stored.pointer, msgspec.structs.replace(shadow, number=published.after.number))
        await put_weights(self._store, self._keys, data)
        if not await write_change(self._store, self._keys, change, stored.mod_revision):
            raise Unpublished("the policy pointer has changed meanwhile")
        return ref
