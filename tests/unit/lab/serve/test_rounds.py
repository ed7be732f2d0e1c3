"""Learning in rounds on a captured cluster: it goes on while a candidate waits, offers what is better by the margin in
shadow alone, never over somebody else's candidate, and begins anew where the pointer says so."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lab.learner.deepsets import training as sets_training
from lab.learner.frag import training as frag_training
from lab.learner.marl import training as agents_training
from lab.learner.training.captured import CapturedFile, read_captured
from lab.serve.core import HistoryRead, LearnerPointerSeen
from lab.serve.publishing import PublishedUnknown, Publisher, Unpublished
from lab.serve.rounds import MOST_REMEMBERED, Offered, OfferWeights, Round, RoundLearned, RoundsCore, RoundsPhase
from lab.serve.rounds_shell import RoundsShell
from lab.serve.rounds_trainer import LEARNINGS, RoundStopped, RoundsTrainer
from shared.decide.stages import Stage
from shared.errors import ConfigError, StoreUnknown
from shared.policy.registry import LEARNED, load_policy, reference
from shared.policy.weights import WeightsFile, decode, digest, encode, shipped
from shared.ports import Put
from shared.runtime.observe.metrics import Metrics
from shared.runtime.records.policies import get_weights, read_history, read_pointer
from shared.wire.keys import Keys
from shared.wire.records import PolicyPointer, PolicyRef, encode_record
from tests.captures import make_capture, with_gpus
from tests.marl_weights import with_networks
from tests.memory_store import MemoryStore
from tests.patience import PATIENCE_S
from twin.model.capture import encode as written

KEYS = Keys()
BASE = PolicyRef("lb", 2, "a" * 64)
OURS = PolicyRef("lb", 3, "b" * 64)
OF_EE = encode(WeightsFile(shipped("ee").arrays, shipped("ee").card))
WIDE = {name: np.zeros((99, 32), np.float32) if name == "l0.w" else a for name, a in shipped("lb").arrays.items()}
"""Of inputs that no ``lb`` has."""
THEIRS = PolicyRef("ee", 5, "c" * 64)


def pointer(number: int, **more: object) -> PolicyPointer:
    """A candidate that is not ``THEIRS`` a learner has proposed."""
    candidate = more.get("candidate")
    by = "" if candidate is None else "olga" if candidate == THEIRS else "learner"
    return PolicyPointer(active=BASE, number=number, **({"proposed_by": by} | more))  # type: ignore[arg-type]


def begun() -> RoundsCore:
    core = RoundsCore("lb", 0.01)
    assert core.handle([LearnerPointerSeen(pointer(1))]) == [Round(BASE, 1, anew=True)]
    return core


def offered() -> RoundsCore:
    """Its candidate of gain 0.05 is in the pointer, and it learns on."""
    core = begun()
    assert core.handle([RoundLearned(0.05)]) == [OfferWeights(BASE, 3, 0.05)]
    assert core.handle([Offered(OURS)]) == [Round(BASE, 2, anew=False)]
    core.handle([LearnerPointerSeen(pointer(2, candidate=OURS, stage=Stage.SHADOW))])
    return core


def test_nothing_is_learned_while_another_policy_decides() -> None:
    core = RoundsCore("lb", 0.01)
    assert core.handle([LearnerPointerSeen(None)]) == []
    assert core.handle([LearnerPointerSeen(PolicyPointer(active=THEIRS, number=1))]) == []
    assert core.handle([LearnerPointerSeen(pointer(2))]) == [Round(BASE, 1, anew=True)]


def test_what_is_better_by_less_than_the_margin_is_learned_on_from_and_not_offered() -> None:
    core = begun()
    assert core.handle([RoundLearned(0.009)]) == [Round(BASE, 2, anew=False)]
    assert core.handle([RoundLearned(0.0)]) == [Round(BASE, 3, anew=False)]
    assert core.handle([RoundLearned(0.01)]) == [OfferWeights(BASE, 3, 0.01)]


def test_learning_goes_on_while_its_candidate_waits_and_a_better_one_takes_its_place_in_shadow() -> None:
    core = offered()
    assert core.handle([RoundLearned(0.055)]) == [Round(BASE, 3, anew=False)]
    assert core.handle([RoundLearned(0.07)]) == [OfferWeights(BASE, 4, 0.07, OURS)]


@pytest.mark.parametrize("stage", [Stage.CANARY])
def test_a_candidate_that_decides_for_pods_is_not_replaced_but_learning_goes_on(stage: Stage) -> None:
    core = offered()
    core.handle([LearnerPointerSeen(pointer(3, candidate=OURS, stage=stage, percent=10))])
    assert core.handle([RoundLearned(0.5)]) == [Round(BASE, 3, anew=False)]
    assert core.handle([RoundLearned(0.6)]) == [Round(BASE, 4, anew=False)]


def test_somebody_elses_candidate_is_not_replaced_and_what_was_learned_comes_after_it() -> None:
    core = begun()
    core.handle([LearnerPointerSeen(pointer(2, candidate=THEIRS, stage=Stage.SHADOW))])
    assert core.handle([RoundLearned(0.5)]) == [Round(BASE, 2, anew=False)]
    core.handle([LearnerPointerSeen(pointer(3))])
    assert core.handle([RoundLearned(0.5)]) == [OfferWeights(BASE, 3, 0.5)]


def test_once_its_candidate_decides_rounds_begin_anew_from_it() -> None:
    core = offered()
    promoted = PolicyPointer(active=OURS, previous=BASE, number=4)
    core.handle([LearnerPointerSeen(promoted)])
    assert core.handle([RoundLearned(0.9)]) == [Round(OURS, 3, anew=True)]
    assert core.outcomes["outdated"] == 1
    assert core.handle([RoundLearned(0.005)]) == [Round(OURS, 4, anew=False)]


def test_a_candidate_that_was_withdrawn_was_worse_where_it_counts_and_rounds_begin_anew() -> None:
    core = offered()
    core.handle([LearnerPointerSeen(pointer(3))])
    assert core.handle([RoundLearned(0.05)]) == [Round(BASE, 3, anew=True)]
    assert core.last_gain == 0.0


def test_an_offer_that_is_refused_is_made_again_after_another_round_and_not_at_once() -> None:
    core = begun()
    core.handle([RoundLearned(0.05)])
    assert core.handle([Offered(problem="a canary is on")]) == [Round(BASE, 2, anew=False)]
    assert core.handle([RoundLearned(0.05)]) == [OfferWeights(BASE, 4, 0.05)]


def test_what_was_withdrawn_is_not_offered_again_but_what_is_better_than_it_by_the_margin() -> None:
    core = offered()
    core.handle([LearnerPointerSeen(pointer(3))])
    core.handle([RoundLearned(0.05)])
    assert core.handle([RoundLearned(0.059)]) == [Round(BASE, 4, anew=False)]
    assert core.handle([RoundLearned(0.061)]) == [OfferWeights(BASE, 4, 0.061)]
    other = PolicyPointer(active=PolicyRef("lb", 6, "f" * 64), number=9)
    core.handle([Offered(problem="the pointer has changed"), LearnerPointerSeen(other)])
    assert core.handle([RoundLearned(0.02)]) == [
        OfferWeights(other.active, 7, 0.02)
    ]  # over another policy gains mean other things


def test_without_a_margin_what_was_withdrawn_is_still_not_offered_again() -> None:
    core = RoundsCore("lb", 0.0)
    core.handle([LearnerPointerSeen(pointer(1))])
    core.handle([RoundLearned(0.05)])
    core.handle(
        [
            Offered(OURS),
            LearnerPointerSeen(pointer(2, candidate=OURS, stage=Stage.SHADOW)),
            LearnerPointerSeen(pointer(3)),
        ]
    )
    core.handle([RoundLearned(0.05)])
    assert core.handle([RoundLearned(0.05)]) == [Round(BASE, 4, anew=False)]


def test_a_candidate_in_whose_place_somebody_puts_another_was_not_worse() -> None:
    core = offered()
    core.handle([LearnerPointerSeen(pointer(3, candidate=THEIRS, stage=Stage.SHADOW))])
    assert core.handle([RoundLearned(0.055)]) == [Round(BASE, 3, anew=False)]
    core.handle([LearnerPointerSeen(pointer(4))])
    assert core.handle([RoundLearned(0.055)]) == [OfferWeights(BASE, 4, 0.055)]


def test_a_round_that_could_not_begin_comes_again_and_nothing_is_forgotten() -> None:
    core = begun()
    assert core.handle([RoundLearned(problem="no answer", begun=False)]) == [Round(BASE, 2, anew=True)]
    core = offered()
    assert core.handle([RoundLearned(problem="no answer", begun=False)]) == [Round(BASE, 3, anew=False)]
    assert core.outcomes["failed"] == 1
    assert core.handle([RoundLearned(0.065)]) == [OfferWeights(BASE, 4, 0.065, OURS)]


def test_after_a_round_that_diverged_its_candidate_is_still_its_own_and_only_better_takes_its_place() -> None:
    core = offered()
    assert core.handle([RoundLearned(problem="not finite")]) == [Round(BASE, 3, anew=True)]
    assert core.handle([RoundLearned(0.055)]) == [Round(BASE, 4, anew=False)]
    assert core.handle([RoundLearned(0.07)]) == [OfferWeights(BASE, 4, 0.07, OURS)]


@pytest.mark.parametrize("written", [True, False])
def test_of_a_candidate_of_whose_writing_no_answer_came_the_pointer_tells(written: bool) -> None:
    core = begun()
    core.handle([RoundLearned(0.05)])
    seen = pointer(2, candidate=OURS, stage=Stage.SHADOW) if written else pointer(1)
    assert core.handle([Offered(OURS, "no answer"), LearnerPointerSeen(seen)]) == [Round(BASE, 2, anew=False)]
    assert core.outcomes["unknown"] == 1
    follows = core.handle([RoundLearned(0.055)])
    assert follows == ([Round(BASE, 3, anew=False)] if written else [OfferWeights(BASE, 4, 0.055)])


def test_a_replacement_of_whose_writing_no_answer_came_is_no_withdrawal() -> None:
    core = offered()
    newer = PolicyRef("lb", 4, "e" * 64)
    core.handle([RoundLearned(0.07)])
    core.handle([Offered(newer, "no answer")])
    core.handle([LearnerPointerSeen(pointer(3, candidate=newer, stage=Stage.SHADOW))])
    assert core.handle([RoundLearned(0.075)]) == [Round(BASE, 4, anew=False)]
    assert core.handle([RoundLearned(0.09)]) == [OfferWeights(BASE, 5, 0.09, newer)]
    assert core.handle([Offered(problem="x"), LearnerPointerSeen(pointer(4))]) == [Round(BASE, 5, anew=True)]


def waiting(number: int = 2, stage: Stage = Stage.SHADOW, percent: int = 0) -> PolicyPointer:
    return pointer(number, candidate=OURS, stage=stage, percent=percent)


def test_a_learner_that_was_started_again_knows_its_candidate_and_learns_on_from_it() -> None:
    core = RoundsCore("lb", 0.01)
    told = HistoryRead((pointer(1), waiting()))
    assert core.handle([told, LearnerPointerSeen(waiting())]) == [Round(BASE, 1, anew=True, first=OURS, judge=(OURS,))]
    assert core.handle([RoundLearned(0.055, judged={OURS: 0.05})]) == [Round(BASE, 2, anew=False)]
    assert core.handle([RoundLearned(0.07)]) == [OfferWeights(BASE, 4, 0.07, OURS)]


def test_nothing_is_offered_in_place_of_a_candidate_whose_gain_is_not_known() -> None:
    core = begun()
    core.handle([LearnerPointerSeen(waiting())])  # of a learner that was here before, and wrote late
    assert core.handle([RoundLearned(0.5)]) == [Round(BASE, 2, anew=False, judge=(OURS,))]
    assert core.handle([RoundLearned(0.5, problem="not finite", judged={OURS: 0.45})]) == [Round(BASE, 3, anew=True)]
    assert core.handle([RoundLearned(0.455)]) == [Round(BASE, 4, anew=False)]
    assert core.handle([RoundLearned(0.47)]) == [OfferWeights(BASE, 4, 0.47, OURS)]


@pytest.mark.parametrize(
    "history",
    [
        pytest.param((pointer(1), waiting(), pointer(3)), id="withdrawn in shadow"),
        pytest.param((waiting(), waiting(3, Stage.CANARY, 10), pointer(4)), id="withdrawn as a canary"),
        pytest.param(
            (waiting(), PolicyPointer(active=OURS, previous=BASE, number=3), pointer(4)), id="decided, and taken back"
        ),
    ],
)
def test_a_learner_that_was_started_again_does_not_offer_what_was_taken_back(
    history: tuple[PolicyPointer, ...],
) -> None:
    core = RoundsCore("lb", 0.01)
    assert core.handle([HistoryRead(history), LearnerPointerSeen(history[-1])]) == [
        Round(BASE, 1, anew=True, judge=(OURS,))
    ]
    assert core.handle([RoundLearned(0.055, judged={OURS: 0.05})]) == [Round(BASE, 2, anew=False)]
    assert core.handle([RoundLearned(0.07)]) == [OfferWeights(BASE, 4, 0.07)]


def test_what_was_withdrawn_of_somebody_elses_or_over_another_policy_does_not_count() -> None:
    theirs = pointer(2, candidate=OURS, stage=Stage.SHADOW, proposed_by="olga")
    for history in (
        (theirs, pointer(3)),
        (PolicyPointer(active=THEIRS, candidate=OURS, proposed_by="learner", number=2), pointer(3)),
        (waiting(), PolicyPointer(active=THEIRS, previous=BASE, number=3), pointer(4)),
        (waiting(), pointer(3, candidate=THEIRS, stage=Stage.SHADOW), pointer(4)),
    ):
        core = RoundsCore("lb", 0.01)
        assert core.handle([HistoryRead(history), LearnerPointerSeen(history[-1])]) == [Round(BASE, 1, anew=True)]


def test_what_decided_and_was_taken_back_while_it_runs_has_to_be_beaten() -> None:
    core = offered()
    core.handle([LearnerPointerSeen(PolicyPointer(active=OURS, previous=BASE, number=4))])
    core.handle([RoundLearned(0.9)])
    core.handle([LearnerPointerSeen(pointer(5))])
    assert core.handle([RoundLearned(0.9)]) == [Round(BASE, 4, anew=True, judge=(OURS,))]


def test_a_gain_that_was_judged_over_what_decides_no_more_does_not_count() -> None:
    core = RoundsCore("lb", 0.01)
    core.handle([HistoryRead((waiting(), pointer(3))), LearnerPointerSeen(pointer(3))])
    other = PolicyPointer(active=PolicyRef("lb", 6, "f" * 64), number=9)
    core.handle([LearnerPointerSeen(other)])
    core.handle([RoundLearned(0.9, judged={OURS: 0.9})])
    assert core.handle([RoundLearned(0.02)]) == [OfferWeights(other.active, 7, 0.02)]


@pytest.mark.parametrize("answered", [True, False])
def test_of_gains_the_last_few_are_remembered(answered: bool) -> None:
    core = RoundsCore("lb", 0.0)
    core.handle([LearnerPointerSeen(pointer(1))])
    for number in range(1, 100):
        core.handle([RoundLearned(number / 100)])
        core.handle([Offered(PolicyRef("lb", 2 + number, f"{number:064}"), "" if answered else "no answer")])
    assert len(core._gains if answered else core._unknown) == MOST_REMEMBERED
    assert max((core._gains if answered else core._unknown).values()) == 0.99


def test_an_offer_names_the_candidate_that_it_was_compared_with_and_none_before_one_was_seen() -> None:
    core = begun()
    core.handle([RoundLearned(0.05)])
    core.handle([Offered(OURS)])
    assert core.handle([RoundLearned(0.07)]) == [OfferWeights(BASE, 4, 0.07)]  # the pointer has not shown it yet
    assert core.handle([Offered(problem="there is another"), LearnerPointerSeen(waiting())]) == [
        Round(BASE, 3, anew=False)
    ]
    assert core.handle([RoundLearned(0.07)]) == [OfferWeights(BASE, 5, 0.07, OURS)]


def test_what_diverged_begins_anew() -> None:
    core = begun()
    assert core.handle([RoundLearned(problem="not finite")]) == [Round(BASE, 2, anew=True)]
    assert core.outcomes["diverged"] == 1


def test_news_of_the_pointer_that_come_with_a_result_count_before_what_follows() -> None:
    core = begun()
    other = PolicyPointer(active=THEIRS, previous=BASE, number=2)
    assert core.handle([RoundLearned(0.5), LearnerPointerSeen(other)]) == []
    assert core.phase is RoundsPhase.RESTING


def test_no_version_of_history_is_given_to_other_weights() -> None:
    core = RoundsCore("lb", 0.01)
    core.handle(
        [HistoryRead((PolicyPointer(active=PolicyRef("lb", 8, "d" * 64), number=1),)), LearnerPointerSeen(pointer(2))]
    )
    assert core.handle([RoundLearned(0.5)]) == [OfferWeights(BASE, 9, 0.5)]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validations of two short episodes."""
    for module in (sets_training, agents_training):
        monkeypatch.setattr(module, "VALIDATED", 2)
        monkeypatch.setattr(module, "ARRIVALS", 12)


@pytest.fixture
def captured(tmp_path: Path) -> CapturedFile:
    file = tmp_path / "c.json.gz"
    file.write_bytes(written(make_capture(pods=150)))
    return read_captured("capture", file)


def test_every_learned_policy_of_ours_but_mixtures_learns_in_rounds() -> None:
    """The published form of ``marl-dqn`` learns by what agents live through alone."""
    assert set(LEARNINGS) == set(LEARNED) - {"hybrid", "marl-dqn-published"}


@pytest.mark.parametrize("policy", ["ee", "el", "lb", "marl-dqn"])
def test_a_round_goes_on_from_the_best_so_far_and_never_falls_behind(captured: CapturedFile, policy: str) -> None:
    steps = 1 if policy == "marl-dqn" else 600
    trainer = RoundsTrainer(policy, captured, seed=1000, steps=steps)
    base = shipped(policy)
    gains = [trainer.round(base, number, anew=number == 1) for number in (1, 2)]
    assert 0.0 <= gains[0] <= gains[1]
    file = trainer.best(7)
    data = encode(file)
    load_policy(policy, data=data, sha256=digest(data))
    assert trainer.gain(base, file) == pytest.approx(gains[1])
    online = file.card.trained["online"]
    assert (online["from"], online["rounds"], online["data"]["capture"]) == (base.sha256, 2, "c.json.gz")
    assert trainer.round(base, 3, anew=True) >= 0.0
    assert trainer.best(8).card.trained["online"]["rounds"] == 1


def test_frag_is_judged_in_rounds_as_by_train_with_its_prices_on_many_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "g.json.gz"
    file.write_bytes(written(with_gpus(make_capture(pods=150))))
    trainer, base, priced = (
        RoundsTrainer("frag", read_captured("capture", file), seed=1000, steps=2),
        shipped("frag"),
        [],
    )
    whole = frag_training.FragRun.costs

    def costs(run: frag_training.FragRun, weights: frag_training.Floats) -> list[float]:
        priced.append(whole(run, weights))
        return priced[-1]

    monkeypatch.setattr(frag_training.FragRun, "costs", costs)
    gains = [trainer.round(base, number, anew=number == 1) for number in (1, 2)]
    assert 0.0 <= gains[0] <= gains[1]
    assert [len(found) for found in priced] == [len(frag_training.HELD_BACK_SEEDS)] * 3  # base, and one a round
    found = trainer.best(7)
    load_policy("frag", data=encode(found), sha256=digest(encode(found)))


@pytest.mark.parametrize("hidden", [(64, 64), (16,), (8, 8, 8), ()], ids=str)
@pytest.mark.parametrize("policy", ["ee", "el", "lb", "marl-dqn"])
def test_weights_of_any_hidden_layers_that_the_policy_takes_are_learned_on_from(
    captured: CapturedFile, policy: str, hidden: tuple[int, ...]
) -> None:
    file, rng = shipped(policy), np.random.default_rng(1)
    last = max(int(name[1:-2]) for name in file.arrays)
    sizes = (file.arrays["l0.w"].shape[0], *hidden, file.arrays[f"l{last}.w"].shape[1])
    arrays = {}
    for layer, (into, out) in enumerate(pairwise(sizes)):
        arrays[f"l{layer}.w"] = rng.normal(0, 0.1, (into, out)).astype(np.float32)
        arrays[f"l{layer}.b"] = np.zeros(out, np.float32)
    data = encode(WeightsFile(arrays, file.card))
    load_policy(policy, data=data, sha256=digest(data))
    trainer = RoundsTrainer(policy, captured, seed=1000, steps=1 if policy == "marl-dqn" else 600)
    assert trainer.round(decode(data, policy=policy), 1, anew=True) >= 0.0
    found = trainer.best(7)
    assert {name: array.shape for name, array in found.arrays.items()} == {
        name: array.shape for name, array in arrays.items()
    }
    load_policy(policy, data=encode(found), sha256=digest(encode(found)))


def test_what_the_users_card_says_its_weights_are_for_stays(captured: CapturedFile) -> None:
    file = shipped("lb")
    card = msgspec.structs.replace(file.card, goal="reward: 1 - nodes_used / nodes")
    trainer = RoundsTrainer("lb", captured, seed=1000, steps=600)
    trainer.round(WeightsFile(file.arrays, card, "a" * 64), 1, anew=True)
    assert trainer.best(9).card.goal == card.goal


@pytest.mark.parametrize(
    ("policy", "more", "message"),
    [
        ("lb", {"seed": 7}, "seed: 7 is not of those that learn on a capture; give 1000 to 1000000"),
        ("lb", {"seed": 2**63 - 1}, "give 1000 to 1000000"),
        ("marl-dqn", {"steps": 1_000_000}, "--steps: 1000000 rounds are out of range"),
    ],
)
def test_settings_by_which_no_round_can_be_learned_are_refused_at_start(
    captured: CapturedFile, policy: str, more: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        RoundsTrainer(policy, captured, **{"seed": 1000, "steps": 0, **more})


@pytest.mark.parametrize("policy", ["lb", "ee", "marl-dqn"])
def test_a_round_ends_at_its_next_report_once_the_learner_is_asked_to_stop(captured: CapturedFile, policy: str) -> None:
    trainer = RoundsTrainer(policy, captured, seed=1000, steps=100_000 if policy != "marl-dqn" else 5_000)
    trainer.stop()
    with pytest.raises(RoundStopped):
        trainer.round(shipped(policy), 1, anew=True)


def test_a_policy_that_learns_on_no_capture_is_refused_with_those_that_do(captured: CapturedFile) -> None:
    with pytest.raises(
        ConfigError, match="capture: hybrid does not learn on one; choose one of ee, el, frag, lb, marl-dqn"
    ):
        RoundsTrainer("hybrid", captured, seed=1000, steps=0)
    with pytest.raises(ConfigError, match="no node has a GPU"):
        RoundsTrainer("frag", captured, seed=1000, steps=0)


class Better(RoundsTrainer):
    """Each round is better by a tenth, and counts."""

    def __init__(self) -> None:
        self.rounds: list[str] = []

    def round(self, base: WeightsFile, number: int, *, anew: bool, first: WeightsFile | None = None) -> float:
        begun = f" from {first.title}" if first is not None else ""
        self.rounds.append(f"{number} {'anew' if anew else 'on'}{begun}")
        return 0.1 * number

    def gain(self, base: WeightsFile, other: WeightsFile) -> float:
        return 0.15

    def best(self, version: int) -> WeightsFile:
        file = shipped("lb")
        arrays = {
            name: (array * np.float32(1 + version / 100)).astype(np.float32) for name, array in file.arrays.items()
        }
        return WeightsFile(arrays, msgspec.structs.replace(file.card, version=version))


async def test_a_learner_offers_candidate_after_candidate_in_shadow_while_the_policy_in_use_goes_on() -> None:
    store, trainer = MemoryStore(), Better()
    active = reference(shipped("lb"))
    await store.txn([], [Put(KEYS.policies_active, encode_record(PolicyPointer(active=active, number=1)))])

    async def fetch(sha256: str) -> bytes | None:
        return None  # as shipped: etcd keeps none

    shell = RoundsShell(
        RoundsCore("lb", 0.01), trainer, Publisher(store, KEYS), Metrics("learner"), fetch=fetch, every_s=0.0
    )
    running = asyncio.create_task(shell.run())
    seen: list[str] = []
    while len(seen) < 3:
        found = (await read_pointer(store, KEYS)).pointer
        assert found is not None
        assert (found.active, found.percent) == (active, 0)
        if found.candidate is not None and found.candidate.title not in seen:
            assert found.stage == Stage.SHADOW
            seen.append(found.candidate.title)
        shell.post_one(LearnerPointerSeen(found))
        await asyncio.sleep(0.001)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert seen == ["lb@3", "lb@4", "lb@5"]
    assert trainer.rounds[:2] == ["1 anew", "2 on"]
    assert shell.stats()["outcomes"]["offered"] >= 3


async def test_a_learner_that_is_started_again_puts_what_is_better_in_the_place_of_its_own_candidate() -> None:
    store = MemoryStore()
    active = reference(shipped("lb"))
    await store.txn([], [Put(KEYS.policies_active, encode_record(PolicyPointer(active=active, number=1)))])

    async def offers(title: str) -> list[str]:
        """Until the candidate is this one; what the learner did, that knows nothing but what etcd tells."""
        trainer = Better()
        shell = RoundsShell(
            RoundsCore("lb", 0.01), trainer, Publisher(store, KEYS), Metrics("learner"),
            fetch=lambda sha256: get_weights(store, KEYS, sha256), every_s=0.0,
        )  # fmt: skip
        history = await read_history(store, KEYS)
        shell.post_one(HistoryRead(tuple(record.pointer for record in history)))
        running = asyncio.create_task(shell.run())
        while True:
            found = (await read_pointer(store, KEYS)).pointer
            if found is not None and found.candidate is not None and found.candidate.title == title:
                break
            shell.post_one(LearnerPointerSeen(found))
            await asyncio.sleep(0.001)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return trainer.rounds

    assert (await offers("lb@3"))[0] == "1 anew"
    assert (await offers("lb@4"))[0] == "1 anew from lb@3"
    again = (await read_pointer(store, KEYS)).pointer
    assert again is not None
    assert (again.active, again.stage, again.proposed_by) == (active, Stage.SHADOW, "learner")


@pytest.mark.parametrize("kept", [None, b"no weights", OF_EE, encode(WeightsFile(WIDE, shipped("lb").card))])
async def test_what_was_taken_back_and_cannot_be_read_any_more_beats_nothing_and_stops_nothing(
    kept: bytes | None,
) -> None:
    ours = PolicyRef("lb", 3, digest(kept or b"gone"))
    core = RoundsCore("lb", 0.01)
    trainer, learned = Better(), asyncio.Event()
    base = reference(shipped("lb"))

    async def fetch(sha256: str) -> bytes | None:
        return kept if sha256 == ours.sha256 else None

    class Store(MemoryStore):
        async def txn(self, *words: Any, **more: Any) -> Any:
            found = await super().txn(*words, **more)
            learned.set()
            return found

    store = Store()
    now = PolicyPointer(active=base, number=3)
    await store.txn([], [Put(KEYS.policies_active, encode_record(now))])
    learned.clear()
    shell = RoundsShell(core, trainer, Publisher(store, KEYS), Metrics("learner"), fetch=fetch, every_s=0.0)
    held = PolicyPointer(active=base, candidate=ours, stage=Stage.SHADOW, proposed_by="learner", number=2)
    shell.post_one(HistoryRead((held, now)))
    shell.post_one(LearnerPointerSeen(now))
    running = asyncio.create_task(shell.run())
    await asyncio.wait_for(learned.wait(), PATIENCE_S)  # something was offered
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert trainer.rounds[0] == "1 anew"
    assert core._gains[ours] == 0.0


def test_old_news_of_a_candidate_that_it_has_replaced_do_not_make_it_forget_the_new_one() -> None:
    core = offered()
    core.handle([RoundLearned(0.07)])
    newer = PolicyRef("lb", 4, "e" * 64)
    core.handle([Offered(newer)])
    core.handle([LearnerPointerSeen(pointer(2, candidate=OURS, stage=Stage.SHADOW))])
    core.handle([LearnerPointerSeen(pointer(3, candidate=newer, stage=Stage.SHADOW))])
    assert core.handle([RoundLearned(0.09)]) == [OfferWeights(BASE, 5, 0.09, newer)]


async def placed(pointer: PolicyPointer) -> MemoryStore:
    store = MemoryStore()
    await store.txn([], [Put(KEYS.policies_active, encode_record(pointer))])
    return store


@pytest.mark.parametrize(
    ("candidate", "by", "instead_of"),
    [
        pytest.param(THEIRS, "olga", THEIRS, id="of another policy"),
        pytest.param(THEIRS, "learner", THEIRS, id="of a learner of another policy"),
        pytest.param(OURS, "olga", OURS, id="published by hand"),
        pytest.param(OURS, "", OURS, id="of a release that did not tell"),
        pytest.param(OURS, "learner", None, id="of a learner that replaces none"),
        pytest.param(OURS, "learner", PolicyRef("lb", 3, "e" * 64), id="of another learner, or without an answer"),
    ],
)
async def test_where_it_is_written_too_only_the_candidate_of_its_own_that_was_judged_is_replaced(
    candidate: PolicyRef, by: str, instead_of: PolicyRef | None
) -> None:
    held = pointer(5, candidate=candidate, stage=Stage.SHADOW, proposed_by=by)
    store = await placed(held)
    with pytest.raises(Unpublished, match=f"{candidate.title} is a candidate already"):
        await Publisher(store, KEYS).publish(Better().best(3), base=BASE, gain=0.1, instead_of=instead_of)
    assert (await read_pointer(store, KEYS)).pointer == held
    assert (await store.list_prefix(KEYS.policy_weights_prefix)).items == ()


async def test_what_an_operator_said_of_its_candidate_holds_for_what_takes_its_place() -> None:
    held = pointer(5, candidate=OURS, stage=Stage.SHADOW, promotion="manual", goal="balance", made_for="packing")
    store = await placed(held)
    ref = await Publisher(store, KEYS).publish(Better().best(4), base=BASE, gain=0.1, instead_of=OURS)
    found = (await read_pointer(store, KEYS)).pointer
    assert found is not None
    assert (found.candidate, found.promotion, found.goal, found.stage) == (ref, "manual", "balance", Stage.SHADOW)


async def test_a_publication_without_answer_names_what_it_may_have_written() -> None:
    store = await placed(pointer(5))
    whole = store.txn

    async def unanswered(*words: Any, **more: Any) -> Any:
        await whole(*words, **more)
        raise StoreUnknown("no answer")

    store.txn = unanswered  # type: ignore[method-assign]
    with pytest.raises(PublishedUnknown) as raised:
        await Publisher(store, KEYS).publish(Better().best(3), base=BASE, gain=0.1)
    found = (await read_pointer(store, KEYS)).pointer
    assert found is not None
    assert found.candidate == raised.value.ref


@pytest.mark.parametrize("better", [True, False])
def test_what_waits_is_learned_on_from_where_it_is_better_than_what_decides(
    captured: CapturedFile, monkeypatch: pytest.MonkeyPatch, better: bool
) -> None:
    trainer, base = RoundsTrainer("lb", captured, seed=1000, steps=600), shipped("lb")
    waits = WeightsFile({name: array * np.float32(1.5) for name, array in base.arrays.items()}, base.card, "b" * 64)
    found = {name: array * np.float32(2) for name, array in base.arrays.items()}
    costs = {id(base.arrays): [1.0, 1.0], id(waits.arrays): [0.9 if better else 1.1] * 2, id(found): [0.8, 0.8]}
    begun: list[Any] = []
    monkeypatch.setattr(trainer._learning, "costs", lambda arrays: costs[id(arrays)])
    monkeypatch.setattr(trainer._learning, "learn", lambda first, seed, stopped: (begun.append(first), found)[1])
    assert trainer.round(base, 1, anew=True, first=waits) == pytest.approx(0.2)
    assert begun[0] is (waits.arrays if better else base.arrays)


def test_weights_with_networks_of_classes_are_neither_learned_on_from_nor_judged(
    captured: CapturedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its nodes would all be judged by the shared one of them."""
    trainer, base = RoundsTrainer("marl-dqn", captured, seed=1000, steps=1), shipped("marl-dqn")
    monkeypatch.setattr(trainer._learning, "costs", lambda arrays: [1.0, 1.0])
    classes = with_networks(base, {"large": 1}, {1: base})
    for refused in (
        lambda: trainer.round(classes, 1, anew=True),
        lambda: trainer.round(base, 1, anew=True, first=classes),
        lambda: trainer.gain(base, classes),
    ):
        with pytest.raises(ConfigError, match="nodes of each pool have a network of their own"):
            refused()


def test_a_gain_that_chance_explains_is_none_whether_it_is_learned_or_judged(
    captured: CapturedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight percent in the mean of four episodes; then as much, in each of them."""
    trainer, base = RoundsTrainer("lb", captured, seed=1000, steps=600), shipped("lb")
    lucky, good, worse = ({name: array * np.float32(by) for name, array in base.arrays.items()} for by in (2, 3, 4))
    costs = {
        id(base.arrays): [2.0, 2.0, 2.0, 2.0], id(lucky): [0.6, 2.2, 2.3, 2.26], id(good): [1.84, 1.85, 1.83, 1.84],
        id(worse): [1.0, 1.85, 2.0, 2.5],
    }  # fmt: skip
    rounds = iter([lucky, good, worse])
    monkeypatch.setattr(trainer._learning, "costs", lambda arrays: costs[id(arrays)])
    monkeypatch.setattr(trainer._learning, "learn", lambda first, seed, stopped: next(rounds))
    assert trainer.gain(base, WeightsFile(lucky, base.card)) == 0.0
    assert trainer.gain(base, WeightsFile(good, base.card)) == pytest.approx(0.08)
    gains = [trainer.round(base, number, anew=number == 1) for number in (1, 2, 3)]
    assert gains == [0.0, pytest.approx(0.08), pytest.approx(0.08)]
    assert trainer.best(3).arrays["l0.b"] is good["l0.b"]  # and not what is lower in the mean by chance


def test_a_learner_that_was_started_again_does_not_repeat_its_rounds(
    captured: CapturedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    for begun in (0, 5, 1_764_383_000):
        trainer = RoundsTrainer("lb", captured, seed=1000, steps=600, begun=begun)
        monkeypatch.setattr(trainer._learning, "costs", lambda arrays: [1.0, 1.0])
        monkeypatch.setattr(trainer._learning, "learn", lambda first, seed, stopped: (seeds.append(seed), first)[1])
        for number in (1, 2, 3):
            trainer.round(shipped("lb"), number, anew=number == 1)
    assert seeds[:3] == [1001, 1002, 1003]
    assert len(set(seeds)) == 9
    assert all(1000 <= seed < 1_000_000 for seed in seeds)


async def test_an_etcd_that_does_not_answer_costs_no_round_and_weights_are_fetched_once() -> None:
    thrice = asyncio.Event()

    class Counted(Better):
        def round(self, base: WeightsFile, number: int, *, anew: bool, first: WeightsFile | None = None) -> float:
            gain = super().round(base, number, anew=anew)
            if len(self.rounds) == 3:
                loop.call_soon_threadsafe(thrice.set)
            return gain

    trainer, asked, loop = Counted(), 0, asyncio.get_running_loop()

    async def fetch(sha256: str) -> bytes | None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise StoreUnknown("no answer")
        return None

    store = await placed(PolicyPointer(active=reference(shipped("lb")), number=1))
    shell = RoundsShell(
        RoundsCore("lb", 100.0), trainer, Publisher(store, KEYS), Metrics("learner"), fetch=fetch, every_s=0.0
    )
    running = asyncio.create_task(shell.run())
    shell.post_one(LearnerPointerSeen((await read_pointer(store, KEYS)).pointer))
    await asyncio.wait((running, asyncio.ensure_future(thrice.wait())), return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert trainer.rounds[:3] == ["2 anew", "3 on", "4 on"]
    assert asked == 2
    assert trainer.stopped
