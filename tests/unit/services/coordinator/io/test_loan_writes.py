"""Writes of what nodes lend, when the API server refuses, is busy or silent; what it takes: ``tests/node_loans.py``."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from structlog.testing import CapturingLogger

from services.coordinator.core.state import CoreSettings
from services.coordinator.io import loan_writes
from services.coordinator.io.loan_writes import (
    ALL_REST_S,
    IN_FLIGHT,
    REFUSALS,
    REFUSED_S,
    SILENT_S,
    UNANSWERED,
    LoanWrites,
    follow_pods,
    manager_of,
)
from services.coordinator.lending.ledger import LoanLedger, LoanWrite
from services.coordinator.lending.pod_uses import PodUses
from shared.errors import KubeRejected, KubeUnknown
from shared.kube.field_owners import OwnedNode
from shared.model.node import Node
from shared.scheduling.lending.rule import LendingRule
from tests.patience import PATIENCE_S
from tests.unit.services.coordinator.lending.scene import LendingScene

OURS = manager_of("conclave")
WORK = LoanWrite("n", (3500, 10), certain=True)
NAMES = [f"n{number}" for number in range(100)]
CONFLICT = KubeRejected("Apply failed with 1 conflict", status=409, reason="Conflict")


def node(*managers: str) -> OwnedNode:
    """It lends, by these."""
    fields: dict[str, Any] = {"f:status": {"f:allocatable": {"f:kubernetes.io/batch-cpu": {}}}}
    return msgspec.convert(
        {
            "metadata": {
                "name": "n",
                "resourceVersion": "7",
                "managedFields": [{"manager": one, "fieldsV1": fields} for one in managers],
            },
            "status": {"allocatable": {"kubernetes.io/batch-cpu": "5"}},
        },
        OwnedNode,
    )


class Api:
    """``answers`` to applies in turn, the last for ever; ``there``: what a GET finds."""

    def __init__(self, *answers: Exception | OwnedNode, there: OwnedNode | None = None) -> None:
        self.answers = list(answers)
        self.there = there
        self.applied_: list[dict[str, Any]] = []

    async def get(self, resource: Any, *, namespace: str, name: str) -> Any:
        return self.there

    async def applied(self, resource: Any, **call: Any) -> Any:
        self.applied_.append(call)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Scene:
    def __init__(self, api: Api, *, on: bool = True, **given: Any) -> None:
        self.now_s = 0.0
        self.ledger = LoanLedger(LendingRule(), on=on)
        for name in ("n", *NAMES):
            self.ledger.stale(Node(name), None, 0.0)
        self.writes = LoanWrites(api, self.ledger, manager=OURS, clock=lambda: self.now_s, **given)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> CapturingLogger:
    """What is logged."""
    logger = CapturingLogger()
    monkeypatch.setattr(loan_writes, "log", logger)
    return logger


def events(logger: CapturingLogger) -> list[str]:
    return [call.args[0] for call in logger.calls]


@pytest.mark.parametrize("status", [401, 403, 405, 415, 422])
async def test_where_the_role_may_not_write_it_rests_and_says_so_once(status: int, told: CapturingLogger) -> None:
    api = Api(KubeRejected("no", status=status))
    scene = Scene(api)
    for _ in range(3):
        await scene.writes.write([LoanWrite(name, (3500, 10), certain=True) for name in NAMES])
        assert scene.writes.resting
        scene.now_s += ALL_REST_S
        assert not scene.writes.resting
    assert events(told) == ["node_loans_refused"]
    assert len(api.applied_) <= 3 * (REFUSALS + IN_FLIGHT)


@pytest.mark.parametrize("status", [403, 422])
async def test_nodes_that_are_refused_rest_alone_where_others_are_written(status: int, told: CapturingLogger) -> None:
    """As by an admission policy for some of them, however many, after the first was written."""
    api = Api(node(OURS), KubeRejected("no", status=status))
    scene = Scene(api)
    await scene.writes.write([LoanWrite(name, (3500, 10), certain=True) for name in NAMES])
    assert len(api.applied_) == len(NAMES)
    assert not scene.writes.resting
    scene.now_s = REFUSED_S - 1
    there = Node("n5", allocatable={"kubernetes.io/batch-cpu": 5})
    scene.ledger.tune(LendingRule(), on=False)
    assert scene.ledger.due(there, scene.now_s) is None
    assert scene.ledger.due(there, REFUSED_S) is not None


async def test_nodes_that_are_refused_first_keep_no_others_from_being_written(told: CapturingLogger) -> None:
    api = Api(*[KubeRejected("no", status=403)] * (REFUSALS - 1), node(OURS))
    await Scene(api).writes.write([LoanWrite(name, (3500, 10), certain=True) for name in NAMES])
    assert len(api.applied_) == len(NAMES)


async def test_a_value_that_may_not_be_taken_away_is_told_with_what_to_do(told: CapturingLogger) -> None:
    scene = Scene(Api(KubeRejected("no", status=403), there=node(OURS)), on=False)
    for _ in range(2):
        await scene.writes.write([LoanWrite("n", None, certain=False)])
    assert [call.kwargs["remedy"] for call in told.calls] == [loan_writes.OFF_REMEDY]


@pytest.mark.parametrize("error", [KubeUnknown("silent"), KubeRejected("busy", status=429)])
async def test_a_write_of_unknown_outcome_is_left_to_the_next_look(error: Exception, told: CapturingLogger) -> None:
    api = Api(error)
    scene = Scene(api)
    await scene.writes.write([WORK])
    assert events(told) == ["node_loan_failed"]
    assert len(api.applied_) == 1
    scene.now_s += SILENT_S
    assert not scene.writes.resting


async def test_an_api_server_that_is_silent_keeps_no_look_waiting_for_every_node() -> None:
    api = Api(KubeUnknown("silent"))
    await Scene(api).writes.write([WORK] * 1000)
    assert len(api.applied_) == 1


async def test_a_conflict_with_a_kubelet_is_forced_on_the_node_as_it_was_read() -> None:
    api = Api(CONFLICT, node(OURS), there=node(OURS, "kubelet"))
    await Scene(api).writes.write([WORK])
    assert [call["force"] for call in api.applied_] == [False, True]
    assert api.applied_[1]["body"]["metadata"] == {"resourceVersion": "7"}


async def test_a_conflict_with_another_manager_is_never_forced(told: CapturingLogger) -> None:
    api = Api(CONFLICT, there=node("kubelet", "koord-manager"))
    scene = Scene(api)
    await scene.writes.write([WORK])
    await scene.writes.write([WORK])
    assert not any(call["force"] for call in api.applied_)
    assert scene.ledger.other_on("n") == "koord-manager"
    assert events(told) == ["node_loan_of_another"]


async def test_a_value_that_nobody_owns_is_anothers() -> None:
    api = Api(node(OURS), there=node())
    scene = Scene(api)
    await scene.writes.write([LoanWrite("n", (3500, 10), certain=False)])
    assert api.applied_ == []
    assert scene.ledger.other_on("n") == loan_writes.NOBODY


async def test_a_leader_whose_term_has_ended_writes_nothing(told: CapturingLogger) -> None:
    api = Api(node(OURS))
    await Scene(api, may_act=lambda: False).writes.write([WORK])
    assert api.applied_ == []
    assert events(told) == ["node_loan_failed"]


async def test_taking_away_applies_empty_maps_and_never_nothing() -> None:
    api = Api(msgspec.convert({"metadata": {"name": "n"}}, OwnedNode))
    await Scene(api).writes.write([LoanWrite("n", None, certain=True)])
    assert [call["body"] for call in api.applied_] == [{"status": {"capacity": {}, "allocatable": {}}}]


class Metrics:
    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.asked = asyncio.Event()

    async def read(self, route: str, path: str, *, timeout_s: float) -> bytes:
        if len(self.answers) == 1:
            self.asked.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def followed(api: Metrics) -> PodUses:
    """Until the last answer was asked for."""
    uses = PodUses()
    task = asyncio.create_task(
        follow_pods(
            api, uses, every_s=lambda: 0.0, wanted=lambda: True, clock=lambda: 0.0, wall=lambda: 60.0
        )
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        await api.asked.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return uses


LIST = (
    b'{"items":[{"metadata":{"name":"p","namespace":"d"},"timestamp":"1970-01-01T00:01:00Z",'
    b'"containers":[{"usage":{"cpu":"1","memory":"1"}}]}]}'
)


async def test_before_the_first_word_of_pods_nobody_counts_as_unmeasured() -> None:
    assert not (await followed(Metrics(KubeUnknown("silent"), KubeUnknown("silent")))).answered
    assert (await followed(Metrics(LIST, LIST))).answered
    assert (await followed(Metrics(KubeRejected("not found", status=404)))).answered  # there is none


@pytest.mark.parametrize(
    "error", [*(KubeRejected("no", status=status) for status in (401, 429, 503)), KubeUnknown("?")]
)
async def test_a_server_that_is_busy_is_asked_again_and_told_of_when_it_stays_so(
    error: Exception, told: CapturingLogger
) -> None:
    uses = await followed(Metrics(LIST, error, LIST, *[error] * UNANSWERED, LIST, LIST))
    assert len(uses) == 1
    assert [call.method_name for call in told.calls].count("warning") == 1
    assert "pod_metrics_unserved" not in events(told)


async def test_an_answer_that_is_none_keeps_what_is_known(told: CapturingLogger) -> None:
    uses = await followed(Metrics(LIST, b"<html>", KubeUnknown("silent")))
    assert len(uses) == 1
    assert "pod_metrics_unread" in events(told)


async def test_nodes_are_judged_while_nothing_may_be_written(
    monkeypatch: pytest.MonkeyPatch, told: CapturingLogger
) -> None:
    """Or every rest would cost all windows, and a whole one more before anything is lent."""
    monkeypatch.setattr(loan_writes, "EVERY_S", 0.0)
    scene, written = LendingScene(), list[tuple[float, LoanWrite]]()
    table = SimpleNamespace(row_of={"n": 0}, nodes=[scene.node], generation=[1])
    core = SimpleNamespace(
        state=SimpleNamespace(
            started=True,
            settings=CoreSettings(),
            cache=SimpleNamespace(table=table),
            cluster=SimpleNamespace(index=SimpleNamespace(pods_on=lambda _: [])),
        ),
        variants=SimpleNamespace(used={}),
    )
    uses = PodUses()
    uses.answered = True
    began_s = scene.now_s
    rested, enough = began_s + scene.ledger.rule.window_s + 30, asyncio.Event()

    class Writes:
        @property
        def resting(self) -> bool:
            return scene.now_s < rested

        async def write(self, works: list[LoanWrite]) -> None:
            written.extend((scene.now_s, work) for work in works)
            enough.set()

    def tick() -> None:
        scene.now_s += 5
        scene.uses_of_node(2000, 2e10)
        assert scene.measured is not None
        core.variants.used["n"] = scene.measured

    task = asyncio.create_task(
        loan_writes.keep(
            core, scene.ledger, uses, Writes(), tune=tick, clock=lambda: scene.now_s  # type: ignore[arg-type]
        )
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        await enough.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert written[0] == (rested, LoanWrite("n", (4000, 45 * 10**9), certain=True))
    assert events(told) == ["lending_without_giving_way"]


@pytest.mark.parametrize("alone", [True, False])
def test_that_nodes_lend_and_nobody_gives_back_is_said_once_while_it_lasts(
    told: CapturingLogger, *, alone: bool
) -> None:
    said = False
    for now in (alone, alone, False, alone):
        said = loan_writes._say_alone(alone=now, said=said)
    assert len(told.calls) == 2 * alone
