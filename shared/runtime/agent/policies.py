"""Brings the policies that the pointer in etcd names into the agent, without a pause.

    pointer --weights by digest--> checked, built (in a thread) --between two decisions--> lanes

Whatever cannot be had or is refused (absent, wrong digest, schema, shape, version) changes nothing: the active policy
stays, and the failure is told with every answer until the pointer changes. When etcd is away, what is here goes on.

Not its job: choosing (the pointer does), running policies (``variants.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from shared.agent.variants import Lanes
from shared.decide.guard import Failure
from shared.decide.stages import Stage
from shared.errors import ConfigError, OtherRelease, StoreError
from shared.policy.observation import Policy
from shared.policy.registry import load_policy
from shared.wire.records import PolicyPointer, PolicyRef

log = structlog.get_logger()

RETRY_S = 0.5

Fetch = Callable[[str], Awaitable[bytes | None]]
"""The bytes kept under a digest, None where there are none; may raise ``StoreError``."""


class PolicyLoader:
    """Follows pointers. ``post`` may be called at any time; ``run`` is an eternal task."""

    def __init__(self, lanes: Lanes, fetch: Fetch) -> None:
        self._lanes = lanes
        self._fetch = fetch
        self._pointer: PolicyPointer | None = None
        self._changed = asyncio.Event()

    def post(self, pointer: PolicyPointer) -> None:
        """The pointer as etcd has it now."""
        self._pointer = pointer
        self._changed.set()

    async def run(self) -> None:
        """Take over one pointer after the other; one that comes while another is loaded is next."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._pointer is not None and not await self.take_over(self._pointer):
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    async def take_over(self, pointer: PolicyPointer) -> bool:
        """Decide as the pointer says. False: etcd did not answer; try again."""
        self._lanes.forgive()
        self._lanes.number = 0
        self._drop_replaced(pointer)
        try:
            await self._activate(pointer.active)
            self._lanes.apply_rehearsals(pointer)  # now, for what follows may have to wait for etcd
            if pointer.candidate is not None and pointer.stage in (Stage.SHADOW, Stage.CANARY):
                await self._try_out(pointer.candidate)
            else:
                self._lanes.withdraw()
        except StoreError as error:
            log.warning("policy_unread", error=error)
            return False
        self._lanes.apply_rehearsals(pointer)
        if self._lanes.active.ref == pointer.active:
            self._lanes.number = pointer.number
        return True

    def _drop_replaced(self, pointer: PolicyPointer) -> None:
        """A candidate that the pointer no longer names decides nothing more, whether the next one can be had or not."""
        candidate = self._lanes.candidate
        if candidate is not None and candidate.ref not in (pointer.candidate, pointer.active):
            self._lanes.withdraw()

    async def _activate(self, ref: PolicyRef) -> None:
        lanes = self._lanes
        if ref == lanes.active.ref:
            return
        candidate = lanes.candidate
        known = candidate.guard.policy if candidate is not None and candidate.ref == ref else None
        policy = known or await self._load(ref)
        if policy is not None:
            before = lanes.active.ref.title
            lanes.use(ref, policy)
            log.info("policy_changed", policy=ref.title, sha256=ref.sha256, before=before)

    async def _try_out(self, ref: PolicyRef) -> None:
        lanes = self._lanes
        if lanes.candidate is not None and lanes.candidate.ref == ref:
            return
        policy = await self._load(ref)
        if policy is None:
            lanes.withdraw()
            return
        lanes.try_out(ref, policy)
        log.info("policy_candidate", policy=ref.title, sha256=ref.sha256)

    async def _load(self, ref: PolicyRef) -> Policy | None:
        """The policy, built outside the event loop; None when it was refused, which is then told."""
        data = await self._fetch(ref.sha256) if ref.sha256 else None
        try:
            policy = await asyncio.to_thread(load_policy, ref.name, data=data, sha256=ref.sha256)
            if policy.version != ref.version:
                raise ConfigError(
                    f"policy: the weights of {ref.title} say version {policy.version}; publish them again"
                )
        except ConfigError as error:
            self._lanes.refuse(ref, Failure.RELEASE if isinstance(error, OtherRelease) else Failure.DIGEST)
            log.error("policy_refused", policy=ref.title, sha256=ref.sha256, error=error)
            return None
        return policy
