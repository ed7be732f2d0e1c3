"""Gangs as the binder's tests begin with them, and what became of one."""

from __future__ import annotations

from services.binder.core.instructions import Bind
from services.binder.core.state import BinderCoreSettings
from shared.wire.messages import Outcome, PlacementResult
from tests.unit.services.binder.binder_world import Binder, World, make_world

FOUR = [(f"p{number}", f"n{number % 2}") for number in range(4)]


def four(**settings: int) -> tuple[World, Binder]:
    """Four pods, two nodes with room for all."""
    world = make_world(nodes=2, pods=4, settings=BinderCoreSettings(validate=True, **settings))
    return world, world.start_binder()


def outcomes(binder: Binder, request: int) -> list[Outcome]:
    return [Outcome(result.outcome) for result in binder.answers[request].results]


def results(binder: Binder, request: int) -> list[PlacementResult]:
    return list(binder.answers[request].results)


def bindings(binder: Binder) -> list[str]:
    return [effect.request.name for effect in binder.effects if isinstance(effect, Bind)]
