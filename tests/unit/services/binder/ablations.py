"""The binder without one of its safeguards each: what an ablation test switches off, and production code cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from msgspec import structs

from services.binder.core import core, state
from services.binder.core.events import LookedUp
from services.binder.core.gangs import GangStage, InFlightGang
from services.binder.core.in_flight import LEGAL, BindingStage, InFlightBinding
from services.binder.core.loans import Loans
from services.binder.cycle import binding_cycle, check
from services.binder.cycle.batch import Batch, BatchDiagnosis
from services.binder.cycle.binding_cycle import BindingCycle
from services.binder.cycle.commit import Committer
from services.binder.cycle.fence import Fence
from services.binder.cycle.gang_cycle import GangCycle
from services.binder.cycle.lenders import IntentLenders
from services.binder.cycle.line import BindingLine
from shared.model.pod import Pod
from shared.ports import Compare, CreateRevisionIs
from shared.wire.messages import Outcome


class NoCreations(Committer):
    """Renews and deletes intents without comparing their creation."""

    def _creations(self, batch: Batch, names: Mapping[str, str]) -> list[Compare]:
        return []


class NoCompares(NoCreations):
    """Leaves every compare out of the transactions, and asks nobody who leads."""

    def _terms_and_absence(self, batch: Batch, names: Mapping[str, str]) -> list[Compare]:
        return []

    def failed(self, seen: LookedUp, now: float) -> BatchDiagnosis | None:
        coordinator_term = self.sent.coordinator_term if self.sent is not None else 0
        return super().failed(structs.replace(seen, own_term=self.term, coordinator_term=coordinator_term), now)


class NoLayout(Committer):
    """Believes that the nodes are divided as they were."""

    def _layout(self) -> list[Compare]:
        return []


def without_the_layout(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(core, "Committer", NoLayout)


def without_loans(patch: pytest.MonkeyPatch) -> None:
    """What other shards have committed to our nodes is not counted."""
    patch.setattr(Loans, "list", lambda *_: None)


def without_the_lenders_compares(patch: pytest.MonkeyPatch) -> None:
    """What was lent is taken to be lent for good."""
    patch.setattr(IntentLenders, "compares", lambda *_: [])


def without_the_lenders_term(patch: pytest.MonkeyPatch) -> None:
    """Compares that a lender has taken nothing back, and not that it leads."""
    _of_lenders(patch, lambda compare: not isinstance(compare, CreateRevisionIs))


def without_the_lenders_fence(patch: pytest.MonkeyPatch) -> None:
    """Compares that a lender leads, and not that it has taken nothing back."""
    _of_lenders(patch, lambda compare: isinstance(compare, CreateRevisionIs))


def _of_lenders(patch: pytest.MonkeyPatch, kept: Callable[[Compare], bool]) -> None:
    compares = IntentLenders.compares
    patch.setattr(IntentLenders, "compares", lambda self, lenders: list(filter(kept, compares(self, lenders))))


def without_ending_loans_by_lists(patch: pytest.MonkeyPatch) -> None:
    """A loan ends by time: whether an intent names the pod is not looked at."""

    def step(loans: Loans) -> None:
        for uid, held in list(loans._of.items()):
            if held.fence is not None and held.until <= loans._state.now:
                loans.over(uid)
                loans._state.cluster.forget(uid)
        stepped(loans)

    stepped = Loans.step
    patch.setattr(Loans, "step", step)


def without_waiting_for_what_was_given_up(patch: pytest.MonkeyPatch) -> None:
    """What is lent is told at once."""

    def check(cycle: BindingCycle, binding: InFlightBinding, pod: Pod) -> None:
        checked(cycle, binding, pod)
        if binding.lend and binding.stage is BindingStage.CHECKED:
            cycle._committer.clear(binding.uid, cycle._state.now)
            cycle.to_binding(binding)

    checked = BindingCycle._check
    patch.setattr(BindingCycle, "_check", check)
    patch.setattr(
        state, "LEGAL", LEGAL | {(cause, BindingStage.CHECKED, BindingStage.SETTLED) for cause, _, _ in LEGAL}
    )


def without_the_fence(patch: pytest.MonkeyPatch) -> None:
    """A transaction that got no answer may come after later ones."""
    patch.setattr(Fence, "compares", lambda _: [])


def without_creations(patch: pytest.MonkeyPatch) -> None:
    without_the_fence(patch)
    patch.setattr(core, "Committer", NoCreations)


def without_compares(patch: pytest.MonkeyPatch) -> None:
    without_the_fence(patch)
    patch.setattr(core, "Committer", NoCompares)


def without_the_check(patch: pytest.MonkeyPatch) -> None:
    """Every node takes every pod."""
    patch.setattr(check, "check_node", lambda *_, **__: None)
    patch.setattr(binding_cycle, "in_vain", lambda *_: "")


def without_gangs(patch: pytest.MonkeyPatch) -> None:
    """Members are committed one by one, as by a binder that knows no gangs."""
    patch.setattr(GangCycle, "open", lambda _, plan: [(placement, "") for placement in plan.placements])


def without_waiting_for_the_others(patch: pytest.MonkeyPatch) -> None:
    """A member that is refused ends at once, though its gang cannot do without it."""
    patch.setattr(InFlightGang, "needs", lambda *_: False)


def with_the_head_first(patch: pytest.MonkeyPatch) -> None:
    """The values of a large gang are written in the wrong order."""

    def commit(cycle: GangCycle, gang: InFlightGang) -> None:
        gang.divide(cycle._committer.size)
        cycle._move(gang, GangStage.COMMITTING)
        for number, key in enumerate(gang.keys):
            cycle._committer.put(key, gang.intent(number, cycle._state.term, cycle._state.shard))

    patch.setattr(GangCycle, "_commit", commit)


def without_the_minimum(patch: pytest.MonkeyPatch) -> None:
    """A successor takes each member of a gang's intent for a pod of its own."""
    patch.setattr(InFlightGang, "short", property(lambda _: False))
    patch.setattr(InFlightGang, "needs", lambda *_: False)
    patch.setattr(GangCycle, "_enough", lambda *_: True)


def without_rewriting(patch: pytest.MonkeyPatch) -> None:
    """A gang's intent goes on naming members that were given back."""
    patch.setattr(GangCycle, "_rewrite", lambda _, gang: gang.changed.clear())


def without_the_gate(patch: pytest.MonkeyPatch) -> None:
    """Members are bound as each can be, though the others may have to wait."""
    patch.setattr(GangCycle, "_enough", lambda *_: True)


def with_one_line_for_all(patch: pytest.MonkeyPatch) -> None:
    """First come, first served, members of gangs too."""
    add = BindingLine.add
    patch.setattr(BindingLine, "add", lambda line, uid, _: add(line, uid, ""))


def without_marking(patch: pytest.MonkeyPatch) -> None:
    """Units are given up at once."""
    withdraw = BindingCycle.withdraw

    def at_once(
        cycle: BindingCycle, binding: InFlightBinding, reason: str, *, outcome: Outcome = Outcome.CONFLICT
    ) -> None:
        binding.loose = False
        withdraw(cycle, binding, reason, outcome=outcome)

    patch.setattr(BindingCycle, "withdraw", at_once)
