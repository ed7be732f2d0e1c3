"""A domain from nothing, as docs/adding-a-domain.md goes through it: a policy that picks a colour for each pod, with
guard, roll-out, record, routes and command."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from math import inf
from pathlib import Path

import pytest

from services.cli.__main__ import run
from services.cli.operate import subject
from services.cli.server import options
from services.coordinator.http.desk import Desk
from services.coordinator.http.routes.rollouts import rows_of
from services.coordinator.http.table import ROUTES
from shared.decide.domain import Domain
from shared.decide.guard import Failure, Faulty, Guard, GuardLimits, no_clock
from shared.decide.judging import Gap, Judge
from shared.decide.pair import PolicyPair
from shared.decide.registry import PolicyEntry, PolicyRegistry
from shared.decide.rollout import Rollout, begin, gone, promoted
from shared.decide.stages import Stage
from shared.ports import Put
from shared.runtime.records.rollouts import read_rollout, rollout_in, write_rollout
from tests.unit.services.coordinator.http.api_world import TOKENS, api_world
from tests.unit.services.coordinator.test_shell import KEYS

# --- 1. the domain, what a policy sees and answers ----------------------------------------------------------------

COLOURS = ("red", "green", "blue")
COLOUR = Domain(
    name="colours", subjects="pods", service="the painter", limits=GuardLimits(deadline_s=0.1, patience=3, rest=5),
    shares=(10, 50), good_windows=1,
)  # fmt: skip
Seen = tuple[str, Mapping[str, int]]
"""A pod's uid, and how many have each colour."""

# --- 2. its policies, by name -------------------------------------------------------------------------------------


def hashed(seen: Seen) -> str:
    return COLOURS[zlib.crc32(seen[0].encode()) % len(COLOURS)]


def fewest(seen: Seen) -> str:
    return min(COLOURS, key=lambda colour: seen[1].get(colour, 0))


def red(_: Seen) -> str:
    return "red"


def broken(_: Seen) -> str:
    return "mauve"


POLICIES = PolicyRegistry(
    "colours", {name: PolicyEntry(f"{__name__}:{name}") for name in ("hashed", "fewest", "red", "broken")}
)

# --- 3. the guard, with what an answer must be --------------------------------------------------------------------


def guarded(name: str) -> Guard[[Seen], str]:
    policy = POLICIES.entry(name).maker()

    def decide(seen: Seen) -> str:
        answer: str = policy(seen)
        if answer not in COLOURS:
            raise Faulty(Failure.SHAPE, f"{answer!r} is no colour")
        return answer

    return Guard(decide, COLOUR.limits, clock=no_clock)


# --- 4. who decides: the settings' policy, and a candidate beside it ----------------------------------------------


class Painter:
    """The core of the service. Where a policy fails, a pod becomes grey."""

    def __init__(self, settings: str = "hashed", most_worse: float = 0.05) -> None:
        judge = partial(Judge, COLOUR, length_s=60.0, most_worse=most_worse)
        self.pair = PolicyPair(guarded(settings), make=guarded, judge=judge)
        self.painted: Counter[str] = Counter()

    def paint(self, uids: Iterable[str], now: float) -> tuple[dict[str, str], Rollout | None]:
        """(colours, what the rollout becomes)."""
        pair, colours, worth, more = self.pair, dict[str, str](), 0.0, 0.0
        for uid in uids:
            seen = (uid, self.painted)
            mine = pair.teacher.ask(seen) or "grey"
            theirs = pair.candidate.ask(seen) or "grey" if pair.candidate is not None else mine
            colours[uid] = theirs if pair.candidate_for(uid) else mine
            worth += self._worth(mine)
            more += self._worth(theirs) - self._worth(mine)
            self.painted[colours[uid]] += 1
        if not pair.rollout.on or pair.candidate is None:
            return colours, gone(pair.rollout, COLOUR, pair.refused) if pair.refused else None
        trouble = pair.candidate.problem if pair.candidate.resting else ""
        return colours, pair.judge.look(pair.rollout, now, Gap(worth, more, 0.0), trouble)

    def _worth(self, colour: str) -> float:
        return 0.0 if colour == "grey" else 1.0 / (1.0 + self.painted[colour])


def painted(painter: Painter, turns: int, each: int = 20) -> dict[str, str]:
    found: dict[str, str] = {}
    for turn in range(turns):
        colours, becomes = painter.paint((f"pod-{turn}-{number}" for number in range(each)), 10.0 * turn)
        found |= colours
        if becomes is not None:
            painter.pair.became(becomes)
    return found


def at(stage: Stage, candidate: str, percent: int = 10, **options: float) -> Painter:
    painter = Painter(**options)
    painter.pair.read(Rollout(stage=stage, candidate=candidate, percent=percent), 1)
    return painter


def test_the_candidate_decides_for_nobody_in_shadow_for_its_share_in_the_canary_and_for_all_once_active() -> None:
    share = [
        sum(colour == "red" for colour in painted(at(stage, "red", 50, most_worse=inf), 20).values()) / 400
        for stage in (Stage.NONE, Stage.SHADOW, Stage.CANARY, Stage.ACTIVE)
    ]
    assert share[0] == share[1] == pytest.approx(1 / 3, abs=0.1)
    assert share[2] == pytest.approx(2 / 3, abs=0.1)
    assert share[3] == 1.0


@pytest.mark.parametrize(("name", "why"), [("red", "worse than its teacher"), ("broken", "'mauve' is no colour")])
def test_one_that_is_worse_or_fails_goes_back_by_itself(name: str, why: str) -> None:
    painter = at(Stage.CANARY, name)
    painted(painter, 20)
    assert painter.pair.rollout.stage is Stage.NONE
    assert why in painter.pair.rollout.reason


def test_without_the_bound_on_what_it_may_cost_it_stays() -> None:
    painter = at(Stage.CANARY, "red", most_worse=inf)
    painted(painter, 20)
    assert painter.pair.rollout.on


def test_a_good_one_earns_its_windows_and_goes_through_the_domains_shares() -> None:
    rollout, gone_through = begin(Rollout(), "fewest", policies=POLICIES, now="1", by="ann", reason=""), []
    while rollout.stage is not Stage.ACTIVE:
        painter = Painter()
        painter.pair.read(rollout, 1)
        painted(painter, 8)
        rollout = promoted(painter.pair.rollout, domain=COLOUR, percent=None, force=False, now="2", by="ann", reason="")
        gone_through.append((rollout.stage.value, rollout.percent))
    assert gone_through == [("canary", 10), ("canary", 50), ("active", 50)]


# --- 5. routes, record and command: nothing of one's own but the two rows -----------------------------------------


async def settings_policy(_: Desk) -> str:
    return "hashed"


async def test_it_is_tried_and_taken_further_by_the_command_and_its_service_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(subject.TRIED, COLOUR.name, (COLOUR, POLICIES))
    monkeypatch.setattr(options, "until_signal", lambda work: work)  # the command runs in a thread of the test's
    routes = rows_of(COLOUR, POLICIES, "colours", settings_policy)
    token = tmp_path / "token"
    token.write_text(TOKENS["operator"])
    async with api_world(tmp_path, routes=(*ROUTES, *routes)) as world:

        async def policy(*arguments: str) -> str:
            where = ["--for", "colours", "--server", world.listeners["c0"].url, "--token-file", str(token)]
            assert await asyncio.to_thread(run, ["policy", *arguments, *where]) == 0
            return capsys.readouterr().out

        assert "'conclave policy try NAME --for colours'" in await policy("show")
        assert "shadow" in await policy("try", "broken")
        assert "canary (10 % of the pods)" in await policy("promote", "--force")
        assert (await read_rollout(world.store, KEYS, COLOUR)).candidate == "broken"

        term = (await world.store.txn([], [Put(KEYS.leader(COLOUR.name), b"{}")])).revision
        record = await world.store.get(KEYS.rollout(COLOUR.name))
        assert record is not None
        painter = Painter()
        painter.pair.read(rollout_in(record), record.mod_revision)
        painted(painter, 20)
        pair = painter.pair
        assert await write_rollout(world.store, KEYS, COLOUR, pair.rollout, revision=pair.revision, term=term)
        assert "none: it was taken back" in (told := await policy("show"))
        assert "'mauve' is no colour" in told
