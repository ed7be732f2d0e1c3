"""A plan as people read it."""

from __future__ import annotations

from collections.abc import Iterator

from services.cli.terminal.tables import count, printable, table
from shared.rebalance.carrying import Carrying, MoveState
from shared.rebalance.plan import Move, MovePlan

MOST_LEFT = 20


def plan_lines(plan: MovePlan, *, dry_run: bool) -> Iterator[str]:
    """What is won, each batch with its moves, what is left out, and why there is no more."""
    yield f"goal {plan.goal}: {plan.unit} {_figure(plan.before)} -> {_figure(plan.after)}{_percent(plan)}"
    if not plan.moves:
        yield "no moves"
    else:
        yield f"{count(len(plan.moves), 'move')} in {count(len(plan.batches), 'batch')}".replace("batchs", "batches")
    for number, batch in enumerate(plan.batches, start=1):
        yield ""
        yield f"batch {number}"
        columns = [
            ("POD", False),
            ("FROM", False),
            ("TO", False),
            ("WINS", True),
            ("DISTURBS", False),
            ("WHY NOW", False),
        ]
        yield from (f"  {line}" for line in table(columns, [_cells(move) for move in batch]))
    if plan.freed:
        yield ""
        yield f"freed: {', '.join(map(printable, plan.freed))}"
    if plan.unblocked:
        yield ""
        yield from (f"room for {printable(key)}: {printable(node)}" for key, node in sorted(plan.unblocked.items()))
    if plan.left_out:
        yield ""
        yield from (
            f"left out: {printable(one.pod)} from {printable(one.source)} to {printable(one.target)}: {one.why}"
            for one in plan.left_out[:MOST_LEFT]
        )
    yield ""
    yield f"stopped: {plan.stopped}"
    if plan.protected:
        yield "stay: " + ", ".join(f"{number} {printable(name)}" for name, number in plan.protected.items())
    yield from (f"note: {printable(note)}" for note in plan.notes)
    if dry_run and plan.moves:
        yield "nothing was moved: leave --dry-run out to carry it out"


def outcome_lines(carrying: Carrying) -> Iterator[str]:
    """What became of each move that was not made, and of all."""
    made = sum(one.state is MoveState.DONE for one in carrying.underway)
    for one in carrying.underway:
        if one.state is MoveState.FAILED:
            yield f"not made: {printable(one.move.key)} to {printable(one.move.target)}: {printable(one.why)}"
    later = sum(one.state is MoveState.WAITING for one in carrying.underway)
    yield f"{made} of {count(len(carrying.underway), 'move')} made" + (f", {later} not begun" if later else "")
    if carrying.stopped:
        yield f"stopped: {printable(carrying.stopped)}"


def _cells(move: Move) -> list[object]:
    return [
        printable(move.key), printable(move.source), printable(move.target), _figure(move.gain),
        printable("; ".join(move.disturbs)), printable(move.why),
    ]  # fmt: skip


def _figure(value: float) -> str:
    return f"{value:.4g}"


def _percent(plan: MovePlan) -> str:
    return f" ({100 * (plan.after / plan.before - 1):+.1f} %)" if plan.before > 0 else ""
